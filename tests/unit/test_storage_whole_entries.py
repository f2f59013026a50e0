"""What of a damaged folder is taken, in order: what is whole, up to the first entry that is not
(SAFETY L8). Damage in each place, each with the LSN where it ends and what lies behind it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, FolderRefused, UnsupportedLevel
from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.level import NEWEST_LEVEL, level_kind
from logstore.format.meta import InstallMark, LogStart
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import Codec, ReplicaState
from logstore.storage.disk import RealDisk
from logstore.storage.folder_log import FolderLog, read_folder_log
from logstore.storage.meta_store import META_NAMES, read_meta
from logstore.storage.segment import read_header, segment_path
from logstore.storage.whole_entries import NotTaken, WholeBatch, WholeEntries
from tests.crash.storage_trial import FOLDER as TRIAL_FOLDER
from tests.crash.storage_trial import StorageTrial
from tests.unit.compressed_batches import TEXT, compressed
from tests.unit.folder_stage import (
    CLUSTER,
    FolderStage,
    batch,
    fill,
    flip,
    flip_payload,
    located,
)

FIRST_LSN = 11
LAST_LSN = 70


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """LSNs 11 to 70."""
    fill(tmp_path, FIRST_LSN)
    return tmp_path


class Found:
    """A whole walk."""

    def __init__(self, folder: Path, *, certain_only: bool = False) -> None:
        before = _bytes_of(folder)
        self.log: FolderLog = read_folder_log(RealDisk(), str(folder))
        self.walk = WholeEntries(RealDisk(), self.log, certain_only=certain_only)
        self.batches: list[WholeBatch] = list(self.walk.batches())
        assert _bytes_of(folder) == before, "nothing in the folder changes"

    @property
    def lsns(self) -> list[int]:
        return [
            lsn
            for each in self.batches
            for lsn in range(each.first_lsn, each.first_lsn + each.count)
        ]

    def ended(self) -> NotTaken:
        assert self.walk.not_taken is not None
        assert self.lsns == list(range(self.log.first_lsn, self.walk.not_taken.lsn))
        return self.walk.not_taken


def _bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def change_meta(folder: Path, **changes: object) -> None:
    meta = read_meta(RealDisk(), f"{folder}/meta.a")
    for name in META_NAMES:
        (folder / name).write_bytes(msgspec.structs.replace(meta, **changes).pack())


def start_before(folder: Path, lsn: int) -> LogStart:
    """A log start before the entry that holds `lsn`, which follows one with payloads."""
    _, record = located(folder, lsn)
    _, before = located(folder, lsn - 1)
    header = before.header
    assert header.index == record.header.index - 1
    return LogStart(header.index, header.term, before.chain, header.next_lsn)


def newest_raft(folder: Path) -> Path:
    return max(path for path in folder.glob("*.raft") if any(path.read_bytes()[:512]))


def flip_record(folder: Path, lsn: int) -> None:
    segment, record = located(folder, lsn)
    slot = record.header.index - segment.first_index
    place = SEGMENT_HEADER_SIZE + slot * RECORD_SIZE + 40
    flip(folder, f"{segment.number:016d}.raft", place)


def flip_frame(folder: Path, lsn: int) -> None:
    segment, record = located(folder, lsn)
    flip(folder, f"{segment.number:016d}.data", record.frame_offset + 30)


def test_of_a_whole_folder_all_is_taken(folder: Path) -> None:
    found = Found(folder)
    assert (found.log.cluster_id, found.log.node, found.log.first_lsn) == (CLUSTER, 1, FIRST_LSN)
    assert (found.log.faults, found.log.is_start_known) == ((), True)
    assert found.lsns == list(range(FIRST_LSN, LAST_LSN + 1))
    assert (found.walk.last_lsn, found.walk.not_taken) == (LAST_LSN, None)
    assert found.walk.has_torn_tail is False
    assert found.batches[2].data == batch([b"0-b" * 900, b"c", b"d"])


def test_certain_is_what_is_known_to_be_committed(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path)
    stage.append(batch([b"a", b"b"]), commit=0)
    stage.append(batch([b"c"]), commit=0)
    stage.append(batch([b"d", b"e"]), commit=2)
    stage.append(batch([b"f"]), commit=2)
    stage.close()
    found = Found(tmp_path)
    assert (found.walk.certain_lsn, found.walk.last_lsn, found.walk.not_taken) == (3, 6, None)
    certain = Found(tmp_path, certain_only=True)
    ended = certain.ended()
    assert (ended.lsn, ended.last_lsn, ended.payloads, ended.is_damage) == (4, 6, 3, False)
    assert certain.walk.certain_lsn == certain.walk.last_lsn == 3


def test_without_any_commit_index_nothing_is_certain(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path, FIRST_LSN)
    stage.append(batch([b"a", b"b"]), commit=0)
    stage.close()
    found = Found(tmp_path)
    assert (found.walk.certain_lsn, found.walk.last_lsn) == (FIRST_LSN - 1, FIRST_LSN + 1)
    assert Found(tmp_path, certain_only=True).lsns == []


def test_a_later_record_makes_certain_what_is_before_the_damage(folder: Path) -> None:
    flip_payload(folder, 24, b"2-b" * 900)
    found = Found(folder)
    ended = found.ended()
    assert found.walk.certain_lsn == found.walk.last_lsn == 23
    assert (ended.lsn, ended.last_lsn, ended.payloads) == (24, LAST_LSN, LAST_LSN - 23)
    assert "the body of entry" in ended.reason
    assert f"{located(folder, 24)[0].number:016d}.data" in ended.reason
    whole = sum(len(each.data) for each in found.batches)
    everything = found.log.newest
    assert everything is not None
    assert ended.size_bytes == everything.cumulative_bytes - whole


def test_a_damaged_frame_under_a_whole_record_is_damage(folder: Path) -> None:
    """SAFETY F2, as recovery says."""
    flip_frame(folder, 24)
    assert Found(folder).ended().lsn == 24
    assert "the frame of entry" in Found(folder).ended().reason


def test_a_damaged_record_is_made_up_for_by_its_frame(folder: Path) -> None:
    flip_record(folder, 24)
    assert Found(folder).lsns == list(range(FIRST_LSN, LAST_LSN + 1))


def test_without_record_and_frame_it_ends(folder: Path) -> None:
    flip_frame(folder, 24)
    flip_record(folder, 24)
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn, ended.is_damage) == (24, LAST_LSN, True)
    assert "no whole frame stands for it" in ended.reason


def test_a_missing_pair_is_a_hole(folder: Path) -> None:
    number = located(folder, 40)[0].number
    first = located(folder, 40)[0].first_lsn
    for suffix in ("data", "raft"):
        (folder / f"{number:016d}.{suffix}").unlink()
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn) == (first, LAST_LSN)
    assert ended.reason == f"both files of segment {number}, or their headers, are gone"


@pytest.mark.parametrize("suffix", ["data", "raft"])
def test_one_damaged_header_of_a_pair_costs_nothing(folder: Path, suffix: str) -> None:
    number = located(folder, 40)[0].number
    flip(folder, f"{number:016d}.{suffix}", 30)
    found = Found(folder)
    assert found.lsns == list(range(FIRST_LSN, LAST_LSN + 1))
    assert [fault.partition(":")[0] for fault in found.log.faults] == [f"{number:016d}.{suffix}"]


def test_both_headers_of_the_newest_pair_leave_an_unknown_end(folder: Path) -> None:
    name = newest_raft(folder).stem
    first = located(folder, LAST_LSN)[0].first_lsn
    for suffix in ("data", "raft"):
        flip(folder, f"{name}.{suffix}", 30)
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn, ended.payloads, ended.size_bytes) == (
        first,
        None,
        None,
        None,
    )
    assert "both headers of segment" in ended.reason


@pytest.mark.parametrize("lsn", [13, LAST_LSN])
def test_without_a_raft_file_the_frames_say_it_all(folder: Path, lsn: int) -> None:
    (folder / f"{located(folder, lsn)[0].number:016d}.raft").unlink()
    found = Found(folder)
    assert found.lsns == list(range(FIRST_LSN, LAST_LSN + 1))
    assert found.walk.certain_lsn == LAST_LSN


def test_without_a_data_file_it_ends_there(folder: Path) -> None:
    segment, _ = located(folder, 40)
    (folder / f"{segment.number:016d}.data").unlink()
    assert Found(folder).ended().lsn == segment.first_lsn


def test_an_entry_without_lsns_that_is_damaged_ends_it_too(folder: Path) -> None:
    """A NOOP lies before LSN 29: whatever is not whole ends it."""
    segment, record = located(folder, 29)
    name = f"{segment.number:016d}"
    slot = record.header.index - 1 - segment.first_index
    data = (folder / f"{name}.raft").read_bytes()
    assert slot >= 0, "it lies in the same pair"
    place = SEGMENT_HEADER_SIZE + slot * RECORD_SIZE
    offset = int.from_bytes(data[place + 80 : place + 88], "little")
    flip(folder, f"{name}.data", offset + 30)
    ended = Found(folder).ended()
    assert (ended.lsn, ended.index) == (29, record.header.index - 1)


def test_a_pair_that_begins_after_another_entry_is_damage(folder: Path) -> None:
    """Its records would do, its headers say otherwise."""
    segment = located(folder, 40)[0]
    for suffix in ("data", "raft"):
        path = folder / f"{segment.number:016d}.{suffix}"
        header = read_header(RealDisk(), str(path))
        image = msgspec.structs.replace(header, base_chain=header.base_chain ^ 1).pack()
        path.write_bytes(image + path.read_bytes()[len(image) :])
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn) == (segment.first_lsn, LAST_LSN)
    assert "begins after another entry" in ended.reason


class PartlyUnreadable(RealDisk):
    """Refuses to read some bytes of one file, as a device does."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        super().__init__()
        self._bad = (str(path), start, end)

    def read(self, handle: int, offset: int, size: int) -> bytes:
        path, start, end = self._bad
        if self._paths[handle] == path and offset < end and offset + size > start:
            raise CorruptData(path, offset, expected=f"{size} readable bytes", got="EIO")
        return super().read(handle, offset, size)


