"""The writer drops the log for a log start that is installed: META first, the mark off last (SAFETY
G5a, F4, F6, F7, S8, S9).
"""

from __future__ import annotations

import msgspec
import pytest

from actors.topology import Counter
from logstore.errors import DiskFull
from logstore.raft.effects import ApplyTrim, SaveMeta
from logstore.raft.events import DiskFullChanged, LogStartMoved, MetaPersisted, Persisted
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.log_writer import LogWriter
from logstore.storage.meta_store import newest_meta
from logstore.storage.segment import log_start_at, row_at_start, segment_numbers
from tests.crash.storage_trial import entry_elsewhere
from tests.unit.test_writer_trims import BIG, folder, three_pairs
from tests.unit.writer_stage import HeldCalls, WriterStage

BEFORE = entry_elsewhere(20, 2)


@pytest.fixture
def without_spare(monkeypatch):
    """None is prepared between the steps, by another thread and while a test copies the disk."""
    monkeypatch.setattr(LogWriter, "needs_spare", False)


@pytest.fixture
def born(tmp_path, without_spare):
    stage = three_pairs(tmp_path)
    stage.settle()
    yield stage
    stage.close()


def install(stage, before=BEFORE, **named):
    """An install, carried out; what raft hears."""
    stage.order_install(before, **named)
    stage.settle()
    return stage.heard()


def started_again(stage, tmp_path):
    """Another writer on the folder of one that died; closed again."""
    stage.disk.kill_process()
    (tmp_path / "second").mkdir()
    second = WriterStage(tmp_path / "second", disk=stage.disk)
    second.writer._folder._station = stage.writer._folder._station
    second.start()
    second.close()
    return second


def numbers(stage):
    return segment_numbers(stage.disk.list_folder(folder(stage)))


def test_f7_the_mark_is_in_meta_before_a_pair_is_removed_and_off_before_raft_hears_of_it(born):
    before, generation = numbers(born), born.counter(Counter.MAP_GENERATION)
    steps = []

    def look(what, path):
        name = path.rpartition("/")[2]
        if what == "unlink":
            meta = newest_meta(born.disk.copy(), folder(born))
            assert meta.installing is not None
            assert meta.log_start == log_start_at(BEFORE)
        steps.append((what, name.partition(".")[0] if name.startswith("meta") else name))

    born.disk.on_call = look
    seq = born.order_install(BEFORE)
    born.settle()
    born.disk.on_call = None
    kinds = [(what, name) for what, name in steps if what in ("unlink", "flush")]
    old = [("unlink", f"{number:016d}.{end}") for number in before[:3] for end in ("data", "raft")]
    saved = [("flush", "meta")] * 2
    new = f"{before[-1]:016d}" if len(before) > 3 else f"{before[-1] + 1:016d}"
    opened = [("flush", f"{new}.raft"), ("flush", f"{new}.data")]
    assert kinds[:8] == saved + old
    assert kinds[-4:] == opened + saved
    assert born.heard() == [Persisted(seq)]
    assert born.counter(Counter.MAP_GENERATION) == generation + 2  # without files, and anew
    assert born.counter(Counter.WRITTEN) == seq
    meta = newest_meta(born.disk, folder(born))
    assert (meta.installing, meta.log_start) == (None, log_start_at(BEFORE))


def test_the_log_goes_on_after_the_log_start(born):
    install(born)
    born.persist(8, BIG, term=2, commit=20)
    born.settle()
    assert born.heard()[-1] == Persisted(born.seq)
    reader = LogReader(born.disk, folder(born))
    assert [len(reader.read_body(index)) for index in (21, 22)] == [8, BIG]
    with pytest.raises(BelowLogStart):
        reader.row(20)


def test_f4_orders_before_it_that_have_not_begun_are_covered_by_its_answer(born):
    """Their entries go with the log."""
    held = HeldCalls(born.disk, "flush", ".data")
    born.persist(8)
    born.work()
    held.wait_until_begun()
    born.persist(8, 8)
    written = born.writer._folder.log.data_bytes_written
    seq = born.order_install(BEFORE)
    born.work()
    held.release()
    born.settle()
    answers = born.heard()
    assert [type(each) for each in answers] == [Persisted, Persisted]
    assert answers[-1] == Persisted(seq)
    assert born.writer._folder.log.data_bytes_written < written + 1_000
    assert born.writer._folder.log.last == BEFORE


