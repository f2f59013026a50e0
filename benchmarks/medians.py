"""Medians of repeated runs, with how far the runs lie apart, and whether one reaches its target."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

_DIGITS = 4


class Spread(msgspec.Struct, frozen=True):
    """Of all runs of one thing."""

    median: float
    low: float
    high: float


class Verdict(msgspec.Struct, frozen=True):
    """A median against its target; `low` and `high` are of the runs at the ends."""

    measured: float
    low: float
    high: float
    target: float
    is_reached: bool


def spread(values: Sequence[float]) -> Spread:
    """At least one value."""
    return Spread(*(round(each, _DIGITS) for each in (median(values), min(values), max(values))))


def spread_s(values: Sequence[float]) -> dict[str, float]:
    """The spread of seconds, by names that say so."""
    found = spread(values)
    return {"median_s": found.median, "low_s": found.low, "high_s": found.high}


def at_most(target: float, values: Sequence[float]) -> Verdict:
    """The median is to be `target` or less."""
    return _verdict(target, values, is_reached=median(values) <= target)


def at_least(target: float, values: Sequence[float]) -> Verdict:
    """The median is to be `target` or more."""
    return _verdict(target, values, is_reached=median(values) >= target)


def _verdict(target: float, values: Sequence[float], *, is_reached: bool) -> Verdict:
    found = spread(values)
    return Verdict(found.median, found.low, found.high, target, is_reached)
