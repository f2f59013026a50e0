"""The log writer: order, contiguity, rolling and truncating, the spare, the bytes it writes."""

from __future__ import annotations

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import DiskFull, InvariantViolated, WriteFailed
from logstore.format.group import frame_size
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import Index
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import read_header, segment_name, segment_path
from tests.crash.storage_trial import FOLDER, OPTIONS, StorageTrial


def started(capacity_bytes: int | None = None) -> StorageTrial:
    trial = StorageTrial(SimulatedDisk(capacity_bytes=capacity_bytes))
    trial.create_log()
    return trial


def segment_files(trial: StorageTrial) -> list[str]:
    return [n for n in trial.disk.list_folder(FOLDER) if n.endswith((".data", ".raft"))]


def test_a_group_calls_the_disk_in_the_one_safe_order() -> None:
    """SAFETY F1: frames, flush of data, records, flush of records; then it may be acknowledged."""
    trial = started()
    calls: list[str] = []
    trial.disk.on_call = lambda what, path: calls.append(f"{what} {path[-4:]}")
    trial.finish(trial.append(1, [800, 8, 0]))
    assert calls == ["write data", "flush data", "write raft", "flush raft"]


def test_a_truncation_flushes_the_raft_header_then_the_data_header_then_the_folder() -> None:
    """SAFETY S7, F7."""
    trial = started()
    trial.commit(1, [8, 8])
    trial.writer.prepare_spare()
    calls: list[str] = []
    trial.disk.on_call = lambda what, path: calls.append(f"{what} {path[-4:]}")
    trial.writer.truncate(Index(2))
    assert calls[:5] == [
        "write raft", "flush raft", "write data", "flush data", "sync_folder data",
    ]  # fmt: skip


def test_a_roll_keeps_the_log_epoch_and_a_truncation_raises_it() -> None:
    trial = started()
    trial.commit(1, [8, 8])
    epochs = []
    for act in (trial.writer.roll, lambda: trial.writer.truncate(Index(2)), trial.writer.roll):
        act()
        newest = segment_files(trial)[-1]
        epochs.append(read_header(trial.disk, f"{FOLDER}/{newest}").log_epoch)
    assert epochs == [0, 1, 1]


def test_each_flush_group_begins_at_a_sector_boundary_and_its_frames_touch() -> None:
    """SAFETY S6."""
    trial = started()
    trial.commit(1, [8, 16])
    trial.commit(1, [8])
    reader = LogReader(trial.disk, FOLDER)
    records = [reader.record(Index(index)) for index in (1, 2, 3)]
    places = [(record.frame_offset, frame_size(record.header)) for record in records]
    assert places == [(4096, 136), (4096 + 136, 144), (4096 + SECTOR_BYTES, 136)]


def test_entries_that_do_not_continue_the_log_are_an_invariant_violated() -> None:
    """SAFETY W5, on disk."""
    trial = started()
    trial.commit(1, [8])
    [(header, chain, commit, body)] = trial.group(1, [8])
    wrong = {
        "index": header.index + 1,
        "prev_term": 7,
        "first_lsn": header.first_lsn + 1,
        "prev_chain": header.prev_chain ^ 1,
        "cumulative_bytes": header.cumulative_bytes + 8,
        "body_size": 16,
        "term": 0,
        "timestamp_ns": 0,
    }
    for field, value in wrong.items():
        bad = msgspec.structs.replace(header, **{field: value})
        with pytest.raises(InvariantViolated):
            trial.writer.append([(bad, bad.chain(), commit, body)])
    with pytest.raises(InvariantViolated):
        trial.writer.append([(header, chain ^ 1, commit, body)])
    trial.finish(trial.writer.append([(header, chain, commit, body)]))


def test_a_group_lies_in_one_segment_and_rolls_first_where_it_does_not_fit() -> None:
    trial = started()
    trial.commit(1, [800] * 4)
    entries = trial.group(1, [800] * 5)
    assert trial.writer.needs_roll(entries)
    with pytest.raises(InvariantViolated, match="roll first"):
        trial.writer.append(entries)
    trial.writer.roll()
    trial.finish(trial.writer.append(entries))
    reader = LogReader(trial.disk, FOLDER)
    assert {reader.located(Index(index))[1] for index in range(5, 10)} == {2}


def test_records_fill_a_segment_too() -> None:
    trial = started()
    for _ in range(OPTIONS.segment_records):
        trial.commit(1, [0])
    assert trial.writer.needs_roll(trial.group(1, [0]))


def test_truncating_at_or_below_the_commit_index_is_refused() -> None:
    """SAFETY F8."""
    trial = started()
    trial.commit(1, [8, 8, 8], commit=2)
    with pytest.raises(InvariantViolated, match="2 is committed"):
        trial.writer.truncate(Index(2))
    with pytest.raises(InvariantViolated, match="3 is committed"):
        trial.writer.truncate(Index(3), commit=Index(3))
    with pytest.raises(InvariantViolated, match="the log ends at 3"):
        trial.writer.truncate(Index(5))
    trial.restart()
    assert trial.recovered.commit_floor == 2
    with pytest.raises(InvariantViolated, match="2 is committed"):
        trial.writer.truncate(Index(2))
    trial.writer.truncate(Index(3))


