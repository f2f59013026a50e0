"""ZeroMQ sockets as this system uses them (SAFETY M5).

Owns bind checks, non-blocking send and receive. Must not know what a message means or who leads;
`socket_options` decides which options a socket gets. Invariants:
  - nothing here blocks (`transport.poller` does): `try_send` and `try_receive` return at once;
  - a socket is asked for a message only where it may have one: its descriptor was readable since it
    was last found empty, or it was sent on meanwhile (`LinkSocket`);
  - ZeroMQ drops silently (XPUB at the mark, queues on close), so nothing may depend on a queued
    message;
  - every send copies: memory of a ring is never lent to libzmq (SAFETY M4);
  - a node binds to loopback or to ipc in a folder of its user alone, unless told `insecure`.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeAlias

import zmq

from transport import socket_options
from transport.bind_policy import check_bind, check_port
from transport.connection_watch import ConnectionWatch
from transport.errors import LinkError, PortInUse, UnsupportedMachine
from transport.link_socket import LinkSocket
from transport.listening import FRAMES_MAX, ListeningSocket
from transport.ports import Socket
from transport.socket_options import HIGH_WATER_MARK

ZmqSocket: TypeAlias = "zmq.Socket[bytes]"

LIBZMQ_MIN = (4, 3, 4)
# Plain integers: pyzmq's flags are enums, and each `|` or `&` of them creates an object (1 µs).
_DONTWAIT = int(zmq.DONTWAIT)
_SNDMORE = int(zmq.SNDMORE)
_RCVMORE = int(zmq.RCVMORE)
_REFUSED = frozenset({errno.EAGAIN, errno.EHOSTUNREACH})
_BOUND = frozenset({zmq.ROUTER, zmq.PULL, zmq.XPUB})


class Lane(Enum):
    """Decides how a lane learns that its peer is gone."""

    CONTROL = "always read at once: heartbeats and TCP_MAXRT"
    BULK = "may be left unread under back-pressure: TCP keepalive only"


_LANES = {Lane.CONTROL: socket_options.CONTROL_LANE, Lane.BULK: socket_options.BULK_LANE}


def require_libzmq(version: tuple[int, int, int] | None = None) -> None:
    """Refuse a libzmq older than 4.3.4 (SAFETY M5).

    Raises:
      UnsupportedMachine: it is older.
    """
    actual = zmq.zmq_version_info() if version is None else version
    if actual < LIBZMQ_MIN:
        raise UnsupportedMachine(
            f"libzmq {'.'.join(map(str, actual))}: 4.3.4 or newer is needed; upgrade pyzmq"
        )


def use_io_threads(count: int) -> None:
    """How many threads of ZeroMQ move this process' bytes; call it before the first socket."""
    context: zmq.Context[Any] = zmq.Context.instance(io_threads=count)
    if context.get(zmq.IO_THREADS) != count:
        raise LinkError("IO threads are decided before the first socket: it is there already")


def router_bind(
    endpoint: str,
    *,
    lane: Lane,
    message_size_max: int,
    high_water_mark: int = HIGH_WATER_MARK,
    insecure: bool = False,
) -> ZmqSocket:
    """A ROUTER that answers peers; a send to an unknown or full peer is refused, not dropped.

    A peer that reconnects under its routing id takes the id over: the end of its old connection may
    not have been noticed yet.

    Args:
      endpoint: `tcp://127.0.0.1:PORT`, `tcp://127.0.0.1:*` (see `bound_endpoint`) or `ipc://PATH`.
      message_size_max: bytes of one frame; a peer that sends more is disconnected.
      high_water_mark: messages queued per peer and direction.
      insecure: allow addresses that others can reach.
    """
    socket = _make(zmq.ROUTER, lane, message_size_max, high_water_mark)
    return _bind(socket, endpoint, insecure=insecure)


