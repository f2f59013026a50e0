"""The cursors that a consumer begins at and commits its position to.

Owns where each stood when this consumer last knew it: a commit moves it from there only, so of two
consumers with one cursor the second learns of the first.
"""

from __future__ import annotations

from logstore.client.core.cursor_admin import Cursor, Cursors, check_cursor
from logstore.client.core.routing import Routing
from logstore.client.core.start import AtCursor, Start
from logstore.client.core.steps import Host, Steps
from logstore.client.refusal import TRANSIENT
from logstore.errors import CursorMoved, InvalidRequest, LogStoreError
from logstore.limits import POSITION_MAX

_NONE: frozenset[int] = frozenset()


class CommittedCursors:
    """Of one consumer."""

    def __init__(self, host: Host, routing: Routing, *, timeout_s: float) -> None:
        self._cursors = Cursors(host, routing, timeout_s=timeout_s)
        self._known: dict[str, int] = {}  # LSNs; 0: nowhere
        # Where commits may have set it whose answers did not come.
        self._in_doubt: dict[str, frozenset[int]] = {}

    def find(self, start: AtCursor) -> Steps[tuple[Start, int]]:
        """Where to begin: where the cursor stands, as a majority has it, or what is given instead;
        and where it stands, for `began_at`, 0: nowhere.

        Raises:
          InvalidRequest: there is none, and the start demands it.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        _check_name(start.name)
        if isinstance(start.absent, AtCursor):
            raise InvalidRequest("where a cursor is absent, another one is no start")
        lsn = yield from self._look_up(start.name)
        if lsn:
            return lsn, lsn
        if start.absent == "error":
            raise InvalidRequest(f"there is no cursor {start.name!r}")
        return start.absent, lsn

    def began_at(self, name: str, lsn: int) -> None:
        """The consumer begins where `find` has said. One that does not get there, and stays where
        it was, must not move the cursor from where another client has moved it."""
        self._known[name] = lsn

    def commit(self, name: str, position: int) -> Steps[None]:
        """Set the cursor before `position`, if it stands where this consumer last knew it; at the
        first commit to a cursor that it did not begin at, where it stands now. It keeps its hold,
        also one that was set or released meanwhile.

        Raises:
          CursorMoved: another client has moved it; `.lsn` says where to.
          OutcomeUnknown: it may be moved or not; commit again.
          OutOfRange, TooManyCursors, InvalidRequest: as `Admin.set_cursor`.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        _check_name(name)
        given: object = position
        if not isinstance(given, int) or not 1 <= given <= POSITION_MAX:
            raise InvalidRequest(f"position {position!r}: it is an LSN, 1 or above")
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = yield from self._look_up(name)
        in_doubt = self._in_doubt.get(name, _NONE)
        if position == known and not in_doubt:
            return
        try:
            yield from self._move(name, position, known)
        except CursorMoved as moved:
            if moved.lsn not in in_doubt:
                raise
            self._known[name] = moved.lsn
            self._in_doubt[name] = _NONE
            if moved.lsn != position:
                yield from self._move(name, position, moved.lsn)
        self._in_doubt[name] = _NONE
        self._known[name] = position

    def _move(self, name: str, position: int, known: int) -> Steps[None]:
        """An attempt; where it may have moved the cursor though it fails, that is in doubt."""
        before = self._in_doubt.get(name, _NONE)
        # Before the attempt: the caller may be cancelled during it.
        self._in_doubt[name] = before | {position}
        try:
            yield from self._cursors.move(name, position, known)
        except LogStoreError as error:
            # Refused each time: it was not moved, and another client may move it there.
            if isinstance(error, CursorMoved) or error.code in TRANSIENT:
                self._in_doubt[name] = before
            raise

    def _look_up(self, name: str) -> Steps[int]:
        """The LSN where it stands now; 0: nowhere."""
        for cursor in (yield from self._cursors.list()):
            if cursor.name == name:
                return cursor.lsn
        return 0


def _check_name(name: object) -> None:
    """Raises: InvalidRequest: no cursor can have this name."""
    if not isinstance(name, str):
        raise InvalidRequest(f"a cursor's name is text, not {name!r}")
    check_cursor(Cursor(name, 1, False))
