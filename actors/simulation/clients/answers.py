"""What replicas answer one client: each answer is judged, and told as a fact.

Whatever a client asks, through the core or by hand, is told here once, when it leaves and when it
is answered, so that a client says only what it wants. Must not know why something is asked, nor
what a right answer is where only the history can say: checkers do.

| messages | judged by |
|---|---|
| requests for the log, and its tail | `reading` |
| requests for cursors and sessions | `tables` |
| who leads, status, orders of an operator | here |
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients import reading, tables
from actors.simulation.clients.exchange import Exchange, Judge
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wire_checker import REPLY_OF, Heard, WireChecker
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    InitializeRequest,
    MetadataRequest,
    StatusRequest,
    TailGroup,
    TransferRequest,
)


def _on_document(exchange: Exchange, reply: Any, _body: bytes) -> None:
    try:
        msgspec.json.decode(reply.document, type=dict[str, Any])
    except msgspec.DecodeError as error:
        exchange.violated(Invariant.I11, f"{type(reply).__name__} does not decode: {error}")


def _on_done(_exchange: Exchange, _reply: DoneReply, _body: bytes) -> None:
    """That it is done is all that it says."""


_REFUSED = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.TIMED_OUT,
        ErrorCode.DISK_FULL,
    }
)
_NOT_FORMED = frozenset({ErrorCode.NOT_READY, ErrorCode.OVERLOADED, ErrorCode.TIMED_OUT})
JUDGES: dict[type, Judge] = {
    MetadataRequest: Judge(_on_document, frozenset(ErrorCode)),
    StatusRequest: Judge(_on_document, _REFUSED),
    TransferRequest: Judge(_on_done, _REFUSED | {ErrorCode.TRANSFER_FAILED}),
    InitializeRequest: Judge(_on_done, _NOT_FORMED),
    **reading.JUDGES,
    **tables.JUDGES,
}


def judging(wire: Wire) -> WireChecker:
    """The observer of a client's links that judges and tells; `wire` counts the answers."""
    kinds: set[type[Any]] = {TailGroup, ErrorReply, *REPLY_OF.values()}
    return WireChecker(wire, dict.fromkeys(kinds, partial(_judge, wire)), _on_asked)


def _on_asked(exchange: Exchange) -> None:
    judge = JUDGES.get(type(exchange.request))
    if judge is not None and judge.asked is not None:
        exchange.tell(judge.asked(exchange))


def _judge(wire: Wire, heard: Heard) -> None:
    """Hot."""
    exchange, message = heard.exchange, heard.message
    if exchange is None:
        reading.on_tail(wire.violated, heard.node, message, heard.more)
        return
    judge = JUDGES.get(type(exchange.request))
    if judge is None:
        return
    if not isinstance(message, ErrorReply):
        wire.count(f"answered-{type(exchange.request).__name__}")
        judge.answered(exchange, message, heard.more)
    elif message.code in judge.refusals:
        wire.count(f"refused-{ErrorCode(message.code).name.lower()}")
    elif judge.refused is None or not judge.refused(exchange, message):
        text = f"{exchange.request} was refused with {message} by node {exchange.node}"
        wire.violated(Invariant.I11, text)
