"""When a SESSION snapshot is due, and writing it part by part (SAFETY E6).

Owns what counts towards the next one, which is what a rebuild would read after the newest; the one
that is being written; and where the newest one that is committed begins: no TRIM may reach above it
(G1). From the moment one is due until its last part is in the stream nothing may change the table:
no batch is read, no session opened or ended, no cursor moved. Must not know raft or clients.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from actors.ingress.groups import Group
from logstore import limits
from logstore.errors import InvalidRequest
from logstore.model import NO_INDEX, Index, Term
from logstore.raft.space import most_bytes
from logstore.session.fold import snapshot_bound, snapshot_parts
from logstore.session.table import SessionTable

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SinceSnapshot:
    """What the log has after the newest whole snapshot. `batches` counts OPENs, EXPIREs and changes
    of cursors, too."""

    entries: int = 0
    batches: int = 0
    size_bytes: int = 0


class Snapshots:
    """The snapshots of one replica; `forget` is called when a gen ends."""

    def __init__(self, *, every_entries: int, every_batches: int, part_max_bytes: int) -> None:
        self._every_entries = every_entries
        self._every_batches = every_batches
        self._part_max_bytes = part_max_bytes
        self._number = 0  # of the newest one begun here
        self._rows = 0  # of the newest one, or of the table that the gen began with
        self._since = SinceSnapshot()
        self.committed_index = NO_INDEX  # first part of the newest whole one; NO_INDEX: none
        self._first: Group | None = None  # the first part of the one under way
        self._proposed: deque[tuple[Group, Group]] = deque()  # first and last parts of whole ones
        self._parts: Iterator[bytes] | None = None  # of the one under way
        self._next_part: bytes | None = None
        self._is_wanted = False
        self._is_postponed = False  # the newest one could not be encoded
        self.takes_batches = True  # the gen does; else disks are full, and only TRIMs need any (S9)

    @property
    def is_due(self) -> bool:
        since = self._since
        is_late = (
            since.entries >= max(self._every_entries, self._rows)
            or since.batches >= self._every_batches
            or since.size_bytes >= limits.SNAPSHOT_EVERY_BYTES
        )
        return self._is_wanted or self.is_under_way or (is_late and self.takes_batches)

    def want(self) -> bool:
        """One is due now, because the newest committed one keeps the log start from moving (G1).
        False: another one is on its way to be committed, or would say the same as the newest."""
        has_news = bool(self._since.size_bytes) or self._is_postponed
        self._is_wanted = has_news and not (self._proposed or self.is_under_way)
        return self._is_wanted

    def most_bytes(self, table: SessionTable) -> int:
        """What one takes of segments at most if it is wanted now; 0: another one is on its way."""
        if self._is_wanted or self._proposed or self.is_under_way:
            return 0
        parts, size_bytes = snapshot_bound(table, part_max_bytes=self._part_max_bytes)
        return size_bytes + parts * most_bytes(0)

    @property
    def is_under_way(self) -> bool:
        """The first part of one is in the stream, and the last one is not."""
        return self._parts is not None

    def begin_at(self, table: SessionTable, since: SinceSnapshot, *, snapshot: Index) -> None:
        """A gen begins, and the log has so much after the newest whole snapshot, whose first part
        is at `snapshot`. It counts as committed: nobody asks before all of that log is."""
        self._rows = table.row_count
        self._since = since
        self.committed_index = snapshot

    def count(self, size_bytes: int) -> None:
        """Count a batch, an OPEN, an EXPIRE or a change of a cursor. Hot."""
        self._since.batches += 1
        self._since.size_bytes += size_bytes

    def count_entries(self, count: int) -> None:
        """Count entries that are proposed. Hot."""
        self._since.entries += count

    def next_part(self, table: SessionTable, term: Term) -> bytes | None:
        """The next part for the stream; None: the snapshot cannot be encoded, and is postponed.

        That would be a bug. It must not end every leader at the same entry, so the log goes on
        without the snapshot, and each rebuild takes longer.
        """
        if self._parts is None:
            self._number += 1
            self._rows = table.row_count
            self._parts = snapshot_parts(
                table,
                term=term,
                number=self._number,
                part_max_bytes=self._part_max_bytes,
            )
        try:
            part = next(self._parts) if self._next_part is None else self._next_part
            self._next_part = next(self._parts, None)
        except InvalidRequest as error:
            _log.error("no snapshot of the session table is taken: %s", error)
            self._first = None
            self._end()
            self._is_postponed = True
            return None
        if self._next_part is None:
            self._end()
        return part

    def proposed(self, part: Group) -> None:
        """The part that `next_part` gave is in the stream."""
        if self._first is None:
            self._first = part
        if not self.is_under_way:
            self._proposed.append((self._first, part))
            self._first = None

    def committed(self, index: Index) -> None:
        """Everything of this gen is committed up to `index`."""
        while self._proposed and NO_INDEX < self._proposed[0][1].index <= index:
            self.committed_index = self._proposed.popleft()[0].index

    def forget(self) -> None:
        """The gen ended: a snapshot under way has no last part, and no rebuild will use it."""
        self._first = None
        self._proposed.clear()
        self._end()

    def _end(self) -> None:
        self._parts = self._next_part = None
        self._since = SinceSnapshot()
        self._is_wanted = self._is_postponed = False
