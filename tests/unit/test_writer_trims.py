"""The writer carries out TRIM entries: META first, then the pairs below (SAFETY G4, F7, S8)."""

from __future__ import annotations

from collections import deque

import msgspec
import pytest

from actors.messages import RotReported
from actors.topology import Counter
from logstore.format.level import TRIM_LEVEL
from logstore.format.segment_header import FileRole
from logstore.limits import SECTOR_BYTES
from logstore.raft.effects import ApplyTrim, MoveLogStart, SaveLevel, SaveMeta
from logstore.raft.events import DiskFullChanged, LogStartMoved, MetaPersisted, Persisted
from logstore.raft.log_view import Position, WholeLogStart
from logstore.storage.log_reader import LogReader
from logstore.storage.meta_store import newest_meta
from logstore.storage.segment import segment_numbers, segment_path
from tests.paper.virtual_node import whole_start
from tests.unit.writer_stage import HeldCalls, WriterStage

BIG = 60 << 10


def three_pairs(tmp_path):
    """Entries 1 to 9 in pairs that begin at 1, 5, 9."""
    stage = WriterStage(tmp_path)
    stage.bear()
    for _ in range(9):
        stage.persist(BIG)
        stage.settle()
    stage.heard()
    return stage


@pytest.fixture
def born(tmp_path):
    stage = three_pairs(tmp_path)
    yield stage
    stage.close()


def folder(stage):
    return stage.writer._folder._station.folder


def pairs(stage):
    """The first index of each pair that has a header."""
    numbers = segment_numbers(stage.disk.list_folder(folder(stage)))
    headers = LogReader(stage.disk, folder(stage))._headers
    return [headers[number].first_index for number in numbers if number in headers]


def moved_to(stage, index):
    start = stage.start_at(index)
    position = Position(start.index, start.term, start.next_lsn, start.chain)
    return LogStartMoved(WholeLogStart(position, 0, 0, 2))


def start_of(stage):
    return newest_meta(stage.disk, folder(stage)).log_start


def trim(stage, start, **named):
    """Order a TRIM and carry it out; what raft hears."""
    index = stage.persist_trim(start, **named)
    stage.heard()
    stage.tell(ApplyTrim(index))
    stage.settle()
    return stage.heard()


def test_f7_the_log_start_is_in_meta_before_a_pair_is_removed_and_raft_hears_of_it_last(born):
    assert pairs(born) == [1, 5, 9]
    index = born.persist_trim(born.start_at(4))
    born.heard()
    calls, generation = [], born.counter(Counter.MAP_GENERATION)
    born.disk.on_call = lambda what, path: calls.append((what, path.rpartition("/")[2]))
    born.tell(ApplyTrim(index))
    born.settle()
    assert calls == [
        ("write", "meta.a"), ("flush", "meta.a"), ("write", "meta.b"), ("flush", "meta.b"),
        ("unlink", "0000000000000001.data"), ("unlink", "0000000000000001.raft"),
    ]  # fmt: skip
    assert born.counter(Counter.MAP_GENERATION) == generation + 1
    assert born.heard() == [moved_to(born, 4)]
    assert pairs(born) == [5, 9]


def test_g4_the_open_pair_is_never_removed_and_is_written_on(born):
    last = born.rows[-1].header.index
    assert trim(born, born.start_at(last)) == [moved_to(born, last)]
    assert pairs(born) == [9]
    born.persist(8)
    born.settle()
    reader = LogReader(born.disk, folder(born))
    assert len(reader.read_body(born.rows[-1].header.index)) == 8
    assert reader.start.index == last


def test_g4_a_lower_one_and_one_that_has_acted_change_nothing(born):
    assert trim(born, born.start_at(5))
    again = born.rows[-1].header.index
    generation = born.counter(Counter.MAP_GENERATION)
    assert trim(born, born.start_at(4)) == []
    born.tell(ApplyTrim(again))
    born.settle()
    assert born.heard() == []
    assert start_of(born) == born.start_at(5)
    assert born.counter(Counter.MAP_GENERATION) == generation


def test_g4_several_are_carried_out_in_their_order(born):
    indexes = [born.persist_trim(born.start_at(at)) for at in (2, 6, 3, 8)]
    born.heard()
    for index, moved in zip(indexes, ([2], [6], [], [8]), strict=True):
        born.tell(ApplyTrim(index))
        born.settle()
        assert born.heard() == [moved_to(born, at) for at in moved]
    assert pairs(born) == [9]


