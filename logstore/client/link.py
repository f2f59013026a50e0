"""The client's sockets: the only module of the client that imports zmq (SAFETY M5).

A socket is used by one thread at a time, and closed by the one that uses it, or under its owner's
lock (`listed`); a doorbell may be rung from any. Nothing here waits for a peer but `Waiter.wait`.
ZeroMQ queues may lose what is in them: nothing here promises delivery. Once the context is closed,
whatever is done with a socket but closing it raises `Closed`.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from typing import TypeAlias

import zmq

from logstore.errors import Closed
from logstore.limits import FETCH_MAX_BYTES, MESSAGE_MAX_BYTES
from transport.doorbell import Doorbell

HEARTBEAT_INTERVAL_MS = 200
HEARTBEAT_TIMEOUT_MS = 1_000
HANDSHAKE_TIMEOUT_MS = 2_000
RECONNECT_MIN_MS = 50
RECONNECT_MAX_MS = 500
TCP_RETRANSMIT_MS = 3_000
KEEPALIVE_S = 1
KEEPALIVE_PROBES = 3
# How long `Context.close` waits for threads that are amid a call: they are woken, so for a few ms.
# One that does not come (it is in a callback of the user's) finds out when it comes.
CLOSE_TIMEOUT_S = 2.0
# Messages, not bytes: the bytes are bounded by the producer's window and by one fetch in flight.
QUEUE_MAX_MESSAGES = 256
# Tail groups are at most 256 KiB: 128 of them bound a slow consumer's queue to 32 MiB.
TAIL_QUEUE_MAX_MESSAGES = 128
# A fetch may end with one whole group above its limit.
REPLY_MAX_BYTES = 2 * FETCH_MAX_BYTES + MESSAGE_MAX_BYTES

# Masks of libzmq's I/O threads. A host's name is looked up in the thread of its socket, which does
# nothing else meanwhile, for seconds where no server of names answers, and again at each try to
# connect. So names that may be wrong or gone are not looked up where data flows.
_DATA_THREAD = 1
_LOOKUP_THREAD = 2

_OPTIONS: tuple[tuple[int, int | bytes], ...] = (
    (zmq.AFFINITY, _DATA_THREAD),
    (zmq.LINGER, 0),
    (zmq.IMMEDIATE, 1),
    (zmq.HANDSHAKE_IVL, HANDSHAKE_TIMEOUT_MS),
    (zmq.RECONNECT_IVL, RECONNECT_MIN_MS),
    (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
    (zmq.TCP_KEEPALIVE, 1),
    (zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_S),
    (zmq.TCP_KEEPALIVE_INTVL, KEEPALIVE_S),
    (zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES),
    (zmq.SNDHWM, QUEUE_MAX_MESSAGES),
    (zmq.RCVHWM, QUEUE_MAX_MESSAGES),
    (zmq.MAXMSGSIZE, REPLY_MAX_BYTES),
)
# Notice a silent peer. Only where both sides always read: a full queue stalls these, too.
_HEARTBEATS = (
    (zmq.TCP_MAXRT, TCP_RETRANSMIT_MS),
    (zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS),
    (zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS),
)

# What needs no looking up.
_ADDRESS = re.compile(r"tcp://[0-9.]+:[0-9]+")

Frame: TypeAlias = "bytes | memoryview"


class Context:
    """The ZeroMQ context of one client; any thread may make its sockets in it."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=2)
        self._context.set(zmq.MAX_SOCKETS, 4_096)
        # Between the end of a context and a socket that another thread makes in it.
        self._lock = threading.Lock()
        self._is_closed = False

    def socket(self, kind: int, *options: tuple[int, int | bytes]) -> zmq.Socket[bytes]:
        """A socket with the options that all have, and with these.

        Raises:
          Closed: the context is.
        """
        with self._lock:
            if self._is_closed:
                raise closed()
            socket = self._context.socket(kind)
        with _closing_on_failure(socket):
            for option, value in (*_OPTIONS, *options):
                socket.setsockopt(option, value)
        return socket

    def close(self) -> None:
        """Wake every thread that waits on a socket, with `Closed`; end once all have closed theirs.

        Terminating a context is the one thing that libzmq lets another thread do to sockets: it
        wakes their owners and waits until these have closed them. Closing the sockets here would
        pull them from under their owners. It waits in a thread of its own, since an owner may be
        held up for as long as a callback of the user's likes.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        ending = threading.Thread(target=self._context.term, name="client-ending", daemon=True)
        ending.start()
        ending.join(CLOSE_TIMEOUT_S)


def closed() -> Closed:
    """What is raised in every thread that still uses the client."""
    return Closed("the client was closed: connect again")


@contextlib.contextmanager
def _closing_on_failure(
    socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None = None
) -> Iterator[None]:
    """A socket that could not be finished is closed: nobody else knows of it."""
    try:
        yield
    except BaseException as error:
        _close(socket, monitor)
        if isinstance(error, zmq.ContextTerminated):
            raise closed() from None
        raise


def _monitor(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    with _closing_on_failure(socket):
        return socket.get_monitor_socket(events)


def _close(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes] | None) -> None:
    if monitor is not None:
        _close_monitor(socket, monitor)
    socket.close(0)


def _close_monitor(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
    with contextlib.suppress(zmq.ContextTerminated):
        socket.disable_monitor()
    monitor.close(0)


class Requester:
    """A DEALER to one ROUTER of a replica: requests out, replies in, matched by the caller.

    Who watches refusals reads them all the time, and stops watching before it does something else:
    libzmq's I/O thread, which writes them, waits for ever where about 2,000 lie unread, and holds a
    lock that closing the socket needs.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        *,
        watches_refusals: bool = False,
        asks_around: bool = False,
    ) -> None:
        """`asks_around`: of several replicas each is asked, and some may be gone."""
        thread = _LOOKUP_THREAD if asks_around and not _ADDRESS.fullmatch(address) else _DATA_THREAD
        self.socket = context.socket(zmq.DEALER, *_HEARTBEATS, (zmq.AFFINITY, thread))
        self.monitor: zmq.Socket[bytes] | None = None
        if watches_refusals:  # from before the first try on
            self.monitor = _monitor(self.socket, zmq.EVENT_CONNECT_RETRIED)
        with _closing_on_failure(self.socket, self.monitor):
            self.socket.connect(address)

    def was_refused(self) -> bool:
        """Whether a try to connect has failed, or a connection has broken, since the last look."""
        if self.monitor is None:
            return False
        return bool(_drain(self.monitor))

    def stop_watching(self) -> None:
        """Look for refusals no more."""
        if self.monitor is not None:
            _close_monitor(self.socket, self.monitor)
            self.monitor = None

    def try_send(self, frame: bytes) -> bool:
        """Queue one request; False while there is no connection."""
        return _try_send(self.socket, frame)

    def try_receive(self) -> list[Frame] | None:
        """One reply, its frames lent by libzmq's own memory (each view keeps its frame alive)."""
        return _try_receive(self.socket)

    def close(self) -> None:
        _close(self.socket, self.monitor)


