"""That no control lane is passed over, whatever else waits for room (SAFETY W7).

Owns what was left unread on each lane. Must not know why, nor how much a do_work may read: it reads
one message at least.
"""

from __future__ import annotations


class ControlLanes:
    """All processes'."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], object] = {}  # the oldest message, kept for its identity

    def is_passed_over(self, process: str, endpoint: str, oldest: object) -> bool:
        """At the end of a do_work `oldest` is unread, as it was at the end of the one before."""
        lane = (process, endpoint)
        is_same = self._left.get(lane) is oldest
        self._left[lane] = oldest
        return is_same
