"""Sets, lists and deletes the named cursors of the log, at the leader.

Owns no state. A change without an answer is repeated. Only this module knows what that can mean for
the caller, and says it.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.leader import LeaderRequest
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.client.refusal import TRANSIENT
from logstore.errors import CursorMoved, InvalidRequest, LogStoreError, OutcomeUnknown
from logstore.format import cursor_entries
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Hold, cursor_fault, decode_cursors
from logstore.limits import POSITION_MAX
from logstore.model import Lsn


class Cursor(msgspec.Struct, frozen=True):
    """A name that stands before the payload `lsn`: everything below it is done with.

    `hold`: payloads from `lsn` on are kept, however old they get.
    """

    name: str
    lsn: int
    hold: bool


class Cursors:
    """The cursors of one cluster."""

    def __init__(self, host: Host, routing: Routing, *, timeout_s: float) -> None:
        self._host = host
        self._routing = routing
        self._timeout_s = timeout_s

    def list(self) -> Steps[list[Cursor]]:
        """Every cursor, by name, as a majority has it."""
        reply = yield from self._leader().ask(CursorsRequest(), CursorsReply)
        return [
            Cursor(row.name.decode(), row.lsn, row.is_held) for row in decode_cursors(reply.cursors)
        ]

    def change(self, cursor: Cursor, expected_lsn: int | None) -> Steps[int]:
        """Set the cursor, or delete it with LSN 0; where it stood before, 0: nowhere.

        Raises:
          InvalidRequest: no cursor can be like this.
          CursorMoved: it does not stand at `expected_lsn`.
          TooManyCursors: the log has as many as it may.
          OutcomeUnknown: no answer in time, or the answer of an earlier try is lost and the cursor
            stands where it was to be set: by that try, or by somebody else.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        return (yield from self._change(_request(cursor, expected_lsn), self._leader()))

    def move(self, name: str, lsn: int, expected_lsn: int) -> Steps[None]:
        """Set the cursor from where it stands; it stays held, or not, and is not if it is new.

        Raises: as `change`. After an error that says to ask again it is not moved, and will not be.
        """
        kept, leader = _request(Cursor(name, lsn, False), expected_lsn), self._leader()
        try:
            yield from self._change(msgspec.structs.replace(kept, hold=Hold.AS_IT_IS), leader)
        except InvalidRequest:
            # A leader of an older version, which has to be given the hold: one that is changed
            # after the look is set back.
            if leader.is_in_doubt:
                raise _in_doubt(name) from None
            is_held = any(each.hold for each in (yield from self.list()) if each.name == name)
            yield from self._change(_request(Cursor(name, lsn, is_held), expected_lsn), leader)

    def _change(self, request: SetCursorRequest, leader: LeaderRequest) -> Steps[int]:
        name = request.name.decode()
        try:
            reply = yield from leader.ask(request, DoneReply)
            return reply.value
        except CursorMoved as moved:
            if not leader.is_in_doubt or moved.lsn != request.lsn:
                raise
            raise OutcomeUnknown(
                f"cursor {name!r} stands at LSN {moved.lsn}: set by this call, an answer of"
                " which was lost, or by somebody else"
            ) from moved
        except LogStoreError as error:
            # A refusal of one attempt says nothing about another one that was not answered.
            if not leader.is_in_doubt or error.code not in TRANSIENT:
                raise
            raise _in_doubt(name) from error

    def _leader(self) -> LeaderRequest:
        return LeaderRequest(self._host, self._routing, timeout_s=self._timeout_s)


def _in_doubt(name: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"cursor {name!r} may be changed, or be changed yet: no answer in time; list the cursors,"
        " or ask again"
    )


def _request(cursor: Cursor, expected_lsn: int | None) -> SetCursorRequest:
    """The request on the wire.

    Raises:
      InvalidRequest: no cursor can be like this.
    """
    if cursor.lsn < 0 or (expected_lsn is not None and not 0 <= expected_lsn <= POSITION_MAX):
        raise InvalidRequest(f"an LSN is 0 to {POSITION_MAX}; 0 is where no cursor stands")
    stored = check_cursor(cursor)
    expected = ANY_LSN if expected_lsn is None else Lsn(expected_lsn)
    return SetCursorRequest(stored.lsn, expected, stored.is_held, stored.name)


def check_cursor(cursor: Cursor) -> cursor_entries.Cursor:
    """The cursor as it is stored.

    Raises:
      InvalidRequest: none can be like this.
    """
    # Bytes of a command line that are not UTF-8 come as surrogates; `cursor_fault` names them.
    name = cursor.name.encode(errors="surrogateescape")
    stored = cursor_entries.Cursor(name, Lsn(cursor.lsn), cursor.hold)
    fault = cursor_fault(stored)
    if fault is not None:
        raise InvalidRequest(fault)
    return stored


def check_position(lsn: int) -> None:
    """Raises: InvalidRequest: no cursor stands there."""
    if lsn == 0:
        raise InvalidRequest("LSN 0 is where no cursor stands: use delete_cursor")


def deletion_of(name: str) -> Cursor:
    """The cursor that `change` takes as a deletion."""
    return Cursor(name, NO_LSN, False)
