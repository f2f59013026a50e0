"""Tells as facts what clients ask about cursors and sessions, and the answers.

An answer that does not decode, or that is about something else, is a violation.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers import client_facts
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.exchange import Exchange, Judge
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionLookupRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateReply,
    SessionStateRequest,
    SetCursorRequest,
    TrimRequest,
)
from logstore.format.cursor_entries import ANY_LSN, Cursor, Hold, decode_cursors
from logstore.format.session_list import decode_sessions
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import AckLevel, SequenceMode

# --- cursors ---


def _list_asked(exchange: Exchange) -> Fact:
    return client_facts.CursorAsked(exchange.number, None, ANY_LSN)


def _change_asked(exchange: Exchange) -> Fact:
    asked: SetCursorRequest = exchange.request
    change = Cursor(asked.name, asked.lsn, asked.hold == Hold.HELD)
    return client_facts.CursorAsked(exchange.number, change, asked.expected_lsn)


def _on_listed(exchange: Exchange, reply: CursorsReply, _body: bytes) -> None:
    try:
        cursors = decode_cursors(reply.cursors)
    except FormatError as error:
        exchange.violated(Invariant.I11, f"a list of cursors: {error}")
        return
    exchange.tell(client_facts.CursorsListed(exchange.number, exchange.node, cursors))


def _on_changed(exchange: Exchange, reply: DoneReply, _body: bytes) -> None:
    exchange.tell(client_facts.CursorChanged(exchange.number, reply.value))


def _on_moved(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code == ErrorCode.OUT_OF_RANGE:
        exchange.tell(client_facts.LogStartTold(exchange.node, error.first))
        return bool(exchange.request.hold == Hold.HELD) and exchange.request.lsn < error.first
    if error.code != ErrorCode.CURSOR_MOVED:
        return False
    exchange.tell(client_facts.CursorMoved(exchange.number, exchange.node, error.first))
    return True


# --- the log start ---


def _on_trimmed(exchange: Exchange, reply: DoneReply, _body: bytes) -> None:
    exchange.tell(client_facts.TrimTold(exchange.node, reply.value))


def _on_not_trimmed(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code == ErrorCode.OUT_OF_RANGE:
        exchange.tell(client_facts.LogStartTold(exchange.node, error.first))
        return bool(error.last < exchange.request.lsn)
    if error.code == ErrorCode.LEVEL_REFUSED:
        exchange.tell(client_facts.TrimRefused(exchange.node))
        return True
    if error.code != ErrorCode.CORRUPT_DATA:
        return False
    lsns = error.first, error.last
    exchange.tell(client_facts.DamageNamed(exchange.node, lsns, exchange.asked_ns))
    return True


# --- sessions ---


def _on_opened(exchange: Exchange, reply: OpenSessionReply, _body: bytes) -> None:
    asked: OpenSessionRequest = exchange.request
    is_granted = (
        reply.producer_id != 0
        and reply.producer_epoch != 0
        and asked.producer_id in (0, reply.producer_id)
        and reply.window >= SESSION_WINDOW_MIN
        and (asked.mode != SequenceMode.DENSE or reply.next_sequence == 0)
    )
    if not is_granted:
        text = f"{asked} was answered by node {exchange.node}: {reply}"
        exchange.violated(Invariant.I17, text)
    opened = client_facts.SessionOpened(
        reply.producer_id, reply.producer_epoch, SequenceMode(asked.mode)
    )
    exchange.tell(opened)


def _on_not_opened(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code == ErrorCode.UNKNOWN_PRODUCER and exchange.request.producer_id:
        return True
    if error.code == ErrorCode.LEVEL_REFUSED and exchange.request.ack_level != AckLevel.QUORUM:
        return True
    text = f"{exchange.request}: refused with {error} by node {exchange.node}"
    exchange.violated(Invariant.I17, text)
    return True


def _on_state(exchange: Exchange, reply: SessionStateReply, _body: bytes) -> None:
    asked: SessionStateRequest = exchange.request
    if (reply.producer_id, reply.producer_epoch) != (asked.producer_id, asked.producer_epoch):
        exchange.violated(Invariant.I7, f"{asked} is answered of another session: {reply}")


def _lookup_asked(exchange: Exchange) -> Fact:
    return client_facts.SessionAsked(exchange.number, exchange.request.name)


def _on_looked_up(exchange: Exchange, reply: SessionStateReply, _body: bytes) -> None:
    exchange.tell(client_facts.SessionTold(exchange.number, exchange.node, reply))


def _page_asked(exchange: Exchange) -> Fact:
    asked: SessionsRequest = exchange.request
    return client_facts.SessionsAsked(exchange.number, (asked.after, asked.limit), 0)


def _on_page(exchange: Exchange, reply: SessionsReply, _body: bytes) -> None:
    try:
        rows = decode_sessions(reply.sessions)
    except FormatError as error:
        exchange.violated(Invariant.I11, f"a page of sessions: {error}")
        return
    told = client_facts.SessionsListed(exchange.number, exchange.node, rows, reply.next_after)
    exchange.tell(told)


def _end_asked(exchange: Exchange) -> Fact:
    return client_facts.SessionsAsked(exchange.number, None, exchange.request.producer_id)


def _on_ended(exchange: Exchange, reply: DoneReply, _body: bytes) -> None:
    if reply.value != exchange.request.producer_id:
        exchange.violated(Invariant.I11, f"{exchange.request} is answered with {reply}")
        return
    exchange.tell(client_facts.SessionEnded(exchange.number))


def _on_no_session(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code != ErrorCode.UNKNOWN_PRODUCER:
        return False
    exchange.tell(client_facts.SessionUnknown(exchange.number, exchange.node))
    return True


_LATER = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
    }
)
_OVER = frozenset({ErrorCode.FENCED, ErrorCode.UNKNOWN_PRODUCER})
_UNKNOWN = _LATER | {ErrorCode.OUTCOME_UNKNOWN}
JUDGES: dict[type[Any], Judge] = {
    CursorsRequest: Judge(CursorsReply, _on_listed, _LATER, None, _list_asked),
    SetCursorRequest: Judge(DoneReply, _on_changed, _UNKNOWN, _on_moved, _change_asked),
    OpenSessionRequest: Judge(OpenSessionReply, _on_opened, _UNKNOWN, _on_not_opened),
    SessionStateRequest: Judge(SessionStateReply, _on_state, _LATER | _OVER),
    SessionLookupRequest: Judge(SessionStateReply, _on_looked_up, _LATER, None, _lookup_asked),
    SessionsRequest: Judge(SessionsReply, _on_page, _LATER, None, _page_asked),
    TrimRequest: Judge(DoneReply, _on_trimmed, _UNKNOWN, _on_not_trimmed),
    EndSessionRequest: Judge(DoneReply, _on_ended, _UNKNOWN, _on_no_session, _end_asked),
}
