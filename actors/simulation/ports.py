"""The seams inside the simulator: what its parts ask of the world that runs them.

Protocols only. Times are ns of the world's own clock, integers, from 0; what a node's clocks show
is the world's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Scheduler(Protocol):
    """The world's clock and its queue of events."""

    now_ns: int

    def at(self, at_ns: int, action: Callable[..., None], *args: Any) -> None:
        """Call `action(*args)` at `at_ns`, not before now. Equal times: in a seeded order."""
        ...


class Owner(Protocol):
    """One simulated process: who owns a socket or a view of a disk."""

    node: int  # 0: a client's machine
    name: str  # unique in the world, such as "2.replicator-1" or "producer-4"

    @property
    def local_now_ns(self) -> int:
        """The moment at which what this process does now is seen by others: the world's time and
        what the running do_work has been busy with so far."""
        ...

    def wake(self) -> None:
        """Something this process waits for is there now: let it run."""
        ...
