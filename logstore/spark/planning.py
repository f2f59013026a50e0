"""What a query reads: bounds of the log, resolved starts and ends, splits. Runs on the driver.

Owns the questions to the cluster that are asked before any task runs. Reads one batch at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from logstore.client.core.spans import Span, Spans
from logstore.client.core.start import AtTime
from logstore.errors import ConfigError, LogStoreError, NotReady, OutOfRange, Unreachable
from logstore.limits import FETCH_MAX_BYTES, NODES_MAX, POSITION_MAX
from logstore.spark.connections import connected
from logstore.spark.ranges import (
    LEADER_WAIT_S,
    LsnPartition,
    replica_order,
    try_leader,
    without_lost,
)
from logstore.spark.read_options import AtLsn, AtTimestamp, Earliest, Latest, ReadOptions, Start
from logstore.spark.splits import Split, make_splits, step_bytes

_T = TypeVar("_T")


class Bounds(msgspec.Struct, frozen=True):
    """What can be read: [log_start_lsn, visible_lsn], empty if visible is below start."""

    log_start_lsn: int
    visible_lsn: int


class Planner:
    """Plans reads of one cluster; made anew for each plan.

    Attributes:
      shown: what the first replica that answered serves; another may show more.

    Raises, as its methods do:
      Unreachable: no replica answered within fetchTimeoutMs.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        try:
            found = connected(options.endpoints, timeout_s=options.fetch_timeout_s)
        except Unreachable as error:
            raise Unreachable(
                f"{error} (option endpoints: {options.endpoints}; waited fetchTimeoutMs = "
                f"{options.fetch_timeout_ms})"
            ) from None  # Spark prints every traceback there is, before the words
        self.client = found.client
        self.cluster_id = found.cluster_id
        self.shown = Bounds(found.shown.log_start_lsn, found.shown.visible_lsn)
        self._leader = -1
        self._endpoints = ""

    @property
    def endpoints(self) -> str:
        """Of the members now, for workers that have no client yet; as many as one may be given."""
        if not self._endpoints:
            nodes = list(self.client.nodes().values())[:NODES_MAX]
            self._endpoints = ",".join(map(str, nodes))
        return self._endpoints

    @property
    def leader(self) -> int:
        """Node id, asked for once; 0: nobody leads now."""
        if self._leader < 0:
            self._leader = try_leader(self.client)
        return self._leader

    def bounds(self) -> Bounds:
        """The bounds of the log: what a majority confirms as committed, or, without a leader, the
        most that any replica shows. Of a replica by node id: what that one shows."""
        replica = self._options.replica
        if isinstance(replica, int):
            replica_order(self.client, replica, number=0, leader=0)  # or says that there is none
            shown = self.client.admin.watermarks(replica=replica)
            return Bounds(shown.log_start_lsn, shown.visible_lsn)
        try:
            wait_s = None if replica == "leader" else LEADER_WAIT_S
            return Bounds(self.shown.log_start_lsn, self.client.admin.commit_lsn(timeout=wait_s))
        except LogStoreError:
            if replica == "leader":
                raise
        status = self.client.admin.status()
        return Bounds(max(self.shown.log_start_lsn, status["log_start_lsn"]), status["commit_lsn"])

    def lsn_at(self, time: AtTimestamp, shown_lsn: int) -> int:
        """The first LSN that is not older than `time`; the next one to come if there is none. Of a
        replica that shows `shown_lsn`: one that does not may name the LSN after its own last one,
        which is too early. A new leader may not, for a moment.

        Raises:
          Unreachable: it did not show that in time.
        """
        node = self._options.replica
        if not isinstance(node, int):
            node = self.leader or self._furthest()
            self.client.admin.watermarks(replica=node, min_lsn=shown_lsn)
        return self.client.admin.lsn_at(AtTime(time.timestamp_ns), replica=node)

    def _furthest(self) -> int:
        """Node id of the replica that shows most."""
        rows = self.client.admin.status()["nodes"]
        return int(max(rows, key=lambda row: int(row.get("visible_lsn", 0)))["node"])

    def first_lsn(self, start: Start, bounds: Bounds) -> int:
        """The LSN that a start stands for now.

        Raises:
          ConfigError: a given LSN is more than one above what can be read.
        """
        match start:
            case AtLsn(lsn=lsn):
                if lsn > bounds.visible_lsn + 1:
                    raise ConfigError(
                        f"option startingLsn: {lsn} is above the end of the log, LSN "
                        f"{bounds.visible_lsn}: give at most {bounds.visible_lsn + 1}"
                    )
                return lsn
            case AtTimestamp():
                return self.lsn_at(start, bounds.visible_lsn)
            case Earliest():
                return bounds.log_start_lsn
            case Latest():
                return bounds.visible_lsn + 1

    def last_lsn(self, end: AtLsn | AtTimestamp | None, bounds: Bounds) -> int:
        """The last LSN of a batch read.

        Raises:
          ConfigError: a given LSN is above what can be read.
        """
        match end:
            case AtLsn(lsn=lsn):
                if lsn > bounds.visible_lsn:
                    raise ConfigError(
                        f"option endingLsn: {lsn} is above the end of the log, LSN "
                        f"{bounds.visible_lsn}: give at most that, or leave it out"
                    )
                return lsn
            case AtTimestamp():
                end_lsn = self.lsn_at(end, bounds.visible_lsn)
                return min(end_lsn - 1, bounds.visible_lsn)
            case None:
                return bounds.visible_lsn

    def plan_from(
        self,
        first_lsn: int,
        last_lsn: int,
        plan: Callable[[int], _T],
        *,
        log_start_lsn: int,
        is_earliest: bool,
    ) -> tuple[_T, range]:
        """`plan` of the LSN at which reading [first_lsn, last_lsn] begins, above `last_lsn` if all
        of it is gone; and the LSNs that are left out. Where the log start rises meanwhile, `plan`
        of the new one.

        Args:
          log_start_lsn: as far as it is known by now.
          is_earliest: `first_lsn` means the log start, so that nothing below it was asked for.

        Raises:
          OutOfRange: what was trimmed may not be left out; or none of it may be read yet.
        """
        while True:
            if is_earliest:
                first_lsn = max(first_lsn, log_start_lsn)
            next_lsn = without_lost(self._options, first_lsn, last_lsn, log_start_lsn)
            try:
                return plan(next_lsn), range(first_lsn, next_lsn)
            except OutOfRange as bounds:
                if bounds.first <= next_lsn:
                    raise
                log_start_lsn = bounds.first

    def whole_batches_end(self, first_lsn: int, end_lsn: int) -> int:
        """The last border of an atomic batch at or below `end_lsn` that is above `first_lsn`; the
        first one above, if there is none. Borders are first LSNs; `end_lsn` is visible."""
        for batch in self.client.read(end_lsn, end_lsn, min_lsn=end_lsn):
            if batch.batch_first_lsn > first_lsn:
                return batch.batch_first_lsn
            return batch.batch_first_lsn + batch.batch.count
        return end_lsn

    def batches_end(self, first_lsn: int, last_lsn: int, size_bytes: int) -> int:
        """The LSN after the atomic batches from `first_lsn` on that are within `size_bytes`; after
        the first one, if that is larger. Reads them."""
        max_bytes = min(size_bytes, FETCH_MAX_BYTES)
        end_lsn, taken = first_lsn, 0
        with self.client.reader(max_bytes=max_bytes) as reader:
            for batch in reader.read(first_lsn, last_lsn, min_lsn=last_lsn):
                taken += batch.batch.size
                if taken > size_bytes and end_lsn > first_lsn:
                    break
                end_lsn = batch.last_lsn + 1
        return end_lsn

    def payloads_end(self, first_lsn: int, last_lsn: int, size_bytes: int) -> int:
        """The last LSN of the batches from `first_lsn` on whose payloads, decompressed, come to
        `size_bytes`; `last_lsn` if they do not. Reads them, unless the batches at both ends are not
        compressed: then those between are taken not to be, either. The leader's, for a follower
        that lags would be waited for."""
        replica = self._options.replica
        node = replica if isinstance(replica, int) else self.leader or None
        with self.client.reader(replica=node) as reader:
            ends = sorted({first_lsn, last_lsn})
            found = [batch for lsn in ends for batch in reader.read(lsn, lsn, min_lsn=lsn)]
            if not any(batch.batch.codec for batch in found):
                return last_lsn
            taken = 0
            for batch in reader.read(first_lsn, last_lsn, min_lsn=last_lsn):
                taken += batch.payload_bytes
                if taken >= size_bytes:
                    return batch.last_lsn
        return last_lsn

    def partitions(self, first_lsn: int, last_lsn: int) -> list[LsnPartition]:
        """The tasks that read [first_lsn, last_lsn], balanced by bytes; none for an empty range."""
        if first_lsn > last_lsn:
            return []
        options = self._options
        # Checks the replica option now, before any task runs.
        replica_order(self.client, options.replica, number=0, leader=self.leader)
        splits = make_splits(
            self._spans(first_lsn, last_lsn).rows,
            last_lsn=last_lsn,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
        ) or [Split(first_lsn, last_lsn, 0)]
        return [
            LsnPartition(
                first_lsn=split.first_lsn,
                last_lsn=split.last_lsn,
                number=number,
                leader=self.leader,
                cluster_id=self.cluster_id,
                endpoints=self.endpoints,
            )
            for number, split in enumerate(splits)
        ]

    def spans(
        self, first_lsn: int, last_lsn: int, *, size_bytes: int = POSITION_MAX, limit: int
    ) -> Spans:
        """Spans from a replica that has them, if any does; without rows if it shows no LSN of the
        range yet."""
        replica = self._options.replica
        node = replica if isinstance(replica, int) else None
        ask = partial(
            self.client.admin.spans, first_lsn, last_lsn, step_bytes=size_bytes, limit=limit
        )
        try:
            found = ask(replica=node)
            if found.rows or node is not None or not self.leader:
                return found
        except OutOfRange:
            if node is not None or not self.leader:
                raise
        # The replica asked lags: the leader does not. One that ends right before the range answers
        # without rows.
        return ask(replica=self.leader)

    def some_spans(
        self, first_lsn: int, last_lsn: int, *, size_bytes: int, limit: int
    ) -> Sequence[Span]:
        """Spans as above, one at least.

        Raises:
          NotReady: no replica that was asked shows `first_lsn`.
        """
        found = self.spans(first_lsn, last_lsn, size_bytes=size_bytes, limit=limit)
        if not found.rows:
            raise NotReady(
                f"the replica that was asked does not show LSN {first_lsn} yet: begin again when "
                "it has caught up"
            )
        return found.rows

    def _spans(self, first_lsn: int, last_lsn: int) -> Spans:
        whole = self.spans(first_lsn, last_lsn, limit=1)
        step = step_bytes(whole.size_bytes, self._options.min_partitions)
        if step >= whole.size_bytes:
            return whole
        count = -(-whole.size_bytes // step) + 1
        return self.spans(first_lsn, last_lsn, size_bytes=step, limit=count)
