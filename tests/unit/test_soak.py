"""What a soak checks, and its arithmetic."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec
import psutil
import pytest

from benchmarks import soak
from benchmarks.results import Result
from benchmarks.soak import (
    REPLICAS,
    Sample,
    SoakSettings,
    disk_over_max,
    growth,
    open_files,
    removed_files,
)
from benchmarks.soak_load import LoadResult, Payloads, WrongPayload
from benchmarks.soak_plots import draw_soak
from benchmarks.usage import allocated_bytes
from logstore.client.records import RecordBatch, WholeBatch
from logstore.errors import LogStoreError
from logstore.format.batch import batch_offsets, batch_sizes, encode_batch, read_batch_header

SIZE = 32


def batch_of(payloads: list[bytes], first_lsn: int) -> RecordBatch:
    data = encode_batch(payloads, producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=0)
    header = read_batch_header(data)
    whole = WholeBatch(memoryview(data), first_lsn, header, batch_sizes(data, 0, header))
    return RecordBatch(first_lsn, batch_offsets(data, 0, header), whole, 1, 1, 0, True)


def test_payloads_are_those_of_their_numbers() -> None:
    payloads = Payloads(SIZE)
    made = payloads.make(5_000, 10)
    assert {len(each) for each in made} == {SIZE}
    assert made[3:] == payloads.make(5_003, 7)
    assert len(set(made)) == 10
    payloads.check(batch_of(made, 7_000), 5_000)


@pytest.mark.parametrize("kind", ["lost", "repeated", "changed", "swapped", "cut"])
def test_a_wrong_payload_is_found(kind: str) -> None:
    payloads = Payloads(SIZE)
    made = payloads.make(0, 6)
    wrong = {
        "lost": made[:2] + made[3:],
        "repeated": [made[0], *made],
        "changed": [*made[:4], made[4][:-1] + bytes([made[4][-1] ^ 1]), made[5]],
        "swapped": [made[1], made[0], *made[2:]],
        "cut": [*made[:5], made[5][:-1]],
    }[kind]
    with pytest.raises(WrongPayload, match="LSNs 100 to"):
        payloads.check(batch_of(wrong, 100), 0)


def test_what_was_acknowledged_is_counted_everywhere() -> None:
    """The loads look at each payload up to the last one; nothing may follow it."""
    of, read = LoadResult, {"1": LoadResult(5), "2": LoadResult(5)}
    soak._check_counts(5, of(5), read)
    for held, consumed in ((6, read), (5, {**read, "3": of(6)})):
        with pytest.raises(LogStoreError, match="5 payloads were acknowledged"):
            soak._check_counts(held, of(5), consumed)


def sample(at_s: float, *, disk_mb: float, running: int = REPLICAS) -> Sample:
    nodes = [str(node) for node in range(1, REPLICAS + 1)]
    return Sample(
        at_s=at_s,
        running=list(range(1, running + 1)),
        visible_lsn=int(at_s),
        log_start_lsn=1,
        disk_mb=dict.fromkeys(nodes, disk_mb),
        rss_mb={f"{node}.writer": 50.0 for node in nodes},
        descriptors={f"{node}.writer": 10 for node in nodes},
        removed_open=0,
        removed_open_s=0.0,
    )


def test_a_replica_may_keep_what_retention_or_a_cursor_keeps() -> None:
    settings = SoakSettings(payload_bytes=1_000, retention_bytes=6_000_000, segment_bytes=1_000_000)

    def over(disk_mb: float, *held_lsns: int) -> float:
        now = msgspec.structs.replace(sample(0.0, disk_mb=disk_mb), visible_lsn=20_000)
        samples = [msgspec.structs.replace(now, held_lsn=held) for held in held_lsns]
        return disk_over_max(settings, samples)

    assert over(10.0, 20_001) == 1.0
    assert over(20.0, 20_001) == 2.0
    assert over(20.0, 4_001) == 1.0
    assert over(20.0, 4_001, 20_001, 20_001) == 1.0  # the trim may follow
    assert over(20.0, 4_001, 20_001, 20_001, 20_001) == 2.0


def test_growth_compares_late_samples_with_early_ones_in_which_all_ran() -> None:
    filling = [sample(at, disk_mb=at) for at in range(4)]
    samples = [*filling, *(sample(at, disk_mb=100 + at) for at in range(4, 16))]
    assert growth(samples) == {"disk": 1.076, "memory": 1.0, "descriptors": 1.0}
    cut = [msgspec.structs.replace(each, disk_mb={}, running=[1]) for each in samples]
    assert growth([*samples[:4], *cut, *samples[4:]]) == growth(samples)
    assert growth([]) == {"disk": 0.0, "memory": 0.0, "descriptors": 0.0}


def test_prepared_blocks_count_and_removed_files_are_seen(tmp_path: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=tmp_path) as file:
        os.posix_fallocate(file.fileno(), 0, 1_000_000)
        assert allocated_bytes(tmp_path) == pytest.approx(1_000_000, abs=50_000)
        assert file.name in open_files(os.getpid())
        Path(file.name).rename(tmp_path / "other")
        removed = (tmp_path / "other").open("rb")
        (tmp_path / "other").unlink()
        with removed:
            files = open_files(os.getpid())
            (tmp_path / "link").symlink_to(tmp_path)
            gone = {f"{tmp_path / 'other'} (deleted)"}
            assert removed_files(files, tmp_path) == gone
            assert removed_files(files, tmp_path / "link") == gone
            assert removed_files(files, Path(str(tmp_path)[:-1])) == set()
        Path(file.name).touch()
    with pytest.raises(psutil.NoSuchProcess):
        open_files(2**22 + 1)


def test_a_plot_for_each_thing_that_must_stay_flat_and_one_of_the_log() -> None:
    samples = [msgspec.to_builtins(sample(at, disk_mb=at)) for at in range(8)]
    figures = draw_soak(Result("soak", {}, "", [], {}), samples)
    assert list(figures) == ["soak-disk", "soak-memory", "soak-descriptors", "soak-lsns"]
    assert len(figures["soak-disk"].axes[0].lines) == 3
    assert len(figures["soak-lsns"].axes[0].lines) == 2
