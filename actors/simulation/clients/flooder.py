"""Opens one name in bursts and waits for no answer: whoever does that must not hold up appends
(SAFETY E6).

It never appends. That appends have their turn is `checkers.turns`' to see.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, OpenSessionReply
from logstore.limits import MESSAGE_MAX_BYTES, SESSION_WINDOW_MIN
from logstore.model import SequenceMode
from logstore.settings import PortOffset
from transport import link
from transport.link import Lane

_BURST = 60
_BURST_EVERY_NS = (300 * MS_NS, 2_500 * MS_NS)
_ASK_EVERY_NS = 100 * MS_NS  # while nobody is known to lead


class Flooder:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost, name: bytes) -> None:
        self.host = host
        self.wire = Wire(host)
        self._wish = Wish(SequenceMode.MONOTONE, SESSION_WINDOW_MIN, name)
        self._sockets: dict[int, Any] = {}
        self._leader = 0
        self._next_ns = 0
        self._is_stopped = False

    @property
    def is_asking(self) -> bool:
        """It waits for nothing."""
        return False

    def stop(self) -> None:
        """Ask no more. Wake its process."""
        self._is_stopped = True

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        for node, socket in self._sockets.items():
            while (frames := link.try_receive(socket)) is not None:
                decoded = self.wire.decode(frames[0])
                if decoded is not None:
                    self._answered(node, decoded[1])
        if now_ns >= self._next_ns and not self._is_stopped:
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        return list(self._sockets.values())

    def next_timer_ns(self) -> int:
        return NEVER_NS if self._is_stopped else self._next_ns

    def on_close(self) -> None:
        for socket in self._sockets.values():
            socket.close(0)
        self._sockets.clear()

    def _ask(self, now_ns: int) -> None:
        host = self.host
        node = self._leader or host.any_node()
        socket = self._sockets.get(node)
        if socket is None:
            socket = self._sockets[node] = host.links.dealer_connect(
                host.endpoint(node, PortOffset.CONTROL),
                lane=Lane.CONTROL,
                message_size_max=MESSAGE_MAX_BYTES,
            )
        for _ in range(_BURST if self._leader else 1):
            _, frame = self.wire.encode(self._wish.request())
            if link.try_send(socket, (frame,)):
                self.wire.count("asked")
        pause_ns = host.random.randrange(*_BURST_EVERY_NS) if self._leader else _ASK_EVERY_NS
        self._next_ns = now_ns + pause_ns
        self._leader = 0

    def _answered(self, node: int, message: Any) -> None:
        if isinstance(message, OpenSessionReply):
            self._leader = node
        elif isinstance(message, ErrorReply):
            self.wire.count(f"refused-{message.code}")
            if message.code == ErrorCode.NOT_LEADER:
                self._leader = message.leader
            elif message.code == ErrorCode.OVERLOADED:
                self._leader = node