def test_a_trim_that_waits_goes_with_the_log_and_one_that_has_begun_ends_first(born):
    """A lower log start never follows a higher one into META."""
    begins, waits = [born.persist_trim(born.start_at(at)) for at in (4, 5)]
    born.heard()
    held = HeldCalls(born.disk, "unlink")
    born.tell(ApplyTrim(begins))
    while not held.have_begun:
        born.work()
        born.writer._meta_worker.wait()
    born.tell(ApplyTrim(waits))
    seq = born.order_install(BEFORE)
    born.work()
    assert newest_meta(born.disk, folder(born)).installing is None
    held.release()
    born.settle()
    moved, answer = born.heard()
    assert (type(moved), moved.start.position.index) == (LogStartMoved, 4)
    assert answer == Persisted(seq)
    assert newest_meta(born.disk, folder(born)).log_start == log_start_at(BEFORE)


def test_a_trim_whose_job_ends_while_it_is_asked_about_is_still_under_way(born, monkeypatch):
    trims = born.writer._trims

    class Worker:
        @property
        def is_busy(self):
            trims._is_saving = True
            return False

    with monkeypatch.context() as patch:
        patch.setattr(trims, "_worker", Worker())
        assert not trims.is_idle
    trims._is_saving = False
    assert trims.is_idle


def test_s8_a_vote_waits_for_no_removal_and_is_kept(born):
    held = HeldCalls(born.disk, "unlink")
    born.order_install(BEFORE)
    while not held.have_begun:
        born.work()
        born.writer._meta_worker.wait()
    born.tell(SaveMeta(1, 7, 2))
    born.work()
    born.writer._meta_worker.wait()
    assert MetaPersisted(1) in born.heard()
    held.release()
    born.settle()
    meta = newest_meta(born.disk, folder(born))
    assert (meta.term, meta.vote, meta.installing) == (7, 2, None)


def test_s11_the_level_comes_into_meta_with_the_log_start(born):
    install(born, level=2)
    assert newest_meta(born.disk, folder(born)).level == 2


@pytest.mark.usefixtures("without_spare")
@pytest.mark.parametrize(("level", "has_config"), [(3, False), (4, True)])
def test_a_log_that_may_begin_after_a_config_is_known_to_have_had_one(tmp_path, level, has_config):
    """From the mark on, and the next start says so."""
    stage = three_pairs(tmp_path)
    marks = []

    def look(what, path):
        meta = newest_meta(stage.disk.copy(), folder(stage))
        if what == "unlink" and meta.installing is not None:
            marks.append(meta.has_config)

    stage.disk.on_call = look
    install(stage, level=level)
    stage.disk.on_call = None
    stage.close()
    assert set(marks) == {has_config}
    (recovered,) = started_again(stage, tmp_path).born
    assert (recovered.has_config, recovered.level, recovered.damage) == (has_config, level, "")


def test_s9_on_a_disk_without_any_space_it_waits_and_is_answered_once(born):
    """FAULTS D28."""
    born.disk.capacity_bytes = 1
    seq = born.order_install(BEFORE)
    born.settle()
    assert born.heard() == [DiskFullChanged(True)], "no segment is open, so there is no room"
    assert newest_meta(born.disk, folder(born)).installing is not None
    born.disk.free_space()
    born.stage.now_ns += 2_000_000_000
    born.settle()
    assert [each for each in born.heard() if not isinstance(each, DiskFullChanged)] == [
        Persisted(seq)
    ]
    born.persist(8, term=2)
    born.settle()
    assert born.heard()[-1] == Persisted(born.seq)


@pytest.mark.usefixtures("without_spare")
def test_s9_killed_amid_that_it_starts_and_votes_and_ends_it_later(tmp_path, monkeypatch):
    """The log was dropped, and another process took the space of it."""
    first = three_pairs(tmp_path)
    first.disk.capacity_bytes = 1
    first.order_install(BEFORE)
    first.settle()
    monkeypatch.undo()
    first.disk.kill_process()
    (tmp_path / "second").mkdir()
    second = WriterStage(tmp_path / "second", disk=first.disk)
    second.writer._folder._station = first.writer._folder._station
    second.start()
    [recovered] = second.born
    assert (recovered.start_index, recovered.last_row, recovered.damage) == (20, None, "")
    assert (recovered.start_bytes, recovered.persisted) == (BEFORE.header.cumulative_bytes, 20)
    second.tell(SaveMeta(1, 7, 2))
    second.settle()
    heard = second.heard()
    assert (len(heard), set(heard)) == (2, {DiskFullChanged(True), MetaPersisted(1)})
    second.rows = [BEFORE] * 21
    second.persist(8, term=7)
    second.settle()
    assert second.heard() == []
    assert newest_meta(first.disk, folder(first)).installing is not None
    first.disk.free_space()
    second.stage.now_ns += 2_000_000_000
    second.settle()
    answers = [each.seq for each in second.heard() if isinstance(each, Persisted)]
    assert answers == [0, second.seq], "the mark is off before an entry is flushed"
    meta = newest_meta(first.disk, folder(first))
    assert (meta.installing, meta.term, meta.vote) == (None, 7, 2)
    assert len(LogReader(first.disk, folder(first)).read_body(21)) == 8
    second.close()