def dealer_connect(
    endpoint: str,
    *,
    lane: Lane,
    message_size_max: int,
    high_water_mark: int = HIGH_WATER_MARK,
    routing_id: bytes = b"",
) -> ZmqSocket:
    """A DEALER to one ROUTER; it refuses sends while there is no connection (IMMEDIATE).

    Args:
      endpoint: where the ROUTER listens.
      message_size_max: bytes of one frame; a peer that sends more is disconnected.
      high_water_mark: messages queued per direction.
      routing_id: how the ROUTER knows this socket; empty: the ROUTER creates one per connection.
    """
    socket = _make(zmq.DEALER, lane, message_size_max, high_water_mark)
    if routing_id:
        socket.setsockopt(zmq.ROUTING_ID, routing_id)
    return _connect(socket, endpoint)


def watch_connection(socket: LinkSocket) -> ConnectionWatch:
    """Learn when the connection of a connecting socket ends, or a new one is refused. Close the
    watch before the socket.

    Raises:
      LinkError: no descriptor is left, for example; close the socket.
    """
    try:
        return ConnectionWatch(socket)
    except zmq.ZMQError as error:
        raise LinkError(f"cannot watch a connection: {error.strerror}") from error


def pull_bind(
    endpoint: str,
    *,
    message_size_max: int,
    high_water_mark: int = HIGH_WATER_MARK,
    insecure: bool = False,
) -> ZmqSocket:
    """A PULL that producers push to, with the options of a bulk lane."""
    socket = _make(zmq.PULL, Lane.BULK, message_size_max, high_water_mark)
    return _bind(socket, endpoint, insecure=insecure)


def push_connect(
    endpoint: str, *, message_size_max: int, high_water_mark: int = HIGH_WATER_MARK
) -> ZmqSocket:
    """A PUSH to one PULL, with the options of a bulk lane; it refuses sends while
    there is no connection."""
    return _connect(_make(zmq.PUSH, Lane.BULK, message_size_max, high_water_mark), endpoint)


def xpub_bind(
    endpoint: str,
    *,
    message_size_max: int,
    high_water_mark: int = HIGH_WATER_MARK,
    welcome: bytes = b"",
    insecure: bool = False,
) -> ZmqSocket:
    """An XPUB: publishes, drops at a slow subscriber's mark, and receives every subscription.

    A received frame is 1 and the topic for a subscription, 0 and the topic when a topic's last
    subscriber is gone. The welcome is sent when a connection is made, *before* its subscriptions
    are known. A publisher that must say "subscribed from here on" answers the received subscription
    under its topic.

    Args:
      endpoint: as for `router_bind`.
      message_size_max: bytes of one incoming frame, a subscription.
      high_water_mark: messages queued per subscriber; beyond it they are dropped for that one.
      welcome: first message of each connection; it reaches a subscriber with a topic that it begins
        with.
      insecure: allow addresses that others can reach.
    """
    socket = _make(zmq.XPUB, Lane.BULK, message_size_max, high_water_mark)
    if welcome:
        socket.setsockopt(zmq.XPUB_WELCOME_MSG, welcome)
    return _bind(socket, endpoint, insecure=insecure)


def sub_connect(
    endpoint: str,
    *,
    topics: Sequence[bytes],
    message_size_max: int,
    high_water_mark: int = HIGH_WATER_MARK,
) -> ZmqSocket:
    """A SUB to one XPUB. It subscribes to `topics` (prefixes) before it connects,
    so that it is welcomed."""
    socket = _make(zmq.SUB, Lane.BULK, message_size_max, high_water_mark)
    for topic in topics:
        socket.setsockopt(zmq.SUBSCRIBE, topic)
    return _connect(socket, endpoint)


def bound_endpoint(socket: ZmqSocket) -> str:
    """Where a socket listens, with the port that `*` became."""
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def try_receive(socket: Socket) -> list[bytes] | None:
    """The next message as frames of bytes; None if there is none. For small messages. Hot.

    At most FRAMES_MAX frames of a message are kept. No message of ours has so many, so a caller
    that checks the number of frames, as each does, refuses it.
    """
    if not socket.may_receive():
        return None  # an Again raised and caught costs 4.7 µs
    if type(socket) is ListeningSocket:
        taken = socket.try_take()
        return None if taken is None else [frame.bytes for frame in taken]
    try:
        frames: list[bytes] = [socket.recv(_DONTWAIT, copy=True)]
    except zmq.Again:
        return None
    while socket.getsockopt(_RCVMORE):
        frame = socket.recv(_DONTWAIT, copy=True)
        if len(frames) < FRAMES_MAX:
            frames.append(frame)
    return frames


