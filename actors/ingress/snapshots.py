"""When a SESSION snapshot is due, and writing it part by part (SAFETY E6).

Owns what counts towards the next one, and the one that is being written. From the moment one is due
until its last part is in the stream nothing may change the table: no batch is read, no session
opened or ended, no cursor moved. Must not know raft or clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from logstore import limits
from logstore.errors import InvalidRequest
from logstore.model import Term
from logstore.session.fold import snapshot_parts
from logstore.session.table import SessionTable

_log = logging.getLogger(__name__)


class Snapshots:
    """The snapshots of one replica; `forget` is called when a gen ends."""

    def __init__(self, *, every_batches: int, part_max_bytes: int) -> None:
        self._every_batches = every_batches
        self._part_max_bytes = part_max_bytes
        self._number = 0  # of the newest one begun here
        self._batches = 0  # since the newest whole one
        self._bytes = 0
        self._parts: Iterator[bytes] | None = None  # of the one under way
        self._next_part: bytes | None = None

    @property
    def is_due(self) -> bool:
        return self._batches >= self._every_batches or self._bytes >= limits.SNAPSHOT_EVERY_BYTES

    @property
    def is_under_way(self) -> bool:
        """The first part of one is in the stream, and the last one is not."""
        return self._parts is not None

    def begin_at(self, *, batches: int, size_bytes: int) -> None:
        """A gen begins, and the log has so much after the newest whole snapshot."""
        self._batches, self._bytes = batches, size_bytes

    def count(self, size_bytes: int) -> None:
        """Count a batch, an OPEN, an EXPIRE or a change of a cursor. Hot."""
        self._batches += 1
        self._bytes += size_bytes

    def next_part(self, table: SessionTable, term: Term) -> bytes | None:
        """The next part for the stream; None: the snapshot cannot be encoded, and is postponed.

        That would be a bug. It must not end every leader at the same entry, so the log goes on
        without the snapshot, and each rebuild takes longer.
        """
        if self._parts is None:
            self._number += 1
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
            self._end()
            return None
        if self._next_part is None:
            self._end()
        return part

    def forget(self) -> None:
        """The gen ended: a snapshot under way has no last part, and no rebuild will use it."""
        self._end()

    def _end(self) -> None:
        self._parts = self._next_part = None
        self._batches = self._bytes = 0
