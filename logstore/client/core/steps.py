"""What the client's core stands on: links, clocks, chance; and how it says what it waits for.

Protocols and values only. Every request and every machine of the core is `Steps`: a generator that
yields a `Wait` where it has nothing to do, and is resumed by a driver (`Task`). It never blocks,
sleeps or calls back from another thread, so a thread, an event loop or a simulator may drive it.
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
    """A subscription to one feed of a replica. What it does not take in time is dropped there."""

    def try_receive(self) -> list[Frame] | None:
        """The frames of the next message; None: there is none now."""
        ...

    def close(self) -> None: ...


class RequestLink(Protocol):
    """Requests to one port of a replica, and the replies, matched by whoever asks."""

    def try_send(self, frame: bytes) -> bool:
        """Queue one request; False while there is no connection."""
        ...

    def try_receive(self) -> list[Frame] | None: ...

    def was_refused(self) -> bool:
        """Whether a try to connect has failed, or a connection has broken, since the last look; of
        a link that watches for it."""
        ...

    def stop_reporting_refusals(self) -> None:
        """Look for refusals no more. Refusals that nobody reads pile up: whoever watches for them
        stops before it does something else."""
        ...

    def close(self) -> None: ...


class PushLink(Protocol):
    """Appends to one replica, without answers."""

    def try_send(self, frame: bytes) -> bool:
        """Queue one append; False while there is no connection or no room."""
        ...

    def is_lost(self) -> bool:
        """Whether the connection broke since it was made. What was queued is gone with it."""
        ...

    def close(self) -> None: ...


Link: TypeAlias = RequestLink | PushLink | FeedLink


class Links(Protocol):
    """Opens links. None of them waits: a link connects, and connects again, by itself."""

    def requester(
        self, address: str, *, reports_refusals: bool = ..., is_probe: bool = ...
    ) -> RequestLink:
        """`is_probe`: of several replicas each is asked, and some may be gone."""
        ...

    def pusher(self, address: str) -> PushLink: ...

    def feed(self, address: str, topic: bytes, *, queue_max: int) -> FeedLink: ...


class Clock(Protocol):
    """Monotonic time for everything that is waited for, wall time for stamps only; in ns."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class Lock(Protocol):
    """Held for moments, and over waits by whoever took it without blocking."""

    def acquire(self, blocking: bool = ...) -> bool: ...

    def release(self) -> None: ...


class Host(msgspec.Struct, frozen=True):
    """What one client stands on. `new_lock`: a lock between everything that shares this client."""

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


class Wait(msgspec.Struct, frozen=True, gc=False):
    """What has to happen before there is something to do again.

    It may end early, so whoever has waited looks at everything again; only a wait without a link
    lasts until its time.

    Attributes:
      until_ns: monotonic; it ends then at the latest.
      reads: until one of them has something to take, or is refused or lost where that is watched.
      writes: or until one of these has a connection and room.
    """

    until_ns: int
    reads: tuple[Link, ...] = ()
    writes: tuple[RequestLink | PushLink, ...] = ()


_T = TypeVar("_T")
# What is to be done until there is a result, of type _T; a `Wait` wherever there is nothing to do.
Steps: TypeAlias = Generator[Wait, None, _T]
