"""The log reader: checked reads, searches, and files that vanish under it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import EntryKind, Index, Lsn
from logstore.storage import log_reader
from logstore.storage.disk import RealDisk
from logstore.storage.log_reader import LogReader
from logstore.storage.segment import record_position, segment_path
from logstore.storage.segment_map import SegmentMap
from tests.crash.storage_trial import FOLDER, StorageTrial

DATA = segment_path(FOLDER, 1, FileRole.DATA)
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)
FIRST = 4096 // SECTOR_BYTES


def started(*groups: list[int]) -> StorageTrial:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for sizes in groups:
        trial.commit(1, sizes)
    return trial


def test_rows_and_bodies_are_what_was_written_over_many_segments() -> None:
    trial = started()
    written = []
    for sizes in ([800, 8], [0, 16, 8], [800, 800], [8] * 7, [800] * 3):
        entries = trial.group(1, sizes)
        if trial.writer.needs_roll(entries):
            trial.writer.roll()
        trial.finish(trial.writer.append(entries))
        written += entries
    reader = LogReader(trial.disk, FOLDER)
    for header, chain, _, body in written:
        assert (reader.row(header.index).header, reader.row(header.index).chain) == (header, chain)
        assert reader.read_body(header.index) == b"".join(body)
    assert [row.header for row in reader.rows(Index(3), Index(99), 5)] == [
        header for header, _, _, _ in written[2:7]
    ]
    assert reader.rows(Index(16), Index(17), 9)[-1].header == written[-1][0]
    reader.close()


def test_what_is_truncated_is_read_anew_without_being_told() -> None:
    """ENOENT, or a record that is not there, means: read the headers again (SAFETY S7)."""
    trial = started([8, 8])
    trial.writer.roll()
    trial.commit(1, [8, 800])
    reader = LogReader(trial.disk, FOLDER)
    assert reader.row(Index(4)).header.term == 1
    trial.truncate(2)
    trial.commit(2, [16, 16, 16, 16])
    for number in range(2, 6):
        assert len(reader.read_body(Index(number))) == 16
        assert reader.row(Index(number)).header.term == 2
    assert not reader.refresh()


def test_a_reader_in_an_empty_folder_finds_the_log_when_it_is_there() -> None:
    trial = StorageTrial(SimulatedDisk())
    reader = LogReader(trial.disk, FOLDER)
    with pytest.raises(CorruptData):
        reader.row(Index(1))
    trial.create_log()
    trial.commit(1, [8])
    assert reader.row(Index(1)).header.index == 1
    assert reader.start == trial.recovered.meta.meta.log_start


def test_a_reader_that_knows_a_bootstrap_that_was_broken_off_finds_the_log_made_after_it() -> None:
    """Raft's is open before recovery removes that segment, and the next one has its number."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    reader = LogReader(trial.disk, FOLDER)
    with pytest.raises(CorruptData):
        reader.row(Index(1))
    assert reader.pairs_open == 1
    trial.create_log()
    trial.commit(1, [8])
    assert reader.row(Index(1)).header.index == 1
    assert reader.read_body(Index(1))


def test_damage_is_told_with_file_and_position_and_never_served() -> None:
    """SAFETY Q5, FAULTS D7."""
    for sector, what in ((FIRST, "CRC"), (FIRST + 1, "body CRC")):
        trial = started([800], [8])
        trial.disk.damage(DATA, sector, b"\x07" * 100)
        with pytest.raises(CorruptData) as caught:
            LogReader(trial.disk, FOLDER).read_body(Index(1))
        assert caught.value.position == 4096
        assert caught.value.file.endswith(".data")
        assert what in caught.value.got or "magic" in caught.value.got
    trial = started([800], [8])
    trial.disk.damage(RAFT, FIRST, b"")
    with pytest.raises(CorruptData, match="record 2"):
        LogReader(trial.disk, FOLDER).row(Index(2))


def test_a_misdirected_frame_is_not_served_as_another_entry() -> None:
    """FAULTS D16."""
    trial = started([376], [376])
    sectors = trial.disk.content(DATA)
    trial.disk.damage(DATA, FIRST, sectors[FIRST + 1])
    with pytest.raises(CorruptData, match="entry 2"):
        LogReader(trial.disk, FOLDER).read_body(Index(1))


