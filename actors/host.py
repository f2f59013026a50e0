"""What an actor runs on besides its rings: a disk, sockets, clocks, randomness, flush
workers and an observer.

The seam between a replica and its machine: `RealHost` is this machine, the simulator passes its
own. Owns the protocols and the real host. Must not know what an actor does with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, cast

from actors.flush_workers import Bell, CallerThreadWorker, Job, ThreadWorker
from actors.observer import NoObserver, Observer
from actors.real_clock import RealClock
from logstore.storage.disk import Disk, RealDisk
from transport import link
from transport.link import Lane
from transport.ports import Watch


class Clock(Protocol):
    """The two clocks of a process, in ns."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class Links(Protocol):
    """How sockets are opened; each method is as the function of that name in `transport.link`."""

    def router_bind(
        self,
        endpoint: str,
        *,
        lane: Lane,
        message_size_max: int,
        high_water_mark: int = ...,
        insecure: bool = ...,
    ) -> Any: ...

    def dealer_connect(
        self,
        endpoint: str,
        *,
        lane: Lane,
        message_size_max: int,
        high_water_mark: int = ...,
        routing_id: bytes = ...,
    ) -> Any: ...

    def watch_connection(self, socket: Any) -> Watch: ...

    def pull_bind(
        self,
        endpoint: str,
        *,
        message_size_max: int,
        high_water_mark: int = ...,
        insecure: bool = ...,
    ) -> Any: ...

    def xpub_bind(
        self,
        endpoint: str,
        *,
        message_size_max: int,
        high_water_mark: int = ...,
        welcome: bytes = ...,
        insecure: bool = ...,
    ) -> Any: ...


class FlushWorker(Protocol):
    """Runs jobs one at a time, in order, beside the actor; see `actors.flush_workers`."""

    @property
    def is_busy(self) -> bool: ...

    def start(self, job: Job) -> None: ...

    def wait(self) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...


class Host(Protocol):
    """One process' view of the machine it runs on."""

    @property
    def disk(self) -> Disk: ...

    @property
    def links(self) -> Links: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def observer(self) -> Observer: ...

    def random_bytes(self, size: int) -> bytes: ...

    def flush_worker(self, name: str, wake: Callable[[], None]) -> FlushWorker:
        """A flush worker beside the actor. `wake` is called after each job, so that the owner
        checks how it ended."""
        ...

    def own_thread_worker(self, name: str, bell: Bell, on_bell: Callable[[], int]) -> FlushWorker:
        """A worker that may run jobs in the owner's thread: `start` may return only when the job is
        over. `on_bell` is called when `bell` rings during a job."""
        ...


class RealHost:
    """This machine. `has_own_thread`: no other actor runs in this thread, so it may flush."""

    def __init__(self, *, has_own_thread: bool = True) -> None:
        self._has_own_thread = has_own_thread
        self.disk: Disk = RealDisk()
        self.clock = RealClock()
        # a module is used as an object here, which only a cast can say
        self.links = cast(Links, link)
        self.observer: Observer = NoObserver()

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def flush_worker(self, name: str, wake: Callable[[], None]) -> FlushWorker:
        return ThreadWorker(name, wake)

    def own_thread_worker(self, name: str, bell: Bell, on_bell: Callable[[], int]) -> FlushWorker:
        if self._has_own_thread:
            return CallerThreadWorker(name, bell, on_bell)
        return ThreadWorker(name, bell.ring)
