"""A client's sockets, each a link to one port of a replica (SAFETY M5).

One thread at a time uses a socket, and the thread that uses it closes it, or any thread under its
owner's lock. A doorbell may be rung from any thread. Only `park` waits for a peer. ZeroMQ queues
may lose messages: no delivery is promised here. Once the context is closed, or in a process that
was forked since, every use of a socket, except closing it, raises the error that the context's
owner chose.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import zmq

from transport.doorbell import Doorbell
from transport.link_socket import LinkSocket
from transport.poller import Poller
from transport.ports import Pollable
from transport.socket_options import HIGH_WATER_MARK, of_client

# How long `Context.close` waits for threads that use a socket. They are woken, so it takes a few
# ms. One that is in a user's callback learns of the end when it returns.
CLOSE_TIMEOUT_S = 2.0
# poll() takes an int, 24 days at most. For a longer wait the caller parks again.
PARK_MAX_MS = (1 << 31) - 1
# Masks of libzmq's I/O threads. A host's name is looked up in the thread of its socket, which does
# nothing else meanwhile: for seconds if no name server answers, and again at each try to connect.
# So names that may be wrong or gone are not looked up in the thread that carries data.
_DATA_THREAD = 1
_LOOKUP_THREAD = 2

# addresses that need no look-up
_ADDRESS = re.compile(r"tcp://[0-9.]+:[0-9]+")

Frame: TypeAlias = "bytes | memoryview"

# How often this process, or one that it descends from, was forked off. A socket and the threads
# behind it are of the process that made them: in a child libzmq waits for ever, or spins.
_forks = 0


def _count_fork() -> None:
    global _forks  # the one state here: of the process
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def forks() -> int:
    """What differs between a process and its child."""
    return _forks


class _ZmqContext(zmq.Context[Any]):
    """Makes sockets that are asked only where they may have input, monitors too.

    Knows its open sockets by references of its own. A client that is never closed is collected with
    them, and pyzmq's weak references are gone before the context is to close the sockets: it would
    wait for them for ever.
    """

    _socket_class = LinkSocket

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._sockets: set[LinkSocket] = set()  # type: ignore[assignment]  # pyzmq's is weak

    def close_sockets(self) -> None:
        for socket in list(self._sockets):
            socket.close(0)


class Context:
    """The ZeroMQ context of one client; any thread may create links in it."""

    def __init__(self, *, message_size_max: int, closed: Callable[[], Exception]) -> None:
        """`message_size_max`: bytes of one frame; a replica that sends more is disconnected.
        `closed` makes the error that is raised in every thread that still uses the client."""
        self.closed = closed
        self._forks = _forks
        self._message_size_max = message_size_max
        self._context = _ZmqContext(io_threads=2)
        self._context.set(zmq.MAX_SOCKETS, 4_096)
        # creating a socket may race the end of the context
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked since (FAULTS Z7)."""
        return self._forks != _forks

    def requester(
        self, address: str, *, reports_refusals: bool = False, is_probe: bool = False
    ) -> Requester:
        return Requester(self, address, reports_refusals=reports_refusals, is_probe=is_probe)

    def pusher(self, address: str) -> Pusher:
        return Pusher(self, address)

    def feed(self, address: str, topic: bytes, *, queue_max: int) -> Feed:
        return Feed(self, address, topic, queue_max)

    def socket(
        self, kind: int, *, thread: int = _DATA_THREAD, queue_max: int = HIGH_WATER_MARK
    ) -> LinkSocket:
        """A socket with its options; `queue_max`: messages, per direction."""
        if self.is_of_parent:  # before the lock, which a thread of the parent may hold
            raise self.closed()
        with self._lock:
            if self._is_closed:
                raise self.closed()
            with _system_errors():
                socket: LinkSocket = self._context.socket(kind)
        options = of_client(
            kind, message_size_max=self._message_size_max, high_water_mark=queue_max
        )
        with _closing_on_failure(self, socket):
            socket.setsockopt(zmq.AFFINITY, thread)
            for option, value in options.items():
                socket.setsockopt(option, value)
        return socket

    def close(self) -> None:
        """Wake every thread that waits on a socket; return once all have closed their sockets.

        Terminating a context is the only thing that libzmq lets another thread do to sockets: it
        wakes their owners and waits until these have closed them. Closing the sockets here would be
        a use from two threads. It waits in a thread of its own, because a user's callback may hold
        an owner up for any time.
        """
        ending = self._end()
        if ending is not None:
            ending.join(CLOSE_TIMEOUT_S)

    def close_with_sockets(self) -> None:
        """Close every socket in this thread, which is the only one that uses them. What libzmq does
        then may wait for a look-up of a name; it is not waited for."""
        if not self.is_of_parent:
            self._context.close_sockets()
        self._end()

    def _end(self) -> threading.Thread | None:
        if self.is_of_parent:
            return None
        with self._lock:
            if self._is_closed:
                return None
            self._is_closed = True
        ending = threading.Thread(target=self._context.term, name="client-ending", daemon=True)
        ending.start()
        return ending


@contextlib.contextmanager
def _closing_on_failure(
    context: Context, socket: LinkSocket, monitor: LinkSocket | None = None
) -> Iterator[None]:
    """Close a socket whose set-up fails: nothing else has a reference to it."""
    try:
        yield
    except BaseException as error:
        _close(context, socket, monitor)
        if isinstance(error, zmq.ContextTerminated):
            raise context.closed() from None
        raise


