"""Rebuilding the session table when admission opens, a slice at a time (SAFETY E5).

Owns the walk over the log: the newest whole SESSION snapshot, then every entry after it up to the
Admit's last index, uncommitted tail included. It starts once WRITTEN has reached the Admit's
persist sequence, because only then do the files hold what raft has accepted. Must not know
proposals or clients.

A snapshot is whole if its last part is in the log: a leader proposes the parts in order, and a log
holds a prefix of what it proposes (E3). The search goes back from one SESSION entry to the one
before. It skips all parts of a snapshot without a last part in one step; there is at most one such
snapshot for each change of leader since the newest whole one.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from actors.host import Clock
from actors.ingress.snapshots import SinceSnapshot
from actors.ingress.sockets_and_rings import Log
from actors.topology import Counter
from logstore.errors import CorruptData, FormatError, InvariantViolated
from logstore.format.meta import NO_START, LogStart
from logstore.format.raft_record import RaftRecord
from logstore.format.session_snapshot import PartHead, read_part_head
from logstore.format.trim_entry import decode_trim
from logstore.limits import REBUILD_SLICE_NS
from logstore.model import NO_INDEX, EntryKind, Index, Lsn
from logstore.raft.effects import Admit
from logstore.session.fold import FOLDED_KINDS, Fold
from logstore.session.table import SessionTable
from logstore.storage.damaged_lsns import UNKNOWN_LSNS, damaged_lsns
from logstore.storage.log_reader import BelowLogStart

_log = logging.getLogger(__name__)

# Later there may be some: strangers that took a descriptor each lose it again.
_LACKS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class Rebuild:
    """The walk for one gen. `table` is complete once `step` has returned True."""

    def __init__(
        self,
        admit: Admit,
        table: SessionTable,
        *,
        open_log: Callable[[], Log],
        clock: Clock,
        slots: memoryview,
    ) -> None:
        self.admit = admit
        self.table = table
        self.next_index = NO_INDEX
        self.next_lsn = Lsn(0)  # after the entries walked over
        self.timestamp_ns = 0  # of the newest of them
        self.snapshot_parts = 0  # of the one that the walk began at
        self.snapshot_index = NO_INDEX  # of its first part
        self.trimmed = NO_START  # all up to it is given up, here or soon
        self.passed_over = 0  # snapshots without an end, newer than that one
        self.since = SinceSnapshot()
        self._open_log = open_log
        self._clock = clock
        self._slots = slots
        self._fold = Fold(table)
        self._log: Log | None = None
        self._generation = 0
        self._search_last = admit.last_index
        self._sought: PartHead | None = None  # the last part of the snapshot whose first is sought
        self._is_searching = True
        self._chain: int | None = None
        self._has_waited = False  # for descriptors

    def step(self) -> bool:
        """Fold entries for 2 ms, and the one that is begun; True when nothing is left. Where no
        descriptor is left for a file, nothing is done: another step tries again.

        Raises:
          CorruptData: the entry at `next_index` is damaged on this disk, or the log was truncated
            meanwhile; another step shows which.
        """
        try:
            return self._step()
        except OSError as error:
            if error.errno not in _LACKS:
                raise
            if not self._has_waited:
                self._has_waited = True
                _log.error("admission waits, the log cannot be read now: %s", error.strerror)
            return False

    def _step(self) -> bool:
        if self._slots[Counter.WRITTEN] < self.admit.persist_seq:
            return False
        log = self._opened_log()
        deadline_ns = self._clock.monotonic_ns() + REBUILD_SLICE_NS
        while self._is_searching:
            self._search(log)
            if self._clock.monotonic_ns() >= deadline_ns:
                return False
        while self.next_index <= self.admit.last_index:
            self._fold_entry(log, self.next_index)
            self.next_index = Index(self.next_index + 1)
            if self._clock.monotonic_ns() >= deadline_ns:
                break
        if self.next_index <= self.admit.last_index:
            return False
        if self.snapshot_parts and not self._fold.snapshots:
            raise InvariantViolated(f"the parts of snapshot {self._sought} do not make one")
        if log.start.index and not self.snapshot_parts:  # a TRIM never reaches above one (G1)
            raise InvariantViolated(f"the log starts after {log.start} and has no snapshot")
        self.trimmed = self._newest_trim(log)
        return True

    def _newest_trim(self, log: Log) -> LogStart:
        """The log start by the newest TRIM of the log, which may not have acted here yet."""
        try:
            if self.admit.trim > log.start.index:
                trim = decode_trim(log.read_body(self.admit.trim))
                return max(log.start, trim.start, key=lambda start: start.index)
        except (CorruptData, FormatError, BelowLogStart):
            pass  # the next one says it, or it acts just now
        return log.start

    def _opened_log(self) -> Log:
        """The log's files, without those that were removed: an open file keeps its space."""
        generation = self._slots[Counter.MAP_GENERATION]
        log = self._log
        if log is None:
            log = self._log = self._open_log()
        elif generation != self._generation:
            log.refresh()
        self._generation = generation
        return log

    @property
    def progress(self) -> tuple[Index, Index]:
        """A value that every step changes that did something."""
        return self._search_last, self.next_index

    def _search(self, log: Log) -> None:
        """Look at one SESSION entry further back: where does the newest whole snapshot begin?

        Raises:
          CorruptData: the entry at `next_index` is damaged, or a segment is gone.
        """
        if self._sought is not None:
            self._search_first_part(log, self._sought)
            return
        try:
            index = log.newest_of_kind(EntryKind.SESSION, self._search_last)
        except CorruptData:
            self.close()  # a segment was deleted meanwhile: the next step opens the log again
            raise
        if index is None:
            self._begin_at(Index(log.start.index + 1))
            return
        self.next_index = index
        head = read_part_head(log.read_body(index))
        if head.is_last:
            self._sought = head
            self._search_last = Index(index - head.part)
        else:
            self.passed_over += 1
            self._search_last = Index(max(0, index - head.part - 1))

    def _search_first_part(self, log: Log, sought: PartHead) -> None:
        """Look whether the entry at `_search_last` is the first part. Raft may have put entries of
        its own between the parts; then it is further back. A damaged entry is not skipped."""
        index = self.next_index = self._search_last
        if index <= log.start.index:
            # A TRIM took the first part, so a newer snapshot is damaged here: the walk meets it.
            self._begin_at(Index(log.start.index + 1))
            return
        if log.row(index).header.kind != EntryKind.SESSION:
            self._search_last = Index(index - 1)
            return
        head = read_part_head(log.read_body(index))
        if (head.term, head.number) != (sought.term, sought.number):
            raise InvariantViolated(f"snapshot {sought} has no first part, entry {index} is {head}")
        self._search_last = Index(index - head.part)
        if not head.part:
            self.snapshot_parts, self.snapshot_index = sought.part + 1, index
            self._begin_at(index)

    def _begin_at(self, index: Index) -> None:
        self.next_index = index
        self._is_searching = False

    def damaged_lsns(self) -> tuple[Lsn, Lsn]:
        """[first, last] LSN of the entry that the walk stopped at, as far as others show it."""
        if self._log is None:
            return UNKNOWN_LSNS
        try:
            return damaged_lsns(self._log, self.next_index, self.next_index)
        except OSError:  # no descriptor is left, say
            return UNKNOWN_LSNS

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _fold_entry(self, log: Log, index: Index) -> None:
        record = log.record(index)
        header = record.header
        if self._chain not in (None, header.prev_chain):
            raise CorruptData(
                f"the log at index {index}",
                0,
                expected=f"a previous chain of {self._chain:#x}",
                got=f"{header.prev_chain:#x}",
            )
        self._fold_record(log, record)
        self._chain = record.chain

    def _fold_record(self, log: Log, record: RaftRecord) -> None:
        """Imports are not read, since they belong to no session. Their bytes count towards the next
        snapshot all the same: it spares the next rebuild the walk over them."""
        header = record.header
        is_folded = header.kind in FOLDED_KINDS and self._has_beginning(log)
        body = log.body_of(record) if is_folded else b""  # else it is tried again: before it counts
        since = self.since
        since.entries += 1
        self.next_lsn = header.next_lsn
        self.timestamp_ns = header.timestamp_ns
        since.size_bytes += header.body_size
        if not is_folded:
            return
        index, fold = header.index, self._fold
        snapshots = fold.snapshots
        since.batches += fold.apply(
            header.kind,
            index,
            header.first_lsn,
            body,
            timestamp_ns=header.timestamp_ns,
        )
        if fold.snapshots > snapshots:
            self.since = SinceSnapshot()

    def _has_beginning(self, log: Log) -> bool:
        """Whether the walk began where a table can. A log that was trimmed has a snapshot (G1):
        where the search finds none, its record is damaged, and what comes before it follows from no
        table. The walk then only reads on, up to the damage."""
        return self.snapshot_parts > 0 or log.start.index == NO_INDEX
