"""Fakes inside one process: command ring, doorbell and link, with the contracts of the real ones.

Owns their queues. Must not know clocks, threads or randomness: a script says what is cut and when.
The payload ring needs no fake, since the real one runs on anonymous memory. Invariants: a fake has
no more room and no fewer losses than the real one; what ZeroMQ drops silently is dropped silently
here (SAFETY M5).
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import zmq

from transport.command_ring import message_bytes_max, record_bytes
from transport.errors import MessageTooLarge, PortInUse
from transport.socket_options import HIGH_WATER_MARK


class FakeCommandRing:
    """Both ends of a command ring as a bounded deque."""

    def __init__(self, ring_bytes: int) -> None:
        self.size_bytes = ring_bytes
        self.message_bytes_max = message_bytes_max(ring_bytes)
        self._used_bytes = 0
        self._messages: deque[bytes] = deque()

    def offer(self, message: bytes) -> bool:
        """As `CommandRingWriter.offer`."""
        if len(message) > self.message_bytes_max:
            raise MessageTooLarge(f"{len(message)} bytes, at most {self.message_bytes_max}")
        if record_bytes(len(message)) > self.free_bytes():
            return False
        self._used_bytes += record_bytes(len(message))
        self._messages.append(bytes(message))
        return True

    def free_bytes(self) -> int:
        """As `CommandRingWriter.free_bytes`."""
        return self.size_bytes - self._used_bytes

    def drain(self, limit: int) -> list[bytes]:
        """As `CommandRingReader.drain`."""
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._used_bytes -= sum(record_bytes(len(message)) for message in taken)
        return taken


class FakeDoorbell:
    """A doorbell without a descriptor; `FakePoller` sees whether it rings."""

    def __init__(self) -> None:
        self.is_ringing = False

    def ring(self) -> None:
        """As `Doorbell.ring`."""
        self.is_ringing = True

    def clear(self) -> None:
        """As `Doorbell.clear`."""
        self.is_ringing = False

    def fileno(self) -> int:
        """There is none: only `FakePoller` can wait for it."""
        return -1


@dataclass
class FakeFrame:
    """What `recv(copy=False)` gives."""

    buffer: memoryview
    more: bool


@dataclass(eq=False)
class _Pipe:
    """One connection: two queues with their marks."""

    connecting: FakeSocket
    binding: FakeSocket
    to_binding: deque[list[bytes]] = field(default_factory=deque)
    to_connecting: deque[list[bytes]] = field(default_factory=deque)

    def queue_to(self, receiver: FakeSocket) -> deque[list[bytes]]:
        return self.to_binding if receiver is self.binding else self.to_connecting


class FakeSocket:
    """One end, with the drop rules of its kind; made by `FakeNetwork`."""

    def __init__(
        self, network: FakeNetwork, kind: int, endpoint: str, *, high_water_mark: int, name: bytes
    ) -> None:
        self.kind = kind
        self.endpoint = endpoint
        self.high_water_mark = high_water_mark
        self.name = name
        self.topics: list[bytes] = []
        self.welcome = b""
        self.pipes: list[_Pipe] = []
        self.losses = 0  # connections that ended, of a connecting socket
        self.notices: deque[list[bytes]] = deque()  # an XPUB's subscriptions
        self._network = network
        self._building: list[bytes] = []
        self._receiving: deque[bytes] = deque()  # the rest of the message being received

    def send(self, data: bytes | memoryview, flags: int = 0) -> None:
        """One frame, as pyzmq's. The frame without SNDMORE sends the message."""
        if not self._building:
            self._check_room(bytes(data))
        self._building.append(bytes(data))
        if flags & zmq.SNDMORE:
            return
        message, self._building = self._building, []
        if self.kind == zmq.XPUB:
            self._publish(message)
            return
        pipe = self._pipe_for(message[0])
        if self.kind == zmq.ROUTER:
            message = message[1:]
        if pipe is not None:
            receiver = pipe.connecting if self is pipe.binding else pipe.binding
            pipe.queue_to(receiver).append(message)

    def may_receive(self) -> bool:
        return self.is_readable

    def getsockopt(self, option: int) -> int:
        """RCVMORE, as pyzmq's."""
        if option != zmq.RCVMORE:
            raise ValueError("a fake socket knows its RCVMORE only")
        return int(bool(self._receiving))

    def recv(self, flags: int = 0, copy: bool = True) -> bytes | FakeFrame:
        """The next frame. Messages are taken fairly among connections; never waits."""
        if not flags & zmq.DONTWAIT:
            raise ValueError("a fake socket never waits: pass DONTWAIT")
        if not self._receiving:
            self._receiving.extend(self._next_message())
        frame = self._receiving.popleft()
        return frame if copy else FakeFrame(memoryview(frame), bool(self._receiving))

    def asked_by(self, routing_id: bytes) -> None:
        """As `AnsweringSocket.asked_by`; the queues know it already."""

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """As `AnsweringSocket.answered`; the queues know it already."""

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """As `AnsweringSocket.unacknowledged_bytes`: what is queued for it."""
        pipe = self._pipe_for(routing_id)
        queue = () if pipe is None else pipe.to_connecting
        return sum(len(frame) for message in queue for frame in message)

    def end_connection(self, routing_id: bytes) -> None:
        """As `AnsweringSocket.end_connection`."""
        pipe = self._pipe_for(routing_id)
        if pipe is not None:
            self._network.disconnect(pipe.connecting)

    def fileno(self) -> int:
        """There is none: only `FakePoller` can wait for it."""
        return -1

    @property
    def is_readable(self) -> bool:
        """Whether a receive would return a message."""
        return bool(
            self._receiving or self.notices or any(pipe.queue_to(self) for pipe in self.pipes)
        )

    @property
    def can_send(self) -> bool:
        """Whether this connecting socket has a connection, and room."""
        pipe = self._pipe_for(b"")
        return pipe is not None and len(pipe.to_binding) < self.high_water_mark

    def close(self, linger: int | None = 0) -> None:
        """Close. Queued messages are lost, as with LINGER 0."""
        if linger != 0:
            raise ValueError("a fake socket does not linger")
        self._network.remove(self)

    def _next_message(self) -> list[bytes]:
        if self.notices:
            return self.notices.popleft()
        for number, pipe in enumerate(self.pipes):
            queue = pipe.queue_to(self)
            if queue:
                self.pipes = self.pipes[number + 1 :] + self.pipes[: number + 1]
                message = queue.popleft()
                return [pipe.connecting.name, *message] if self.kind == zmq.ROUTER else message
        raise zmq.Again

    def _check_room(self, first_frame: bytes) -> None:
        if self.kind == zmq.XPUB:
            return
        pipe = self._pipe_for(first_frame)
        if pipe is None:
            raise zmq.ZMQError(errno.EHOSTUNREACH) if self.kind == zmq.ROUTER else zmq.Again
        receiver = pipe.connecting if self is pipe.binding else pipe.binding
        if len(pipe.queue_to(receiver)) >= self.high_water_mark:
            raise zmq.Again

    def _pipe_for(self, first_frame: bytes) -> _Pipe | None:
        for pipe in self.pipes:
            if self.kind != zmq.ROUTER or pipe.connecting.name == first_frame:
                return pipe
        return None

    def _publish(self, message: list[bytes]) -> None:
        for pipe in self.pipes:
            room = len(pipe.to_connecting) < self.high_water_mark
            if room and _is_subscribed(pipe.connecting, message[0]):
                pipe.to_connecting.append(message)


