"""The states that a power cut may leave of a simulated disk, enumerated.

Owns how survivors are put together. Must not know handles, processes, nor which state is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.names import DiskNames
from actors.simulation.disk.power_cut_choices import choices_bounded
from actors.simulation.disk.sectors import Sectors, cut_sectors

_Variable = tuple[object, int, list[bytes | int | SimulatedFile | None]]


def crashed_files(
    names: DiskNames, *, states_max: int, random: Random
) -> Iterator[dict[str, SimulatedFile]]:
    """The names and files of each state, all of them if there are at most `states_max`."""
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
        yield _crashed(names, variables, choice)


def _crashed(
    names: DiskNames, variables: list[_Variable], choice: tuple[int, ...]
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
