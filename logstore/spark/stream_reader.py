"""A stream: offsets, micro-batches within limits, and how far behind it is.

One object lives on the driver, in a process of its own, for a run of the query; tasks get copies
that only read. What the driver's object remembers only saves work: a replayed batch is planned
from its offsets alone, by an object that has planned nothing before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logstore.client.client import LogClient
from logstore.client.clock import milliseconds_until, seconds_from_now, wall_ns
from logstore.client.refusal import TRANSIENT
from logstore.client.watch import Watch
from logstore.errors import CorruptData, InvariantViolated, LogStoreError, OutOfRange
from logstore.spark.batch_reader import read_rows
from logstore.spark.columns import Field
from logstore.spark.offsets import (
    AT_TIMESTAMP,
    EARLIEST,
    LATEST,
    Offset,
    first_offset,
    parse_offset,
)
from logstore.spark.planning import Bounds, Planner
from logstore.spark.ranges import log_lost
from logstore.spark.read_options import AtTimestamp, ReadOptions

Json = dict[str, Any]

# Spark asks an idle stream for news every 10 ms: a replica waits for some in its place.
IDLE_WAIT_S = 0.2
# Spans that a limit in bytes is made of: a micro-batch has at least 31/32 of it, but for an entry.
LIMIT_PIECES = 32
# How long the replica that is watched may have nothing new before the cluster is asked: it may be
# cut off, or its disk be full, while the others go on. A request to the leader each time.
STILL_S = 10.0


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark calls these by name, on one thread."""

    def __init__(self, options: ReadOptions, fields: Sequence[Field]) -> None:
        self._options = options
        self._fields = fields
        self._watched: tuple[LogClient, Watch] | None = None
        self._look_ns = 0  # when the cluster is asked what the watched replica lacks
        self._is_behind = False  # that one lacked something when the cluster was asked last
        self._target_lsn: int | None = None  # of Trigger.AvailableNow
        self._next_lsn: int | None = None  # where the newest planned batch ends
        self._lost_records = 0  # trimmed before a batch with them was planned, and left out
        self._lost_end = 0  # all of those below are counted: Spark may plan a batch twice

    # --- offsets ---

    def initialOffset(self) -> Json:  # noqa: N802 - Spark's name
        planner = Planner(self._options)
        if not isinstance(self._options.start, AtTimestamp):
            planner.first_lsn(self._options.start, planner.bounds())  # or says what is wrong
        return first_offset(self._options.start, planner.cluster_id).as_json()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802 - Spark's name
        planner = Planner(self._options)
        offset = parse_offset(start, planner.cluster_id)
        if offset.lsn == LATEST:
            # The first batch is empty; its end is what "latest" means from now on.
            self._next_lsn = planner.bounds().visible_lsn + 1
            return Offset(planner.cluster_id, self._next_lsn).as_json()
        bounds = self._wait_for_news(planner, offset)
        first_lsn = _first_lsn(planner, offset, bounds)
        if first_lsn > bounds.visible_lsn:
            self._next_lsn = first_lsn
            return start
        end_lsn, lost = planner.plan_from(
            first_lsn,
            bounds.visible_lsn,
            lambda lsn: self._end_lsn(planner, lsn, bounds.visible_lsn, limit),
            log_start_lsn=bounds.log_start_lsn,
            is_earliest=offset.lsn == EARLIEST,
        )
        self._next_lsn = end_lsn
        begins = lost.stop if offset.is_word else 0
        return Offset(planner.cluster_id, end_lsn, begins=begins).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target_lsn = Planner(self._options).bounds().visible_lsn

    def reportLatestOffset(self) -> Json | None:  # noqa: N802 - Spark's name
        """The end of the log as of now, and how far the newest batch's end is from it."""
        if self._next_lsn is None:
            return None
        planner = Planner(self._options)
        shown_lsn = self._watch(planner).now().visible_lsn
        if self._is_behind:
            shown_lsn = max(shown_lsn, planner.bounds().visible_lsn)
        visible_lsn = max(shown_lsn, self._next_lsn - 1)
        report = Offset(planner.cluster_id, visible_lsn + 1).as_json()
        report["lostRecords"] = self._lost_records
        records = visible_lsn + 1 - self._next_lsn
        size_bytes = milliseconds = 0
        if records:
            try:
                behind = planner.spans(self._next_lsn, visible_lsn, limit=1)
            except (OutOfRange, CorruptData):
                return report  # trimmed or damaged: reading it says so, a report does not
            size_bytes = behind.size_bytes
            milliseconds = max(0, wall_ns() - behind.timestamp_ns) // 1_000_000
        return report | {"lagRecords": records, "lagBytes": size_bytes, "lagMs": milliseconds}

    # --- batches ---

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        first = parse_offset(start, planner.cluster_id)
        until = parse_offset(end, planner.cluster_id)
        last_lsn = until.lsn - 1
        if first.lsn == LATEST:
            return []
        begins = until.begins if first.is_word else 0
        planned, lost = planner.plan_from(
            begins or _first_lsn(planner, first, planner.shown),
            last_lsn,
            lambda lsn: planner.partitions(lsn, last_lsn),
            log_start_lsn=planner.shown.log_start_lsn,
            is_earliest=first.lsn == EARLIEST and not begins,
        )
        log_lost(lost)
        self._lost_records += len(range(max(lost.start, self._lost_end), lost.stop))
        self._lost_end = max(self._lost_end, lost.stop)
        return planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(self._options, self._fields, partition)

    def commit(self, end: Json) -> None:
        """Nothing to forget: the log keeps what it has, whoever has read it."""

    # --- inside ---

    def _wait_for_news(self, planner: Planner, offset: Offset) -> Bounds:
        """The bounds once there is something after the offset, or after IDLE_WAIT_S."""
        watch = self._watch(planner)
        if self._target_lsn is not None:
            return Bounds(planner.shown.log_start_lsn, self._target_lsn)
        shown = watch.wait_beyond(offset.lsn - 1, IDLE_WAIT_S) if offset.lsn > 0 else watch.now()
        bounds = Bounds(shown.log_start_lsn, shown.visible_lsn)
        if isinstance(self._options.replica, int) or 0 < offset.lsn <= shown.visible_lsn:
            self._look_ns, self._is_behind = 0, False
            return bounds
        return self._look_further(planner, bounds)

    def _look_further(self, planner: Planner, bounds: Bounds) -> Bounds:
        """The cluster's bounds, where the watched replica has had nothing new for STILL_S and the
        cluster has; else that one's. Once it is behind, the cluster is asked until it is not."""
        if not self._is_behind:
            self._look_ns = self._look_ns or seconds_from_now(STILL_S)
            if milliseconds_until(self._look_ns):
                return bounds
        self._look_ns = 0
        try:
            found = planner.bounds()
        except LogStoreError as error:
            if error.code not in TRANSIENT:
                raise
            return bounds
        self._is_behind = found.visible_lsn > bounds.visible_lsn
        return found if self._is_behind else bounds

    def _watch(self, planner: Planner) -> Watch:
        if self._watched is None or self._watched[0] is not planner.client:
            replica = self._options.replica
            node = replica if isinstance(replica, int) else None
            self._watched = planner.client, planner.client.watch(replica=node)
        return self._watched[1]

    def _end_lsn(self, planner: Planner, first_lsn: int, visible_lsn: int, limit: ReadLimit) -> int:
        """Where a batch that begins at `first_lsn` ends: the LSN after its last one."""
        end_lsn = visible_lsn + 1
        if first_lsn > visible_lsn:
            return first_lsn  # all that there was to read is trimmed
        match limit:
            case ReadAllAvailable():
                return end_lsn
            case ReadMaxRows(max_rows=records):
                end_lsn = min(end_lsn, first_lsn + records)
            case ReadMaxBytes(max_bytes=size_bytes):
                end_lsn = _end_by_bytes(planner, first_lsn, visible_lsn, size_bytes)
            case _:
                raise InvariantViolated(f"Spark asks for {limit}, which nobody offered")
        if self._options.whole_batches and end_lsn <= visible_lsn:
            end_lsn = planner.whole_batches_end(first_lsn, end_lsn)
        return end_lsn


def _first_lsn(planner: Planner, offset: Offset, bounds: Bounds) -> int:
    """The LSN that an offset stands for; for LATEST there is none."""
    if offset.lsn == EARLIEST:
        return bounds.log_start_lsn
    if offset.lsn == AT_TIMESTAMP:
        return planner.lsn_at(AtTimestamp(offset.timestamp_ns), bounds.visible_lsn)
    return offset.lsn


def _end_by_bytes(planner: Planner, first_lsn: int, visible_lsn: int, size_bytes: int) -> int:
    """The last border of entries within `size_bytes`; where the first entry is larger, of atomic
    batches, of which there is one at least."""
    step = max(1, size_bytes // LIMIT_PIECES)
    spans = planner.spans(first_lsn, visible_lsn, size_bytes=step, limit=2 * LIMIT_PIECES).rows
    if spans and spans[0].size_bytes > size_bytes:
        return planner.batches_end(first_lsn, spans[0].last_lsn, size_bytes)
    end_lsn, taken = first_lsn, 0
    for span in spans:
        taken += span.size_bytes
        if taken > size_bytes:
            break
        end_lsn = span.last_lsn + 1
    return end_lsn
