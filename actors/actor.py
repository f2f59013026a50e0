"""What an actor is: a piece of a replica that somebody else runs.

An actor never blocks, never sleeps and owns no loop; the runner (one process each, all in one
process, or a simulator) calls `do_work` until it returns 0 and then parks until something in
`wait_on`, the actor's bell or its timer wakes it (SAFETY M7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Actor(Protocol):
    """One of the processes of a replica."""

    def on_start(self) -> None:
        """Open sockets and files; called once, before the first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Do a bounded amount of work; `now_ns`: the monotonic clock. Returns how much; 0: idle."""

    def wait_on(self) -> Sequence[Any]:
        """Sockets and descriptors whose readiness may bring work now (besides the bell). Under
        back-pressure an actor leaves out what it would not read."""

    def next_timer_ns(self) -> int:
        """When do_work must be called again at the latest, on the monotonic clock."""

    def on_close(self) -> None:
        """Close what on_start opened; called once, after the last do_work."""