def test_indexes_at_or_below_the_log_start_are_a_lookup_error() -> None:
    trial = started([8])
    with pytest.raises(LookupError):
        LogReader(trial.disk, FOLDER).row(Index(0))


def test_searches_by_lsn_time_and_bytes_agree_with_looking_at_every_entry() -> None:
    """SAFETY S2: LSN x lies in the first live record with next_lsn > x."""
    trial = started([0, 8, 0], [800, 8], [0, 0])
    trial.writer.roll()
    trial.commit(1, [0, 8, 8])
    trial.truncate(9)
    trial.commit(2, [0, 0, 8])
    trial.writer.roll()
    reader = LogReader(trial.disk, FOLDER)
    last = trial.writer.last.header.index
    rows = reader.rows(Index(1), last, 100)
    for bound in range(last + 1):
        seen = [row.header for row in rows if row.header.index <= bound]
        for value in range(12):
            by_lsn = next((h.index for h in seen if h.next_lsn > value), bound + 1)
            by_time = next((h.index for h in seen if h.timestamp_ns >= value), bound + 1)
            if value:  # no log has LSN 0
                assert reader.index_of_lsn(Lsn(value), Index(bound)) == by_lsn
            assert reader.index_of_time(value, Index(bound)) == by_time
        for value in range(0, rows[-1].header.cumulative_bytes + 9, 4):
            by_bytes = next((h.index for h in seen if h.cumulative_bytes >= value), bound + 1)
            assert reader.index_of_bytes(value, Index(bound)) == by_bytes


def test_searches_find_whole_entries_beside_damaged_records() -> None:
    """What the next whole record says bounds a damaged one; it is found in its own LSNs only."""
    trial = started([8, 0, 8], [8, 0, 8, 8])
    trial.writer.roll()
    trial.commit(1, [8, 8])
    whole = LogReader(trial.disk, FOLDER).rows(Index(1), Index(9), 9)
    last = Index(9)
    for damaged in ({2}, {3, 4}, {1}, {6, 7}, {4, 5, 6}, {1, 2, 3, 4, 5, 6, 7}):
        disk = trial.disk.fork()
        content = bytearray(disk.durable_bytes(RAFT, 4096, 2 * SECTOR_BYTES))
        for index in damaged:
            content[(index - 1) * 128] ^= 1
        for sector in (0, 1):
            start = sector * SECTOR_BYTES
            disk.damage(RAFT, FIRST + sector, bytes(content[start : start + SECTOR_BYTES]))
        reader = LogReader(disk, FOLDER)
        for row in whole:
            header = row.header
            if header.index in damaged:
                continue
            for lsn in range(header.first_lsn, header.next_lsn):
                assert reader.index_of_lsn(Lsn(lsn), last) == header.index
            total = header.cumulative_bytes
            found = reader.index_of_bytes(total, last)
            assert found == header.index or found in damaged or header.body_size == 0
        for index in damaged:
            header = whole[index - 1].header
            for lsn in range(header.first_lsn, header.next_lsn):
                assert reader.index_of_lsn(Lsn(lsn), last) in damaged
            assert reader.index_of_time(header.timestamp_ns, last) in damaged


def test_a_search_gives_up_behind_too_many_damaged_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_DAMAGED_RUN_MAX", 3)
    trial = started([8] * 7)
    trial.disk.damage(RAFT, FIRST, b"")
    with pytest.raises(CorruptData, match="record"):
        LogReader(trial.disk, FOLDER).index_of_lsn(Lsn(2), Index(7))


