"""Who waits for the commit of a batch beside the one that sent it first (SAFETY E9).

Owns, by batch, the routes of those that sent it again, or asked for it in a SessionState, before it
was committed. Must not know what is sent there.

A producer reads the ack feed in one place, so of its rounds the newest is enough. A connection of
the produce port is told only what was asked on it, and a late copy from a connection that is gone
must not take the place of the one that waits: so each has its own, ROUTES_PER_BATCH_MAX at most.
A producer with more of them open at a time does not keep to the protocol, and asks again.
"""

from __future__ import annotations

from actors.ingress.groups import Origin
from logstore.model import Index

ROUTES_PER_BATCH_MAX = 4


class Retries:
    """Of one term. There are at most ROUTES_PER_BATCH_MAX times as many as all windows have rows.
    Mostly one waits for a batch."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[int, int], list[Origin]] = {}  # by producer and sequence

    def await_commit(self, origin: Origin) -> None:
        """A producer asks for a batch that is not committed yet. Hot: once a row of its window."""
        key = origin[0], origin[3].sequence
        others = self._awaited.get(key)
        if others is None:
            self._awaited[key] = [origin]
            return
        others = [each for each in others if not _are_one(each, origin)]
        self._awaited[key] = [*others[1 - ROUTES_PER_BATCH_MAX :], origin]

    def take_committed(self, commit: Index) -> list[Origin]:
        """Those that are committed now; they wait no more. Hot: once a commit."""
        if not self._awaited:
            return []
        done: list[Origin] = []
        over: list[tuple[int, int]] = []
        for key, origins in self._awaited.items():
            # the newest one's row: an older epoch's or gen's is not waited for any more
            if origins[-1][3].is_committed(commit):
                done += [each for each in origins if each[3].is_committed(commit)]
                over.append(key)
        for key in over:
            del self._awaited[key]
        return done

    def forget_unaccepted(self) -> None:
        """The gen ended: what raft has not accepted of it is not in the log."""
        awaited = self._awaited
        for key in [key for key, origins in awaited.items() if not origins[-1][3].index]:
            del awaited[key]

    def clear(self) -> None:
        """The term ended."""
        self._awaited.clear()


def _are_one(one: Origin, other: Origin) -> bool:
    """Whether both answers go to the ack feed, or to the same connection."""
    route, other_route = one[2], other[2]
    if isinstance(route, int):
        return isinstance(other_route, int)
    return route == other_route
