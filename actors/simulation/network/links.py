"""How one simulated process opens its sockets: each method as the function of `transport.link`.

Owns the signatures. Must not know what becomes of a socket. A socket is told its lane, for checkers
to see; connections of both break the same way. `insecure` makes no difference: any address may be
bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import zmq

from actors.simulation.network.socket import Switchboard, VirtualSocket
from actors.simulation.network.wire import Owner
from transport.link import Lane
from transport.socket_options import HIGH_WATER_MARK


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
        socket = self._make(zmq.ROUTER, endpoint, message_size_max, high_water_mark)
        socket.lane = lane
        return self._listen(socket)

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
        socket = self._make(zmq.DEALER, endpoint, message_size_max, high_water_mark)
        socket.lane = lane
        socket.routing_id = routing_id
        return self._connect(socket)

    def pull_bind(
        self,
        endpoint: str,
        *,
        message_size_max: int,
        high_water_mark: int = HIGH_WATER_MARK,
        insecure: bool = False,
    ) -> VirtualSocket:
        """What arrives is taken in the order of arrival."""
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
        """VERBOSE: every subscription is received, and the end of a topic's last one."""
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
        """Subscribed to `topics` (prefixes) with every connection that is made."""
        socket = self._make(zmq.SUB, endpoint, message_size_max, high_water_mark)
        socket.topics = tuple(topics)
        return self._connect(socket)

    def _make(
        self, kind: int, endpoint: str, message_size_max: int, high_water_mark: int
    ) -> VirtualSocket:
        return VirtualSocket(
            self._switchboard,
            self._owner,
            kind,
            endpoint,
            message_size_max=message_size_max,
            high_water_mark=high_water_mark,
        )

    def _listen(self, socket: VirtualSocket) -> VirtualSocket:
        self._switchboard.listen(socket)
        return socket

    def _connect(self, socket: VirtualSocket) -> VirtualSocket:
        self._switchboard.connect(socket)
        return socket
