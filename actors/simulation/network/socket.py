"""Sockets of a virtual network, with the rules of ZeroMQ (SAFETY M5).

Owns what a socket accepts, refuses, publishes and receives. Must not know how messages travel or
when connections begin and end. Invariants:
- no call waits; a refusal is the `ZMQError` of the real socket;
- a message is accepted whole or not at all, and never changed afterwards;
- what has arrived at an open socket stays readable when its connection ends.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import zmq

from actors.simulation.network.wire import Flow, NetworkCounters, Owner
from transport.inproc import FakeFrame
from transport.link import Lane

# Plain integers: each `&` of pyzmq's enums makes a new one.
_DONTWAIT = int(zmq.DONTWAIT)
_SNDMORE = int(zmq.SNDMORE)
_RCVMORE = int(zmq.RCVMORE)
_ROUTER = int(zmq.ROUTER)
_XPUB = int(zmq.XPUB)
_SENDERS = frozenset(int(kind) for kind in (zmq.ROUTER, zmq.DEALER, zmq.PUSH, zmq.XPUB))
MESSAGE_BYTES = 1_024  # size of a message as `unacknowledged_bytes` counts it
_SUBSCRIBE, _UNSUBSCRIBE = b"\1", b"\0"
# Made once, because pyzmq asks libzmq for the text of each.
_AGAIN = zmq.Again()
_UNREACHABLE = zmq.ZMQError(errno.EHOSTUNREACH)


class Switchboard(Protocol):
    """What sockets and links use of the network."""

    counters: NetworkCounters
    on_send: Callable[[Owner, str, list[bytes]], None] | None

    def listen(self, socket: VirtualSocket) -> None: ...

    def connect(self, socket: VirtualSocket) -> None: ...

    def close(self, socket: VirtualSocket) -> None: ...

    def hang_up(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` ends `connection`; the other end notices it later."""
        ...


class Connection:
    """A connection from `connector`, which made it, to `listener`, which is bound."""

    to_listener: Flow
    to_connector: Flow

    def __init__(self, connector: VirtualSocket, listener: VirtualSocket, name: bytes) -> None:
        self.connector = connector
        self.listener = listener
        self.name = name  # its routing id at the listener
        self.high_water_mark = connector.high_water_mark + listener.high_water_mark
        self.topics: tuple[bytes, ...] = ()  # subscriptions that have reached the XPUB
        self.is_ending = False

    def deliver_to_listener(self, flow: Flow, message: list[bytes]) -> None:
        if self.listener.kind == _XPUB:
            self.topics += (message[0][1:],)
        self.listener.deliver(self, flow, message)

    def deliver_to_connector(self, flow: Flow, message: list[bytes]) -> None:
        self.connector.deliver(self, flow, message)

    def lose(self) -> None:
        """Neither direction delivers anything more."""
        self.to_listener.drop_all()
        self.to_connector.drop_all()


