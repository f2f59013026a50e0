"""The invariants by number (FAULTS section 2), and the violations of one run.

Owns the numbers, and which of them are a promise to users. Must not know how anything is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

VIOLATIONS_MAX = 100  # the first one stops a run; more than these say nothing new


class Invariant(StrEnum):
    """What must hold under all faults."""

    I1 = "I1"  # what was acknowledged is in the log, with these bytes at these LSNs
    I2 = "I2"  # LSNs are contiguous, each given once
    I3 = "I3"  # all replicas have the same committed log, and it never changes
    I4 = "I4"  # a batch is there whole or not at all, in one piece
    I5 = "I5"  # what a replica shows and a consumer gets only moves forward, without a gap
    I6 = "I6"  # appends and linearizable tail reads have one order, which real time agrees with
    I7 = "I7"  # a batch is there once at most, in its producer's order, never after a fence
    I8 = "I8"  # no reader is shown what is not committed
    I9 = "I9"  # one leader a term; term and vote never regress, crashes included
    I10 = "I10"  # nothing is answered before it is durable
    I11 = "I11"  # damaged bytes are never served or replicated
    I12 = "I12"  # a replica has what it reports to have, also after a crash
    I13 = "I13"  # after the faults: appends are acknowledged, replicas become equal
    I14 = "I14"  # every queue keeps its bound
    I15 = "I15"  # a process that has ended does nothing more
    I16 = "I16"  # no request is carried out for a client or peer that has no right to it
    I17 = "I17"  # the session table is the fold of the log
    I18 = "I18"  # quorums of successive configurations intersect
    I19 = "I19"  # nothing is removed above what a committed TRIM says
    I20 = "I20"  # payload bytes are written to a replica's disk once
    I21 = "I21"  # nothing is written or read of a format level that the log, or a version, lacks
    I22 = "I22"  # an append that expects an LSN is stored there or nowhere, or refused with reason


# Invariants that nothing can break yet, and the feature they wait for.
NOT_BUILT: dict[Invariant, str] = {
    Invariant.I16: "client and peer roles (CURVE)",
}


# A promise of README.md is kept while these hold: tests/PROMISES.md shows what looks at each.
PROMISES: dict[str, tuple[Invariant, ...]] = {
    "P1": (Invariant.I2,),
    "P2": (Invariant.I3,),
    "P3": (Invariant.I2, Invariant.I5),
    "P4": (Invariant.I4,),
    "P5": (Invariant.I10, Invariant.I1),
    "P6": (Invariant.I8, Invariant.I3),
    "P7": (Invariant.I7,),
    "P8": (Invariant.I20,),
    "P9": (Invariant.I11, Invariant.I12, Invariant.I1),
}


class Violation(msgspec.Struct, frozen=True):
    """One broken promise. `invariant` is an Invariant's number, `at_ns` the world's time."""

    invariant: str
    text: str
    at_ns: int


class Findings:
    """The violations of one run, oldest first."""

    __slots__ = ("_now", "violations")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.violations: list[Violation] = []

    def report(self, invariant: Invariant, text: str) -> None:
        """An invariant is broken now."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(invariant.value, text, self._now()))
