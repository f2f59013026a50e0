"""A lake, or another cluster's log, appended to a log: every record, in order, each once.

Owns the chunks. A chunk is a range of the source's LSNs that goes through the sink under the
replay's name, with its last LSN as version, so a chunk that comes again changes nothing. Where it
ends is agreed on first, by a named cursor in the target log that is moved there with a compare: two
replays of one name, or one after the crash of another, never disagree about a chunk.

    cursor − 1 = what the sink has       nothing is under way: agree on the next chunk
    cursor − 1 > what the sink has       the chunk in between is agreed: write it, maybe again

Of two at the same time one writes and the other waits: the one that opens the sink's sessions later
fences the other, which then only watches, as long as there is progress. Once there is none for a
while it takes over, and finishes a chunk that is half written.

The cursor's LSN is one of the source. Batches and LSNs of the target are its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import msgspec
from pyspark.sql import DataFrame

from logstore.client.client import LogClient
from logstore.errors import (
    CursorMoved,
    Fenced,
    InvalidRequest,
    OutcomeUnknown,
    OutOfRange,
    WrongCluster,
)
from logstore.limits import MIB
from logstore.spark.columns import PAYLOAD
from logstore.spark.connections import connected
from logstore.spark.data_source import register
from logstore.spark.jobs import StartSpark, own_errors
from logstore.spark.lake import read_manifest
from logstore.spark.lake_manifest import Manifest
from logstore.spark.planning import Planner
from logstore.spark.ranges import lost_records
from logstore.spark.read_options import parse_read_options
from logstore.spark.replay_name import choose_name
from logstore.spark.seam import read_log
from logstore.spark.sink_commit import PARTS_MAX, PARTS_SUFFIX

# What the driver holds, decompressed, a few times over, and about a second of work: little to do
# again.
CHUNK_BYTES = 32 * MIB
# The replay that waits looks every second. A chunk shows progress with each of its parts, but not
# while its rows are read, which takes a second or two. Each time that the other one takes over
# again the wait doubles, so two that are slow do not end each other's work for ever.
PAUSE_S = 1.0
PATIENCE_PAUSES = 10
TAKEOVERS_MAX = 6


class Chunk(msgspec.Struct, frozen=True):
    """LSNs of the source, both included."""

    first_lsn: int
    last_lsn: int


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a replay.

    Attributes:
      lake, source: a lake's folder or another log's endpoints; one of them.
      target: endpoints of the log to append to.
      name: of the session; None: the source cluster's id, of a lake the one archived first.
      first_lsn: where it begins; None: at the source's beginning. It is part of the name: called
        again with another one, this is another replay; without one, it is the same although the
        source has been trimmed meanwhile.
      timeout_s: how long a log may not answer, and an append may take.
    """

    lake: str | None
    source: str | None
    target: str
    name: str | None
    first_lsn: int | None
    timeout_s: float