def test_a_sector_that_the_device_refuses_damages_its_own_records_only() -> None:
    """Records of sealed segments are read many at a time."""
    trial = started([8] * 7)
    trial.writer.roll()
    trial.disk.set_unreadable(RAFT, FIRST)
    reader = LogReader(trial.disk, FOLDER)
    for index in range(1, 5):
        with pytest.raises(CorruptData):
            reader.row(Index(index))
    assert [reader.row(Index(index)).header.index for index in (5, 6, 7)] == [5, 6, 7]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_record_that_is_read_wrong_once_is_read_again(
    monkeypatch: pytest.MonkeyPatch, *, is_sealed: bool
) -> None:
    trial = started([8], [8])
    if is_sealed:
        trial.writer.roll()
        trial.commit(1, [8])
    reader = LogReader(trial.disk, FOLDER)
    read, place = trial.disk.read, record_position(reader.pairs()[0], Index(1))

    def read_wrong_once(handle: int, offset: int, size: int) -> bytes:
        found = read(handle, offset, size)
        if offset == place:
            monkeypatch.undo()
            return bytes(8) + found[8:]
        return found

    monkeypatch.setattr(trial.disk, "read", read_wrong_once)
    assert reader.row(Index(1)).header.index == 1
    assert trial.disk.read == read, "nothing was read wrong"
    reader.close()


def test_the_newest_entry_of_a_kind_is_found_below_a_bound() -> None:
    trial = started([8, 0, 8])
    trial.writer.roll()
    trial.commit(1, [8, 0])
    reader = LogReader(trial.disk, FOLDER)
    found = [reader.newest_of_kind(EntryKind.NOOP, Index(bound)) for bound in range(6)]
    assert found == [None, None, 2, 2, 2, 5]
    assert reader.newest_of_kind(EntryKind.SESSION, Index(5)) is None


def test_a_search_by_kind_passes_over_records_that_the_medium_does_not_give() -> None:
    """Found by the simulator, seed 3095 of 2026-11-21: ingress died of it."""
    trial = started([0, 8, 8, 0, 8])
    record_sector = record_position(trial.writer._current().header, Index(4)) // SECTOR_BYTES
    reader = LogReader(trial.disk, FOLDER)
    assert reader.newest_of_kind(EntryKind.NOOP, Index(5)) == 4
    trial.disk.set_unreadable(RAFT, record_sector)
    reader = LogReader(trial.disk, FOLDER)
    found = reader.newest_of_kind(EntryKind.NOOP, Index(5))
    assert found is None or found < 4


def test_a_search_by_kind_under_which_a_segment_goes_says_so() -> None:
    trial = started([0, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    reader = LogReader(trial.disk, FOLDER)
    reader.refresh()
    trial.disk.unlink(RAFT)
    trial.disk.unlink(DATA)
    with pytest.raises(CorruptData, match="segment file"):
        reader.newest_of_kind(EntryKind.NOOP, Index(3))


@pytest.mark.parametrize("path", [RAFT, DATA])
def test_a_search_by_kind_passes_over_a_pair_that_lacks_a_file(path: str) -> None:
    trial = started([0, 8])
    trial.writer.roll()
    trial.commit(1, [0, 8])
    trial.disk.unlink(path)
    reader = LogReader(trial.disk, FOLDER)
    assert [reader.newest_of_kind(EntryKind.NOOP, Index(last)) for last in (4, 2)] == [3, None]
    with pytest.raises(CorruptData):
        reader.row(Index(1))


def test_open_descriptors_are_bounded() -> None:
    trial = started()
    for _ in range(70):
        trial.commit(1, [8])
        trial.writer.roll()
    reader = LogReader(trial.disk, FOLDER)
    for index in range(1, 71):
        reader.read_body(Index(index))
    assert len(reader._pairs) <= 16


def test_a_pair_of_which_one_file_cannot_be_opened_keeps_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replicator tries again and again: each try kept the other file open."""
    disk = RealDisk()
    for path in (DATA, RAFT):
        (tmp_path / Path(path).name).touch()
    reader = LogReader(disk, str(tmp_path))
    open_read = disk.open_read

    def refuse(path: str) -> int:
        if path.endswith(".raft"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return open_read(path)

    monkeypatch.setattr(disk, "open_read", refuse)
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            reader._open(1)
    assert len(os.listdir("/proc/self/fd")) == held


def test_a_refresh_that_finds_nothing_new_makes_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read of a damaged entry refreshes; with 10,000 segments a map takes 30 ms."""
    trial = started([8])
    trial.writer.prepare_spare()
    reader = LogReader(trial.disk, FOLDER)
    monkeypatch.setattr(SegmentMap, "of", None)
    assert not reader.refresh()
