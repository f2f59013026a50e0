"""What the client's core needs from outside (links, a clock, random numbers), and how it waits.

Protocols and values only. Every request and every machine of the core is `Steps`: a generator that
yields a `Wait` where it has nothing to do, and that a driver resumes (`Task`). It never blocks,
sleeps or calls back from another thread, so a thread, an event loop or a simulator can drive it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Protocol, TypeAlias, TypeVar

import msgspec

NEVER_NS = 1 << 62
# A century. What waits longer waits for ever: system calls take no infinity.
WAIT_MAX_S = 3.2e9

Frame: TypeAlias = "bytes | memoryview"


class FeedLink(Protocol):
    """A subscription to one feed of a replica, which drops what is not read in time."""

    def try_receive(self) -> list[Frame] | None:
        """The frames of the next message; None: there is none now."""
        ...

    def close(self) -> None: ...


class RequestLink(Protocol):
    """Requests to one port of a replica, and the replies. The caller matches them."""

    def try_send(self, frame: bytes) -> bool:
        """Queue one request; False while there is no connection."""
        ...

    def try_receive(self) -> list[Frame] | None: ...

    def was_refused(self) -> bool:
        """Whether an attempt to connect failed, or a connection broke, since the last call. Only a
        link that watches refusals knows."""
        ...

    def stop_reporting_refusals(self) -> None:
        """Stop reporting refusals. Unread ones pile up, so who has asked for them stops before it
        does anything else."""
        ...

    def close(self) -> None: ...


class PushLink(Protocol):
    """Appends to one replica, without answers."""

    def try_send(self, frame: bytes) -> bool:
        """Queue one append; False while there is no connection or no room."""
        ...

    def is_lost(self) -> bool:
        """Whether the connection broke since it was made. What was queued is lost with it."""
        ...

    def close(self) -> None: ...


Link: TypeAlias = RequestLink | PushLink | FeedLink


class Links(Protocol):
    """Opens links, without waiting: a link connects, and reconnects, by itself. Where no descriptor
    is left for one, that is an OSError."""

    def requester(
        self, address: str, *, reports_refusals: bool = ..., is_probe: bool = ...
    ) -> RequestLink:
        """`is_probe`: the same request goes to several replicas, some of which may not exist."""
        ...

    def pusher(self, address: str) -> PushLink: ...

    def feed(self, address: str, topic: bytes, *, queue_max: int) -> FeedLink: ...


class Clock(Protocol):
    """Monotonic time for everything that is waited for, wall time for stamps only; in ns."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class Lock(Protocol):
    """Held for a moment; or, where it was acquired without blocking, over waits."""

    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


class Host(msgspec.Struct, frozen=True):
    """The environment of one client. `new_lock`: makes a lock for what everything made from this
    client shares."""

    links: Links
    clock: Clock
    random: Random
    new_lock: Callable[[], Lock]

    def deadline_ns(self, seconds: float) -> int:
        """The monotonic time `seconds` from now."""
        return self.clock.monotonic_ns() + nanoseconds(seconds)


def nanoseconds(seconds: float) -> int:
    """A time to wait, of any length."""
    return int(min(seconds, WAIT_MAX_S) * 1e9)


class Wait(msgspec.Struct, frozen=True):
    """What must happen before the steps go on.

    A wait may end early, so steps check everything again after it. Only a wait without a link lasts
    until its time.

    Tracked by the garbage collector, unlike other values: its links may refer to who waits.

    Attributes:
      until_ns: monotonic; the wait ends then at the latest.
      reads: it ends when one of them has a message, or is refused or lost where that is watched.
      writes: it ends when one of them has a connection and room.
    """

    until_ns: int
    reads: tuple[Link, ...] = ()
    writes: tuple[RequestLink | PushLink, ...] = ()


_T = TypeVar("_T")
# Yields a `Wait` wherever there is nothing to do, and returns a result of type _T.
Steps: TypeAlias = Generator[Wait, None, _T]