@pytest.mark.parametrize("suffix", ["data", "raft"])
def test_a_sector_that_cannot_be_read_is_damage_and_no_end(folder: Path, suffix: str) -> None:
    """Of records, four are in a sector: their frames stand for them."""
    segment, record = located(folder, 24)
    slot = record.header.index - segment.first_index
    place = record.frame_offset if suffix == "data" else SEGMENT_HEADER_SIZE + slot * RECORD_SIZE
    start = place // 512 * 512
    disk = PartlyUnreadable(folder / f"{segment.number:016d}.{suffix}", start, start + 512)
    walk = WholeEntries(disk, read_folder_log(disk, str(folder)))
    last_lsn = [each.first_lsn + each.count - 1 for each in walk.batches()][-1]
    if suffix == "raft":
        assert (last_lsn, walk.not_taken) == (LAST_LSN, None)
    else:
        assert walk.not_taken is not None
        assert (walk.not_taken.is_damage, walk.not_taken.last_lsn) == (True, LAST_LSN)
        assert last_lsn == walk.not_taken.lsn - 1 <= 23


# --- the end of the newest pair ---


def test_a_torn_last_entry_is_the_end_and_no_damage(folder: Path) -> None:
    """Its record was not written: it was never acknowledged (SAFETY F1)."""
    segment, record = located(folder, LAST_LSN)
    raft = folder / f"{segment.number:016d}.raft"
    data = bytearray(raft.read_bytes())
    slot = record.header.index - segment.first_index
    place = SEGMENT_HEADER_SIZE + slot * RECORD_SIZE
    data[place:] = bytes(len(data) - place)
    raft.write_bytes(data)
    whole = Found(folder)
    assert whole.lsns[-1] == LAST_LSN, "its frame is whole: recovery would adopt it, too"
    flip(folder, f"{segment.number:016d}.data", record.frame_offset + FRAME_HEADER_SIZE + 60)
    found = Found(folder)
    assert found.lsns == list(range(FIRST_LSN, record.header.first_lsn))
    assert (found.walk.not_taken, found.walk.has_torn_tail) == (None, True)


