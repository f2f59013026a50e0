"""Which combinations of survivors a power cut is tried with: all of them, or a bounded fair choice.

Pure arithmetic over "variable i took version v of n_i"; version 0 is always what was durable. Knows
neither disks nor files. Deterministic for a given random.Random.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from random import Random


def choices_bounded(
    sizes: list[int], *, choices_max: int, random: Random
) -> Iterator[tuple[int, ...]]:
    """Distinct choices of one version for each variable. `sizes[i]` versions of variable i.

    All of them where they are at most `choices_max`; else nothing and everything, every prefix,
    each variable alone, all but each, then random ones up to the bound: the shapes of real crash
    bugs first.
    """
    if prod(sizes) <= choices_max:
        yield from itertools.product(*[range(size) for size in sizes])
        return
    seen: set[tuple[int, ...]] = set()
    for choice in itertools.chain(_likely(sizes), _random(sizes, random)):
        if choice not in seen:
            seen.add(choice)
            yield choice
            if len(seen) == choices_max:
                return


def _likely(sizes: list[int]) -> Iterator[tuple[int, ...]]:
    none = (0,) * len(sizes)
    every = tuple(size - 1 for size in sizes)
    yield none
    yield every
    for i in range(1, len(sizes)):
        yield every[:i] + none[i:]
    for i in range(len(sizes)):
        yield (*none[:i], every[i], *none[i + 1 :])
        yield (*every[:i], 0, *every[i + 1 :])


def _random(sizes: list[int], random: Random) -> Iterator[tuple[int, ...]]:
    while True:
        yield tuple(random.randrange(size) for size in sizes)
