"""Which judge checks the answers to each type of request: a new request is a row.

Must not know why something is asked. Answers to operators are checked here, those to reads in
`log_answers`, those about cursors and sessions in `table_answers`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers import client_facts
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages import log_answers, table_answers
from actors.simulation.checkers.messages.exchange import Exchange, Judge
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    InitializeRequest,
    MetadataReply,
    MetadataRequest,
    RaiseLevelRequest,
    StatusReply,
    StatusRequest,
    TraceReply,
    TraceRequest,
    TransferRequest,
)
from logstore.format.member_messages import MemberChangeRequest


def _on_document(exchange: Exchange, reply: Any, _body: bytes) -> None:
    try:
        msgspec.json.decode(reply.document, type=dict[str, Any])
    except msgspec.DecodeError as error:
        exchange.violated(Invariant.I11, f"{type(reply).__name__} does not decode: {error}")


def _on_done(_exchange: Exchange, _reply: DoneReply, _body: bytes) -> None:
    """The reply has nothing to check."""


def _level_asked(exchange: Exchange) -> Fact:
    return client_facts.LevelAsked(exchange.request.level)


def _on_level(exchange: Exchange, reply: DoneReply, _body: bytes) -> None:
    exchange.tell(client_facts.LevelTold(exchange.request.level, reply.value))


def _has_target_left(exchange: Exchange, error: ErrorReply) -> bool:
    is_invalid = error.code == ErrorCode.INVALID_REQUEST
    return is_invalid and exchange.witness.has_left(error.text.decode())


_NOT_FORMED = frozenset({ErrorCode.NOT_READY, ErrorCode.OVERLOADED, ErrorCode.TIMED_OUT})
_LATER = _NOT_FORMED | {ErrorCode.NOT_LEADER, ErrorCode.DISK_FULL}
_NOT_RAISED = _LATER | {ErrorCode.LEVEL_REFUSED, ErrorCode.OUTCOME_UNKNOWN}
JUDGES: dict[type[Any], Judge] = {
    MetadataRequest: Judge(MetadataReply, _on_document, frozenset(ErrorCode)),
    StatusRequest: Judge(StatusReply, _on_document, _LATER),
    TraceRequest: Judge(TraceReply, _on_document, frozenset()),
    TransferRequest: Judge(
        DoneReply, _on_done, _LATER | {ErrorCode.TRANSFER_FAILED}, _has_target_left
    ),
    RaiseLevelRequest: Judge(DoneReply, _on_level, _NOT_RAISED, None, _level_asked),
    MemberChangeRequest: Judge(DoneReply, _on_done, _NOT_RAISED | {ErrorCode.INVALID_REQUEST}),
    InitializeRequest: Judge(DoneReply, _on_done, _NOT_FORMED),
    **log_answers.JUDGES,
    **table_answers.JUDGES,
}
