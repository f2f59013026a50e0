"""The client's clocks: wall time for what it stamps, monotonic time for everything it waits for.

The one file of the client that reads the wall clock.
"""

from __future__ import annotations

import time

from logstore.client.core.steps import nanoseconds

monotonic_ns = time.monotonic_ns


def wall_ns() -> int:
    """Nanoseconds since the Unix epoch, for the time stamp of a batch. Never used to measure."""
    return time.time_ns()


class RealClock:
    """This machine's clocks, for the client's core."""

    monotonic_ns = staticmethod(monotonic_ns)
    wall_ns = staticmethod(wall_ns)


def seconds_from_now(seconds: float) -> int:
    """The monotonic time, in ns, `seconds` from now: what deadlines are made of."""
    return monotonic_ns() + nanoseconds(seconds)


def milliseconds_until(deadline_ns: int) -> int:
    """Whole milliseconds until a monotonic deadline, rounded up, at least 0."""
    return max(0, -((monotonic_ns() - deadline_ns) // 1_000_000))
