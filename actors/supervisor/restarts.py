"""What the death of a child leads to, and when: the rules of SAFETY M3. Pure.

raft, the writer and ingress share cursors and numbering that no half can rebuild alone, so their
death ends the incarnation. Replicators and egress hold nothing that others count on and come back
alone.
"""

from __future__ import annotations

from collections import deque
from random import Random

from actors import topology
from logstore import limits

_SECOND_NS = 1_000_000_000
VITAL = frozenset({topology.RAFT, topology.WRITER, topology.INGRESS})
# A child that lived this long did not die of how it starts: its back-off begins anew.
STEADY_NS = limits.RESTARTS_WINDOW_S * _SECOND_NS
EXIT_CRASH_LOOP = 70


class RestartPolicy:
    """Counts deaths and says when the next start is. Times are ns of the monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._replica_deaths: deque[int] = deque(maxlen=limits.RESTARTS_MAX + 1)
        self._child_deaths: dict[str, int] = {}

    def child_restart_at(self, process: str, *, now_ns: int, lived_ns: int) -> int:
        """When a replicator or egress is started again: 0.1 s, doubled a death up to 5 s, half of
        it jitter, so that the replicators of several nodes do not come back in step."""
        deaths = 1 if lived_ns >= STEADY_NS else self._child_deaths.get(process, 0) + 1
        self._child_deaths[process] = deaths
        return now_ns + _backoff_ns(deaths, self._random)

    def try_replica_restart_at(self, *, now_ns: int) -> int | None:
        """When the replica is started again; None: more than 5 times in 60 s, give up.

        The first restart comes at once: an unavailable replica costs more than a wasted start.
        """
        self._replica_deaths.append(now_ns)
        window_start_ns = now_ns - limits.RESTARTS_WINDOW_S * _SECOND_NS
        recent = sum(1 for death_ns in self._replica_deaths if death_ns > window_start_ns)
        if recent > limits.RESTARTS_MAX:
            return None
        return now_ns if recent == 1 else now_ns + _backoff_ns(recent - 1, self._random)


def _backoff_ns(deaths: int, random: Random) -> int:
    longest_s = min(
        limits.RESTART_BACKOFF_MAX_S, limits.RESTART_BACKOFF_MIN_S * 2 ** min(deaths, 16)
    )
    wait_s = longest_s * (0.5 + random.random() / 2)
    return int(max(limits.RESTART_BACKOFF_MIN_S, wait_s) * _SECOND_NS)