def try_receive_views(socket: Socket) -> list[memoryview] | None:
    """The next message as views of libzmq's buffers, which live as long as the views. Hot.

    Saves one copy of a large frame on its way into a ring; slower than `try_receive` for small
    ones. Here, too, at most FRAMES_MAX frames are kept.
    """
    if not socket.may_receive():
        return None
    if type(socket) is ListeningSocket:
        taken = socket.try_take()
        return None if taken is None else [frame.buffer for frame in taken]
    try:
        frame = socket.recv(_DONTWAIT, copy=False)
    except zmq.Again:
        return None
    views = [frame.buffer]
    while frame.more:
        frame = socket.recv(_DONTWAIT, copy=False)
        if len(views) < FRAMES_MAX:
            views.append(frame.buffer)
    return views


def try_send(socket: Socket, frames: Sequence[bytes | memoryview]) -> bool:
    """Queue a message; False if there is no connection, no room, or no peer
    of that routing id. Hot.

    Frames are copied and may be reused on return. True means "queued", never "delivered"; XPUB
    returns it even for what it drops. The caller counts refusals.

    Raises:
      zmq.ZMQError: the socket is closed or cannot send.
    """
    if isinstance(socket, LinkSocket):
        socket.hint.may_have_input = True  # a send may process what made the descriptor readable
    flags = _DONTWAIT | _SNDMORE
    last = len(frames) - 1
    accepted = True
    for number, frame in enumerate(frames):
        try:
            socket.send(frame, flags if number < last else _DONTWAIT)
        except zmq.ZMQError as error:
            if error.errno not in _REFUSED:
                raise
            accepted = False
            if number == 0:
                break
            # The connection broke between two frames. libzmq drops the rest, but the message has to
            # be sent to its end, or the next one would count as that rest.
    return accepted


def _make(kind: int, lane: Lane, message_size_max: int, high_water_mark: int) -> LinkSocket:
    require_libzmq()
    context: zmq.Context[Any] = zmq.Context.instance()
    make: type[LinkSocket] = ListeningSocket if kind in _BOUND else LinkSocket
    try:
        socket: LinkSocket = context.socket(kind, socket_class=make)
    except zmq.ZMQError as error:
        raise LinkError(f"cannot make a socket: {error.strerror}") from error
    options = socket_options.of_replica(
        kind,
        _LANES[lane],
        message_size_max=message_size_max,
        high_water_mark=high_water_mark,
    )
    for option, value in options.items():
        socket.setsockopt(option, value)
    return socket


def _connect(socket: ZmqSocket, endpoint: str) -> ZmqSocket:
    for option, value in socket_options.of_replica_connecting().items():
        socket.setsockopt(option, value)
    try:
        check_port(endpoint)
        _allow_ipv6(socket, endpoint)
        socket.connect(endpoint)
    except LinkError:
        socket.close(linger=0)
        raise
    except zmq.ZMQError as error:
        socket.close(linger=0)
        raise LinkError(
            f"cannot connect to {endpoint!r}: {error.strerror}; "
            "an endpoint is tcp://HOST:PORT or ipc://PATH"
        ) from error
    return socket


def _bind(socket: ZmqSocket, endpoint: str, *, insecure: bool) -> ZmqSocket:
    try:
        check_bind(endpoint, insecure=insecure)
        _allow_ipv6(socket, endpoint)
        if isinstance(socket, ListeningSocket):
            socket.start_monitor()
        socket.bind(endpoint)
    except LinkError:
        socket.close(linger=0)
        raise
    except zmq.ZMQError as error:
        socket.close(linger=0)
        if error.errno == zmq.EADDRINUSE:
            port = endpoint.rpartition(":")[2]
            raise PortInUse(
                f"port {port} in use: stop the process that listens on {endpoint}, "
                "or choose another port"
            ) from error
        raise LinkError(f"cannot listen on {endpoint!r}: {error.strerror}") from error
    return socket


def _allow_ipv6(socket: ZmqSocket, endpoint: str) -> None:
    if endpoint.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
