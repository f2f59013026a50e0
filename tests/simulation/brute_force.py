"""Searches all orders for one in which a log object gives these answers (Wing and Gong).

Owns a log as a sequential object and the search over the orders that real time allows. Knows
nothing of the trick the fast checker uses: here an append is asked what it returned, and a last
read of the whole log, after everything, is asked which appends it holds.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER_NS = 1 << 63


@dataclass(frozen=True)
class Call:
    """One operation. An append (`count` > 0) returned its first LSN, or None: no answer came; a
    tail read (`count` 0) returned the last LSN."""

    name: int
    count: int
    invoked_ns: int
    returned_ns: int
    answer: int | None


def is_linearizable(calls: tuple[Call, ...], final: tuple[int, ...]) -> bool:
    """Whether some order of the calls, of unanswered appends only those that took effect, explains
    every answer and leaves the log with the appends `final`, by name, in order."""
    dead_ends: set[tuple[frozenset[int], tuple[int, ...]]] = set()

    def search(left: frozenset[int], log: tuple[int, ...], end_lsn: int) -> bool:
        if log == final and all(calls[place].answer is None for place in left):
            return True
        state = (left, log)
        if state in dead_ends or not left:
            return False
        first_return_ns = min(calls[place].returned_ns for place in left)
        for place in sorted(left):
            call = calls[place]
            if call.invoked_ns > first_return_ns:
                continue  # another one had returned before this one was called
            answer = end_lsn + 1 if call.count else end_lsn
            if call.answer not in (None, answer):
                continue
            longer = (*log, call.name) if call.count else log
            if search(left - {place}, longer, end_lsn + call.count):
                return True
        dead_ends.add(state)
        return False

    return search(frozenset(range(len(calls))), (), 0)
