"""The links of the client's core, over the sockets of the virtual network.

Owns the sockets. Each link shows every message that it sends or receives to one observer, so that
checkers see messages that the core does not pass on. Must not know what a message says.
"""

from __future__ import annotations

from typing import Any, Protocol

from actors.simulation.world.client_host import ClientLinks
from logstore.client.core.steps import Frame
from logstore.limits import MESSAGE_MAX_BYTES
from transport import link
from transport.link import Lane


class FrameObserver(Protocol):
    """Sees every message of one client, and the link that carries it."""

    def sent(self, link: SimulatedLink, frame: bytes) -> None:
        """The link has taken this message."""

    def received(self, link: SimulatedLink, frames: list[bytes]) -> None:
        """The core is about to read this message."""

    def closed(self, link: SimulatedLink) -> None:
        """Nothing comes over this link any more."""


class SimulatedLink:
    """One socket. It wakes its process when a message comes, as every socket does, and when its
    connection comes or goes."""

    def __init__(
        self, socket: Any, address: str, topic: bytes, observer: FrameObserver | None
    ) -> None:
        self.socket = socket
        self.address = address
        self.topic = topic
        self._observer = observer
        self.is_closed = False
        self.loses_next = False  # for mischief: the next message is taken, and never sent
        self.is_connected = False  # known where the link can send
        self._reports_refusals = self._watches_loss = False
        self._is_broken = False  # a break that is watched for, and was not looked at yet

    @property
    def has_news(self) -> bool:
        """Whether there is a message, or a break that is watched for."""
        return self._is_broken or self.socket.is_readable

    @property
    def can_send(self) -> bool:
        """Whether there is a connection, and room."""
        return bool(self.socket.can_send)

    def watch(self, *, refusals: bool, loss: bool) -> None:
        """From now on wake the process when the connection comes or goes."""
        self._reports_refusals, self._watches_loss = refusals, loss
        self.socket.on_connection = self._on_connection

    def try_send(self, frame: bytes) -> bool:
        if self.loses_next:
            self.loses_next = False
            return True
        is_sent = link.try_send(self.socket, (frame,))
        if is_sent and self._observer is not None:
            self._observer.sent(self, frame)
        return is_sent

    def try_receive(self) -> list[Frame] | None:
        frames = link.try_receive(self.socket)
        if frames is None:
            return None
        if self._observer is not None:
            self._observer.received(self, frames)
        return list(frames)

    def is_lost(self) -> bool:
        is_broken, self._is_broken = self._is_broken, False
        return is_broken

    was_refused = is_lost

    def stop_reporting_refusals(self) -> None:
        self._reports_refusals = self._is_broken = False

    def close(self) -> None:
        self.is_closed = True
        self.socket.on_connection = None
        self.socket.close(0)
        if self._observer is not None:
            self._observer.closed(self)

    def _on_connection(self, is_connected: bool) -> None:
        if not is_connected and self._reports_refusals:
            self._is_broken = True
        if not is_connected and self._watches_loss and self.is_connected:
            self._is_broken = True
        self.is_connected = is_connected
        self.socket.owner.wake()


class SimulatedLinks:
    """The core's `Links`. `observer` sees the messages of all of them."""

    def __init__(self, links: ClientLinks, observer: FrameObserver | None = None) -> None:
        self.last_pusher: SimulatedLink | None = None
        self._links = links
        self._observer = observer

    def requester(
        self, address: str, *, reports_refusals: bool = False, is_probe: bool = False
    ) -> SimulatedLink:
        del is_probe  # it says where names are looked up, and there are none here
        socket = self._links.dealer_connect(
            address, lane=Lane.CONTROL, message_size_max=MESSAGE_MAX_BYTES
        )
        made = SimulatedLink(socket, address, b"", self._observer)
        made.watch(refusals=reports_refusals, loss=False)
        return made

    def pusher(self, address: str) -> SimulatedLink:
        socket = self._links.push_connect(address, message_size_max=MESSAGE_MAX_BYTES)
        made = SimulatedLink(socket, address, b"", self._observer)
        made.watch(refusals=False, loss=True)
        self.last_pusher = made
        return made

    def feed(self, address: str, topic: bytes, *, queue_max: int) -> SimulatedLink:
        socket = self._links.sub_connect(
            address,
            topics=(topic,),
            message_size_max=MESSAGE_MAX_BYTES,
            high_water_mark=queue_max,
        )
        return SimulatedLink(socket, address, topic, self._observer)
