"""The seams of this package: what an actor may ask of a ring, a bell, a socket, real or fake.

Owns the protocols only. Must not know any implementation. Invariant: every implementation passes
the contract suite of its protocol.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias


class HasFileno(Protocol):
    """What a poll can wait on besides sockets and bare descriptors."""

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
    """A doorbell: rung by givers after they publish, cleared by its receiver before it looks."""

    def ring(self) -> None: ...

    def clear(self) -> None: ...

    def fileno(self) -> int: ...


class Socket(Protocol):
    """The part of a ZeroMQ socket that the link uses; refusals are `zmq.ZMQError`s as pyzmq's."""

    def send(self, data: bytes | memoryview, flags: int = ...) -> Any: ...

    # One frame: bytes, or an object with `buffer` and `more` when copy is False, as pyzmq types it.
    def recv(self, flags: int, copy: bool) -> Any: ...

    def getsockopt(self, option: int) -> Any:
        """Asked for: `zmq.EVENTS`, whether a message can be taken, and `zmq.RCVMORE`, whether the
        message of the last frame goes on."""
        ...

    def close(self, linger: int | None = ...) -> None: ...


class AnsweringSocket(Socket, Protocol):
    """A bound ROUTER that knows how much of its answers has not arrived, by routing id."""

    def asked_by(self, routing_id: bytes) -> None:
        """The message that was just received is of this client."""
        ...

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """A message of this size was sent to it."""
        ...

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """What was sent to it and has not arrived, about; 0 for one that is gone."""
        ...

    def end_connection(self, routing_id: bytes) -> None:
        """Drop the connection, and what is queued on it."""
        ...


# What `Poller.wait` takes and gives back: a ZeroMQ socket, a bell, a descriptor.
Pollable: TypeAlias = HasFileno | int