def _monitor(context: Context, socket: LinkSocket, events: int) -> LinkSocket:
    with _closing_on_failure(context, socket), _system_errors():
        return socket.get_monitor_socket(events)


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Raises: OSError: no descriptor is left; it is ZeroMQ's error no more, which callers do not
    know."""
    try:
        yield
    except zmq.ZMQError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise OSError(error.errno, os.strerror(error.errno)) from error
        raise


def _close(context: Context, socket: LinkSocket, monitor: LinkSocket | None) -> None:
    if context.is_of_parent:
        return
    if monitor is not None:
        _close_monitor(socket, monitor)
    socket.close(0)


def _close_monitor(socket: LinkSocket, monitor: LinkSocket) -> None:
    if not socket.closed:
        with contextlib.suppress(zmq.ContextTerminated):
            socket.disable_monitor()
    monitor.close(0)


class Requester:
    """A DEALER to one ROUTER of a replica: requests out, replies in, matched by the caller.

    Who asks for reports of refusals must read them until `stop_reporting_refusals`: if about
    2,000 are unread, libzmq's I/O thread, which writes them, blocks and holds a lock that
    closing the socket needs.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        *,
        reports_refusals: bool = False,
        is_probe: bool = False,
    ) -> None:
        """`is_probe`: one of several replicas that are asked, some of which may be gone."""
        self.context = context
        thread = _LOOKUP_THREAD if is_probe and not _ADDRESS.fullmatch(address) else _DATA_THREAD
        self.socket = context.socket(zmq.DEALER, thread=thread)
        self.monitor: LinkSocket | None = None
        if reports_refusals:  # before the first try to connect
            self.monitor = _monitor(context, self.socket, zmq.EVENT_CONNECT_RETRIED)
        # readable with a reply or, if they are reported, with a refusal
        self.sources: tuple[LinkSocket, ...]
        self.sources = (self.socket,) if self.monitor is None else (self.socket, self.monitor)
        with _closing_on_failure(context, self.socket, self.monitor):
            self.socket.connect(address)

    def was_refused(self) -> bool:
        """Whether a try to connect has failed, or a connection has broken, since the last call."""
        if self.monitor is None:
            return False
        return bool(_drain(self.context, self.monitor))

    def stop_reporting_refusals(self) -> None:
        """Stop reporting refusals."""
        if self.monitor is not None:
            _close_monitor(self.socket, self.monitor)
            self.monitor = None
            self.sources = (self.socket,)

    def try_send(self, frame: bytes) -> bool:
        """Queue one request; False while there is no connection."""
        return _try_send(self.context, self.socket, frame)

    def try_receive(self) -> list[Frame] | None:
        """One reply. Its frames are views of libzmq's memory; each view keeps its frame alive."""
        return _try_receive(self.context, self.socket)

    def close(self) -> None:
        _close(self.context, self.socket, self.monitor)


class Pusher:
    """A PUSH to a replica's append port; it knows when its connection is gone."""

    def __init__(self, context: Context, address: str) -> None:
        self.context = context
        self.socket = context.socket(zmq.PUSH)
        self.monitor = _monitor(context, self.socket, zmq.EVENT_DISCONNECTED)
        self.sources = (self.monitor,)  # what becomes readable when the connection breaks
        with _closing_on_failure(context, self.socket, self.monitor):
            self.socket.connect(address)

    def try_send(self, frame: bytes) -> bool:
        """Queue one append; False while there is no connection or no room."""
        return _try_send(self.context, self.socket, frame)

    def is_lost(self) -> bool:
        """Whether the connection broke since it was made."""
        return _try_receive(self.context, self.monitor) is not None

    def close(self) -> None:
        _close(self.context, self.socket, self.monitor)


class Feed:
    """A SUB on one feed of a replica. The sender drops what it does not take in time."""

    def __init__(self, context: Context, address: str, topic: bytes, queue_max: int) -> None:
        self.context = context
        self.socket = context.socket(zmq.SUB, queue_max=queue_max)
        self.sources = (self.socket,)
        with _closing_on_failure(context, self.socket):
            self.socket.setsockopt(zmq.SUBSCRIBE, topic)
            self.socket.connect(address)

    def try_receive(self) -> list[Frame] | None:
        return _try_receive(self.context, self.socket)

    def close(self) -> None:
        _close(self.context, self.socket, None)


def park(
    reads: Sequence[Requester | Pusher | Feed],
    writes: Sequence[Requester | Pusher],
    bell: Doorbell | None,
    timeout_ms: int,
) -> None:
    """Park this thread until one of `reads` has a message, one of `writes` has a connection and
    room, or the bell rings; at most `timeout_ms`, and at most PARK_MAX_MS.

    Raises: the context's error once it is closed, if there is a link of it.
    """
    for link in (*reads, *writes)[:1]:
        if link.context.is_of_parent:
            raise link.context.closed()
    items: list[Pollable] = [source for link in reads for source in link.sources]
    if bell is not None:
        items.append(bell)
    sends = [link.socket for link in writes]
    try:
        Poller().wait(items, min(timeout_ms, PARK_MAX_MS), sends)
    except zmq.ContextTerminated:
        raise (*reads, *writes)[0].context.closed() from None


def _drain(context: Context, monitor: LinkSocket) -> int:
    """Take every event; returns how many."""
    count = 0
    while _try_receive(context, monitor) is not None:
        count += 1
    return count


def _try_send(context: Context, socket: LinkSocket, frame: bytes) -> bool:
    if context.is_of_parent:
        raise context.closed()
    socket.hint.may_have_input = True
    try:
        socket.send(frame, zmq.NOBLOCK)
    except zmq.Again:
        return False
    except zmq.ContextTerminated:
        raise context.closed() from None
    return True


def _try_receive(context: Context, socket: LinkSocket) -> list[Frame] | None:
    if context.is_of_parent:
        raise context.closed()
    try:
        if not socket.may_receive():
            return None
        frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    except zmq.Again:
        return None
    except zmq.ContextTerminated:
        raise context.closed() from None
    return [frame.buffer for frame in frames]
