"""The clocks of a process: the only file that may read the wall clock.

Monotonic time drives timers. Wall time only stamps proposals and documents,
and may jump (SAFETY G2).
"""

from __future__ import annotations

import time


class RealClock:
    """This machine's clocks, in ns."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        """Since the Unix epoch."""
        return time.time_ns()
