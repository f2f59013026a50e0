"""The client's sockets: the only module of the client that imports zmq (SAFETY M5).

Every socket is used by the thread that made it, or under its owner's lock (`listed`); the doorbell
alone may be rung from any. Nothing here waits for a peer but `Waiter.wait`. ZeroMQ queues may lose
what is in them: nothing here promises delivery.
"""

from __future__ import annotations

import contextlib
import os
from typing import TypeAlias

import zmq

from logstore.limits import FETCH_MAX_BYTES, MESSAGE_MAX_BYTES

HEARTBEAT_INTERVAL_MS = 200
HEARTBEAT_TIMEOUT_MS = 1_000
HANDSHAKE_TIMEOUT_MS = 2_000
RECONNECT_MIN_MS = 50
RECONNECT_MAX_MS = 500
TCP_RETRANSMIT_MS = 3_000
KEEPALIVE_S = 1
KEEPALIVE_PROBES = 3
# Messages, not bytes: the bytes are bounded by the producer's window and by one fetch in flight.
QUEUE_MAX_MESSAGES = 256
# Tail groups are at most 256 KiB: 128 of them bound a slow consumer's queue to 32 MiB.
TAIL_QUEUE_MAX_MESSAGES = 128
# A fetch may end with one whole group above its limit.
REPLY_MAX_BYTES = 2 * FETCH_MAX_BYTES + MESSAGE_MAX_BYTES

Frame: TypeAlias = "bytes | memoryview"


class Context:
    """The ZeroMQ context of one client; any thread may make its sockets in it."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 4_096)

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MIN_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES)
        socket.setsockopt(zmq.SNDHWM, QUEUE_MAX_MESSAGES)
        socket.setsockopt(zmq.RCVHWM, QUEUE_MAX_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, REPLY_MAX_BYTES)
        return socket

    def close(self) -> None:
        """Close every socket and the context. No other thread may still use one."""
        self._context.destroy(linger=0)


def _enable_heartbeats(socket: zmq.Socket[bytes]) -> None:
    """Notice a silent peer. Only where both sides always read: a full queue stalls these, too."""
    socket.setsockopt(zmq.TCP_MAXRT, TCP_RETRANSMIT_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)


class Requester:
    """A DEALER to one ROUTER of a replica: requests out, replies in, matched by the caller."""

    def __init__(self, context: Context, address: str, *, watches_refusals: bool = False) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.monitor: zmq.Socket[bytes] | None = None
        _enable_heartbeats(self.socket)
        if watches_refusals:  # from before the first try on
            self.monitor = self.socket.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
        self.socket.connect(address)

    def was_refused(self) -> bool:
        """Whether a try to connect has failed, or a connection has broken, since the last look."""
        if self.monitor is None:
            return False
        return bool(_drain(self.monitor))

    def try_send(self, frame: bytes) -> bool:
        """Queue one request; False while there is no connection."""
        return _try_send(self.socket, frame)

    def try_receive(self) -> list[Frame] | None:
        """One reply, its frames lent by libzmq's own memory (each view keeps its frame alive)."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in frames]

    def close(self) -> None:
        if self.monitor is not None:
            self.socket.disable_monitor()
            self.monitor.close(0)
        self.socket.close()


class Pusher:
    """A PUSH to a replica's append port, which knows when its connection is gone."""

    def __init__(self, context: Context, address: str) -> None:
        self.socket = context.socket(zmq.PUSH)
        self.monitor: zmq.Socket[bytes] = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.socket.connect(address)

    def try_send(self, frame: bytes) -> bool:
        """Queue one append; False while there is no connection or no room."""
        return _try_send(self.socket, frame)

    def is_lost(self) -> bool:
        """Whether the connection broke since it was made."""
        try:
            self.monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(0)
        self.socket.close()


class Feed:
    """A SUB on one feed of a replica. What it does not take in time is dropped by the sender."""

    def __init__(self, context: Context, address: str, topic: bytes, queue_max: int) -> None:
        self.socket = context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.RCVHWM, queue_max)
        self.socket.setsockopt(zmq.SUBSCRIBE, topic)
        self.socket.connect(address)

    def try_receive(self) -> list[Frame] | None:
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        return [frame.buffer for frame in frames]

    def close(self) -> None:
        self.socket.close()


class Doorbell:
    """An eventfd: any thread rings, the owner of the sockets parks on it together with them."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class Waiter:
    """Parks a thread on sockets and doorbells together."""

    def __init__(self, *sources: Requester | Feed | Doorbell) -> None:
        self._poller = zmq.Poller()
        for source in sources:
            self.add(source)

    def add(self, source: Requester | Feed | Doorbell) -> None:
        self._poller.register(_pollable(source), zmq.POLLIN)

    def remove(self, source: Requester | Feed | Doorbell) -> None:
        self._poller.unregister(_pollable(source))

    def add_monitor(self, watched: Pusher | Requester) -> None:
        """Wake when the connection breaks, or where that is watched, is refused."""
        if watched.monitor is not None:
            self._poller.register(watched.monitor, zmq.POLLIN)

    def want_to_send(self, sender: Pusher | Requester) -> None:
        """Wake when `sender` has a connection and room, too."""
        extra = zmq.POLLIN if isinstance(sender, Requester) else 0
        self._poller.register(sender.socket, zmq.POLLOUT | extra)

    def sent(self, sender: Pusher | Requester) -> None:
        """No longer wake for room at `sender`."""
        if isinstance(sender, Requester):
            self._poller.register(sender.socket, zmq.POLLIN)
        elif sender.socket in self._poller:
            self._poller.unregister(sender.socket)

    def wait(self, timeout_ms: int) -> bool:
        """Park until something is there, at most `timeout_ms` (0: only look); whether it is."""
        return bool(self._poller.poll(timeout_ms))


def _pollable(source: Requester | Feed | Doorbell) -> zmq.Socket[bytes] | int:
    return source.fileno() if isinstance(source, Doorbell) else source.socket


def _drain(monitor: zmq.Socket[bytes]) -> int:
    """Take every event that lies there; how many."""
    count = 0
    try:
        while True:
            monitor.recv_multipart(zmq.NOBLOCK)
            count += 1
    except zmq.Again:
        return count


def _try_send(socket: zmq.Socket[bytes], frame: bytes) -> bool:
    try:
        socket.send(frame, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True