def test_rolling_and_truncating_wait_until_every_flush_has_ended() -> None:
    """SAFETY F6."""
    trial = started()
    group = trial.append(1, [8])
    assert trial.writer.groups_unfinished == 1
    with pytest.raises(InvariantViolated, match="being flushed"):
        trial.writer.roll()
    with pytest.raises(InvariantViolated, match="being flushed"):
        trial.writer.truncate(Index(1))
    trial.finish(group)
    assert trial.writer.groups_unfinished == 0
    trial.writer.roll()


def test_what_is_flushed_is_not_kept_until_the_next_roll() -> None:
    """A segment of small groups has 131,072 of them, and up to 16 million where it is set so."""
    trial = started()
    for _ in range(5):
        trial.commit(1, [0])
    assert len(trial.writer._unfinished) == 1
    assert trial.writer._current().header.number == 1


def test_dead_segments_go_at_once_and_closed_ones_give_space_back() -> None:
    """SAFETY S7."""
    trial = started()
    trial.commit(1, [800, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    before = trial.writer.map_generation
    trial.writer.truncate(Index(2))
    assert trial.writer.map_generation == before + 1
    assert segment_files(trial) == [
        segment_name(number, role) for number in (1, 3) for role in FileRole
    ]
    sizes = {}
    for role in FileRole:
        handle = trial.disk.open_read(segment_path(FOLDER, 1, role))
        sizes[role] = trial.disk.size(handle)
    assert sizes == {FileRole.DATA: 4096 + 928, FileRole.RAFT: 4096 + 128}


def test_an_empty_segment_that_is_rolled_leaves_the_one_before_it_whole() -> None:
    trial = started()
    trial.commit(1, [800])
    trial.writer.roll()
    trial.writer.roll()
    trial.writer.roll()
    trial.restart()
    assert LogReader(trial.disk, FOLDER).read_body(Index(1))


def test_a_full_disk_is_a_state_that_ends_when_space_appears() -> None:
    """SAFETY S9."""
    trial = started(capacity_bytes=20_000)
    assert not trial.writer.is_disk_full
    assert not trial.writer.prepare_spare()
    assert trial.writer.is_disk_full
    assert len(segment_files(trial)) == 2
    trial.commit(1, [8])
    with pytest.raises(DiskFull, match="next segment, which takes 1 MiB; free some space"):
        trial.writer.roll()
    trial.commit(1, [8])
    trial.disk.capacity_bytes = 100_000
    assert trial.writer.prepare_spare()
    assert not trial.writer.is_disk_full
    assert not trial.writer.needs_spare
    trial.writer.roll()
    trial.commit(1, [8])


def test_one_spare_is_there_for_a_truncation_on_a_full_disk() -> None:
    trial = started()
    trial.commit(1, [8, 8])
    trial.writer.prepare_spare()
    trial.disk.capacity_bytes = 1
    trial.writer.truncate(Index(2))
    trial.commit(2, [8])


@pytest.mark.parametrize("suffix", [".data", ".raft"])
def test_a_failed_flush_is_not_acknowledged_and_never_retried(suffix: str) -> None:
    """SAFETY F5."""
    trial = started()
    trial.disk.fail_next("flush", suffix)
    with pytest.raises(WriteFailed):
        trial.commit(1, [8])
    assert trial.acknowledged == {}
    assert trial.writer.groups_unfinished == 1


def test_bytes_written_are_bodies_headers_and_records_once() -> None:
    trial = started()
    assert (trial.writer.data_bytes_written, trial.writer.raft_bytes_written) == (512, 512)
    trial.commit(1, [800, 8])
    assert trial.writer.data_bytes_written == 512 + 2 * 128 + 808
    assert trial.writer.raft_bytes_written == 512 + 2 * 128


def test_half_a_segment_is_when_the_next_one_should_be_ready() -> None:
    trial = started()
    assert not trial.writer.is_half_full or trial.writer.last.header.index
    for _ in range(5):
        trial.commit(1, [0])
    assert trial.writer.is_half_full


def test_cached_pages_far_behind_the_tail_are_released_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("logstore.storage.log_writer.CACHE_KEPT_BYTES", 1_024)
    monkeypatch.setattr("logstore.storage.log_writer.CACHE_RELEASE_STEP_BYTES", 4_096)
    trial = started()
    released: list[int] = []
    monkeypatch.setattr(trial.disk, "release_cache", lambda handle, end: released.append(end))
    for _ in range(6):
        trial.commit(1, [800])
        trial.writer.release_cache()
    assert len(released) == 2
    assert released[1] - released[0] >= 4_096
    trial.writer.roll()
    trial.writer.release_cache()
    assert len(released) == 2


def test_a_group_that_no_segment_here_holds_gets_a_larger_one() -> None:
    """Entries are replicated whatever this replica's own limits say of what is admitted."""
    trial = started()
    trial.commit(1, [8])
    entries = trial.group(1, [16 * SECTOR_BYTES])
    assert trial.writer.needs_roll(entries)
    allocated: list[str] = []

    def fill_behind_the_next_pair(what: str, path: str) -> None:
        if what == "allocate":
            allocated.append(path)
            if len(allocated) > len(FileRole):
                raise DiskFull(f"{path}: no space left")

    trial.disk.on_call = fill_behind_the_next_pair
    for _ in range(3):  # a pair is opened, and it is this one that grows
        with pytest.raises(DiskFull):
            trial.writer.make_room(entries)
    assert len(segment_files(trial)) == 4
    trial.disk.on_call = None
    trial.writer.make_room(entries)
    assert not trial.writer.needs_roll(entries)
    trial.finish(trial.writer.append(entries))
    trial.commit(1, [8])
    trial.restart()
    assert trial.recovered.last.header.index == 3
    assert trial.recovered.faulty == ()
    assert LogReader(trial.disk, FOLDER).read_body(Index(2))


def with_a_missing_pair() -> StorageTrial:
    """Entries 1 to 5 in pair 1; 6, the shorter, in pair 2, which is lost; pair 3 is empty."""
    trial = started()
    trial.commit(1, [800] * 5)
    trial.writer.roll()
    trial.commit(1, [8])
    trial.writer.roll()
    trial.disk.kill_process()
    for role in FileRole:
        trial.disk.remove(segment_path(FOLDER, 2, role))
    trial.recovered = trial.recover()
    return trial


@pytest.mark.parametrize("is_truncation", [False, True])
def test_a_segment_that_opens_after_a_missing_one_leaves_the_one_before_that_as_it_is(
    is_truncation: bool,
) -> None:
    """The end of the missing pair's frames was taken for that of the pair before it, which was cut
    there."""
    trial = with_a_missing_pair()
    before = trial.disk.content(segment_path(FOLDER, 1, FileRole.DATA))
    if is_truncation:
        trial.commit(1, [8])
        trial.writer.truncate(Index(7))
    else:
        trial.writer.roll()
    assert trial.disk.content(segment_path(FOLDER, 1, FileRole.DATA)) == before
    trial.restart()
    assert [(each.first, each.last) for each in trial.recovered.faulty] == [(6, 6)]
    assert trial.recovered.last.header.index == 6


def test_a_segment_that_opens_after_a_missing_one_still_names_it() -> None:
    """SAFETY S10: its files may come back, and are of the log then."""
    trial = with_a_missing_pair()
    third = read_header(trial.disk, segment_path(FOLDER, 3, FileRole.RAFT))
    assert third.previous_number == 2
    trial.writer.roll()
    fourth = read_header(trial.disk, segment_path(FOLDER, 4, FileRole.RAFT))
    names = ["previous_number", "previous_uuid", "previous_first_index", "previous_valid_end"]
    assert [getattr(fourth, name) for name in names] == [getattr(third, name) for name in names]


def with_a_short_raft_file(*, is_lost: bool) -> StorageTrial:
    """Pair 2 is empty, and its Raft file ends after the header: its tail was cut, or it was lost
    and there was no space to make it again."""
    trial = started()
    trial.commit(1, [8])
    trial.writer.roll()
    trial.disk.kill_process()
    raft = segment_path(FOLDER, 2, FileRole.RAFT)
    if is_lost:
        trial.disk.remove(raft)
    else:
        trial.disk.cut(raft, 4096)
    trial.restart()
    return trial


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("has_spare", [False, True])
def test_an_empty_segment_with_a_short_raft_file_is_replaced(
    is_lost: bool, has_spare: bool
) -> None:
    """It was neither rolled nor enlarged, so the writer tried again for ever."""
    trial = with_a_short_raft_file(is_lost=is_lost)
    if has_spare:
        trial.writer.prepare_spare()
        trial.disk.fill()
    entries = trial.group(1, [8, 8])
    trial.writer.make_room(entries)
    assert not trial.writer.needs_roll(entries)
    trial.finish(trial.writer.append(entries))
    trial.restart()
    assert trial.recovered.last.header.index == 3


def test_without_space_an_empty_segment_with_a_short_raft_file_is_a_full_disk() -> None:
    """SAFETY S9."""
    trial = with_a_short_raft_file(is_lost=False)
    trial.disk.fill()
    entries = trial.group(1, [8])
    with pytest.raises(DiskFull):
        trial.writer.make_room(entries)
    assert trial.writer.is_disk_full
    trial.disk.free_space()
    trial.writer.make_room(entries)
    assert not trial.writer.is_disk_full
    trial.finish(trial.writer.append(entries))