def test_g4_those_that_wait_are_carried_out_as_one(born):
    """A follower that was away gets every TRIM of the days between: each would open the log and
    flush META, while its disk fills."""
    indexes = [born.persist_trim(born.start_at(at)) for at in (2, 6, 3, 8, 7)]
    born.heard()
    calls = []
    born.disk.on_call = lambda what, path: calls.append((what, path.rpartition("/")[2]))
    born.tell(*map(ApplyTrim, indexes))
    born.settle()
    assert born.heard() == [moved_to(born, 8)]
    assert calls.count(("flush", "meta.a")) == 1
    assert pairs(born) == [9]


def test_trims_that_have_acted_do_not_each_open_the_log(born, monkeypatch):
    """A start orders every TRIM of the log again: a day of one a minute is 1,440."""
    assert trim(born, born.start_at(4))
    indexes = [born.persist_trim(born.start_at(3)) for _ in range(50)]
    indexes.append(born.persist_trim(born.start_at(6)))
    born.heard()
    opened = []
    list_folder = born.disk.list_folder
    monkeypatch.setattr(
        born.disk, "list_folder", lambda path: opened.append(path) or list_folder(path)
    )
    born.tell(*map(ApplyTrim, indexes))
    born.settle()
    assert born.heard() == [moved_to(born, 6)]
    assert len(opened) == 1


class RemovedMeanwhile(deque):
    """An install takes the last one away just as somebody has seen that there is one."""

    def __bool__(self):
        self.clear()
        return True


def test_g5a_trims_that_an_install_forgets_while_they_are_read_end_no_replica(born):
    index = born.persist_trim(born.start_at(4))
    assert born.writer._folder.next_log_start(deque([index]), print).position.index == 4
    assert born.writer._folder.next_log_start(RemovedMeanwhile(), print) is None


@pytest.mark.parametrize(
    "change", [{"term": 9}, {"chain": 1}, {"index": 500}], ids=["term", "chain", "index"]
)
def test_g4_a_trim_that_does_not_fit_this_log_moves_nothing_and_is_reported(born, change, caplog):
    before = start_of(born)
    assert trim(born, msgspec.structs.replace(born.start_at(4), **change)) == []
    assert "the log start stays: entry 10, a TRIM, is damaged here" in caplog.text
    assert (start_of(born), pairs(born)) == (before, [1, 5, 9])


