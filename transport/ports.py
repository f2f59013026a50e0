"""The protocols of this package: what an actor may ask of a ring, a bell, a socket, real or fake.

Must not know any implementation. Invariant: every implementation passes the
contract suite of its protocol.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias


class HasFileno(Protocol):
    """What a poll can wait on besides sockets and plain descriptors."""

    def fileno(self) -> int: ...


class CommandSender(Protocol):
    """The sending end of a bounded queue of messages."""

    message_bytes_max: int

    def offer(self, message: bytes) -> bool: ...

    def free_bytes(self) -> int: ...


class CommandReceiver(Protocol):
    """The receiving end of a bounded queue of messages."""

    def drain(self, limit: int) -> list[bytes]: ...


class Bell(Protocol):
    """A doorbell: senders ring it after they publish, its receiver clears it
    before it looks for work."""

    def ring(self) -> None: ...

    def clear(self) -> None: ...

    def fileno(self) -> int: ...


class Socket(Protocol):
    """The part of a ZeroMQ socket that the link uses; refusals are `zmq.ZMQError`s, as pyzmq's."""

    def send(self, data: bytes | memoryview, flags: int = ...) -> Any: ...

    # One frame: bytes, or an object with `buffer` and `more` when copy is False, as pyzmq types it.
    def recv(self, flags: int, copy: bool) -> Any: ...

    def may_receive(self) -> bool:
        """Whether a message waits. A real socket is asked only where one may have come."""
        ...

    def getsockopt(self, option: int) -> Any:
        """Used for `zmq.RCVMORE`: whether the last frame's message has more frames."""
        ...

    def close(self, linger: int | None = ...) -> None: ...


class AnsweringSocket(Socket, Protocol):
    """A bound ROUTER that knows, by routing id, how much of its answers is not acknowledged."""

    def asked_by(self, routing_id: bytes) -> None:
        """The last message received is of this client."""
        ...

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """A message of this size was sent to this client."""
        ...

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """About what was sent to this client and not acknowledged; 0 if it is gone."""
        ...

    def end_connection(self, routing_id: bytes) -> None:
        """End the connection, and drop what is queued on it."""
        ...


class Watch(Protocol):
    """Whether a connecting socket has lost its connection; see `transport.connection_watch`."""

    source: Any

    def was_lost(self) -> bool: ...

    def close(self) -> None: ...


# what `Poller.wait` takes and returns: a ZeroMQ socket, a bell, a descriptor
Pollable: TypeAlias = HasFileno | int
