"""What an actor is: a part of a replica that a runner runs.

An actor never blocks or sleeps, and has no loop of its own. The runner (one process each, several
in one process, or a simulator) calls `do_work` when the actor's bell, something in `wait_on` or its
timer says so, and again at once after a full turn (SAFETY M7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Actor(Protocol):
    """One of the processes of a replica.

    Attributes:
      full_turn: a do_work that returns less left nothing undone but what has a bell, a readable
        socket or a timer. One that returns as much may have stopped at a bound.
    """

    @property
    def full_turn(self) -> int: ...

    def on_start(self) -> None:
        """Open sockets and files; called once, before the first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Do a bounded amount of work; `now_ns`: the monotonic clock. Returns how much; 0: none."""

    def wait_on(self) -> Sequence[Any]:
        """Sockets and descriptors that may bring work when they are ready, besides the bell. Under
        back-pressure an actor leaves out those that it would not read."""

    def next_timer_ns(self) -> int:
        """When do_work must be called again at the latest, on the monotonic clock."""

    def on_close(self) -> None:
        """Close what on_start opened; called once, after the last do_work."""