class VirtualSocket:
    """One socket, made by `VirtualLinks`; a `transport.ports.Socket`."""

    def __init__(
        self,
        switchboard: Switchboard,
        owner: Owner,
        kind: int,
        endpoint: str,
        *,
        lane: Lane,
        message_size_max: int,
        high_water_mark: int,
    ) -> None:
        self.owner = owner
        self.kind = int(kind)
        self.endpoint = endpoint
        self.message_size_max = message_size_max
        self.high_water_mark = high_water_mark
        self.routing_id = b""
        self.topics: tuple[bytes, ...] = ()
        self.welcome = b""
        self.lane = lane
        self.is_closed = False
        self.retry_ns = 0
        self.connection: Connection | None = None  # of a connecting socket
        # Called when this connecting socket has a connection (True), and when it lost one or was
        # refused one (False).
        self.on_connection: Callable[[bool], None] | None = None
        self.peers: dict[bytes, Connection] = {}  # of a bound socket
        self._switchboard = switchboard
        self._unsent_frames: list[bytes] = []
        self._inbox: deque[tuple[Connection, Flow, list[bytes]]] = deque()
        self._receiving: Sequence[bytes] = ()
        self._next = 0  # the frame of `_receiving` that comes next

    # --- called by the owner ---

    def send(self, data: bytes | memoryview, flags: int = 0) -> None:
        """Add one frame; the frame without SNDMORE sends the message. Hot."""
        frames = self._unsent_frames
        frame = bytes(data)
        if not frames:
            self._check_room(frame)
        frames.append(frame)
        if flags & _SNDMORE:
            return
        self._unsent_frames = []
        switchboard = self._switchboard
        switchboard.counters.messages += 1
        if switchboard.on_send is not None:
            switchboard.on_send(self.owner, self.endpoint, frames)
        self._route(frames)

    def recv(self, flags: int = 0, copy: bool = True) -> bytes | FakeFrame:
        """The next frame, messages in order of arrival; only with DONTWAIT. Hot."""
        if not flags & _DONTWAIT:
            raise ValueError("a virtual socket never waits: pass DONTWAIT")
        number = self._next
        if not self._receiving:
            self._check_open()
            if not self._inbox:
                raise _AGAIN.with_traceback(None)
            connection, flow, message = self._inbox.popleft()
            flow.outstanding -= 1
            is_router = self.kind == _ROUTER
            self._receiving = [connection.name, *message] if is_router else message
        frame = self._receiving[number]
        self._next = number + 1
        has_more = self._next < len(self._receiving)
        if not has_more:
            self.owner.unread -= 1
            self._receiving, self._next = (), 0
        return frame if copy else FakeFrame(memoryview(frame), has_more)

    def may_receive(self) -> bool:
        """Whether a message waits. Hot."""
        if self._inbox or self._receiving:
            return True
        if self.is_closed:
            self._check_open()
        return False

    def getsockopt(self, option: int) -> int:
        """RCVMORE."""
        if option == _RCVMORE:
            return 1 if self._receiving else 0
        raise ValueError("a virtual socket knows its RCVMORE only")

    def asked_by(self, routing_id: bytes) -> None:
        """Not needed: the flows have these numbers (`AnsweringSocket.asked_by`)."""

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """Likewise."""

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """As if each message had `MESSAGE_BYTES`."""
        connection = self.peers.get(routing_id)
        return 0 if connection is None else connection.to_connector.outstanding * MESSAGE_BYTES

    def end_connection(self, routing_id: bytes) -> None:
        connection = self.peers.get(routing_id)
        if connection is not None:
            self._switchboard.hang_up(connection, self)

    @property
    def is_readable(self) -> bool:
        """Whether a receive would return a frame."""
        return bool(self._inbox or self._receiving)

    @property
    def can_send(self) -> bool:
        """Whether this connecting socket has a connection with room."""
        connection = self.connection
        return (
            connection is not None
            and connection.to_listener.outstanding < connection.high_water_mark
        )

    @property
    def oldest(self) -> object | None:
        """The oldest unread message, to be compared by identity."""
        return self._inbox[0] if self._inbox else None

    def fileno(self) -> int:
        """There is none, and nothing polls."""
        return -1

    def close(self, linger: int | None = 0) -> None:
        """Close; what is queued or on its way is lost, as with LINGER 0."""
        if linger != 0:
            raise ValueError("a virtual socket does not linger")
        self._switchboard.close(self)

    # --- called by the network ---

    def deliver(self, connection: Connection, flow: Flow, message: list[bytes]) -> None:
        """A message arrives; one above the limit ends its connection (SAFETY W6). Hot."""
        for frame in message:
            if len(frame) > self.message_size_max:
                self._switchboard.counters.lost += 1
                self._switchboard.hang_up(connection, self)
                return
        self._inbox.append((connection, flow, message))
        self.owner.unread += 1
        self.owner.wake()

    def connections(self) -> Iterator[Connection]:
        """Its connections, and broken ones that it has not noticed."""
        if self.connection is not None:
            yield self.connection
        yield from tuple(self.peers.values())

    def has(self, connection: Connection) -> bool:
        """Whether this socket has `connection` and has not noticed its end."""
        return self.connection is connection or self.peers.get(connection.name) is connection

    def drop_connection(self, connection: Connection) -> bool:
        """Forget `connection`; returns whether this socket had it."""
        if not self.has(connection):
            return False
        if self.connection is connection:
            self.connection = None
            return True
        del self.peers[connection.name]
        if self.kind == _XPUB and not self.is_closed:
            self._deliver_unsubscriptions(connection)
        return True

    def end(self) -> None:
        """Mark the socket as closed; what is unread is lost."""
        self.is_closed = True
        self._switchboard.counters.lost += len(self._inbox)
        self.owner.unread -= len(self._inbox) + bool(self._receiving)
        self._inbox.clear()
        self._receiving, self._next = (), 0
        self._unsent_frames = []

    # --- the rules of the kinds ---

    def _check_open(self) -> None:
        if self.is_closed:
            raise zmq.ZMQError(errno.ENOTSOCK)

    def _check_room(self, first_frame: bytes) -> None:
        """Refuse a message before its first frame is accepted."""
        self._check_open()
        if self.kind not in _SENDERS:
            raise zmq.ZMQError(errno.ENOTSUP)
        if self.kind == _XPUB:
            return
        if self.kind == _ROUTER:
            connection = self.peers.get(first_frame)
            flow = connection.to_connector if connection is not None else None
        else:
            connection = self.connection
            flow = connection.to_listener if connection is not None else None
        if connection is None or flow is None:
            self._switchboard.counters.refused += 1
            refusal = _UNREACHABLE if self.kind == _ROUTER else _AGAIN
            raise refusal.with_traceback(None)
        if flow.outstanding >= connection.high_water_mark:
            self._switchboard.counters.refused += 1
            raise _AGAIN.with_traceback(None)

    def _route(self, message: list[bytes]) -> None:
        sent_ns = self.owner.local_now_ns
        if self.kind == _XPUB:
            self._publish(message, sent_ns)
        elif self.kind != _ROUTER:
            if self.connection is not None:
                self.connection.to_listener.send(message, sent_ns)
        elif len(message) > 1:
            self.peers[message[0]].to_connector.send(message[1:], sent_ns)

    def _publish(self, message: list[bytes], sent_ns: int) -> None:
        first_frame = message[0]
        for connection in self.peers.values():
            if not first_frame.startswith(connection.topics):
                continue
            flow = connection.to_connector
            if flow.outstanding < connection.high_water_mark:
                flow.send(message, sent_ns)
            else:
                self._switchboard.counters.lost += 1

    def _deliver_unsubscriptions(self, gone: Connection) -> None:
        """XPUB_VERBOSE reports every subscription, but only the end of a topic's last one."""
        others = [topic for each in self.peers.values() for topic in each.topics]
        for topic in gone.topics:
            if topic not in others:
                gone.to_listener.outstanding += 1
                self._inbox.append((gone, gone.to_listener, [_UNSUBSCRIBE + topic]))
                self.owner.unread += 1
                self.owner.wake()


def subscription(topic: bytes) -> list[bytes]:
    """The message that subscribes to `topic`."""
    return [_SUBSCRIBE + topic]
