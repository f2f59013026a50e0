"""A producer's sockets to one node: the ack feed, and the PUSH of one round.

Owns the sockets and the round's prefix, nothing that outlives them. Must not know what is in a
batch or what an acknowledgement means.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MESSAGES_PER_WORK
from actors.simulation.clients.wire import Wire
from logstore.format.client_messages import Acks, Welcome, append_prefix
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.settings import PortOffset
from transport import link


class Connection:
    """It subscribes at once; it can push from `open_push` on."""

    def __init__(self, wire: Wire, node: int, producer_id: int) -> None:
        host = wire.host
        self.node = node
        self.is_closed = False
        self.feed = host.links.sub_connect(
            host.endpoint(node, PortOffset.ACKS),
            topics=(producer_id.to_bytes(8, "little"),),
            message_size_max=MESSAGE_MAX_BYTES,
        )
        self._wire = wire
        self._producer_id = producer_id
        self._push: Any = None
        self._prefix = b""

    def open_push(self, round_number: int) -> None:
        """A new PUSH socket, nothing of an older round in it."""
        host = self._wire.host
        self._prefix = append_prefix(round_number)
        self._push = host.links.push_connect(
            host.endpoint(self.node, PortOffset.APPEND), message_size_max=MESSAGE_MAX_BYTES
        )

    def try_push(self, batch: bytes) -> bool:
        """Send a batch under the round; False: no connection, or no room. Hot."""
        return link.try_send(self._push, (self._prefix + batch,))

    def try_push_frame(self, frame: bytes) -> bool:
        """Send any frame at all."""
        return link.try_send(self._push, (frame,))

    def messages(self) -> Iterator[Acks | Welcome]:
        """What lies in the feed, until it is closed in between. Hot."""
        wire = self._wire
        for _ in range(MESSAGES_PER_WORK):
            if self.is_closed or (frames := link.try_receive(self.feed)) is None:
                return
            decoded = wire.decode(frames[-1])
            if decoded is None:
                continue
            message = decoded[1]
            if type(message) is Welcome:
                yield message
            elif type(message) is not Acks or message.producer_id != self._producer_id:
                text = f"{message} on the ack feed of producer {self._producer_id}"
                wire.violated(Invariant.I11, text)
            else:
                yield message

    def close(self) -> None:
        self.is_closed = True
        for socket in (self._push, self.feed):
            if socket is not None:
                socket.close(0)
