"""What one seed came to, and what many seeds came to together.

Owns the records and how they are joined. Must not know how a seed is run.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from actors.simulation.checkers.invariant import Violation

NS_PER_S = 1_000_000_000
# Where a seed failed with an exception that no rule expects, this stands in place of a rule.
ERROR = "error"


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's run. `faults_injected` is by FaultKind, `reached` by Reach; `error` is the text of
    an exception that no rule expects, with its traceback. Equal seeds give equal results but for
    `wall_s`."""

    seed: int
    simulated_ns: int
    wall_s: float
    events: int
    appends_acknowledged: int
    violations: tuple[Violation, ...]
    faults_injected: dict[str, int]
    reached: dict[str, int]
    event_hash: str
    error: str = ""
    excused_ns: int = 0  # the end of it, which proves nothing: a lying device lost what it had

    @property
    def has_failed(self) -> bool:
        return bool(self.violations or self.error)

    @property
    def first_complaint(self) -> str:
        """What was wrong first, in one line; "" if nothing was."""
        if self.violations:
            first = self.violations[0]
            return f"{first.invariant}: {_last_line(first.text)}"
        return f"{ERROR}: {_last_line(self.error)}" if self.error else ""


class SeedViolation(msgspec.Struct, frozen=True):
    """A violation with the seed that shows it."""

    seed: int
    invariant: str
    text: str
    at_ns: int


class Totals(msgspec.Struct, kw_only=True):
    """Many seeds together, in the shape that `--json` writes. `wall_s` is what whoever ran them
    measured, all jobs side by side; `commit` names the code."""

    commit: str
    seeds: int = 0
    simulated_s: float = 0.0
    excused_s: float = 0.0  # of them, after a device that lied had lost what it called flushed
    wall_s: float = 0.0
    events: int = 0
    appends_acknowledged: int = 0
    violations: list[SeedViolation] = []
    faults_injected: dict[str, int] = {}
    reached: dict[str, int] = {}

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.simulated_s += result.simulated_ns / NS_PER_S
        self.excused_s += result.excused_ns / NS_PER_S
        self.events += result.events
        self.appends_acknowledged += result.appends_acknowledged
        self.violations += [
            SeedViolation(result.seed, each.invariant, each.text, each.at_ns)
            for each in result.violations
        ]
        if result.error:
            self.violations.append(
                SeedViolation(result.seed, ERROR, result.error, result.simulated_ns)
            )
        self.faults_injected = _sum(self.faults_injected, result.faults_injected)
        self.reached = _sum(self.reached, result.reached)

    def in_order(self) -> Totals:
        """The same, whatever order the jobs answered in: violations by seed, names sorted."""
        return msgspec.structs.replace(
            self,
            simulated_s=round(self.simulated_s, 3),
            excused_s=round(self.excused_s, 3),
            wall_s=round(self.wall_s, 3),
            violations=sorted(self.violations, key=lambda each: each.seed),
            faults_injected=dict(sorted(self.faults_injected.items())),
            reached=dict(sorted(self.reached.items())),
        )


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    total = Counter(one)
    total.update(other)
    return dict(total)


def _last_line(text: str) -> str:
    """A traceback says what happened in its last line, a violation in its only one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