def test_g4_a_damaged_trim_moves_nothing_and_the_next_has_the_whole_log_start(born, caplog):
    assert trim(born, born.start_at(4), damage=b"no body!" * 8) == []
    assert "the log start stays" in caplog.text
    index = born.persist_trim(born.start_at(5))
    born.heard()
    record = LogReader(born.disk, folder(born)).record(index)
    number = segment_numbers(born.disk.list_folder(folder(born)))[2]
    path = segment_path(folder(born), number, FileRole.DATA)
    born.disk.damage(path, record.frame_offset // SECTOR_BYTES, b"rot")
    born.tell(ApplyTrim(index))
    born.settle()
    assert (born.heard(), start_of(born).index) == ([RotReported(index, 0, 0)], 0)
    assert trim(born, born.start_at(6)) == [moved_to(born, 6)]


def test_s8_a_vote_waits_for_no_removal_and_keeps_its_place_in_meta(born):
    """Both are in META in the end: neither undoes the other."""
    index = born.persist_trim(born.start_at(6))
    born.heard()
    held = HeldCalls(born.disk, "unlink")
    born.tell(ApplyTrim(index))
    while not held.have_begun:
        born.work()
        born.writer._meta_worker.wait()
    born.tell(SaveMeta(1, 7, 2))
    born.work()
    born.writer._meta_worker.wait()
    assert born.heard() == [MetaPersisted(1)]
    held.release()
    born.settle()
    assert born.heard() == [moved_to(born, 6)]
    meta = newest_meta(born.disk, folder(born))
    assert (meta.term, meta.vote, meta.log_start) == (7, 2, born.start_at(6))


@pytest.mark.parametrize(("saved", "trims", "level"), [(1, 2, 2), (3, 2, 3)])
def test_s11_meta_gets_the_level_of_the_trim_unless_it_has_a_higher_one(born, saved, trims, level):
    index = born.persist_trim(born.start_at(4), level=trims)
    born.heard()
    born.tell(SaveLevel(saved), ApplyTrim(index))
    born.settle()
    assert born.heard()[0].start.level == trims
    assert newest_meta(born.disk, folder(born)).level == level


# --- a log start that the leader sent ---


def sent(stage, index, *, level=TRIM_LEVEL):
    return msgspec.structs.replace(whole_start(stage.rows[index]), level=level)


def test_g5_a_log_start_that_was_sent_moves_as_one_of_a_trim_without_one(born):
    calls, generation = [], born.counter(Counter.MAP_GENERATION)
    born.disk.on_call = lambda what, path: calls.append((what, path.rpartition("/")[2]))
    born.tell(MoveLogStart(sent(born, 6, level=3)))
    born.settle()
    assert calls == [
        ("write", "meta.a"), ("flush", "meta.a"), ("write", "meta.b"), ("flush", "meta.b"),
        ("unlink", "0000000000000001.data"), ("unlink", "0000000000000001.raft"),
    ]  # fmt: skip
    assert born.heard() == [LogStartMoved(sent(born, 6, level=3))]
    assert born.counter(Counter.MAP_GENERATION) == generation + 1
    meta = newest_meta(born.disk, folder(born))
    assert (pairs(born), meta.log_start, meta.level) == ([5, 9], born.start_at(6), 3)


def test_g5_one_that_is_not_above_the_present_one_changes_nothing(born):
    """It comes again where its answer is lost, and its TRIM comes in the stream."""
    assert trim(born, born.start_at(5))
    trims = [born.persist_trim(born.start_at(at)) for at in (6, 7)]
    born.heard()
    orders = [MoveLogStart(sent(born, at)) for at in (4, 5, 7, 7, 6)]
    born.tell(*orders, *map(ApplyTrim, trims))
    born.settle()
    assert born.heard() == [LogStartMoved(sent(born, 7))]


def test_s9_a_full_disk_has_space_again_once_the_pairs_below_are_gone(born):
    """Nothing is allocated for it: META is written in place. What waited for space is written."""
    born.disk.fill()
    born.persist(*[BIG] * 8)
    born.settle()
    assert born.counter(Counter.DISK_FULL)
    assert Persisted(born.seq) not in born.heard()
    born.tell(MoveLogStart(sent(born, 8)))
    born.settle()
    assert born.heard() == [LogStartMoved(sent(born, 8))]
    born.stage.now_ns = born.writer.next_timer_ns()
    born.settle()
    assert set(born.heard()) == {DiskFullChanged(False), Persisted(born.seq)}


def test_g5_a_log_that_begins_after_its_last_entry_is_recovered_and_goes_on(tmp_path):
    born = three_pairs(tmp_path)
    last = len(born.rows) - 1
    born.tell(MoveLogStart(sent(born, last)))
    born.settle()
    assert pairs(born) == [9]
    born.close()
    born.disk.kill_process()
    (tmp_path / "second").mkdir()
    second = WriterStage(tmp_path / "second", disk=born.disk)
    second.writer._folder._station = born.writer._folder._station
    second.rows = born.rows
    second.start()
    [recovered] = second.born
    header = born.rows[last].header
    assert (recovered.start_index, recovered.last_row, recovered.persisted) == (last, None, last)
    assert recovered.start_bytes == header.cumulative_bytes
    assert recovered.start_timestamp_ns == header.timestamp_ns
    second.persist(8)
    second.settle()
    assert second.heard() == [Persisted(1)]
    second.close()


def test_f6_pairs_are_taken_out_of_the_log_while_no_segment_is_opened(born):
    """A truncation or roll under way has the list of pairs for itself."""
    index = born.persist_trim(born.start_at(4))
    born.heard()
    born.tell(ApplyTrim(index))
    trims = born.writer._trims
    while trims._saved is None:
        trims.do_work(is_opening=True)
        trims.worker.wait()
        born.writer._take_commands()
        born.writer._meta_worker.wait()
    assert trims.do_work(is_opening=True) == 0
    assert start_of(born).index == 4
    assert pairs(born) == [1, 5, 9]
    born.settle()
    assert born.heard() == [moved_to(born, 4)]


def test_recovery_hands_over_the_log_start_and_every_trim_above_it(tmp_path):
    """Those that acted are among them; carried out again they change nothing."""
    born = three_pairs(tmp_path)
    indexes = [born.persist_trim(born.start_at(at)) for at in (2, 5)]
    born.heard()
    born.tell(*map(ApplyTrim, indexes))
    born.settle()
    born.persist(8)
    born.settle()
    born.close()
    born.disk.kill_process()
    (tmp_path / "second").mkdir()
    second = WriterStage(tmp_path / "second", disk=born.disk)
    second.writer._folder._station = born.writer._folder._station
    second.start()
    [recovered] = second.born
    assert (recovered.start_index, recovered.start_next_lsn) == (5, born.start_at(5).next_lsn)
    assert recovered.trims == tuple(indexes)
    assert recovered.term_runs == ((6, 1),)
    second.tell(*map(ApplyTrim, indexes))
    second.settle()
    assert second.heard() == []
    second.close()
