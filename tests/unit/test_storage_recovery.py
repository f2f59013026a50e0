"""Recovery by the table of SAFETY section 4, row by row, and the folders it refuses."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData, FolderRefused, InvariantViolated, MetaLost
from logstore.format.fields import seal
from logstore.format.level import NEWEST_LEVEL
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import Index, Lsn, NodeId, ReplicaState
from logstore.storage.log_reader import LogReader
from logstore.storage.recovery import recover
from logstore.storage.segment import segment_path
from tests.crash.storage_trial import FOLDER, NODE, OPTIONS, StorageTrial, look

DATA = segment_path(FOLDER, 1, FileRole.DATA)
RAFT = segment_path(FOLDER, 1, FileRole.RAFT)
FIRST = 4096 // SECTOR_BYTES  # the sector where frames and records begin


def started(*groups: list[int]) -> StorageTrial:
    trial = StorageTrial(SimulatedDisk())
    trial.create_log()
    for sizes in groups:
        trial.commit(1, sizes)
    return trial


def faulty(trial: StorageTrial) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in trial.recovered.faulty]


def test_a_new_folder_is_an_empty_replica_without_a_log() -> None:
    trial = StorageTrial(SimulatedDisk())
    assert trial.recovered.state == ReplicaState.EMPTY
    assert trial.recovered.writer is None
    assert trial.recovered.boot_counter == 1
    assert trial.recovered.last.header.index == 0
    trial.restart()
    assert trial.recovered.boot_counter == 2


def test_p1_a_log_that_begins_at_another_lsn_is_recovered_with_it() -> None:
    """As does the META of a bootstrap that was stopped half way, and the reader of the files."""
    trial = StorageTrial(SimulatedDisk())
    trial.create_log(Lsn(7_000))
    assert trial.writer.last.header.next_lsn == 7_000
    trial.restart()
    assert trial.recovered.last.header.next_lsn == trial.recovered.start.next_lsn == 7_000
    trial.commit(1, [8, 0, 800])
    trial.disk.damage(RAFT, FIRST, b"")  # its record is made again from the frame
    trial.restart()
    assert faulty(trial) == []
    assert (trial.recovered.start.next_lsn, trial.recovered.last.header.next_lsn) == (7_000, 7_002)
    log = LogReader(trial.disk, FOLDER)
    assert [log.row(Index(index)).header.first_lsn for index in (1, 2, 3)] == [7_000, 7_001, 7_001]
    assert log.index_of_lsn(Lsn(7_001), last_index=Index(3)) == 3


def test_a_recovered_log_is_what_was_acknowledged() -> None:
    trial = started([800, 0], [8])
    last = trial.writer.last
    trial.vote(3, 2)
    trial.restart()
    found = trial.recovered
    assert found.last == last
    assert found.term_runs == ((1, 1),)
    assert (found.term, found.vote, found.persisted, found.faulty) == (3, 2, 3, ())
    assert (found.start.index, found.first_index, found.state) == (0, 1, ReplicaState.VOTER)
    trial.commit(3, [8])
    trial.restart()
    assert trial.recovered.term_runs == ((1, 1), (4, 3))


def test_a_term_of_the_log_above_that_of_meta_is_taken_and_clears_the_vote() -> None:
    trial = started()
    trial.vote(1, 3)
    trial.commit(4, [8])
    trial.restart()
    assert (trial.recovered.term, trial.recovered.vote) == (4, 0)


def test_a_bad_frame_under_a_good_record_is_a_faulty_entry_and_nothing_is_dropped() -> None:
    """SAFETY F2, FAULTS D8: also when it is the last one, also the body alone."""
    for damaged, index in ((FIRST, 1), (FIRST + 1, 1), (FIRST + 2, 2), (FIRST + 3, 3)):
        trial = started([800], [8], [8])
        trial.disk.damage(DATA, damaged, b"")
        trial.restart()
        assert faulty(trial) == [(index, index)]
        assert trial.recovered.last.header.index == 3
        assert trial.recovered.persisted == index - 1
        with pytest.raises(CorruptData):
            LogReader(trial.disk, FOLDER).read_body(Index(index))


def test_a_faulty_entry_at_or_below_the_known_commit_caps_nothing() -> None:
    """SAFETY Q1."""
    trial = started([8], [8])
    trial.commit(1, [8], commit=2)
    trial.disk.damage(DATA, FIRST, b"")
    trial.restart()
    assert faulty(trial) == [(1, 1)]
    assert (trial.recovered.commit_floor, trial.recovered.persisted) == (2, 3)


def test_lost_records_are_rebuilt_from_their_frames_byte_for_byte() -> None:
    """SAFETY S1, FAULTS D12."""
    trial = started([800, 8], [0, 16], [8])
    before = trial.disk.content(RAFT)
    for act in (
        lambda: trial.disk.damage(RAFT, FIRST, b""),
        lambda: trial.disk.damage(RAFT, FIRST, b"\x55" * 512),
        lambda: trial.disk.cut(RAFT, 0),
        lambda: trial.disk.remove(RAFT),
    ):
        act()
        trial.restart()
        assert faulty(trial) == []
        assert trial.disk.content(RAFT) == before


def test_a_written_frame_without_its_record_is_adopted() -> None:
    """FAULTS D3: unacknowledged, but chained to the log; it could have been persisted as well."""
    trial = started([8])
    trial.append(1, [800, 8])
    trial.restart()
    assert trial.recovered.last.header.index == 3
    assert segment_count(trial) == 1


def test_a_torn_frame_is_discarded_with_all_after_it_and_left_behind() -> None:
    """FAULTS D2: a new segment begins there, in the next log_epoch."""
    trial = started([8])
    trial.append(1, [800, 8, 8])
    trial.disk.damage(DATA, FIRST + 2, b"")
    trial.restart()
    assert trial.recovered.last.header.index == 1
    assert faulty(trial) == []
    assert segment_count(trial) == 2
    trial.commit(1, [8])
    trial.restart()
    assert trial.recovered.last.header.index == 2
    assert segment_count(trial) == 2


def test_an_undisturbed_tail_is_gone_on_with_in_the_same_segment() -> None:
    trial = started([8], [8])
    trial.restart()
    trial.commit(1, [8])
    assert segment_count(trial) == 1


def test_a_lost_record_and_a_lost_frame_with_a_record_after_them_are_a_faulty_entry() -> None:
    trial = started([8], [8], [0], [0], [0])
    trial.disk.damage(DATA, FIRST + 1, b"")
    trial.disk.damage(RAFT, FIRST, b"")
    trial.restart()
    assert (2, 2) in [(each.first, 2) for each in trial.recovered.faulty]
    assert trial.recovered.last.header.index == 5
    assert trial.recovered.persisted < 2


def test_a_missing_pair_in_the_middle_is_a_faulty_range_and_never_an_empty_log() -> None:
    """SAFETY S10, FAULTS D20."""
    trial = started([8, 8])
    trial.writer.roll()
    trial.commit(1, [8, 8])
    trial.writer.roll()
    trial.commit(1, [8])
    for numbers, expected in (([2], [(3, 4)]), ([1], [(1, 2)]), ([1, 2], [(1, 4)])):
        damaged = trial.disk.copy()
        for number in numbers:
            for role in FileRole:
                damaged.remove(segment_path(FOLDER, number, role))
        found = look(damaged)
        indexes = {i for first, last in expected for i in range(first, last + 1)}
        assert found.faulty == indexes
        assert found.recovered.last.header.index == 5
        assert found.recovered.persisted == min(indexes) - 1


def test_every_segment_gone_is_damage_and_never_an_empty_log() -> None:
    trial = started([8])
    for path in (DATA, RAFT):
        trial.disk.remove(path)
    with pytest.raises(CorruptData, match="never let it begin an empty log"):
        trial.restart()


def test_a_half_opened_pair_is_completed_and_the_truncation_stands() -> None:
    """FAULTS D5: the Raft header is durable, the data header is not."""
    trial = started([8, 8, 8])
    trial.truncate(2)
    trial.disk.damage(segment_path(FOLDER, 2, FileRole.DATA), 0, b"")
    trial.restart()
    assert trial.recovered.last.header.index == 1
    trial.disk.damage(segment_path(FOLDER, 2, FileRole.RAFT), 0, b"")
    trial.restart()
    assert trial.recovered.last.header.index == 1


def test_a_pair_with_entries_and_no_header_stops_recovery() -> None:
    trial = started([8])
    trial.disk.damage(DATA, 0, b"")
    trial.disk.damage(RAFT, 0, b"")
    with pytest.raises(CorruptData, match="entries behind it"):
        trial.restart()


def test_leftovers_of_a_spare_are_removed() -> None:
    """FAULTS D22."""
    trial = started([8])
    trial.writer.prepare_spare()
    trial.disk.close(trial.disk.create(segment_path(FOLDER, 9, FileRole.RAFT)))
    trial.restart()
    assert segment_count(trial) == 1
    trial.writer.roll()
    trial.commit(1, [8])


def test_an_unreadable_sector_is_damage_of_what_lies_there() -> None:
    """SAFETY Q5, FAULTS D26."""
    trial = started([800], [8], [8])
    trial.disk.set_unreadable(DATA, FIRST + 2)
    trial.restart()
    assert faulty(trial) == [(2, 2)]
    trial = started([800], [8], [8])
    trial.disk.set_unreadable(RAFT, FIRST)
    trial.restart()
    assert faulty(trial) == []


def with_an_unreadable_newest_pair(first_sector: int) -> StorageTrial:
    """The newest pair has a flushed entry, and the device refuses to read any sector of it from
    this one on."""
    trial = started([8])
    trial.writer.roll()
    trial.commit(1, [8])
    for role in FileRole:
        path = segment_path(FOLDER, 2, role)
        for sector in range(first_sector, trial.disk.file_named(path).size // SECTOR_BYTES):
            trial.disk.set_unreadable(path, sector)
    return trial


def read_again(trial: StorageTrial) -> None:
    """The device returns what it refused to."""
    for path in trial.disk.paths():
        trial.disk.file_named(path).unreadable.clear()


def test_a_pair_that_cannot_be_read_is_not_taken_for_an_empty_one() -> None:
    """SAFETY S10: it was removed as a spare, although the device might read it again."""
    trial = with_an_unreadable_newest_pair(0)
    with pytest.raises(CorruptData, match="start it again"):
        trial.restart()
    read_again(trial)
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (2, [])


def test_a_sector_at_the_end_of_a_file_that_cannot_be_read_is_not_taken_for_zeros() -> None:
    """Of a closed file, whose last sector is not a whole one."""
    trial = started()
    handle = trial.disk.create(segment_path(FOLDER, 9, FileRole.DATA))
    trial.disk.write(handle, 4096, [b"entry"])
    trial.disk.flush(handle)
    trial.disk.sync_folder(FOLDER)
    trial.disk.set_unreadable(segment_path(FOLDER, 9, FileRole.DATA), FIRST)
    with pytest.raises(CorruptData, match="start it again"):
        trial.restart()


def test_entries_that_cannot_be_read_are_not_taken_for_torn_ones() -> None:
    """SAFETY section 4: no record can be read either, so nothing says that there is none."""
    trial = with_an_unreadable_newest_pair(FIRST)
    with pytest.raises(CorruptData, match="start it again"):
        trial.restart()
    read_again(trial)
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (2, [])


def test_entries_that_cannot_be_read_beside_others_are_not_taken_for_torn_ones() -> None:
    """The block of their records begins with that of an entry that is whole."""
    trial = started([8], [8])
    trial.disk.set_unreadable(RAFT, FIRST)
    trial.disk.set_unreadable(DATA, FIRST + 1)
    with pytest.raises(CorruptData, match="start it again"):
        trial.restart()
    read_again(trial)
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (2, [])


def test_a_block_of_records_that_cannot_be_read_leaves_a_torn_tail_torn() -> None:
    """One fault and a crash: the device refuses whole blocks of 4 KiB, also what was never written
    after the last record."""
    trial = started([8])
    trial.append(1, [800])
    trial.disk.damage(DATA, FIRST + 2, b"")
    for sector in range(FIRST, trial.disk.file_named(RAFT).size // SECTOR_BYTES):
        trial.disk.set_unreadable(RAFT, sector)
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (1, [])
    assert segment_count(trial) == 2


@pytest.mark.parametrize("size", [None, 0, 4096, 4096 + SECTOR_BYTES])
def test_without_its_raft_file_the_newest_pair_has_no_torn_tail(size: int | None) -> None:
    """No record can say that there was none: entries 5 and 6 were acknowledged. Another start finds
    the same, and nothing is discarded."""
    trial = started([0] * 4, [8], [8])
    before = trial.disk.content(DATA)
    if size is None:
        trial.disk.remove(RAFT)
    else:
        trial.disk.cut(RAFT, size)
    trial.disk.damage(DATA, FIRST + 1, b"rot")
    for _ in range(2):
        with pytest.raises(CorruptData, match="logstore salvage"):
            trial.restart()
    trial.disk.damage(DATA, FIRST + 1, before[FIRST + 1])
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (6, [])
    trial.commit(1, [8])
    trial.restart()
    assert (trial.recovered.last.header.index, faulty(trial)) == (7, [])


def test_a_record_of_another_history_is_what_the_chain_cannot_explain() -> None:
    """FAULTS D15: a chunk of an older life put back; its CRCs are good, the chain tells."""
    trial = started([0] * 4, [0] * 4)
    other = started([0] * 4, [8], [0] * 3)
    stolen = other.disk.content(RAFT)[FIRST + 1]
    trial.disk.damage(RAFT, FIRST + 1, stolen)
    trial.restart()
    assert trial.recovered.faulty
    assert min(each.first for each in trial.recovered.faulty) >= 5


def test_what_a_floor_says_beyond_the_log_is_clipped_to_its_end() -> None:
    """A follower may know a commit index above what it has written."""
    trial = started()
    trial.commit(1, [8], commit=7)
    trial.restart()
    assert trial.recovered.commit_floor == 1


# --- folders that are refused: SAFETY L1, L3, M2 ---


def test_a_folder_in_use_is_refused() -> None:
    trial = started()
    with pytest.raises(FolderRefused, match="in use"):
        trial.recover()


def test_another_node_s_folder_is_refused() -> None:
    trial = started()
    trial.disk.kill_process()
    with pytest.raises(FolderRefused, match="node 1's, this is node 2"):
        recover(
            trial.disk,
            FOLDER,
            OPTIONS,
            node=NodeId(2),
            newest_level=NEWEST_LEVEL,
            new_uuid=lambda: bytes(16),
            tick=lambda: None,
        )


def test_segments_of_another_cluster_or_replica_are_refused() -> None:
    trial = started([8])
    for change in ({"cluster_id": b"x" * 16}, {"replica_uuid": b"y" * 16}):
        disk = trial.disk.copy()
        meta = msgspec.structs.replace(trial.recovered.meta.meta, **change).pack()
        for name in ("meta.a", "meta.b"):
            disk.damage(f"{FOLDER}/{name}", 0, meta)
        with pytest.raises(FolderRefused):
            look(disk)


def test_files_of_a_newer_version_are_refused() -> None:
    """FAULTS D39."""
    trial = started([8])
    for path, size, newer_version in ((f"{FOLDER}/meta.b", 512, 6), (DATA, 512, 2), (RAFT, 512, 2)):
        disk = trial.disk.copy()
        image = disk.content(path)[0]
        version = newer_version.to_bytes(2, "little")
        newer = seal(image[:4] + version + image[6 : size - 4], b"")
        disk.damage(path, 0, newer)
        with pytest.raises(FolderRefused, match="upgrade"):
            look(disk)


def test_a_log_without_meta_does_not_come_back_in_place() -> None:
    """SAFETY L1, FAULTS D18."""
    trial = started([8])
    for name in ("meta.a", "meta.b"):
        trial.disk.damage(f"{FOLDER}/{name}", 0, b"")
    with pytest.raises(MetaLost, match="new uuid"):
        trial.restart()


def test_one_bad_copy_of_meta_is_written_anew() -> None:
    """FAULTS D17."""
    trial = started([8])
    trial.vote(5, 2)
    for name, act in itertools.product(("meta.a", "meta.b"), ("damage", "remove", "cut")):
        path = f"{FOLDER}/{name}"
        if act == "damage":
            trial.disk.damage(path, 0, b"\x01" * 512)
        elif act == "remove":
            trial.disk.remove(path)
        else:
            trial.disk.cut(path, 100)
        trial.restart()
        assert (trial.recovered.term, trial.recovered.vote) == (5, 2)
    assert trial.disk.content(f"{FOLDER}/meta.a") == trial.disk.content(f"{FOLDER}/meta.b")


def test_meta_is_flushed_in_one_copy_before_the_other_is_written() -> None:
    """SAFETY S8: write A, flush, write B, flush, then answer."""
    trial = started()
    calls: list[str] = []
    trial.disk.on_call = lambda what, path: calls.append(f"{what} {path[-1]}")
    trial.vote(1, 1)
    assert calls == ["write a", "flush a", "write b", "flush b"]
    assert trial.recovered.meta.bytes_written > 0


def test_neighbouring_faulty_entries_are_one_range() -> None:
    trial = started([8, 8, 8], [8])
    trial.disk.damage(DATA, FIRST, b"")
    trial.restart()
    assert faulty(trial) == [(1, 3)]


def test_a_log_is_not_created_twice() -> None:
    trial = started([8])
    with pytest.raises(CorruptData):
        trial.create_log()
    with pytest.raises(InvariantViolated):
        trial.writer.open_first()


def test_recovery_ticks_while_it_works() -> None:
    trial = started([8], [8])
    trial.disk.kill_process()
    ticks: list[int] = []
    recover(
        trial.disk,
        FOLDER,
        OPTIONS,
        node=NODE,
        newest_level=NEWEST_LEVEL,
        new_uuid=lambda: bytes(16),
        tick=lambda: ticks.append(1),
    )
    assert len(ticks) > 5


def segment_count(trial: StorageTrial) -> int:
    return sum(name.endswith(".raft") for name in trial.disk.list_folder(FOLDER))