class FakeNetwork:
    """All endpoints of a virtual network; connects sockets as ZeroMQ does, and
    cuts their connections."""

    def __init__(self) -> None:
        self._bound: dict[str, FakeSocket] = {}
        self._connecting: list[FakeSocket] = []
        self._cut: set[str] = set()
        self._connected = 0

    def bind(
        self,
        kind: int,
        endpoint: str,
        *,
        high_water_mark: int = HIGH_WATER_MARK,
        welcome: bytes = b"",
    ) -> FakeSocket:
        """A listening ROUTER, PULL or XPUB; sockets that connected before are connected at once."""
        if endpoint in self._bound:
            raise PortInUse(f"{endpoint} in use")
        socket = FakeSocket(self, kind, endpoint, high_water_mark=high_water_mark, name=b"")
        socket.welcome = welcome
        self._bound[endpoint] = socket
        self._join(endpoint)
        return socket

    def connect(
        self,
        kind: int,
        endpoint: str,
        *,
        high_water_mark: int = HIGH_WATER_MARK,
        routing_id: bytes = b"",
        topics: Sequence[bytes] = (),
    ) -> FakeSocket:
        """A DEALER, PUSH or SUB; it refuses sends until another socket
        listens there (IMMEDIATE)."""
        self._connected += 1
        name = routing_id or b"\0" + self._connected.to_bytes(4, "big")
        socket = FakeSocket(self, kind, endpoint, high_water_mark=high_water_mark, name=name)
        socket.topics = list(topics)
        self._connecting.append(socket)
        self._join(endpoint)
        return socket

    def cut(self, endpoint: str) -> None:
        """Disconnect an endpoint from all sockets that connected to it;
        queued messages are lost."""
        self._cut.add(endpoint)
        for socket in self._connecting:
            if socket.endpoint == endpoint:
                self.disconnect(socket)

    def heal(self, endpoint: str) -> None:
        """Let them connect again; subscriptions are sent again."""
        self._cut.discard(endpoint)
        self._join(endpoint)

    def remove(self, socket: FakeSocket) -> None:
        """A socket was closed: its connections end with it."""
        for pipe in tuple(socket.pipes):
            self.disconnect(pipe.connecting)
        if self._bound.get(socket.endpoint) is socket:
            del self._bound[socket.endpoint]
        elif socket in self._connecting:
            self._connecting.remove(socket)

    def _join(self, endpoint: str) -> None:
        binding = self._bound.get(endpoint)
        if binding is None or endpoint in self._cut:
            return
        for socket in self._connecting:
            if socket.endpoint != endpoint or socket.pipes:
                continue
            for pipe in tuple(binding.pipes):  # ROUTER_HANDOVER: the newcomer takes the id over
                if pipe.connecting.name == socket.name:
                    self.disconnect(pipe.connecting)
            pipe = _Pipe(socket, binding)
            socket.pipes.append(pipe)
            binding.pipes.append(pipe)
            if binding.kind == zmq.XPUB:
                if binding.welcome and _is_subscribed(socket, binding.welcome):
                    pipe.to_connecting.append([binding.welcome])
                binding.notices.extend([b"\1" + topic] for topic in socket.topics)

    def disconnect(self, socket: FakeSocket) -> None:
        """Its connection breaks; what is queued is lost."""
        for pipe in socket.pipes:
            pipe.binding.pipes.remove(pipe)
            if pipe.binding.kind == zmq.XPUB:
                others = {topic for each in pipe.binding.pipes for topic in each.connecting.topics}
                gone = [topic for topic in socket.topics if topic not in others]
                pipe.binding.notices.extend([b"\0" + topic] for topic in gone)
        socket.losses += len(socket.pipes)
        socket.pipes.clear()


class FakeWatch:
    """As `ConnectionWatch`; no connection is refused here, it is made later."""

    def __init__(self, socket: FakeSocket) -> None:
        self.source = socket
        self._seen = socket.losses

    def was_lost(self) -> bool:
        seen, self._seen = self._seen, self.source.losses
        return self._seen != seen

    def close(self) -> None:
        """Nothing to close."""


class FakePoller:
    """Returns what is ready now; in a fake world no time passes."""

    def wait(self, items: Iterable[FakeSocket | FakeDoorbell]) -> list[FakeSocket | FakeDoorbell]:
        """Those of `items` that can be read."""
        return [
            item
            for item in items
            if (item.is_readable if isinstance(item, FakeSocket) else item.is_ringing)
        ]


def _is_subscribed(subscriber: FakeSocket, first_frame: bytes) -> bool:
    return any(first_frame.startswith(topic) for topic in subscriber.topics)
