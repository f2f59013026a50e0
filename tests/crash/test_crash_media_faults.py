"""One media fault on top of a crash: what was acknowledged is kept or named faulty, never lost.

On samples of the crash states, every single fault: a sector of zeros, a sector of another file's
bytes, an unreadable sector, a tail cut at every sector, a file gone. What recovery must never do is
forget (SAFETY section 4, FAULTS D7, D8, D12, D13, D16 to D18, D20, D26).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, MetaLost
from logstore.limits import SECTOR_BYTES
from logstore.storage import recovery, verdict
from logstore.storage.log_reader import LogReader
from logstore.storage.log_writer import AppendedGroup, LogWriter
from logstore.storage.segment import row_at_start
from tests.crash.storage_trial import Promises, StorageTrial, entry_elsewhere, look

ONE = 376
TWO = 800


def two_segments(trial: StorageTrial) -> None:
    trial.vote(1, 1)
    trial.commit(1, [TWO, 8])
    trial.commit(1, [ONE])
    trial.writer.roll()
    first = trial.append(1, [TWO, 8])
    trial.writer.flush_data(first)
    trial.writer.write_records(first)
    second = trial.append(1, [TWO])
    trial.finish_records(first)
    trial.finish(second)


def two_truncations(trial: StorageTrial) -> None:
    trial.commit(1, [TWO, 8, ONE])
    trial.truncate(3)
    trial.commit(2, [8, TWO])
    trial.truncate(2)
    trial.commit(3, [TWO, 0, 8])


def torn_and_gone_on(trial: StorageTrial) -> None:
    """A life that goes on after recoveries, over a torn tail that was left behind."""
    trial.commit(1, [8, TWO])
    trial.append(1, [TWO, TWO])
    trial.restart()
    trial.commit(1, [ONE])
    trial.truncate(3)
    trial.restart()
    trial.commit(2, [TWO])


def trimmed(trial: StorageTrial) -> None:
    """The log start lies inside a sealed pair, then inside the newest one."""
    trial.commit(1, [8, TWO])
    trial.trim(1)
    trial.writer.roll()
    trial.commit(1, [8, 8, ONE])
    trial.trim(5)
    trial.commit(1, [TWO])


def taken(trial: StorageTrial) -> None:
    """The log begins after its last entry, by no TRIM of its own, and goes on."""
    trial.commit(1, [8, TWO])
    trial.writer.roll()
    trial.commit(1, [8, ONE])
    trial.take_start(4)
    trial.commit(1, [TWO, 8])


def installed(trial: StorageTrial) -> None:
    """The log is dropped for a log start that is installed, and goes on."""
    trial.vote(1, 1)
    trial.commit(1, [8, TWO])
    trial.writer.roll()
    trial.commit(1, [ONE])
    trial.install(entry_elsewhere(3, 1))
    trial.commit(1, [TWO, 8])


def faults(disk: SimulatedDisk) -> Iterator[tuple[str, SimulatedDisk]]:
    """Every single fault of this disk, named."""
    paths = [path for path in disk.paths() if not path.endswith("lock")]
    other = next(iter(disk.content(paths[0]).values()), b"")
    for path in paths:
        for sector in sorted(disk.content(path)):
            for kind, content in (("zeroed", b""), ("replaced", other)):
                damaged = disk.copy()
                damaged.damage(path, sector, content)
                yield f"{path} sector {sector} {kind}", damaged
            damaged = disk.copy()
            damaged.set_unreadable(path, sector)
            yield f"{path} sector {sector} unreadable", damaged
            damaged = disk.copy()
            damaged.cut(path, sector * SECTOR_BYTES)
            yield f"{path} cut at sector {sector}", damaged
        damaged = disk.copy()
        damaged.remove(path)
        yield f"{path} removed", damaged


def silent_loss(disk: SimulatedDisk, promises: Promises) -> str | None:
    """An acknowledged entry that recovery neither keeps nor names, or a vote it forgot."""
    try:
        found = look(disk)
    except (CorruptData, MetaLost):
        return None
    for index, chain in promises.acknowledged.items():
        if index not in found.faulty and found.kept.get(index) != chain:
            return f"entry {index}: kept {sorted(found.kept)}, faulty {sorted(found.faulty)}"
    if found.recovered.term < promises.term:
        return f"term {found.recovered.term}, answered was {promises.term}"
    return None


def losses(enumerator: Any, count: int) -> list[str]:
    found = []
    for disk, promises in enumerator.sample(count):
        for name, damaged in faults(disk):
            loss = silent_loss(damaged, promises)
            if loss is not None:
                found.append(f"{name}: {loss}")
    return found


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [two_segments, two_truncations, torn_and_gone_on, trimmed, taken, installed],
    ids=lambda each: each.__name__,
)
def test_no_single_fault_on_a_crash_state_loses_anything_silently(
    enumerator: Any, scenario: Any
) -> None:
    enumerator.run(scenario)
    assert losses(enumerator, 40) == []


@pytest.mark.slow
def test_a_missing_record_flush_is_found_under_a_fault(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the flush buys: damage of an acknowledged frame is told from a torn tail."""

    def no_flush(writer: LogWriter, group: AppendedGroup) -> None:
        group.is_flushed = True

    with monkeypatch.context() as patched:
        patched.setattr(LogWriter, "flush_records", no_flush)
        enumerator.run(lambda trial: trial.commit(1, [8, TWO]))
    assert losses(enumerator, 1_000)


@pytest.mark.long
@pytest.mark.slow
def test_a_walk_that_begins_at_the_log_start_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFETY G4: it forgets an acknowledged entry whose record is damaged."""
    enumerator.run(trimmed)
    monkeypatch.setattr(verdict, "_begin", lambda _segments, start: row_at_start(start))
    assert losses(enumerator, 40)


@pytest.mark.slow
def test_truncating_at_the_first_bad_checksum_is_found(
    enumerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forbidden recovery of many logs (SAFETY section 4) loses acknowledged entries."""
    judge = recovery.judge

    def truncating(disk: Any, folder: str, segments: Any, start: Any, **named: Any) -> Any:
        found = judge(disk, folder, segments, start, **named)
        if found.faulty:
            first = found.faulty[0].first
            found.last = (
                LogReader(disk, folder).row(first - 1) if first > 1 else row_at_start(start)
            )
            found.has_torn_tail = True
            found.faulty.clear()
        return found

    enumerator.run(lambda trial: trial.commit(1, [8, TWO]))
    assert losses(enumerator, 1_000) == []
    monkeypatch.setattr(recovery, "judge", truncating)
    assert losses(enumerator, 1_000)
