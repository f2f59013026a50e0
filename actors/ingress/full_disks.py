"""What this leader proposes besides TRIMs while disks are full (SAFETY S9).

Raft counts the room that is left, and closes the gen at an entry that does not fit. What would end
so is refused before: a snapshot that does not become whole only takes room, and its trim would wait
in vain. What holds something leaves room for what does not: to delete a cursor may be what a trim
needs. Must not know how a refusal is answered.
"""

from __future__ import annotations

from actors.ingress.admission import Admission
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.level import TRIM_LEVEL
from logstore.format.session_entries import ExpireEntry, encode_expire
from logstore.limits import ReplicaLimits
from logstore.raft.space import most_bytes
from logstore.session.session import Refused

_NO_ROOM = Refused(
    ErrorCode.DISK_FULL, 0, "disks are full, what room they have is for trims: trim the log first"
)
_NO_TRIMS = Refused(
    ErrorCode.DISK_FULL, 0, "disks are full: run `logstore upgrade`, then trim the log"
)


class FullDisks:
    """As one replica's ingress knows them."""

    def __init__(self, admission: Admission, slots: memoryview, limits: ReplicaLimits) -> None:
        self._admission = admission
        self._slots = slots
        self._kept_bytes = limits.full_disk_kept_bytes

    @property
    def have_room_for_snapshot(self) -> bool:
        """Whether a snapshot that is wanted now would become whole, or one is on its way."""
        admission = self._admission
        return admission.takes_batches or admission.snapshot_most_bytes <= self._room_bytes

    def why_refused(self, entry: Cursor | ExpireEntry) -> Refused | None:
        """Why a change of the session table is not proposed; None: it is."""
        if self._admission.takes_batches:
            return None
        if isinstance(entry, Cursor):
            body, holds = encode_cursor(entry), entry.is_held
        else:
            body, holds = encode_expire(entry), True
        needed_bytes = most_bytes(len(body)) + (self._kept_bytes if holds else 0)
        if needed_bytes <= self._room_bytes:
            return None
        return _NO_TRIMS if self._admission.level < TRIM_LEVEL else _NO_ROOM

    @property
    def _room_bytes(self) -> int:
        """What raft says, less what it has not accepted yet."""
        waiting = self._admission.proposals.unaccepted_sizes
        return self._slots[Counter.ROOM_FOR_CHANGES] - sum(map(most_bytes, waiting))
