"""Which processes stand still: loop counters that did not move for 5 s (SAFETY M3). Pure.

A pause of the supervisor itself (SIGSTOP of the whole replica, a suspended machine) is no evidence
against a child: after one, every timeout starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logstore import limits

_SECOND_NS = 1_000_000_000
TIMEOUT_NS = int(limits.LIVENESS_TIMEOUT_S * _SECOND_NS)
# Until a child's first loop: starting Python, imports and opening files on a busy machine.
START_TIMEOUT_NS = 30 * _SECOND_NS
# Observations come every second; one that is this late means that the supervisor was paused, too.
PAUSE_NS = TIMEOUT_NS // 2


class LivenessMonitor:
    """Remembers when each child's loop counter last moved."""

    def __init__(self) -> None:
        self._progress: dict[str, tuple[int, int]] = {}
        self._observed_ns: int | None = None

    def forget(self, process: str) -> None:
        """`process` is gone or new: its timeout starts at its next observation."""
        self._progress.pop(process, None)

    def stalled(self, loops: Mapping[str, int], *, now_ns: int) -> list[str]:
        """Observe the counters of the running children; returns those that stand still.

        Args:
          loops: process name to its loop counter, 0 before its first loop.
          now_ns: the monotonic clock.
        """
        if self._observed_ns is not None and now_ns - self._observed_ns > PAUSE_NS:
            self._progress.clear()
        self._observed_ns = now_ns
        return [name for name in self._moved(loops) if self._is_overdue(name, loops, now_ns)]

    def _moved(self, loops: Mapping[str, int]) -> Iterable[str]:
        for gone in self._progress.keys() - loops.keys():
            del self._progress[gone]
        return loops.keys()

    def _is_overdue(self, name: str, loops: Mapping[str, int], now_ns: int) -> bool:
        count, since_ns = self._progress.get(name, (None, now_ns))
        if count != loops[name]:
            self._progress[name] = (loops[name], now_ns)
            return False
        return now_ns - since_ns > (TIMEOUT_NS if count else START_TIMEOUT_NS)