def test_a_last_record_that_rotted_is_damage(folder: Path) -> None:
    """A slot that is neither zero nor a record proves what a record does."""
    segment, record = located(folder, LAST_LSN)
    raft = folder / f"{segment.number:016d}.raft"
    data = bytearray(raft.read_bytes())
    slot = record.header.index - segment.first_index
    place = SEGMENT_HEADER_SIZE + slot * RECORD_SIZE
    data[place + RECORD_SIZE :] = bytes(len(data) - place - RECORD_SIZE)
    raft.write_bytes(data)
    flip_record_at(folder, segment.number, place)
    flip(folder, f"{segment.number:016d}.data", record.frame_offset + FRAME_HEADER_SIZE + 60)
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn, ended.is_damage) == (record.header.first_lsn, None, True)
    assert "is damaged" in ended.reason


def flip_record_at(folder: Path, number: int, place: int) -> None:
    flip(folder, f"{number:016d}.raft", place + 40)


# --- META and the log start ---


def test_one_copy_of_meta_is_enough(folder: Path) -> None:
    flip(folder, "meta.b", 30)
    found = Found(folder)
    assert found.lsns == list(range(FIRST_LSN, LAST_LSN + 1))
    assert [fault.partition(":")[0] for fault in found.log.faults] == ["meta.b"]


