"""Whether a connecting ZeroMQ socket has lost its connection, or was refused one (SAFETY M5, C1).

Owns the monitor of one socket. libzmq connects again by itself, so a loss is only reported. Must
not know what it means that a peer is gone. Events are read whenever the owner asks, so that they do
not pile up.
"""

from __future__ import annotations

import itertools
from typing import Any

import zmq

from transport.link_socket import LinkSocket

_LOST = int(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
_DONTWAIT = int(zmq.DONTWAIT)
_EVENTS_MAX = 256  # read at once; retries are at least 50 ms apart
# An address is free again only once libzmq's own thread has closed the monitor.
_numbers = itertools.count()


class ConnectionWatch:
    """The monitor of `socket`, which the owner closes after it. `source` is readable when there is
    news."""

    def __init__(self, socket: LinkSocket) -> None:
        self._socket = socket
        address = f"inproc://watch-{next(_numbers)}"
        socket.monitor(address, _LOST)
        context: zmq.Context[Any] = socket.context
        self.source = context.socket(zmq.PAIR, socket_class=LinkSocket)
        self.source.setsockopt(zmq.LINGER, 0)
        self.source.connect(address)

    def was_lost(self) -> bool:
        """Whether the connection ended, or a try to connect failed, since the last call. Hot."""
        is_lost = False
        for _ in range(_EVENTS_MAX):
            if not self.source.may_receive():
                break
            self.source.recv_multipart(_DONTWAIT)
            is_lost = True
        return is_lost

    def close(self) -> None:
        self._socket.disable_monitor()
        self.source.close(linger=0)
