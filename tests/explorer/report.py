"""The result of an exploration as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tests.explorer.events import line_of
from tests.explorer.search import Outcome


class Measured(msgspec.Struct, frozen=True):
    """An outcome and what it cost; `path` is the transcript of the violation, if any."""

    outcome: Outcome
    seconds: float
    cpu_seconds: float
    states_per_s: int
    path: list[str]

    @classmethod
    def of(cls, outcome: Outcome, *, elapsed_ns: int, cpu_ns: int) -> Measured:
        states_per_s = outcome.states * 1_000_000_000 // max(elapsed_ns, 1)
        seconds, cpu_seconds = (each // 10_000_000 / 100 for each in (elapsed_ns, cpu_ns))
        return cls(outcome, seconds, cpu_seconds, states_per_s, list(transcript(outcome)))

    def document(self) -> dict[str, object]:
        """One flat object; the bound's numbers under their own names."""
        outcome = msgspec.to_builtins(self.outcome)
        violation = self.outcome.violation
        return {
            **outcome.pop("bound"),
            **outcome,
            "violation": None if violation is None else violation.text,
            "path": self.path,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "states_per_s": self.states_per_s,
        }


def transcript(outcome: Outcome) -> Iterator[str]:
    """The shortest path to the violation, a line per event, and what it broke."""
    violation = outcome.violation
    if violation is None:
        return
    for number, (replica, event) in enumerate(violation.path, start=1):
        yield f"{number:3d}. {line_of(replica + 1, event)}"
    yield f"     {violation.text}"


def lines_of(measured: Measured) -> Iterator[str]:
    """The figures, then the transcript."""
    outcome, bound = measured.outcome, measured.outcome.bound
    changes = f", <= {bound.changes} changes of the members, {bound.change} first"
    yield (
        f"3 replicas, <= {bound.terms} terms, <= {bound.entries} entries, <= {bound.crashes} "
        f"crashes each, <= {bound.streams} streams a peer and term, {bound.stream_mode} mode"
        f"{changes if bound.changes else ''}"
    )
    yield (
        f"states {outcome.states}, transitions {outcome.transitions}, depth {outcome.depth}, "
        f"{measured.seconds} s ({measured.cpu_seconds} s of CPU), {measured.states_per_s} states/s"
    )
    yield (
        f"states of one replica {outcome.local_states}, steps of the core {outcome.core_steps}, "
        f"messages {outcome.messages}, steps cut by the bound {outcome.cut}"
    )
    if outcome.violation is not None:
        yield "VIOLATION:"
        yield from measured.path
    elif outcome.is_exhausted:
        yield "exhausted: every state within the bound keeps every promise"
    else:
        yield f"out of time after depth {outcome.depth}: nothing broken so far"
