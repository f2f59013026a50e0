"""The named cursors of the log: their LSNs, and whether a change is allowed.

Owns every cursor of one gen of one leader, as part of its session table. It changes when a change
is proposed, so that the next one is compared with it. Invariant: it equals the fold of the log up
to the last accepted proposal (FAULTS I17). Must not know clients, nor what is committed: an answer
that shows a cursor waits for the commit.
"""

from __future__ import annotations

import msgspec

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Cursor, cursor_fault
from logstore.limits import CURSORS_MAX
from logstore.model import Lsn
from logstore.session.session import Refused


class CursorRequest(msgspec.Struct, frozen=True):
    """A change that a client asks for; LSN 0 deletes the cursor.

    `expected_lsn`: the LSN that the cursor must have for it, 0: it must not exist, ANY_LSN: any.
    """

    cursor: Cursor
    expected_lsn: Lsn


class CursorTable:
    """Cursors by name."""

    def __init__(self) -> None:
        self._cursors: dict[bytes, Cursor] = {}

    def __len__(self) -> int:
        return len(self._cursors)

    def rows(self) -> tuple[Cursor, ...]:
        """Every cursor, ascending by name."""
        return tuple(self._cursors[name] for name in sorted(self._cursors))

    def lsn_of(self, name: bytes) -> Lsn:
        """The cursor's LSN; 0: it does not exist."""
        cursor = self._cursors.get(name)
        return NO_LSN if cursor is None else cursor.lsn

    def is_held(self, name: bytes) -> bool:
        """Whether the cursor exists and is held."""
        cursor = self._cursors.get(name)
        return cursor is not None and cursor.is_held

    def refusal_of(self, request: CursorRequest) -> Refused | None:
        """Why the change is refused; None: its cursor is the entry to propose.

        INVALID_REQUEST depends only on the request. Other refusals depend on the proposals so far:
        `detail` is the cursor's LSN after them.
        """
        cursor = request.cursor
        fault = cursor_fault(cursor)
        if fault is not None:
            return Refused(ErrorCode.INVALID_REQUEST, 0, fault)
        lsn = self.lsn_of(cursor.name)
        if request.expected_lsn not in (lsn, ANY_LSN):
            stands = f"stands at LSN {lsn}" if lsn else "does not exist"
            expected = f"LSN {request.expected_lsn}" if request.expected_lsn else "no cursor"
            text = f"the cursor {stands}, {expected} was expected: who else moves it?"
            return Refused(ErrorCode.CURSOR_MOVED, lsn, text)
        if cursor.lsn != NO_LSN and lsn == NO_LSN and len(self._cursors) >= CURSORS_MAX:
            text = f"the log has {CURSORS_MAX} cursors, as many as it may: delete one first"
            return Refused(ErrorCode.TOO_MANY_CURSORS, lsn, text)
        return None

    def apply(self, cursor: Cursor) -> None:
        """Apply a CURSOR entry that is proposed. Deleting a cursor that does
        not exist changes nothing.

        Raises:
          InvariantViolated: one cursor too many.
        """
        if cursor.lsn == NO_LSN:
            self._cursors.pop(cursor.name, None)
            return
        self._cursors[cursor.name] = cursor
        if len(self._cursors) > CURSORS_MAX:
            raise InvariantViolated(f"{cursor} is one more than {CURSORS_MAX} cursors")

    def clear(self) -> None:
        self._cursors.clear()
