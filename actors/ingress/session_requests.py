"""Requests of operators for the sessions of the log: lists of them, and their end.

An end is an EXPIRE entry, proposed at once and answered at its commit (as an OPEN is, SAFETY E8). A
page of a list, and the word that there is no such session, are reads: raft confirms by a quorum
round, begun after the request came, that this replica leads (V5), and what is told waits until all
that the table holds is committed. A list of several pages is read a page at a time: a session that
is there all the time is in it once, one that comes or goes meanwhile may be.
"""

from __future__ import annotations

from actors.ingress.admission import Admission
from actors.ingress.groups import Group
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import READS_OF_INGRESS
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from logstore.limits import SESSIONS_PAGE_MAX
from logstore.model import NO_INDEX, NO_NODE
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.session.session import Refused, Session
from logstore.session.table import SessionTable


class SessionRequests:
    """What waits is bounded by `Requests`, by raft's bound on reads, and by `Admission`."""

    def __init__(self, requests: Requests, to_raft: ToRaft) -> None:
        self._requests = requests
        self._to_raft = to_raft
        self._reads: dict[int, SessionsRequest | EndSessionRequest] = {}  # until raft has confirmed
        self._ending: dict[int, int] = {}  # request → producer id, until the EXPIRE is committed

    def list(
        self, admission: Admission, caller: Caller, request: SessionsRequest, now_ns: int
    ) -> None:
        """One page, once it is certain that nobody knows better."""
        if admission.table is None:
            self._requests.refuse_as_not_leading(caller)
        elif request_id := self._requests.add(caller, now_ns):
            self._confirm(request_id, request)

    def end(
        self, admission: Admission, caller: Caller, request: EndSessionRequest, now_ns: int
    ) -> None:
        """Propose the end, or say why not."""
        table = admission.table
        if table is None:
            self._requests.refuse_as_not_leading(caller)
            return
        if not admission.may_take_request:
            self._requests.refuse_for_appends(caller)
            return
        entry = table.decide_end(request.producer_id)
        if isinstance(entry, Refused) and entry.code is not ErrorCode.UNKNOWN_PRODUCER:
            self._requests.refuse(caller, entry.code, entry.text)
        elif request_id := self._requests.add(caller, now_ns):
            if isinstance(entry, Refused):
                self._confirm(request_id, request)
            else:
                self._ending[request_id] = entry.producer_id
                admission.take_expire(table, entry, request_id)

    def owns(self, answered: ReadIndexAnswered) -> bool:
        """Whether this is the answer to a request of ours."""
        return answered.request_id - READS_OF_INGRESS in self._reads

    def on_read_index(self, admission: Admission, answered: ReadIndexAnswered) -> None:
        """This replica led when the request came, or it did not."""
        request_id = answered.request_id - READS_OF_INGRESS
        request = self._reads.pop(request_id)
        table = admission.table
        if not answered.is_leader or table is None or not admission.is_ready:
            self._answer(request_id, None)
            return
        reply: SessionsReply | ErrorReply
        if isinstance(request, SessionsRequest):
            reply = page_of(table, request)
        else:
            reply = _no_session(request)

        def tell(is_committed: bool) -> None:
            self._answer(request_id, reply if is_committed else None)

        admission.when_committed(tell)

    def on_group_done(self, group: Group, *, is_committed: bool) -> None:
        """An EXPIRE is committed, or was forgotten with its gen or term."""
        producer_id = self._ending.pop(group.request_id)
        caller = self._requests.take(group.request_id)
        if caller is None:
            pass  # answered by its timeout
        elif is_committed:
            self._requests.reply(caller, DoneReply(producer_id))
        elif group.index == NO_INDEX:
            self._requests.refuse_as_not_leading(caller)
        else:
            text = "this replica stopped leading before the end was committed: list the sessions"
            self._requests.refuse(caller, ErrorCode.OUTCOME_UNKNOWN, text)

    def _confirm(self, request_id: int, request: SessionsRequest | EndSessionRequest) -> None:
        self._reads[request_id] = request
        self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))

    def _answer(self, request_id: int, reply: SessionsReply | ErrorReply | None) -> None:
        """None: somebody else leads, or this one does not know yet."""
        caller = self._requests.take(request_id)
        if caller is None:
            pass  # answered by its timeout
        elif reply is None:
            self._requests.refuse_as_not_leading(caller)
        else:
            self._requests.reply(caller, reply)


def page_of(table: SessionTable, request: SessionsRequest) -> SessionsReply:
    """The page of the table that is asked for."""
    limit = min(request.limit or SESSIONS_PAGE_MAX, SESSIONS_PAGE_MAX)
    ids = table.ids_above(request.after, limit + 1)
    rows = []
    for producer_id in ids[:limit]:
        session = table.known(producer_id)
        if session is not None:
            is_open = table.get(producer_id) is not None
            rows.append(_row_of(session, SessionState.OPEN if is_open else SessionState.KEPT))
    return SessionsReply(ids[limit - 1] if len(ids) > limit else 0, encode_sessions(rows))


def _row_of(session: Session, state: SessionState) -> ListedSession:
    is_open = state is SessionState.OPEN
    return ListedSession(
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        mode=session.mode,
        state=state,
        window=session.window_max if is_open else 0,
        window_bytes=session.window_bytes if is_open else 0,
        next_sequence=session.next_sequence,
        last_used_ns=session.last_used_ns,
        name=session.name,
    )


def _no_session(request: EndSessionRequest) -> ErrorReply:
    text = f"there is no session of producer {request.producer_id}: list the sessions"
    return ErrorReply(ErrorCode.UNKNOWN_PRODUCER, NO_NODE, 0, 0, text.encode())
