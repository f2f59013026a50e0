"""The result of one seed, and of many seeds together. Must not know how a seed is run."""

from __future__ import annotations

from collections import Counter

import msgspec

from actors.simulation.checkers.invariant import Violation

NS_PER_S = 1_000_000_000
# Takes the place of an invariant where a seed failed with an exception.
ERROR = "error"


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """`faults_injected`: by FaultKind; `reached`: by Reach; `error`: an unexpected exception with
    its traceback. The same seed has the same result but for `wall_s`."""

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
    excused_ns: int = 0  # its last part, which proves nothing: a lying device had lost data

    @property
    def has_failed(self) -> bool:
        return bool(self.violations or self.error)

    @property
    def first_complaint(self) -> str:
        """The first violation or error, in one line."""
        if self.violations:
            first = self.violations[0]
            return f"{first.invariant}: {_last_line(first.text)}"
        return f"{ERROR}: {_last_line(self.error)}" if self.error else ""


class SeedViolation(msgspec.Struct, frozen=True):
    seed: int
    invariant: str
    text: str
    at_ns: int


class Totals(msgspec.Struct, kw_only=True):
    """Many seeds together, in the shape that `--json` writes. `wall_s`: of the whole run, however
    many jobs; `commit` names the code."""

    commit: str
    seeds: int = 0
    simulated_s: float = 0.0
    excused_s: float = 0.0  # of these, after a lying device had lost data
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
        """The same for any order of results: violations by seed, names sorted."""
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
    """The last line of a traceback, or the only one of a violation, says what happened."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
