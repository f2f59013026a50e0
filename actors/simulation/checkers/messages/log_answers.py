"""Checks the answers to reads of a log, each by itself. What only the history can show is told as a
fact.

| asked for | what must come |
|---|---|
| a range | whole batches from the first LSN on, none beyond the last |
| what lies beyond the bounds | OUT_OF_RANGE, with bounds that do not hold it |
| what is shown from some LSN on | at least that LSN shown, or TIMED_OUT |
| what is damaged | its LSNs, or that there is damage |
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import (
    DamageNamed,
    EndTold,
    LogStartTold,
    LogVerified,
    RangeGone,
    SpansTold,
    SurveyAsked,
    TimeTold,
)
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.exchange import Complain, Exchange, Judge
from actors.simulation.checkers.messages.served_batches import check_fetched, served_batches
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchReply,
    FetchRequest,
    SpansReply,
    SpansRequest,
    TailGroup,
    TimeLookupReply,
    TimeLookupRequest,
    VerifyReply,
    VerifyRequest,
    WatermarksReply,
    WatermarksRequest,
)


def on_tail(violated: Complain, node: int, message: TailGroup, body: bytes) -> None:
    """A group on a node's tail feed. Hot."""
    batches = served_batches(violated, node, body, pieces=1)
    if batches and batches[-1].next_lsn - 1 > message.visible_lsn:
        last_lsn = batches[-1].next_lsn - 1
        text = f"node {node} shows {message.visible_lsn}, and publishes LSN {last_lsn}"
        violated(Invariant.I8, text)


def _on_end(exchange: Exchange, reply: WatermarksReply | FetchReply, _body: bytes) -> None:
    request, node = exchange.request, exchange.node
    if reply.visible_lsn < request.min_lsn:
        text = f"LSN {request.min_lsn} was waited for, node {node} shows {reply}"
        exchange.violated(Invariant.I6, text)
    exchange.tell(LogStartTold(node, reply.log_start_lsn))
    is_linearizable = request.is_linearizable
    exchange.tell(EndTold(exchange.asked_ns, reply.visible_lsn, node, is_linearizable))


def _on_fetched(exchange: Exchange, reply: FetchReply, body: bytes) -> None:
    _on_end(exchange, reply, body)
    batches = served_batches(exchange.violated, exchange.node, body, pieces=reply.pieces)
    if batches is not None:
        check_fetched(exchange.violated, exchange.node, exchange.request, reply, batches)


def _on_time(exchange: Exchange, reply: TimeLookupReply, _body: bytes) -> None:
    exchange.tell(TimeTold(exchange.node, exchange.request.timestamp_ns, reply.lsn))


def _on_spans(exchange: Exchange, reply: SpansReply, _body: bytes) -> None:
    exchange.tell(LogStartTold(exchange.node, reply.log_start_lsn))
    exchange.tell(SpansTold(exchange.node, exchange.request, reply))


def _on_verified(exchange: Exchange, reply: VerifyReply, _body: bytes) -> None:
    node, first = exchange.node, exchange.request.first_index
    named = [row["first_index"] for row in msgspec.json.decode(reply.document)]
    exchange.tell(LogVerified(node, (first, reply.last_index), reply.chain, named))
    if reply.last_index < min(first, reply.visible_index):
        text = f"node {node} was asked to verify {first}, and answers {reply}"
        exchange.violated(Invariant.I11, text)


def _on_refused_range(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code != ErrorCode.OUT_OF_RANGE:
        return _on_damage(exchange, error)
    request: FetchRequest | SpansRequest = exchange.request
    bounds = f"node {exchange.node} has [{error.first}, {error.last}], refused {request}"
    exchange.tell(LogStartTold(exchange.node, error.first))
    if exchange.witness.client.first_lsn <= request.first_lsn < error.first:
        exchange.tell(RangeGone(exchange.node, request.first_lsn))
    is_there = error.first <= request.first_lsn <= error.last + 1
    if is_there and request.last_lsn >= request.first_lsn:
        exchange.violated(Invariant.I5, bounds)
    return True


def _on_damage(exchange: Exchange, error: ErrorReply) -> bool:
    if error.code != ErrorCode.CORRUPT_DATA:
        return False
    exchange.tell(DamageNamed(exchange.node, (error.first, error.last), exchange.asked_ns))
    return True


def _survey_asked(_exchange: Exchange) -> Fact:
    return SurveyAsked()


_LATER = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.NO_QUORUM,
        ErrorCode.TIMED_OUT,
        ErrorCode.OVERLOADED,
    }
)
JUDGES: dict[type[Any], Judge] = {
    FetchRequest: Judge(FetchReply, _on_fetched, _LATER, _on_refused_range),
    WatermarksRequest: Judge(WatermarksReply, _on_end, _LATER),
    TimeLookupRequest: Judge(TimeLookupReply, _on_time, _LATER, _on_damage, _survey_asked),
    SpansRequest: Judge(SpansReply, _on_spans, _LATER, _on_refused_range, _survey_asked),
    VerifyRequest: Judge(VerifyReply, _on_verified, _LATER),
}
