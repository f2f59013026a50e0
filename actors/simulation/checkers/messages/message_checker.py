"""Checks every message that a client gets, before its core reads it.

Owns which request each answer belongs to. An answer is checked by the type of its request
(`judges`), a message on a feed by its own type, answers to batches by `answered_connections`. The
simulated network loses, repeats and delays messages, but never changes a byte: if a message answers
another question, or is on another feed, the replica is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages import log_answers
from actors.simulation.checkers.messages.answered_connections import AnsweredConnections
from actors.simulation.checkers.messages.exchange import Exchange
from actors.simulation.checkers.messages.judges import JUDGES
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    Acks,
    ErrorReply,
    SessionStateReply,
    TailGroup,
    TailNotice,
    Tip,
    Welcome,
)
from logstore.format.message import decode_message
from logstore.settings import PortOffset

_OF_FEED: dict[PortOffset, tuple[type[Any], ...]] = {
    PortOffset.ACKS: (Acks, Welcome),
    PortOffset.TAIL: (TailGroup, TailNotice, Tip, Welcome),
}
_ASKED_MAX = 64  # requests of one link that are remembered: answers may come late, or twice


class Link(Protocol):
    """A link of the client's core: its address, and the topic it subscribes to."""

    address: str
    topic: bytes


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message of `node`. `request`: what it answers; None: it came on a feed. `more`: the second
    frame."""

    node: int
    request: Any
    message: Any
    more: bytes


Listener: TypeAlias = Callable[[Received], None]


def _pass_over(_link: Any, _frame: bytes) -> None:
    """Ignore appends."""


class MessageChecker:
    """Checks the links of one client. `listeners`: by the type of a message, the function that
    reads it after its judge. `on_append` gets each frame that is sent to an append port."""

    def __init__(
        self,
        witness: Witness,
        listeners: Mapping[type[Any], Listener] | None = None,
        on_append: Callable[[Any, bytes], None] = _pass_over,
    ) -> None:
        self.witness = witness
        self._listeners = listeners or {}
        self._on_append = on_append
        client = witness.client
        self._places = {
            client.endpoint(node, port): (node, port)
            for node in (*client.nodes, *client.joiners)
            for port in PortOffset
        }
        self._asked: dict[Link, dict[int, Exchange]] = {}
        self._answered = AnsweredConnections(witness)

    def sent(self, link: Link, frame: bytes) -> None:
        node, port = self._places[link.address]
        if port is PortOffset.APPEND:
            self._on_append(link, frame)
            return
        if port is PortOffset.PRODUCE and self._answered.is_batch(frame):
            self._answered.sent(link, frame)
            self._on_append(link, frame)
            return
        envelope, request = decode_message(frame)
        asked, witness = self._asked.setdefault(link, {}), self.witness
        number, asked_ns = witness.next_operation(), witness.client.world_now()
        exchange = Exchange(witness, node, number, asked_ns, request)
        asked[envelope.correlation] = exchange
        fact_of = JUDGES[type(request)].asked
        if fact_of is not None:
            exchange.tell(fact_of(exchange))
        if len(asked) > _ASKED_MAX:
            del asked[next(iter(asked))]

    def sent_between(self, link: Link, frame: bytes) -> None:
        """A frame that is none of the core's was sent over this link of the produce port."""
        self._answered.sent(link, frame)

    def received(self, link: Link, frames: list[bytes]) -> None:
        """Hot."""
        node, port = self._places[link.address]
        is_acks = port is PortOffset.ACKS  # the topic comes first there
        decoded = self.witness.decode(frames[-1 if is_acks else 0])
        if decoded is None:
            return
        envelope, message = decoded
        more = b"" if is_acks or len(frames) < 2 else frames[1]
        request = None
        if port is PortOffset.PRODUCE and isinstance(message, Acks):
            is_due = self._answered.on_acks(link, node, message)
        elif port in _OF_FEED:
            topic = frames[0] if is_acks else b""
            is_due = self._check_feed(link, message, topic=topic, body=more)
        else:
            exchange = self._asked.get(link, {}).pop(envelope.correlation, None)
            if exchange is None:
                return  # a duplicate: it was checked when it came first
            request = exchange.request
            is_due = self._judge(exchange, message, more)
            if port is PortOffset.PRODUCE and isinstance(message, SessionStateReply):
                self._answered.on_state(link, message)
        listener = self._listeners.get(type(message))
        if is_due and listener is not None:
            listener(Received(node, request, message, more))

    def closed(self, link: Link) -> None:
        self._asked.pop(link, None)
        self._answered.closed(link)

    def _check_feed(self, link: Link, message: Any, *, topic: bytes, body: bytes) -> bool:
        """Whether the message belongs on that feed."""
        node, port = self._places[link.address]
        if not isinstance(message, _OF_FEED[port]):
            self.witness.violated(Invariant.I11, f"{message} on the {port.name} feed of {node}")
            return False
        if isinstance(message, Acks) and topic != link.topic:
            self.witness.violated(Invariant.I11, f"{message} is not of the topic {link.topic!r}")
            return False
        if isinstance(message, TailGroup):
            log_answers.on_tail(self.witness.violated, node, message, body)
        return True

    def _judge(self, exchange: Exchange, message: Any, more: bytes) -> bool:
        """Whether the message answers the request, rightly or not. Hot."""
        judge, witness, request = JUDGES[type(exchange.request)], self.witness, exchange.request
        if isinstance(message, judge.reply):
            witness.count(f"answered-{type(request).__name__}")
            judge.answered(exchange, message, more)
        elif not isinstance(message, ErrorReply):
            witness.violated(Invariant.I11, f"{request} is answered with {message}")
            return False
        elif message.code in judge.refusals:
            witness.count(f"refused-{ErrorCode(message.code).name.lower()}")
        elif judge.refused is None or not judge.refused(exchange, message):
            text = f"{request} was refused with {message} by node {exchange.node}"
            witness.violated(Invariant.I11, text)
        return True
