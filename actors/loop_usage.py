"""What a process' loop costs: processor time, idle time, and which wake-ups were paid.

Counts in its own memory and publishes from time to time: a store into shared memory for each
wake-up would cost as much as reading the clock for it. Must not know what the loop runs.
"""

from __future__ import annotations

from collections.abc import Callable

# So old may be what others read. It takes 20 µs in a process that was just woken (caches cold): 20
# processes that publish 10 times a second would take 0.004 of a core of an idle cluster's 0.05.
PUBLISH_EVERY_NS = 1_000_000_000
# `turns`: of the loop. `bell_wakes`, `socket_wakes`, `timer_wakes`: parks that ended so.
# `empty_wakes`: those of them after which the actor reported no work, as it does where only a timer
# of its own was due.
# `idle_ns`: parked, or spinning without work, and from the wake-up until a processor was had.
# `cpu_ns`: of all threads. `run_ns`, `wait_ns`: the loop's thread was on a processor, wanted one in
# vain, as the scheduler counts. `measured_ns`: until when the others count, by the monotonic
# clock; 0: nothing was published.
USAGE = (
    "turns",
    "bell_wakes",
    "socket_wakes",
    "timer_wakes",
    "empty_wakes",
    "idle_ns",
    "cpu_ns",
    "run_ns",
    "wait_ns",
    "measured_ns",
)
_SCHEDULED = "/proc/self/schedstat"  # of the main thread, which runs the loop


def _scheduled() -> tuple[int, int]:
    """ns that this process' main thread was on a processor, and that it waited for one; zeros where
    the kernel does not count it."""
    try:
        with open(_SCHEDULED, "rb") as file:
            run_ns, wait_ns, _ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0, 0
    return run_ns, wait_ns


class LoopUsage:
    """The loop counts in the attributes, which begin where a predecessor of the process ended."""

    __slots__ = (
        "_slot_numbers",
        "_slots",
        "bell_wakes",
        "due_ns",
        "empty_wakes",
        "idle_ns",
        "socket_wakes",
        "timer_wakes",
        "turns",
    )

    def __init__(self, slots: memoryview, slot: Callable[[str], int], process: str) -> None:
        self._slots = slots
        self._slot_numbers = [slot(f"{process}.{name}") for name in USAGE]
        counted = [slots[number] for number in self._slot_numbers]
        self.turns, self.bell_wakes, self.socket_wakes, self.timer_wakes = counted[:4]
        self.empty_wakes, self.idle_ns = counted[4:6]
        self.due_ns = 0

    def publish(self, now_ns: int, cpu_ns: int) -> None:
        """`cpu_ns`: processor time of this process so far."""
        self.due_ns = now_ns + PUBLISH_EVERY_NS
        wakes = (self.bell_wakes, self.socket_wakes, self.timer_wakes, self.empty_wakes)
        values = (self.turns, *wakes, self.idle_ns, cpu_ns, *_scheduled(), now_ns)
        for number, value in zip(self._slot_numbers, values, strict=True):
            self._slots[number] = value
