"""Checks every message that the client's core gets, before the core does.

Owns which request each answer belongs to. What a message may say is for its judge, by the type of
the message. The simulated network loses, repeats and delays, but never changes a byte: what does
not decode, is of another cluster, or answers another question is a replica's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.exchange import Exchange
from actors.simulation.clients.wire import Wire
from actors.simulation.network.core_links import SimulatedLink
from logstore.format.client_messages import (
    Acks,
    CursorsReply,
    CursorsRequest,
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    FetchReply,
    FetchRequest,
    InitializeRequest,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    OpenSessionRequest,
    SessionLookupRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateReply,
    SessionStateRequest,
    SetCursorRequest,
    SpansReply,
    SpansRequest,
    StatusReply,
    StatusRequest,
    TailGroup,
    TailNotice,
    TimeLookupReply,
    TimeLookupRequest,
    Tip,
    TransferRequest,
    VerifyReply,
    VerifyRequest,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
)
from logstore.format.message import decode_message
from logstore.settings import PortOffset

REPLY_OF: dict[type[Any], type[Any]] = {
    CursorsRequest: CursorsReply,
    EndSessionRequest: DoneReply,
    FetchRequest: FetchReply,
    InitializeRequest: DoneReply,
    MetadataRequest: MetadataReply,
    OpenSessionRequest: OpenSessionReply,
    SessionLookupRequest: SessionStateReply,
    SessionsRequest: SessionsReply,
    SessionStateRequest: SessionStateReply,
    SetCursorRequest: DoneReply,
    SpansRequest: SpansReply,
    StatusRequest: StatusReply,
    TimeLookupRequest: TimeLookupReply,
    TransferRequest: DoneReply,
    VerifyRequest: VerifyReply,
    WatermarksRequest: WatermarksReply,
}
_OF_FEED: dict[PortOffset, tuple[type[Any], ...]] = {
    PortOffset.ACKS: (Acks, Welcome),
    PortOffset.TAIL: (TailGroup, TailNotice, Tip, Welcome),
}
_ASKED_MAX = 64  # requests of one link that are remembered: answers may come late, or twice


class Heard(msgspec.Struct, frozen=True, gc=False):
    """What `node` says: an answer in `exchange`, or on a feed, where that is None. `more`: the
    second frame of the message."""

    node: int
    exchange: Exchange | None
    message: Any
    more: bytes

    @property
    def request(self) -> Any:
        """What it answers; None: nothing."""
        return None if self.exchange is None else self.exchange.request


Judge: TypeAlias = Callable[[Heard], None]


def _pass_over(_exchange: Exchange) -> None:
    """Nobody wants to know what is asked."""


class WireChecker:
    """The observer of one client's links. `judges`: by the type of the message; an answer that
    comes again is nobody's any more. `on_asked` is told each request."""

    def __init__(
        self,
        wire: Wire,
        judges: Mapping[type[Any], Judge] | None = None,
        on_asked: Callable[[Exchange], None] = _pass_over,
    ) -> None:
        self.wire = wire
        self._on_asked = on_asked
        self.judges = dict(judges or {})
        host = wire.host
        self._places = {
            host.endpoint(node, port): (node, port) for node in host.nodes for port in PortOffset
        }
        self._asked: dict[SimulatedLink, dict[int, Exchange]] = {}

    def place_of(self, link: SimulatedLink) -> tuple[int, PortOffset]:
        """The node and the port that it goes to."""
        return self._places[link.address]

    def sent(self, link: SimulatedLink, frame: bytes) -> None:
        node, port = self._places[link.address]
        if port is PortOffset.APPEND:
            return
        envelope, request = decode_message(frame)
        asked, wire = self._asked.setdefault(link, {}), self.wire
        exchange = Exchange(wire, node, wire.next_operation(), wire.host.world_now(), request)
        asked[envelope.correlation] = exchange
        self._on_asked(exchange)
        if len(asked) > _ASKED_MAX:
            del asked[next(iter(asked))]

    def received(self, link: SimulatedLink, frames: list[bytes]) -> None:
        """Hot."""
        node, port = self._places[link.address]
        is_acks = port is PortOffset.ACKS  # the topic comes first there
        decoded = self.wire.decode(frames[-1 if is_acks else 0])
        if decoded is None:
            return
        envelope, message = decoded
        exchange = None
        if port in _OF_FEED:
            if not isinstance(message, _OF_FEED[port]):
                self.wire.violated(Invariant.I11, f"{message} on the {port.name} feed of {node}")
                return
            if isinstance(message, Acks) and frames[0] != link.topic:
                self.wire.violated(Invariant.I11, f"{message} is not of the topic {link.topic!r}")
                return
        else:
            exchange = self._asked.get(link, {}).pop(envelope.correlation, None)
            if exchange is None:
                return
            if not isinstance(message, REPLY_OF[type(exchange.request)] | ErrorReply):
                text = f"{exchange.request} is answered with {message}"
                self.wire.violated(Invariant.I11, text)
                return
        judge = self.judges.get(type(message))
        if judge is not None:
            more = b"" if is_acks or len(frames) < 2 else frames[1]
            judge(Heard(node, exchange, message, more))

    def closed(self, link: SimulatedLink) -> None:
        self._asked.pop(link, None)
