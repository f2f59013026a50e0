"""What salvage takes of every crash state, with and without a single media fault on top (SAFETY
L8): no acknowledged entry is left out in silence, none is another one, and of a folder without
damage it takes what recovery makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import FolderRefused
from logstore.storage import whole_entries
from logstore.storage.folder_log import FolderLog, read_folder_log
from logstore.storage.whole_entries import WholeEntries
from tests.crash.storage_trial import FOLDER, Promises, StorageTrial, look
from tests.crash.test_crash_media_faults import (
    faults,
    installed,
    taken,
    torn_and_gone_on,
    trimmed,
    two_segments,
    two_truncations,
)

pytestmark = pytest.mark.slow
SCENARIOS = [two_segments, two_truncations, torn_and_gone_on, trimmed, taken, installed]
STATES = 300
FAULTY_STATES = 15


@pytest.fixture(autouse=True)
def any_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials write bodies that are no batches."""
    monkeypatch.setattr(whole_entries, "_batches", lambda _header, _body: [])


def salvaged(disk: SimulatedDisk) -> tuple[FolderLog, WholeEntries] | None:
    """None: refused as a whole."""
    try:
        log = read_folder_log(disk, FOLDER)
    except FolderRefused:
        return None
    walk = WholeEntries(disk, log)
    assert list(walk.batches()) == []
    return log, walk


def silent_loss(disk: SimulatedDisk, promises: Promises) -> str | None:
    """An acknowledged entry that is neither taken nor said to be missing, or is another one."""
    found = salvaged(disk)
    if found is None:
        return None
    log, walk = found
    last = walk.last
    if promises.acknowledged.get(last.header.index, last.chain) != last.chain:
        return f"entry {last.header.index} is another one"
    start = max(promises.start, promises.next_start)
    for index in promises.acknowledged:
        if start < index <= log.base.header.index and log.is_start_known:
            return f"entry {index} lies below the beginning {log.base.header.index}"
        if index > last.header.index and walk.not_taken is None:
            return f"entry {index} is not taken, the last one is {last.header.index}"
    return None


@pytest.mark.long
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_of_a_crash_state_it_takes_what_recovery_makes_of_it(
    enumerator: Any, scenario: Any
) -> None:
    enumerator.run(scenario)
    refused = 0
    for disk, promises in enumerator.sample(STATES):
        before = disk.fingerprint()
        found = salvaged(disk)
        assert disk.fingerprint() == before, "nothing is written"
        recovered = look(disk.copy())
        if found is None:
            refused += 1
            assert not recovered.kept, "the log was being dropped"
            continue
        walk = found[1]
        assert walk.not_taken is None, walk.not_taken
        assert walk.last.chain == recovered.recovered.last.chain
        assert silent_loss(disk, promises) is None
    assert bool(refused) == (scenario is installed)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_under_a_single_fault_nothing_is_left_out_in_silence(
    enumerator: Any, scenario: Any
) -> None:
    enumerator.run(scenario)
    assert [
        f"{name}: {loss}"
        for disk, promises in enumerator.sample(FAULTY_STATES)
        for name, damaged in faults(disk)
        if (loss := silent_loss(damaged, promises)) is not None
    ] == []


def test_a_walk_that_takes_damage_for_a_torn_end_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFETY F2: a whole record proves that its frame was durable."""

    def commits(trial: StorageTrial) -> None:
        trial.commit(1, [8])
        trial.commit(1, [8])

    enumerator.run(commits)
    judged = WholeEntries._entry

    def forgiving(walk: WholeEntries, data: Any, slot: Any) -> Any:
        try:
            return judged(walk, data, slot)
        except whole_entries._NotWhole:
            return None

    monkeypatch.setattr(WholeEntries, "_entry", forgiving)
    monkeypatch.setattr(WholeEntries, "_is_proven", lambda _walk, _slot: False)
    assert any(
        silent_loss(damaged, promises)
        for disk, promises in enumerator.sample(FAULTY_STATES)
        for _, damaged in faults(disk)
    )
