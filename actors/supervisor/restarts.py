"""What follows from the death of a child, and when: the rules of SAFETY M3. Pure.

raft, the writer and ingress share cursors and numbering that none of them can rebuild alone, so the
death of a process that runs one of them ends the incarnation. Replicators and egress hold nothing
that others need: a process that runs only such actors is started again alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random

from actors import topology
from actors.messages import ProcessGone
from logstore import limits

_SECOND_NS = 1_000_000_000
VITAL = frozenset({topology.RAFT, topology.WRITER, topology.INGRESS})
# A child that lived this long did not die of its start: its back-off begins again.
STEADY_NS = limits.RESTARTS_WINDOW_S * _SECOND_NS
EXIT_CRASH_LOOP = 70


def is_vital(actors: Sequence[str]) -> bool:
    """Whether the death of the process that runs these ends the incarnation."""
    return not VITAL.isdisjoint(actors)


def is_stall_fatal(actors: Sequence[str]) -> bool:
    """Whether a process that stands still is killed. The writer may be in the kernel, waiting for a
    disk, where a kill helps nobody: its process is only reported."""
    return topology.WRITER not in actors


def reports_of_death(actors: Sequence[str]) -> list[ProcessGone]:
    """What raft must hear before the process that ran these starts again: it settles for each what
    that one held."""
    return [ProcessGone(actor) for actor in actors]


class RestartPolicy:
    """Counts deaths and returns when to start next. Times are ns of the monotonic clock."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._replica_deaths: deque[int] = deque(maxlen=limits.RESTARTS_MAX + 1)
        self._child_deaths: dict[str, int] = {}

    def child_restart_at(self, process: str, *, now_ns: int, lived_ns: int) -> int:
        """When to start a process that is not vital again: after 0.1 s, doubled each death up to 5
        s. Half of it is jitter, so that the replicators of several nodes do not restart in step."""
        deaths = 1 if lived_ns >= STEADY_NS else self._child_deaths.get(process, 0) + 1
        self._child_deaths[process] = deaths
        return now_ns + _backoff_ns(deaths, self._random)

    def try_replica_restart_at(self, *, now_ns: int) -> int | None:
        """When to start the replica again; None: more than 5 times in 60 s, give up.

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
