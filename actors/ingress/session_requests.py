"""Requests about the sessions of the log: lists of them, one by its name, their end (E8, V5).

Pure: decides each from the session table. When to answer is up to `linearizable_reads` and
`changes`. A list of several pages is read a page at a time: a session that exists all the time is
in it once; one that is opened or ended meanwhile may be in it or not.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from actors.ingress.changes import Change
from actors.ingress.linearizable_reads import Reply
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ACK_ROW,
    DoneReply,
    EndSessionRequest,
    SessionLookupRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateReply,
)
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from logstore.limits import SESSIONS_PAGE_MAX
from logstore.model import Index
from logstore.session.session import Refused, Session
from logstore.session.table import SessionTable

_LOST = "this replica stopped leading before the end was committed: list the sessions"


def decide_end(table: SessionTable, request: EndSessionRequest) -> Change | Refused:
    """Whether an operator may end the session."""
    entry = table.decide_end(request.producer_id)
    if isinstance(entry, Refused):
        return entry
    return Change(entry, DoneReply(entry.producer_id), _LOST)


def look_up(table: SessionTable, request: SessionLookupRequest) -> Reply:
    """What the session of this name has committed. The client need not be its producer, and fences
    nobody."""
    session = table.named(request.name)
    if session is None:
        return lambda: SessionStateReply(0, 0, 0, b"")
    # The session's window moves on before the reply is sent, so its rows are copied. The rows
    # themselves are shared: they have their LSNs by then.
    session = msgspec.structs.replace(session, rows=OrderedDict(session.rows))
    return lambda: state_reply(session, table.commit)


def state_reply(session: Session, commit: Index) -> SessionStateReply:
    """A session's window, each row committed or not known to be."""
    pack = ACK_ROW.pack
    rows = b"".join(
        pack(row.sequence, row.first_lsn, row.count, ErrorCode.OK, 0)
        if row.is_committed(commit)
        else pack(row.sequence, 0, row.count, ErrorCode.OUTCOME_UNKNOWN, 0)
        for row in session.rows.values()
    )
    return SessionStateReply(
        session.producer_id, session.producer_epoch, session.next_sequence, rows
    )


def list_sessions(table: SessionTable, request: SessionsRequest) -> Reply:
    """The page that is asked for."""
    reply = page_of(table, request)
    return lambda: reply


def page_of(table: SessionTable, request: SessionsRequest) -> SessionsReply:
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
        ack_level=session.ack_level,
    )
