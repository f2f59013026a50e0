"""One request to one node and its answer: a DEALER that sends once there is a connection.

Owns the socket and the request in flight. Answers to anything else, late or repeated, are dropped.
Whoever asks gives up after a time of its own and closes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, NEVER_NS
from actors.simulation.clients.wire import Wire
from logstore.format.client_messages import ErrorReply
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.settings import PortOffset
from transport import link
from transport.link import Lane

SEND_AGAIN_NS = 20 * MS_NS  # how often a connection is looked for
# The same of a request: most connections are there in a few ms, those to the dead in seconds.
_GAP_MIN_NS, _GAP_MAX_NS = 10 * MS_NS, 160 * MS_NS


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`message` is of the type asked for, or an ErrorReply. `more` is the second frame, if any."""

    node: int
    message: Any
    more: bytes


class Asker:
    """`expects` is the type of the reply that is not an error."""

    def __init__(self, wire: Wire, node: int, offset: PortOffset) -> None:
        host = wire.host
        self.node = node
        self.socket = host.links.dealer_connect(
            host.endpoint(node, offset), lane=Lane.CONTROL, message_size_max=MESSAGE_MAX_BYTES
        )
        self._wire = wire
        self._correlation = 0
        self._unsent: list[tuple[bytes, ...]] = []  # messages, each its frames
        self._expects: type[Any] = ErrorReply
        self._deadline_ns = NEVER_NS
        self._send_again_ns = NEVER_NS
        self._gap_ns = _GAP_MIN_NS

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in flight, or waits for a connection."""
        return self._correlation != 0

    def ask(
        self, request: msgspec.Struct, expects: type[Any], now_ns: int, *, wait_ns: int = 0
    ) -> None:
        """Begin a request. An earlier one is given up. `wait_ns`: how long the node may take."""
        correlation, frame = self._wire.encode(request)
        self.ask_bytes(correlation, [(frame,)], expects, now_ns, wait_ns=wait_ns)

    def ask_bytes(
        self,
        correlation: int,
        messages: list[tuple[bytes, ...]],
        expects: type[Any],
        now_ns: int,
        *,
        wait_ns: int = 0,
    ) -> None:
        """The same with messages as they are, sent in this order. One answer is taken."""
        self._correlation, self._unsent = correlation, messages
        self._expects = expects
        self._deadline_ns = now_ns + self._wire.host.patience_ns() + wait_ns
        self._try_send(now_ns)

    def poll(self, now_ns: int) -> Answer | None:
        """The answer, once it is there."""
        if self._unsent and now_ns >= self._send_again_ns:
            self._try_send(now_ns)
        while (frames := link.try_receive(self.socket)) is not None:
            decoded = self._wire.decode(frames[0])
            if decoded is None or decoded[0].correlation != self._correlation:
                continue
            message = decoded[1]
            if not isinstance(message, self._expects | ErrorReply):
                self._wire.violated(Invariant.I11, f"{self._expects.__name__}? got {message}")
                continue
            self._correlation = 0
            return Answer(self.node, message, frames[1] if len(frames) > 1 else b"")
        return None

    def is_late(self, now_ns: int) -> bool:
        """The request in flight has had its time."""
        return self._correlation != 0 and now_ns >= self._deadline_ns

    def next_timer_ns(self) -> int:
        if self._correlation == 0:
            return NEVER_NS
        if not self._unsent:
            return self._deadline_ns
        return min(self._deadline_ns, self._send_again_ns)

    def close(self) -> None:
        self.socket.close(0)

    def _try_send(self, now_ns: int) -> None:
        while self._unsent:
            if not link.try_send(self.socket, self._unsent[0]):
                self._send_again_ns = now_ns + self._gap_ns
                self._gap_ns = min(2 * self._gap_ns, _GAP_MAX_NS)
                return
            del self._unsent[0]
            self._gap_ns = _GAP_MIN_NS
