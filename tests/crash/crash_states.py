"""The states that a power cut may leave of a simulated disk, enumerated.

A state takes any subset of the unflushed sector writes (each sector in any version written since
the last flush), any prefix of a file's unflushed size changes and any prefix of a name's unflushed
changes. Owns how a state is put together from these. Must not know which state is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from random import Random

from actors.simulation.disk.directory import Directory
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.sectors import Sectors, cut_sectors

_Variable = tuple[object, int, list[bytes | int | SimulatedFile | None]]


def crash_states(
    disk: SimulatedDisk, *, states_max: int, random: Random
) -> Iterator[SimulatedDisk]:
    """The disks that a power cut now may leave; if there are more than `states_max`, so many."""
    disk.deferred.apply_due()
    names = disk._names
    variables: list[_Variable] = []
    files = dict.fromkeys(names.durable.values())
    for path, versions in names.changes().items():
        variables.append((path, -1, list(versions)))
        files.update(dict.fromkeys(file for file in versions if file is not None))
    for file in files:
        for what, number, survivors in file.survivors():
            variables.append((file, number if what == "sector" else -1, list(survivors)))
    sizes = [len(versions) + 1 for _, _, versions in variables]
    for choice in choices_bounded(sizes, choices_max=states_max, random=random):
        yield disk.with_files(_crashed(names, variables, choice))


def _crashed(
    names: Directory, variables: list[_Variable], choice: tuple[int, ...]
) -> dict[str, SimulatedFile]:
    named = dict(names.durable)
    sectors: dict[SimulatedFile, Sectors] = {}
    sizes: dict[SimulatedFile, list[int]] = {}
    for (owner, number, versions), taken in zip(variables, choice, strict=True):
        if taken == 0:
            continue
        value = versions[taken - 1]
        if isinstance(owner, SimulatedFile):
            if isinstance(value, bytes):
                sectors.setdefault(owner, {})[number] = value
            else:
                sizes[owner] = [v for v in versions[:taken] if isinstance(v, int)]
        elif isinstance(owner, str):
            if isinstance(value, SimulatedFile):
                named[owner] = value
            else:
                named.pop(owner, None)
    return {
        path: _crashed_file(file, sectors.get(file, {}), sizes.get(file, []))
        for path, file in named.items()
    }


def _crashed_file(file: SimulatedFile, sectors: Sectors, sizes: list[int]) -> SimulatedFile:
    """The file after a power cut that left these unflushed sectors and size changes."""
    content = dict(file.durable)
    if sizes:
        cut_sectors(content, min(sizes))
    content.update(sectors)
    size = sizes[-1] if sizes else file.durable_size
    cut_sectors(content, size)
    return SimulatedFile(size, content, file.unreadable - sectors.keys())


def choices_bounded(
    sizes: list[int], *, choices_max: int, random: Random
) -> Iterator[tuple[int, ...]]:
    """Distinct choices of one version for each variable; variable i has `sizes[i]` versions, and
    version 0 is the durable one.

    All choices if there are at most `choices_max`. Else the shapes of real crash bugs first:
    nothing, everything, every prefix, each variable alone, all but each; then random ones.
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
