"""Recovery's short cuts over sealed segments against the walk that judges entry by entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, MetaLost
from logstore.model import EntryKind
from logstore.storage import verdict
from tests.crash.storage_trial import StorageTrial, look

DAMAGE = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 511), st.integers(0, 255)),
    max_size=2,
)


def log_of_some_segments(seed: int) -> SimulatedDisk:
    trial = StorageTrial(SimulatedDisk())
    trial.newest_level = 2
    trial.create_log()
    for step in range(5):
        trial.commit(1 + step // 2, [(0, 8, 376, 800)[(seed + i * step) % 4] for i in range(3)])
        if step == seed % 7:
            trial.raise_level(2)
        if step == seed % 5:
            trial.commit_body(EntryKind.TRIM, b"a trim's")
        if seed & 8:
            trial.restart()
        if (seed >> step) & 1:
            trial.writer.roll()
    if seed & 32:
        trial.truncate(1 + seed % trial.writer.last.header.index)
        trial.commit(9, [8])
    return trial.disk


def found_in(disk: SimulatedDisk) -> object:
    try:
        found = look(disk, newest_level=2)
    except (CorruptData, MetaLost) as error:
        return str(error)
    recovered = found.recovered
    return (
        found.kept, found.faulty, recovered.last, recovered.term_runs, recovered.commit_floor,
        recovered.persisted, recovered.levels, recovered.trims,
        [(each.first, each.last) for each in recovered.faulty],
    )  # fmt: skip


@pytest.mark.slow
@given(st.integers(0, 63), DAMAGE)
def test_the_short_cuts_find_what_the_walk_finds(
    seed: int, damage: list[tuple[int, int, int, int]]
) -> None:
    disk = log_of_some_segments(seed).copy()
    for which, where, at, value in damage:
        paths = [path for path in disk.paths() if disk.content(path)]
        path = paths[which % len(paths)]
        sectors = disk.content(path)
        number = sorted(sectors)[where % len(sectors)]
        changed = bytearray(sectors[number])
        changed[at] = value
        disk.damage(path, number, bytes(changed))
    with_summaries = found_in(disk.copy())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verdict, "read_summary", lambda *_args: None)
        assert found_in(disk.copy()) == with_summaries
        patched.setattr(verdict, "whole_records", lambda *_args, **_named: None)
        assert found_in(disk.copy()) == with_summaries
