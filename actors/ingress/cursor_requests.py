"""Requests for named cursors: changes, which are entries, and what depends on how they stand now.

A change is proposed at once and answered at its commit (as an OPEN is, SAFETY E8). A list, and the
refusal of a change, are reads: they must be true of what is committed, and of the newest of it.

1. raft confirms by a quorum round, begun after the request came, that this replica leads (V5);
   everything committed before that round is in the table by then, since its Committed came first;
2. the answer is taken from the table, which may be ahead of the commit index;
3. it is told once the newest change in the table is committed. If that one is forgotten, so is the
   answer, and the caller is sent elsewhere.

`test_ingress_cursors.py` has a test for each step left out.
"""

from __future__ import annotations

import msgspec

from actors.ingress.admission import Admission
from actors.ingress.groups import Group
from actors.ingress.pending_requests import APPENDS_COME_FIRST, Caller, Requests
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import READS_OF_INGRESS
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from logstore.model import NO_INDEX
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.session.cursors import CursorWish
from logstore.session.session import Refused
from logstore.session.table import SessionTable

_APPENDS_COME_FIRST = Refused(ErrorCode.OVERLOADED, 0, APPENDS_COME_FIRST)


class _Change(msgspec.Struct):
    """A change on its way; `waiting` are answers that depend on it, with their request numbers."""

    reply: DoneReply
    waiting: list[tuple[int, CursorsReply | ErrorReply]]


class CursorRequests:
    """What waits is bounded by `Requests`, and by raft's bound on reads."""

    def __init__(self, requests: Requests, to_raft: ToRaft) -> None:
        self._requests = requests
        self._to_raft = to_raft
        self._reads: dict[int, SetCursorRequest | CursorsRequest] = {}  # until raft has confirmed
        self._changes: dict[int, _Change] = {}  # by request, in the order of the stream

    def change(
        self, admission: Admission, caller: Caller, request: SetCursorRequest, now_ns: int
    ) -> None:
        """Propose the change, or confirm that it must be refused."""
        table = admission.table
        if table is None:
            self._requests.refuse_as_not_leading(caller)
            return
        refused = table.cursors.refusal_of(_wish(request))
        if refused is not None and refused.code is ErrorCode.INVALID_REQUEST:
            self._requests.refuse(caller, refused.code, refused.text)
        elif not admission.may_take_request:
            # Changes without an end would hold up every append (E6).
            refused = _APPENDS_COME_FIRST
            self._requests.refuse(caller, refused.code, refused.text)
        elif request_id := self._requests.add(caller, now_ns):
            if refused is None:
                self._propose(admission, table, request_id, request)
            else:
                self._confirm(request_id, request)

    def list(
        self, admission: Admission, caller: Caller, request: CursorsRequest, now_ns: int
    ) -> None:
        """Every cursor, once it is certain that nobody knows better."""
        if admission.table is None:
            self._requests.refuse_as_not_leading(caller)
        elif request_id := self._requests.add(caller, now_ns):
            self._confirm(request_id, request)

    def on_read_index(self, admission: Admission, answered: ReadIndexAnswered) -> None:
        """This replica led when the request came, or it did not."""
        request_id = answered.request_id - READS_OF_INGRESS
        request = self._reads.pop(request_id)
        if not self._requests.is_pending(request_id):
            return  # answered by its timeout: a change that nobody waits for is not begun any more
        table = admission.table
        if not answered.is_leader or table is None or not admission.is_ready:
            self._send_elsewhere(request_id)
            return
        reply: CursorsReply | ErrorReply
        if isinstance(request, CursorsRequest):
            reply = CursorsReply(encode_cursors(table.cursors.rows()))
        else:
            refused = table.cursors.refusal_of(_wish(request))
            if refused is None:  # somebody has moved the cursor to where it is expected
                if admission.may_take_request:
                    self._propose(admission, table, request_id, request)
                else:
                    self._reply(request_id, _refusal(_APPENDS_COME_FIRST))
                return
            reply = _refusal(refused)
        if self._changes:
            newest = next(reversed(self._changes.values()))
            newest.waiting.append((request_id, reply))
        else:
            self._reply(request_id, reply)

    def on_group_done(self, group: Group, *, is_committed: bool) -> None:
        """A change is committed, or was forgotten with its gen or term, and what waited for it."""
        change = self._changes.pop(group.request_id)
        caller = self._requests.take(group.request_id)
        if caller is None:
            pass  # answered by its timeout
        elif is_committed:
            self._requests.reply(caller, change.reply)
        elif group.index == NO_INDEX:
            self._requests.refuse_as_not_leading(caller)
        else:
            text = "this replica stopped leading before the change was committed: list the cursors"
            self._requests.refuse(caller, ErrorCode.OUTCOME_UNKNOWN, text)
        for request_id, reply in change.waiting:
            if is_committed:
                self._reply(request_id, reply)
            else:
                self._send_elsewhere(request_id)

    def _propose(
        self, admission: Admission, table: SessionTable, request_id: int, request: SetCursorRequest
    ) -> None:
        cursor = _wish(request).cursor
        self._changes[request_id] = _Change(DoneReply(table.cursors.lsn_of(cursor.name)), [])
        admission.take_cursor(table, cursor, request_id)

    def _confirm(self, request_id: int, request: SetCursorRequest | CursorsRequest) -> None:
        self._reads[request_id] = request
        self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))

    def _reply(self, request_id: int, reply: CursorsReply | ErrorReply) -> None:
        caller = self._requests.take(request_id)
        if caller is not None:
            self._requests.reply(caller, reply)

    def _send_elsewhere(self, request_id: int) -> None:
        caller = self._requests.take(request_id)
        if caller is not None:
            self._requests.refuse_as_not_leading(caller)


def _wish(request: SetCursorRequest) -> CursorWish:
    return CursorWish(Cursor(request.name, request.lsn, request.is_held), request.expected_lsn)


def _refusal(refused: Refused) -> ErrorReply:
    return ErrorReply(refused.code, 0, refused.detail, 0, refused.text.encode())