def test_s9_readers_give_up_what_was_removed_before_a_new_segment_needs_its_space(born):
    """A reader has every pair open, as egress does, and looks at what the generation says."""
    reader = LogReader(born.disk.view(lambda _ns: None), folder(born))
    for index in (1, 5, 9):
        reader.read_body(index)
    read_at = born.counter(Counter.MAP_GENERATION)
    born.disk.fill()
    seq = born.order_install(BEFORE)
    born.settle()
    assert Persisted(seq) not in born.heard()
    assert born.counter(Counter.MAP_GENERATION) > read_at
    reader.refresh()
    with pytest.raises(BelowLogStart):
        reader.row(9)
    born.stage.now_ns += 2_000_000_000
    born.settle()
    assert Persisted(seq) in born.heard()


def test_s9_a_disk_that_was_full_is_reported_with_the_room_of_the_new_segment(born, monkeypatch):
    """Raft counts what it appends, and knew the room of a segment that is gone."""
    left = []

    def refuse(what, path):
        if what == "allocate" and not left:
            raise DiskFull(f"{path}: no space left")
        if what == "allocate":
            left.pop()

    born.disk.on_call = refuse
    monkeypatch.undo()
    born.settle()
    (before,) = born.heard()
    assert before.is_full
    left += [1, 1]  # one pair
    seq = born.order_install(BEFORE)
    born.settle()
    *heard, after = born.heard()
    assert DiskFullChanged(False) in heard
    assert Persisted(seq) in heard
    assert after.is_full
    assert after.room_bytes > before.room_bytes
    assert after.room_entries > before.room_entries


def test_two_follow_each_other(born):
    first = born.order_install(BEFORE)
    born.settle()
    second = entry_elsewhere(40, 3)
    assert install(born, second) == [Persisted(first), Persisted(born.seq)]
    assert born.writer._folder.log.last == second


def test_recovery_after_it_hands_over_the_stamp_and_bytes_at_log_start(tmp_path):
    stage = three_pairs(tmp_path)
    install(stage)
    stage.persist(8, term=2)
    stage.settle()
    stage.close()
    [recovered] = started_again(stage, tmp_path).born
    assert (recovered.start_index, recovered.last_row.header.index) == (20, 21)
    assert recovered.start_bytes == BEFORE.header.cumulative_bytes
    assert recovered.start_timestamp_ns == BEFORE.header.timestamp_ns


def test_an_empty_log_begins_at_another_lsn(tmp_path):
    """SAFETY L4: a replica that joined heard of the wrong one."""
    stage = WriterStage(tmp_path)
    stage.bear()
    stage.heard()
    own = newest_meta(stage.disk, folder(stage)).log_start
    seq = stage.order_install(row_at_start(msgspec.structs.replace(own, next_lsn=41)))
    stage.settle()
    assert stage.heard() == [Persisted(seq)]
    stage.persist(8)
    stage.settle()
    reader = LogReader(stage.disk, folder(stage))
    assert reader.row(1).header.first_lsn == 41
    [recovered] = started_again(stage, tmp_path).born
    assert (recovered.start_index, recovered.start_next_lsn, recovered.damage) == (0, 41, "")
    assert recovered.last_row.header.index == 1


@pytest.mark.usefixtures("without_spare")
def test_a_crash_at_any_step_of_that_leaves_an_empty_log_that_begins_at_either_lsn(tmp_path):
    """SAFETY L4, G5a: at the old one before META has the mark, at the new one from there on."""
    stage = WriterStage(tmp_path)
    stage.bear()
    own = newest_meta(stage.disk, folder(stage)).log_start
    disks = []
    stage.disk.on_call = lambda *_: disks.append(stage.disk.copy())
    stage.order_install(row_at_start(msgspec.structs.replace(own, next_lsn=41)))
    stage.settle()
    stage.disk.on_call = None
    found = []
    for number, disk in enumerate(disks):
        stage.disk = disk
        (tmp_path / str(number)).mkdir()
        [recovered] = started_again(stage, tmp_path / str(number)).born
        assert (recovered.damage, recovered.start_index, recovered.last_row) == ("", 0, None)
        found.append(recovered.start_next_lsn)
    assert found == sorted(found, key=lambda lsn: lsn == 41)
    assert set(found) == {own.next_lsn, 41}
    stage.close()
