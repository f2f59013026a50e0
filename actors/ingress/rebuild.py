"""Rebuilding the session table when admission opens, a slice at a time (SAFETY E5).

Owns the walk over the log: the newest SESSION entry, then every entry after it up to the Admit's
last index, uncommitted tail included. It starts once WRITTEN has reached the Admit's persist
sequence, so that the files hold what raft has accepted. Must not know proposals or clients.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.host import Clock
from actors.ingress.ports import Log
from actors.topology import Counter
from logstore.errors import CorruptData
from logstore.format.entry import EntryHeader
from logstore.limits import REBUILD_SLICE_NS
from logstore.model import NO_INDEX, EntryKind, Index, Lsn
from logstore.raft.effects import Admit
from logstore.session.fold import FOLDED_KINDS, fold_entry
from logstore.session.table import SessionTable
from logstore.storage.damaged_lsns import UNKNOWN_LSNS, damaged_lsns


class Rebuild:
    """One opening's walk. `table` is complete once `step` has returned True."""

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
        self.next_lsn = Lsn(0)  # behind the entries walked over
        self.began_at_snapshot = False
        self.batches = 0
        self.body_bytes = 0
        self._open_log = open_log
        self._clock = clock
        self._slots = slots
        self._log: Log | None = None
        self._chain: int | None = None

    def step(self) -> bool:
        """Fold for at most 2 ms and one entry; True when nothing is left.

        Raises:
          CorruptData: the entry at `next_index` is damaged on this disk, or the log was truncated
            under the walk, which another step tells apart.
        """
        if self._slots[Counter.WRITTEN] < self.admit.persist_seq:
            return False
        if self._log is None:
            self._begin(self._open_log())
        deadline_ns = self._clock.monotonic_ns() + REBUILD_SLICE_NS
        log = self._log
        while log is not None and self.next_index <= self.admit.last_index:
            self._fold(log, self.next_index)
            self.next_index = Index(self.next_index + 1)
            if self._clock.monotonic_ns() >= deadline_ns:
                break
        return self.next_index > self.admit.last_index

    def _begin(self, log: Log) -> None:
        """Find where the walk begins; without that there is no walk."""
        try:
            newest = log.newest_of_kind(EntryKind.SESSION, self.admit.last_index)
        except CorruptData:
            log.close()
            raise
        self.began_at_snapshot = bool(newest)
        self.next_index = newest or Index(log.start.index + 1)
        self._log = log

    def damaged_lsns(self) -> tuple[Lsn, Lsn]:
        """Of the entry that the walk stopped at, as far as its neighbours say."""
        if self._log is None:
            return UNKNOWN_LSNS
        return damaged_lsns(self._log, self.next_index, self.next_index)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _fold(self, log: Log, index: Index) -> None:
        row = log.row(index)
        header = row.header
        if self._chain not in (None, header.prev_chain):
            raise CorruptData(
                f"the log at index {index}",
                0,
                expected=f"a previous chain of {self._chain:#x}",
                got=f"{header.prev_chain:#x}",
            )
        self._fold_row(log, header)
        self._chain = row.chain

    def _fold_row(self, log: Log, header: EntryHeader) -> None:
        """Imports are not read: they belong to no session. They count, so that a snapshot comes in
        time to spare the next walk."""
        self.next_lsn = header.next_lsn
        if header.kind == EntryKind.SESSION:
            self.batches = self.body_bytes = 0
        self.body_bytes += header.body_size
        if header.kind not in FOLDED_KINDS:
            return
        index = header.index
        body = log.read_body(index)
        self.batches += fold_entry(self.table, header.kind, index, header.first_lsn, body)
