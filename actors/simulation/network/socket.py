"""Sockets of a virtual network, one end of connections, with the rules of ZeroMQ (SAFETY M5).

Owns what a socket accepts, refuses, publishes and gives back. Must not know how messages travel or
when connections come and go. Invariants:
- nothing waits; a refusal is the `ZMQError` of the real socket;
- a message is accepted whole or not at all, and is not changed afterwards by anyone;
- what has arrived at a living socket stays readable when its connection ends.
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
_EVENTS = int(zmq.EVENTS)
_RCVMORE = int(zmq.RCVMORE)
_POLLIN = int(zmq.POLLIN)
_ROUTER = int(zmq.ROUTER)
_XPUB = int(zmq.XPUB)
_SENDERS = frozenset(int(kind) for kind in (zmq.ROUTER, zmq.DEALER, zmq.PUSH, zmq.XPUB))
# What `unacknowledged_bytes` takes a message for.
MESSAGE_BYTES = 1_024
_SUBSCRIBE, _UNSUBSCRIBE = b"\1", b"\0"
# Made once: pyzmq asks libzmq for the text of each, which costs more than the refusal.
_AGAIN = zmq.Again()
_UNREACHABLE = zmq.ZMQError(errno.EHOSTUNREACH)


class Switchboard(Protocol):
    """The part of the network that its sockets, and who opens them, use."""

    counters: NetworkCounters
    on_send: Callable[[Owner, str, list[bytes]], None] | None

    def listen(self, socket: VirtualSocket) -> None: ...

    def connect(self, socket: VirtualSocket) -> None: ...

    def close(self, socket: VirtualSocket) -> None: ...

    def hang_up(self, connection: Connection, socket: VirtualSocket) -> None:
        """`socket` ends `connection`; the other end notices it later."""
        ...


class Connection:
    """A connection between a socket that connected and one that is bound."""

    __slots__ = ("back", "binding", "connecting", "is_ending", "mark", "name", "there", "topics")

    there: Flow  # to the bound socket
    back: Flow  # to the connected one

    def __init__(self, connecting: VirtualSocket, binding: VirtualSocket, name: bytes) -> None:
        self.connecting = connecting
        self.binding = binding
        self.name = name  # the routing id; among all of a bound socket
        self.mark = connecting.high_water_mark + binding.high_water_mark
        self.topics: tuple[bytes, ...] = ()  # subscriptions that have reached the XPUB
        self.is_ending = False

    def deliver_there(self, flow: Flow, message: list[bytes]) -> None:
        """A message arrives at the bound socket."""
        if self.binding.kind == _XPUB:
            self.topics += (message[0][1:],)
        self.binding.take(self, flow, message)

    def deliver_back(self, flow: Flow, message: list[bytes]) -> None:
        """A message arrives at the connected socket."""
        self.connecting.take(self, flow, message)

    def lose(self) -> None:
        """Neither direction delivers any more."""
        self.there.lose()
        self.back.lose()


class VirtualSocket:
    """One socket; made by `VirtualLinks`. Satisfies `transport.ports.Socket`."""

    __slots__ = (
        "_building",
        "_inbox",
        "_next",
        "_receiving",
        "_switchboard",
        "connection",
        "endpoint",
        "high_water_mark",
        "is_closed",
        "kind",
        "lane",
        "message_size_max",
        "on_connection",
        "owner",
        "peers",
        "retry_ns",
        "routing_id",
        "topics",
        "welcome",
    )

    def __init__(
        self,
        switchboard: Switchboard,
        owner: Owner,
        kind: int,
        endpoint: str,
        *,
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
        self.lane = Lane.BULK
        self.is_closed = False
        self.retry_ns = 0
        self.connection: Connection | None = None  # of a connected socket
        # Called when this connecting socket has a connection (True), and when it has lost it or was
        # refused one (False).
        self.on_connection: Callable[[bool], None] | None = None
        self.peers: dict[bytes, Connection] = {}  # of a bound one
        self._switchboard = switchboard
        self._building: list[bytes] = []
        self._inbox: deque[tuple[Connection, Flow, list[bytes]]] = deque()
        self._receiving: Sequence[bytes] = ()
        self._next = 0  # frame of the message being received; 0 if there is none

    # --- what the owner does ---

    def send(self, data: bytes | memoryview, flags: int = 0) -> None:
        """One frame; the message goes out with the frame that has no SNDMORE. Hot."""
        building = self._building
        frame = bytes(data)
        if not building:
            self._check_room(frame)
        building.append(frame)
        if flags & _SNDMORE:
            return
        self._building = []
        switchboard = self._switchboard
        switchboard.counters.messages += 1
        if switchboard.on_send is not None:
            switchboard.on_send(self.owner, self.endpoint, building)
        self._post(building)

    def recv(self, flags: int = 0, copy: bool = True) -> bytes | FakeFrame:
        """The next frame, messages in the order of their arrival; only without waiting. Hot."""
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

    def getsockopt(self, option: int) -> int:
        """EVENTS, of which POLLIN only, and RCVMORE. Hot."""
        if option == _EVENTS:
            if self._inbox or self._receiving:
                return _POLLIN
            if self.is_closed:
                self._check_open()
            return 0
        if option == _RCVMORE:
            return 1 if self._receiving else 0
        raise ValueError("a virtual socket knows its EVENTS and RCVMORE only")

    def asked_by(self, routing_id: bytes) -> None:
        """As `AnsweringSocket.asked_by`; flows tell all."""

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """As `AnsweringSocket.answered`; flows tell all."""

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """As `AnsweringSocket.unacknowledged_bytes`, as if each message had `MESSAGE_BYTES`."""
        connection = self.peers.get(routing_id)
        return 0 if connection is None else connection.back.outstanding * MESSAGE_BYTES

    def end_connection(self, routing_id: bytes) -> None:
        """As `AnsweringSocket.end_connection`."""
        connection = self.peers.get(routing_id)
        if connection is not None:
            self._switchboard.hang_up(connection, self)

    @property
    def is_readable(self) -> bool:
        """Whether a receive would give a frame."""
        return bool(self._inbox or self._receiving)

    @property
    def can_send(self) -> bool:
        """Whether this connecting socket has a connection, and room."""
        connection = self.connection
        return connection is not None and connection.there.outstanding < connection.mark

    @property
    def oldest(self) -> object | None:
        """The message that has been waiting longest, to be compared by identity; None: none."""
        return self._inbox[0] if self._inbox else None

    def fileno(self) -> int:
        """There is none: the world asks `is_readable`."""
        return -1

    def close(self, linger: int | None = 0) -> None:
        """Close; what is queued or on its way is lost: only LINGER 0 is played."""
        if linger != 0:
            raise ValueError("a virtual socket does not linger")
        self._switchboard.close(self)

    # --- what the network does ---

    def take(self, connection: Connection, flow: Flow, message: list[bytes]) -> None:
        """A message has arrived; one above the limit ends its connection (SAFETY W6). Hot."""
        for frame in message:
            if len(frame) > self.message_size_max:
                self._switchboard.counters.lost += 1
                self._switchboard.hang_up(connection, self)
                return
        self._inbox.append((connection, flow, message))
        self.owner.unread += 1
        self.owner.wake()

    def connections(self) -> Iterator[Connection]:
        """Those whose end here is there, broken ones that it has not noticed included."""
        if self.connection is not None:
            yield self.connection
        yield from tuple(self.peers.values())

    def has(self, connection: Connection) -> bool:
        """Whether this end of `connection` is there."""
        return self.connection is connection or self.peers.get(connection.name) is connection

    def forget(self, connection: Connection) -> bool:
        """This end of `connection` is no more; whether it was there."""
        if not self.has(connection):
            return False
        if self.connection is connection:
            self.connection = None
            return True
        del self.peers[connection.name]
        if self.kind == _XPUB and not self.is_closed:
            self._tell_unsubscribed(connection)
        return True

    def end(self) -> None:
        """Nothing can be done with this socket any more; what is unread is lost."""
        self.is_closed = True
        self._switchboard.counters.lost += len(self._inbox)
        self.owner.unread -= len(self._inbox) + bool(self._receiving)
        self._inbox.clear()
        self._receiving, self._next = (), 0
        self._building = []

    # --- the rules of the kinds ---

    def _check_open(self) -> None:
        if self.is_closed:
            raise zmq.ZMQError(errno.ENOTSOCK)

    def _check_room(self, first_frame: bytes) -> None:
        """Refuse a message before its first frame is taken."""
        self._check_open()
        if self.kind not in _SENDERS:
            raise zmq.ZMQError(errno.ENOTSUP)
        if self.kind == _XPUB:
            return
        if self.kind == _ROUTER:
            connection = self.peers.get(first_frame)
            flow = connection.back if connection is not None else None
        else:
            connection = self.connection
            flow = connection.there if connection is not None else None
        if connection is None or flow is None:
            self._switchboard.counters.refused += 1
            refusal = _UNREACHABLE if self.kind == _ROUTER else _AGAIN
            raise refusal.with_traceback(None)
        if flow.outstanding >= connection.mark:
            self._switchboard.counters.refused += 1
            raise _AGAIN.with_traceback(None)

    def _post(self, message: list[bytes]) -> None:
        sent_ns = self.owner.local_now_ns
        if self.kind == _XPUB:
            self._publish(message, sent_ns)
        elif self.kind != _ROUTER:
            if self.connection is not None:
                self.connection.there.carry(message, sent_ns)
        elif len(message) > 1:
            self.peers[message[0]].back.carry(message[1:], sent_ns)

    def _publish(self, message: list[bytes], sent_ns: int) -> None:
        first_frame = message[0]
        for connection in self.peers.values():
            if not first_frame.startswith(connection.topics):
                continue
            flow = connection.back
            if flow.outstanding < connection.mark:
                flow.carry(message, sent_ns)
            else:
                self._switchboard.counters.lost += 1

    def _tell_unsubscribed(self, gone: Connection) -> None:
        """XPUB_VERBOSE tells every subscription, but only the end of a topic's last one."""
        others = [topic for each in self.peers.values() for topic in each.topics]
        for topic in gone.topics:
            if topic not in others:
                gone.there.outstanding += 1
                self._inbox.append((gone, gone.there, [_UNSUBSCRIBE + topic]))
                self.owner.unread += 1
                self.owner.wake()


def subscription(topic: bytes) -> list[bytes]:
    """The message that subscribes to `topic`."""
    return [_SUBSCRIBE + topic]