class Replay:
    """Used by one thread."""

    def __init__(
        self,
        spark: StartSpark,
        options: ReplayOptions,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`pause`: waits so many seconds, while another replay of this name goes on.

        Raises:
        InvalidRequest: not one source, or the source is the target; or as `choose_name`.
        Unreachable: a log does not answer.
        """
        if (options.lake is None) == (options.source is None):
            raise InvalidRequest("give either a lake or the endpoints of another log to replay")
        self._spark = spark
        self._pause = pause
        self._random = Random()
        self._options = options
        self._milliseconds = str(int(options.timeout_s * 1_000))
        self._manifest: Manifest | None = None
        self._source_id = ""
        if options.lake is not None:
            self._manifest = read_manifest(options.lake)
            has = self._manifest.first_lsn
            # The cluster that was archived first stays the first one, whichever adopts the lake.
            files = (each.cluster_id for each in self._manifest.files)
            ids = list(dict.fromkeys((self._manifest.cluster_id, *files)))
            self._last_lsn = self._manifest.next_lsn - 1
        else:
            planner = self._planner()
            self._source_id = planner.cluster_id
            bounds = planner.bounds()
            ids, has = [planner.cluster_id], bounds.log_start_lsn
            self._last_lsn = bounds.visible_lsn
        target = connected(options.target, timeout_s=options.timeout_s)
        admin = target.client.admin
        self.name, self.first_lsn = choose_name(
            [options.name] if options.name else ids,
            has_lsn=has,
            wanted_lsn=options.first_lsn,
            is_begun=lambda name: admin.session_commits(name) is not None,
            cursors=[each.name for each in admin.cursors()],
        )
        if target.cluster_id in self._source_ids(ids):
            raise InvalidRequest(f"{options.target} is the log that would be replayed into itself")

    def _source_ids(self, ids: list[str]) -> set[str]:
        """The clusters that wrote what is to be replayed."""
        if self._manifest is None:
            return set(ids)
        files = self._manifest.overlapping(self.first_lsn, self._last_lsn)
        return {self._manifest.newest_cluster_id, *(each.cluster_id for each in files)}

    @property
    def last_lsn(self) -> int:
        """Of the source, when this began."""
        return self._last_lsn

    def done_lsn(self) -> int:
        """The last LSN of the source that the target has; below `first_lsn`: none yet."""
        commits = self._client().admin.session_commits(self.name)
        if commits is None or not commits.next_sequence:
            return self.first_lsn - 1
        return commits.next_sequence - 1

    def pending_bytes(self, last_lsn: int) -> int:
        """About how much of the source is still to come."""
        first_lsn = self.done_lsn() + 1
        if first_lsn > last_lsn:
            return 0
        if self._manifest is None:
            return self._planner().spans(first_lsn, last_lsn, limit=1).size_bytes
        return sum(file.batch_bytes for file in self._manifest.overlapping(first_lsn, last_lsn))

    def chunks(self, last_lsn: int) -> Iterator[Chunk]:
        """Append up to `last_lsn` of the source; each chunk that this replay has written, once it
        is committed.

        Raises:
          OutOfRange: the source does not have what comes next.
          CursorMoved: the replay's cursor is where no replay has put it.
          CorruptData: the lake is damaged where the next chunk lies; nothing of it was written.
          WrongCluster: another cluster answers at the source by now.
          Fenced: another client opens the sessions of this name, again and again, and writes
            nothing.
          LogStoreError: the source or the target cannot be reached; begin again.
        """
        before = 0
        patience = PATIENCE_PAUSES
        while True:
            # The cursor is read first, so that `done` is never older than it.
            cursor_lsn = self._cursor_lsn()
            done = self.done_lsn()
            if done >= last_lsn:
                return
            if cursor_lsn and cursor_lsn <= done:
                if cursor_lsn == before:
                    raise CursorMoved(
                        f"cursor {self.name!r} of {self._options.target} stands at LSN "
                        f"{cursor_lsn}, and LSN {done} is replayed: somebody has moved it; "
                        "delete it to go on",
                        lsn=cursor_lsn,
                    )
                before = cursor_lsn  # another replay of this name may just have gone on
            elif cursor_lsn in (0, done + 1):
                self._agree(cursor_lsn, self._begun(done) or self._choose(done + 1, last_lsn))
            else:
                chunk = Chunk(done + 1, cursor_lsn - 1)
                try:
                    self._append(chunk)
                except Fenced:
                    if patience >= PATIENCE_PAUSES << TAKEOVERS_MAX:
                        raise
                    has_gone_on = self._stand_by(last_lsn, patience)
                    patience = PATIENCE_PAUSES if has_gone_on else 2 * patience
                else:
                    yield chunk

    # --- inside ---

    def _stand_by(self, last_lsn: int, patience: int) -> bool:
        """Return once the other replay is through, or shows no progress for `patience` pauses, a
        few more or less; whether it has shown any."""
        seen, still, has_gone_on = self._progress(), 0, False
        # Two that were fenced by each other at the same time shall not take over at the same time.
        patience += self._random.randrange(patience)
        while still < patience and self.done_lsn() < last_lsn:
            self._pause(PAUSE_S)
            now = self._progress()
            still = still + 1 if now == seen else 0
            has_gone_on = has_gone_on or now != seen
            seen = now
        return has_gone_on

    def _progress(self) -> tuple[int, int]:
        """Chunks and parts that are in the target; both only ever rise."""
        parts = self._client().admin.session_commits(self.name + PARTS_SUFFIX)
        return self.done_lsn(), 0 if parts is None else parts.next_sequence

    def _cursor_lsn(self) -> int:
        cursors = self._client().admin.cursors()
        return next((each.lsn for each in cursors if each.name == self.name), 0)

    def _agree(self, expected_lsn: int, last_lsn: int) -> None:
        """The next chunk ends at `last_lsn`, unless somebody was quicker: the cursor tells."""
        with suppress(CursorMoved, OutcomeUnknown):
            self._client().admin.set_cursor(self.name, last_lsn + 1, expected_lsn=expected_lsn)

    def _begun(self, done: int) -> int:
        """Where a chunk ends that has parts in the target already: somebody has deleted the cursor
        that said so. 0: there is none."""
        parts = self._client().admin.session_commits(self.name + PARTS_SUFFIX)
        last_lsn = 0 if parts is None else (parts.next_sequence - 1) // PARTS_MAX
        return last_lsn if last_lsn > done else 0

    def _choose(self, first_lsn: int, last_lsn: int) -> int:
        """Where a chunk of about CHUNK_BYTES ends that begins at `first_lsn`.

        Raises:
          OutOfRange: the source does not have `first_lsn`.
          NotReady: it does not show it yet.
        """
        if self._manifest is None:
            planner = self._planner()
            if first_lsn < planner.shown.log_start_lsn:
                raise lost_records(first_lsn, last_lsn, planner.shown.log_start_lsn)
            spans = planner.some_spans(first_lsn, last_lsn, size_bytes=CHUNK_BYTES, limit=1)
            return planner.payloads_end(first_lsn, spans[0].last_lsn, CHUNK_BYTES)
        for file in self._manifest.overlapping(first_lsn, first_lsn):
            # Of compressed batches the payloads are more than what the log stores.
            size_bytes = max(file.batch_bytes, file.payload_bytes)
            records = max(1, CHUNK_BYTES * file.payloads // size_bytes)
            return min(first_lsn + records - 1, file.last_lsn, last_lsn)
        raise OutOfRange(
            f"LSN {first_lsn} is not in the lake, which has LSNs {self._manifest.first_lsn} to "
            f"{self._last_lsn}",
            first=self._manifest.first_lsn,
            last=self._last_lsn,
        )

    def _append(self, chunk: Chunk) -> None:
        """The same rows in the same order whenever it is called, which is what parts rest on; and
        all of them, or none: without any the replay would come to the same chunk for ever."""
        if self._manifest is None:
            self._planner()
        register(self._spark())
        sink = self._rows(chunk).write.format("logstore").option("endpoints", self._options.target)
        sink = sink.option("txnAppId", self.name).option("txnVersion", chunk.last_lsn)
        sink = sink.option("commitTimeoutMs", self._milliseconds).option("atomic", "false")
        sink = sink.option("expectedRows", chunk.last_lsn - chunk.first_lsn + 1)
        with own_errors():
            sink.mode("append").save()

    def _rows(self, chunk: Chunk) -> DataFrame:
        return read_log(
            self._spark(),
            lake=self._options.lake,
            endpoints=self._options.source,
            first_lsn=chunk.first_lsn,
            last_lsn=chunk.last_lsn,
            columns=[PAYLOAD],
            fetchTimeoutMs=self._milliseconds,
        )

    def _planner(self) -> Planner:
        given = {"endpoints": self._options.source or "", "fetchTimeoutMs": self._milliseconds}
        planner = Planner(parse_read_options(given, is_streaming=False))
        if self._source_id and planner.cluster_id != self._source_id:
            raise WrongCluster(
                f"cluster {planner.cluster_id} answers at {self._options.source} by now; "
                f"{self._source_id} did when this replay began: nothing of it is appended"
            )
        return planner

    def _client(self) -> LogClient:
        return connected(self._options.target, timeout_s=self._options.timeout_s).client
