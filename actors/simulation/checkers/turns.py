"""That appends have their turn, whatever else is asked of a leader (SAFETY E6).

Owns what was left unread of batches at each leader, and how many requests became entries meanwhile.
Must not know why a batch was not read. A leader without room takes neither; what is wrong is to
take one request after the other and no batch.
"""

from __future__ import annotations


class AppendTurns:
    """All leaders'. `taken_max`: entries of requests while one batch waits."""

    __slots__ = ("_oldest", "_taken", "_taken_max")

    def __init__(self, taken_max: int) -> None:
        self._taken_max = taken_max
        self._oldest: dict[int, object] = {}  # by node; the message, kept for its identity
        self._taken: dict[int, int] = {}

    def taken(self, node: int) -> None:
        """An OPEN, EXPIRE or CURSOR got its index at this leader."""
        self._taken[node] = self._taken.get(node, 0) + 1

    def passed_over(self, node: int, oldest: object) -> int:
        """At the end of a do_work `oldest` is the first unread batch, None: none is. How many
        requests were taken while it waited, if they are too many, else 0."""
        if oldest is None or self._oldest.get(node) is not oldest:
            self._oldest[node] = oldest
            self._taken[node] = 0
        taken = self._taken.get(node, 0)
        return taken if taken > self._taken_max else 0
