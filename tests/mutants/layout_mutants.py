"""Mutants of what follows from the death of a process that runs several actors (SAFETY M3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

RESTARTS = "actors.supervisor.restarts"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "group-with-a-vital-actor-restarts-alone",
        "SAFETY M3",
        f"{RESTARTS}:is_vital",
        "not VITAL.isdisjoint(actors)",
        "VITAL.issuperset(actors)",
        "a process that runs raft beside egress, say, is started again in the same incarnation",
    ),
    mutant(
        "one-actor-of-a-group-reported-gone",
        "SAFETY M3, W4",
        f"{RESTARTS}:reports_of_death",
        "for actor in actors]",
        "for actor in actors[:1]]",
        "when a process with several actors dies, raft is told of the first one only",
    ),
)
