"""How one simulated process opens its sockets: each method plays the function of `transport.link`.

Owns the signatures. Must not know how a socket works. Checkers and faults read a socket's lane; the
connections of both lanes break the same way. `insecure` is ignored: any address may be bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from actors.simulation.network.socket import Switchboard, VirtualSocket
from actors.simulation.network.wire import Owner
from transport.link import Lane
from transport.socket_options import HIGH_WATER_MARK


class VirtualWatch:
    """A `transport.ports.Watch`. It is its own source, on no lane and without messages."""

    lane = None
    oldest = None

    def __init__(self, socket: VirtualSocket) -> None:
        self.source = self
        self.is_readable = False  # there is news
        self._socket = socket
        socket.on_connection = self._on_connection

    def was_lost(self) -> bool:
        is_lost, self.is_readable = self.is_readable, False
        return is_lost

    def close(self) -> None:
        self._socket.on_connection = None

    def _on_connection(self, is_connected: bool) -> None:
        if not is_connected:
            self.is_readable = True
            self._socket.owner.wake()


class VirtualLinks:
    """The sockets of `owner`."""

    def __init__(self, switchboard: Switchboard, owner: Owner) -> None:
        self._switchboard = switchboard
        self._owner = owner

    def router_bind(
        self,
        endpoint: str,
        *,
        lane: Lane,
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
        insecure: bool = False,
    ) -> VirtualSocket:
        """MANDATORY and HANDOVER."""
        del insecure
        return self._listen(
            self._make(zmq.ROUTER, endpoint, message_size_max, high_water_mark, lane=lane)
        )

    def dealer_connect(
        self,
        endpoint: str,
        *,
        lane: Lane,
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
        routing_id: bytes = b"",
    ) -> VirtualSocket:
        """IMMEDIATE."""
        socket = self._make(zmq.DEALER, endpoint, message_size_max, high_water_mark, lane=lane)
        socket.routing_id = routing_id
        return self._connect(socket)

    def watch_connection(self, socket: VirtualSocket) -> VirtualWatch:
        """It wakes the owner as a monitor's socket does."""
        return VirtualWatch(socket)

    def pull_bind(
        self,
        endpoint: str,
        *,
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
        insecure: bool = False,
    ) -> VirtualSocket:
        """Messages are received in order of arrival."""
        del insecure
        return self._listen(self._make(zmq.PULL, endpoint, message_size_max, high_water_mark))

    def push_connect(
        self, endpoint: str, *, message_size_max: int, high_water_mark: int = HIGH_WATER_MARK
    ) -> VirtualSocket:
        """IMMEDIATE."""
        return self._connect(self._make(zmq.PUSH, endpoint, message_size_max, high_water_mark))

    def xpub_bind(
        self,
        endpoint: str,
        *,
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
        welcome: bytes = b"",
        insecure: bool = False,
    ) -> VirtualSocket:
        """VERBOSE: receives every subscription, and the end of a topic's last one."""
        del insecure
        socket = self._make(zmq.XPUB, endpoint, message_size_max, high_water_mark)
        socket.welcome = welcome
        return self._listen(socket)

    def sub_connect(
        self,
        endpoint: str,
        *,
        topics: Sequence[bytes],
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
    ) -> VirtualSocket:
        """Each new connection subscribes to `topics` (prefixes)."""
        socket = self._make(zmq.SUB, endpoint, message_size_max, high_water_mark)
        socket.topics = tuple(topics)
        return self._connect(socket)

    def _make(
        self,
        kind: int,
        endpoint: str,
        message_size_max: int,
        high_water_mark: int,
        lane: Lane = Lane.BULK,
    ) -> VirtualSocket:
        return VirtualSocket(
            self._switchboard,
            self._owner,
            kind,
            endpoint,
            lane=lane,
            message_size_max=message_size_max,
            high_water_mark=high_water_mark,
        )

    def _listen(self, socket: VirtualSocket) -> VirtualSocket:
        self._switchboard.listen(socket)
        return socket

    def _connect(self, socket: VirtualSocket) -> VirtualSocket:
        self._switchboard.connect(socket)
        return socket