def test_without_meta_the_oldest_pair_says_where_the_log_begins(folder: Path) -> None:
    for name in META_NAMES:
        flip(folder, name, 30)
    found = Found(folder)
    assert found.lsns == list(range(FIRST_LSN, LAST_LSN + 1))
    assert (found.log.node, found.log.is_start_known) == (0, True)
    assert found.log.faults[-1].startswith("without META the log begins at LSN 11")
    oldest = min(folder.glob("*.raft"))
    for suffix in ("raft", "data"):
        oldest.with_suffix(f".{suffix}").unlink()
    later = Found(folder)
    assert later.log.is_start_known is False
    assert later.log.first_lsn > FIRST_LSN
    assert later.lsns == list(range(later.log.first_lsn, LAST_LSN + 1))
    assert "was trimmed, or is lost" in later.log.faults[-1]


def test_a_log_that_was_trimmed_begins_where_meta_says(folder: Path) -> None:
    """Inside a pair, after damage that is of no interest any more."""
    start = start_before(folder, 24)
    flip_frame(folder, 12)
    flip_record(folder, 12)
    change_meta(folder, log_start=start)
    found = Found(folder)
    assert found.log.first_lsn == start.next_lsn == 24
    assert found.lsns == list(range(24, LAST_LSN + 1))
    flip_payload(folder, 24, b"2-b" * 900)
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn) == (24, LAST_LSN)
    assert ended.size_bytes is not None


def test_the_first_entry_after_a_log_start_may_have_its_frame_alone(folder: Path) -> None:
    """Where it begins is known from the entries below, the last of which is damaged, too."""
    segment, record = located(folder, 24)
    assert record.header.index - segment.first_index >= 2, "the log start lies inside the pair"
    start = start_before(folder, 24)
    flip_record(folder, 24)
    flip_record(folder, 23)
    change_meta(folder, log_start=start)
    assert Found(folder).lsns == list(range(24, LAST_LSN + 1))


def test_a_log_start_that_is_not_that_of_the_files_is_damage(folder: Path) -> None:
    start = start_before(folder, 24)
    change_meta(folder, log_start=msgspec.structs.replace(start, chain=start.chain ^ 1))
    ended = Found(folder).ended()
    assert (ended.lsn, "the chain does not lead" in ended.reason) == (24, True)


def test_an_empty_log_has_nothing_and_is_whole(tmp_path: Path) -> None:
    FolderStage(tmp_path, FIRST_LSN).close()
    found = Found(tmp_path)
    assert (found.log.first_lsn, found.lsns, found.walk.not_taken) == (FIRST_LSN, [], None)


def test_when_no_segment_is_left_it_says_so(folder: Path) -> None:
    for path in [*folder.glob("*.raft"), *folder.glob("*.data")]:
        path.unlink()
    ended = Found(folder).ended()
    assert (ended.lsn, ended.last_lsn, ended.is_damage) == (FIRST_LSN, None, True)


# --- what is no log ---


