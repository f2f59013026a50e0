"""When a system is warm: two runs of one load, one after the other, agree.

Owns the rule. A virtual machine compiles what is hot while it runs, so that a first run measures
its compiler; and the first gigabyte that a cluster writes needs pages that a later one finds.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

AGREE_WITHIN = 0.10


class WarmUp(msgspec.Struct, frozen=True, tag="warm-up", tag_field="kind"):
    """Runs that do not count. `is_settled`: the last two agree within AGREE_WITHIN; if not, what
    comes after may still be getting faster."""

    round: int
    system: str
    contender: str
    load: str
    payloads_per_s: list[float]
    is_settled: bool


def agree(one: float, other: float) -> bool:
    """Whether two rates differ by at most AGREE_WITHIN of the larger one."""
    return abs(one - other) <= AGREE_WITHIN * max(one, other)


def run_until_settled(measure: Callable[[], float], *, runs_max: int) -> tuple[list[float], bool]:
    """Measure a rate until the last two agree, at most `runs_max` times (two at least); all rates,
    and whether they do."""
    rates = [measure(), measure()]
    while not agree(rates[-2], rates[-1]) and len(rates) < runs_max:
        rates.append(measure())
    return rates, agree(rates[-2], rates[-1])