class Pusher:
    """A PUSH to a replica's append port, which knows when its connection is gone."""

    def __init__(self, context: Context, address: str) -> None:
        self.socket = context.socket(zmq.PUSH)
        self.monitor = _monitor(self.socket, zmq.EVENT_DISCONNECTED)
        with _closing_on_failure(self.socket, self.monitor):
            self.socket.connect(address)

    def try_send(self, frame: bytes) -> bool:
        """Queue one append; False while there is no connection or no room."""
        return _try_send(self.socket, frame)

    def is_lost(self) -> bool:
        """Whether the connection broke since it was made."""
        return _try_receive(self.monitor) is not None

    def close(self) -> None:
        _close(self.socket, self.monitor)


class Feed:
    """A SUB on one feed of a replica. What it does not take in time is dropped by the sender."""

    def __init__(self, context: Context, address: str, topic: bytes, queue_max: int) -> None:
        self.socket = context.socket(zmq.SUB, (zmq.RCVHWM, queue_max), (zmq.SUBSCRIBE, topic))
        with _closing_on_failure(self.socket):
            self.socket.connect(address)

    def try_receive(self) -> list[Frame] | None:
        return _try_receive(self.socket)

    def close(self) -> None:
        self.socket.close()


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
        """Park until something is there, at most `timeout_ms` (0: only look); whether it is.

        Raises:
          Closed: the context is, and one of the sources is a socket of it.
        """
        try:
            return bool(self._poller.poll(timeout_ms))
        except zmq.ContextTerminated:
            raise closed() from None


def _pollable(source: Requester | Feed | Doorbell) -> zmq.Socket[bytes] | int:
    return source.fileno() if isinstance(source, Doorbell) else source.socket


def _drain(monitor: zmq.Socket[bytes]) -> int:
    """Take every event that lies there; how many."""
    count = 0
    while _try_receive(monitor) is not None:
        count += 1
    return count


def _try_send(socket: zmq.Socket[bytes], frame: bytes) -> bool:
    try:
        socket.send(frame, zmq.NOBLOCK)
    except zmq.Again:
        return False
    except zmq.ContextTerminated:
        raise closed() from None
    return True


def _try_receive(socket: zmq.Socket[bytes]) -> list[Frame] | None:
    try:
        frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None
    except zmq.ContextTerminated:
        raise closed() from None
    return [frame.buffer for frame in frames]