def test_folders_that_hold_no_log_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderRefused, match="name the data folder of one replica"):
        read_folder_log(RealDisk(), str(tmp_path / "nothing"))
    start = start_before(folder, 24)
    change_meta(folder, log_start=start, installing=InstallMark(0, 0))
    with pytest.raises(FolderRefused, match="dropping its log"):
        read_folder_log(RealDisk(), str(folder))
    change_meta(folder, installing=None, state=ReplicaState.EMPTY)
    with pytest.raises(FolderRefused, match="part of no cluster"):
        read_folder_log(RealDisk(), str(folder))


def test_a_replica_that_joined_has_a_log_as_any_other(folder: Path) -> None:
    expected = Found(folder)
    change_meta(folder, state=ReplicaState.LEARNER)
    found = Found(folder)
    assert found.batches == expected.batches
    assert found.batches
    assert found.walk.not_taken is None


def test_a_folder_without_meta_and_headers_is_refused(folder: Path) -> None:
    for path in [*folder.glob("*.raft"), *folder.glob("*.data"), *folder.glob("meta.*")]:
        if any(path.read_bytes()[:512]):
            flip(folder, path.name, 30)
    with pytest.raises(FolderRefused, match="every segment header"):
        read_folder_log(RealDisk(), str(folder))


def test_files_of_two_replicas_are_refused(folder: Path, tmp_path: Path) -> None:
    change_meta(folder, replica_uuid=b"another replica!")
    with pytest.raises(FolderRefused, match="a folder must not be copied"):
        read_folder_log(RealDisk(), str(folder))


def test_a_log_that_is_too_new_is_refused_by_name(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path)
    stage.append(batch([b"a"]))
    stage.append(kind=level_kind(NEWEST_LEVEL + 1))
    stage.close()
    with pytest.raises(UnsupportedLevel, match="start a newer version"):
        list(WholeEntries(RealDisk(), read_folder_log(RealDisk(), str(tmp_path))).batches())


def test_compressed_batches_are_taken_as_they_are(tmp_path: Path) -> None:
    block = compressed(TEXT, Codec.ZSTD)
    stage = FolderStage(tmp_path)
    stage.append(batch([b"a"]), block, batch([b""]))
    stage.close()
    found = Found(tmp_path)
    assert [each.data for each in found.batches] == [batch([b"a"]), block, batch([b""])]


def test_batches_that_are_not_as_many_as_their_entry_says_are_damage(tmp_path: Path) -> None:
    """Every CRC is right: only a writer that is wrong leaves this."""
    stage = FolderStage(tmp_path)
    stage.append(batch([b"a"]))
    stage.append(batch([b"b"]) + batch([b"c"]))  # the stage counts the first one
    stage.close()
    ended = Found(tmp_path).ended()
    assert (ended.lsn, ended.last_lsn) == (2, 2)
    assert ended.reason == "entry 2 says that it holds 1 payloads, its batches hold 2"


def test_a_damaged_batch_under_a_right_body_is_damage(tmp_path: Path) -> None:
    stage = FolderStage(tmp_path)
    stage.append(batch([b"a"]))
    wrong = bytearray(batch([b"b"]))
    wrong[40] ^= 1
    stage.append(bytes(wrong))
    stage.append(batch([b"c"]))
    stage.close()
    ended = Found(tmp_path).ended()
    assert (ended.lsn, ended.last_lsn) == (2, 3)
    assert "a batch in entry 2 is damaged" in ended.reason


def test_a_folder_that_can_only_be_read_is_read(folder: Path) -> None:
    for path in folder.iterdir():
        os.chmod(path, 0o400)
    assert Found(folder).lsns[-1] == LAST_LSN


def test_a_newest_pair_that_cannot_be_read_leaves_an_unknown_end() -> None:
    """SAFETY S10: it may hold entries."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    trial.writer.roll()
    trial.commit(1, [8])
    for role in FileRole:
        path = segment_path(TRIAL_FOLDER, 2, role)
        for sector in range(trial.disk.file_named(path).size // SECTOR_BYTES):
            trial.disk.set_unreadable(path, sector)
    walk = WholeEntries(trial.disk, read_folder_log(trial.disk, TRIAL_FOLDER))
    assert list(walk.batches()) == []
    assert walk.not_taken is not None
    assert "sectors that the device refuses to read" in walk.not_taken.reason
