"""The writer: order of flushes, group commit, truncation, a full disk, failing flushes, META."""

from __future__ import annotations

from random import Random
from threading import Event

import pytest

from actors.messages import (
    CreateLog,
    FaultyRange,
    ForgottenSaved,
    InitSaved,
    LogRecovered,
    SaveForgotten,
    SaveStart,
    StartSaved,
)
from actors.topology import Counter
from actors.writer.log_work import FULL, NO_LONGER_FULL
from logstore.errors import DiskFull, WriteFailed
from logstore.format.meta import Forgotten, ForgottenWhat
from logstore.format.peer_starts import PeerStart
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, FileRole
from logstore.limits import SECTOR_BYTES
from logstore.model import FIRST_LSN, ReplicaState
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import SaveLevel, SaveMeta
from logstore.raft.events import DiskFullChanged, MetaPersisted, Persisted
from logstore.storage.log_reader import LogReader
from logstore.storage.meta_store import newest_meta
from logstore.storage.segment import segment_name
from tests.crash.storage_trial import CLUSTER
from tests.unit.writer_stage import HeldCalls, WriterStage


@pytest.fixture
def born(tmp_path):
    stage = WriterStage(tmp_path)
    stage.bear()
    yield stage
    stage.close()


def watch(stage):
    """Every answer to raft, with WRITTEN and MAP_GENERATION as they were when it was given."""
    seen = []
    send = stage.writer._to_raft.send

    def note(message):
        seen.append(
            (message, stage.counter(Counter.WRITTEN), stage.counter(Counter.MAP_GENERATION))
        )
        send(message)

    stage.writer._to_raft.send = note
    return seen


def test_a_bootstrap_is_answered_step_by_step_and_ends_with_an_empty_log(born):
    recovered, starting, voter, newborn = born.born
    assert isinstance(recovered, LogRecovered)
    assert (recovered.state, recovered.damage) == (ReplicaState.EMPTY, "")
    assert (starting, voter) == (InitSaved(1), InitSaved(2))
    assert (newborn.state, newborn.last_row, newborn.persisted) == (ReplicaState.VOTER, None, 0)


def test_a_replica_that_joins_has_an_empty_log_now_and_after_a_start(tmp_path):
    stage = WriterStage(tmp_path)
    stage.start()
    stage.tell(SaveInit(1, ReplicaState.LEARNER, 5, CLUSTER, FIRST_LSN), CreateLog(CLUSTER))
    stage.settle()
    saved, newborn = stage.heard()
    assert saved == InitSaved(1)
    assert (newborn.state, newborn.last_row) == (ReplicaState.LEARNER, None)
    stage.close()
    stage.disk.kill_process()
    meta = newest_meta(stage.disk, stage.writer._folder._station.folder)
    assert (meta.state, meta.cluster_id) == (ReplicaState.LEARNER, CLUSTER)


def test_a_replica_that_must_not_go_on_says_why_and_opens_nothing(tmp_path):
    """SAFETY L6: an incarnation before found out."""
    stage = WriterStage(tmp_path, damage="nothing is left of entry 3")
    stage.start()
    (told,) = stage.born
    assert (told.state, told.last_row) == (ReplicaState.EMPTY, None)
    assert told.damage.startswith(
        "nothing is left of entry 3. It serves nothing, and neither votes"
    )
    assert "`logstore reset --node 1` moves its folder aside" in told.damage
    assert stage.disk.list_folder(stage.writer._folder._station.folder) == []
    stage.close()


def new_born(tmp_path):
    stage = WriterStage(tmp_path)
    stage.bear()
    return stage


def after_a_power_cut(born, tmp_path):
    born.close()
    born.disk.kill_process()
    born.disk.power_cut(Random(1), garble=False)
    stage = WriterStage(tmp_path, disk=born.disk)
    stage.start()
    return stage


def test_starts_of_peers_are_durable_before_they_are_answered(tmp_path):
    """SAFETY L7."""
    born = new_born(tmp_path)
    first, second = PeerStart(b"p" * 16, 3, 33), PeerStart(b"q" * 16, 1, 11)
    born.tell(SaveStart(first, (first,)))
    born.settle()
    born.tell(SaveStart(second, (first, second)))
    born.settle()
    assert born.heard() == [StartSaved(first), StartSaved(second)]
    stage = after_a_power_cut(born, tmp_path)
    assert stage.born[0].starts == (first, second)
    assert stage.born[0].damage == ""
    stage.close()


def test_a_start_is_not_answered_where_there_is_no_space(born):
    born.disk.fill()
    start = PeerStart(b"p" * 16, 3, 33)
    born.tell(SaveStart(start, (start,)))
    born.settle()
    assert [each for each in born.heard() if isinstance(each, StartSaved)] == []


@pytest.mark.parametrize("what", ForgottenWhat)
def test_a_replica_that_has_forgotten_something_says_so_at_every_start(tmp_path, what):
    """SAFETY L6, L7: whatever happens between, and no start is counted any more."""
    born = new_born(tmp_path)
    forgotten = Forgotten(what, 3, 1, 5)
    born.tell(SaveForgotten(forgotten))
    born.settle()
    assert born.heard() == [ForgottenSaved(forgotten)]
    for _ in range(2):
        born = after_a_power_cut(born, tmp_path)
        (told,) = born.born
        assert told.state == ReplicaState.EMPTY
        assert told.damage.startswith("amnesia: ")
        assert "`logstore reset --node 1` moves its folder aside" in told.damage
        assert born.counter(Counter.FLUSHED_LOST) == 4 * (what == ForgottenWhat.ENTRIES)
    meta = newest_meta(born.disk, born.writer._folder._station.folder)
    assert (meta.forgotten, meta.boot_counter) == (forgotten, 1)
    born.close()


def test_both_copies_of_meta_lost_beside_a_log_are_reported_as_damage(tmp_path):
    """SAFETY L1: such a replica may have voted."""
    first = WriterStage(tmp_path)
    first.bear()
    first.close()
    second = WriterStage(tmp_path)
    second.disk = first.disk
    second.writer._folder._disk = first.disk
    first.disk.kill_process()
    for name in ("meta.a", "meta.b"):
        first.disk.damage(f"{first.writer._folder._station.folder}/{name}", 0, b"rot")
    second.start()
    [recovered] = second.born
    assert "meta.a and meta.b" in recovered.damage
    second.close()


def test_f1_one_entry_is_framed_flushed_recorded_flushed_and_then_answered(born):
    calls = []
    born.disk.on_call = lambda what, path: calls.append(f"{what} {path[-4:]}")
    seen = watch(born)
    born.persist(96)
    born.settle()
    assert calls == ["write data", "flush data", "write raft", "flush raft"]
    assert seen == [(Persisted(1), 1, born.counter(Counter.MAP_GENERATION))]


def test_everything_that_waits_is_one_group_with_one_answer(born):
    calls = []
    born.disk.on_call = lambda what, path: calls.append(f"{what} {path[-4:]}")
    born.persist(*[200] * 50)
    born.settle()
    assert len(calls) == 4
    assert born.heard() == [Persisted(50)]


def test_a_group_never_outgrows_a_segment_however_much_waits(born):
    """SAFETY S6: 300 entries are more than 256 records, 9 x 60 KiB more than 256 KiB."""
    born.persist(*[8] * 300)
    born.settle()
    born.persist(*[60 << 10] * 9)
    born.settle()
    assert born.heard()[-1] == Persisted(309)
    reader = LogReader(born.disk, born.writer._folder._station.folder)
    assert [reader.row(index) for index in (1, 300, 309)] == [
        born.rows[index] for index in (1, 300, 309)
    ]


def test_an_entry_of_a_peer_that_is_larger_than_a_segment_is_written_all_the_same(born):
    """A batch_max that was lowered, or is another one there, is no limit of what is replicated."""
    born.persist(8, 300 << 10, 8)
    born.settle()
    assert born.heard()[-1] == Persisted(3)
    reader = LogReader(born.disk, born.writer._folder._station.folder)
    assert [reader.row(index) for index in (1, 2, 3)] == born.rows[1:]
    assert len(reader.read_body(2)) == 300 << 10


def test_v7_the_map_generation_has_grown_before_a_roll_or_truncation_is_answered(born):
    born.persist(60 << 10, 60 << 10, 60 << 10)
    born.settle()
    before = born.counter(Counter.MAP_GENERATION)
    seen = watch(born)
    born.persist(60 << 10, 60 << 10)
    born.settle()
    assert seen[0][1:] == (5, before + 1)
    born.truncate(5)
    born.settle()
    assert seen[-1] == (Persisted(6), 6, before + 2)


def test_f6_a_truncation_waits_until_every_earlier_flush_has_ended(born):
    calls = []
    born.persist(60 << 10)
    born.writer.do_work(born.stage.now_ns)
    born.persist(*[60 << 10] * 2)  # two groups: the first one's records flush in the worker
    born.disk.on_call = lambda what, path: calls.append(what)
    born.truncate(3)
    born.settle()
    assert calls.index("sync_folder") > [i for i, what in enumerate(calls) if what == "flush"][1]
    assert born.heard() == [Persisted(1), Persisted(3), Persisted(4)]


def sorted_by_worker(stage):
    """What raft heard: the log's answers first, META's, then the disk's."""
    workers = (Persisted, MetaPersisted, DiskFullChanged)
    return sorted(stage.heard(), key=lambda message: workers.index(type(message)))


def fill(stage):
    """No space for another pair; what was prepared before is there."""

    def refuse(what, path):
        if what == "allocate":
            raise DiskFull(f"{path}: no space left")

    stage.disk.on_call = refuse


def empty(stage):
    """Space again, and the time to look for it has come."""
    stage.disk.on_call = None
    stage.stage.now_ns = stage.writer.next_timer_ns()


def test_a_full_disk_keeps_the_queue_is_reported_and_ends_when_space_appears(born, caplog):
    """SAFETY S9: a state, not a failure. A roll takes the spare, the next one finds no space."""
    fill(born)
    born.persist(*[60 << 10] * 5)
    born.settle()
    born.stage.now_ns = born.writer.next_timer_ns()
    born.settle()
    # the news of the disk comes from another worker: its place among the others is open
    rolled = [Persisted(2), Persisted(4), Persisted(5)]
    assert sorted_by_worker(born) == [*rolled, DiskFullChanged(True, 196_480, 255, seq=5)]
    born.persist(*[60 << 10] * 4)
    born.tell(SaveMeta(1, 2, 1))
    born.settle()
    assert sorted_by_worker(born) == [Persisted(7), MetaPersisted(1)]
    assert born.counter(Counter.DISK_FULL) == 1
    assert not born.stage.is_busy_loop(born.writer)
    assert [each.message for each in caplog.records] == [FULL], "a follower says so, too"
    empty(born)
    born.settle()
    assert sorted_by_worker(born) == [Persisted(9), DiskFullChanged(False)]
    assert born.counter(Counter.DISK_FULL) == 0
    assert [each.message for each in caplog.records] == [FULL, NO_LONGER_FULL]
    reader = LogReader(born.disk, born.writer._folder._station.folder)
    assert [reader.row(index) for index in range(1, 10)] == born.rows[1:]


def test_s9_a_group_that_is_being_written_takes_its_room(born):
    """The report of a full disk comes amid it, as in mode `single`, where the writer's thread goes
    on meanwhile."""
    allocates, writes = Event(), Event()
    has_begun = Event()

    def wait(what, path):
        if what == "allocate":
            allocates.wait(30)
            raise DiskFull(path)
        if what == "write" and path.endswith(".data") and born.seq > 5:
            has_begun.set()
            writes.wait(30)

    born.disk.on_call = wait
    born.persist(*[60 << 10] * 5)  # rolls, and the next spare is under way
    data_worker = born.writer._work._data_worker
    while Persisted(5) not in born.heard():
        born.work()
        data_worker.wait()
    orders = born.persist(8, 60 << 10)
    born.work()
    assert has_begun.wait(30)
    allocates.set()
    born.writer._work._spare_worker.wait()
    born.work()
    [report] = [each for each in born.heard() if isinstance(each, DiskFullChanged)]
    writes.set()
    born.settle()
    room_bytes, room_entries = born.writer._folder.log.room()
    assert report.seq == orders[-1].seq
    assert report.room_entries == room_entries
    assert room_bytes - SECTOR_BYTES <= report.room_bytes <= room_bytes


def test_an_entry_larger_than_a_segment_waits_for_space_while_there_is_some_for_segments(born):
    """A spare is no reason to try again at once: it does not hold the entry either."""
    allocated, refused = [], []

    def refuse_to_grow(what, path):
        if what == "allocate" and path in allocated:
            refused.append(path)
            raise DiskFull(f"{path}: no space left")
        if what == "allocate":
            allocated.append(path)

    born.persist(8)
    born.settle()
    folder = born.writer._folder._station.folder
    allocated += [f"{folder}/{each}" for each in born.disk.list_folder(folder)]
    born.disk.on_call = refuse_to_grow
    born.persist(600 << 10, 8)
    for _ in range(3):
        born.settle()
        born.stage.now_ns = born.writer.next_timer_ns()
    born.settle()
    assert not born.stage.is_busy_loop(born.writer)
    assert len(refused) <= 4
    assert sorted_by_worker(born)[-1] == DiskFullChanged(True, room_entries=254, seq=3)
    empty(born)
    born.settle()
    assert sorted_by_worker(born) == [Persisted(2), Persisted(3), DiskFullChanged(False)]


def test_a_truncation_without_space_stays_queued_before_what_follows_it(born):
    fill(born)
    born.persist(8, 8, 8)
    born.truncate(3)
    born.truncate(2)
    born.persist(8, term=2)
    born.settle()
    assert sorted_by_worker(born) == [Persisted(3), Persisted(4), DiskFullChanged(True)]
    empty(born)
    born.settle()
    assert sorted_by_worker(born) == [Persisted(5), Persisted(6), DiskFullChanged(False)]


def save_to_the_end(stage):
    meta_worker = stage.writer._meta_worker
    stage.writer.do_work(stage.stage.now_ns)
    meta_worker.close()
    meta_worker.check()


def test_s11_the_level_is_saved_in_meta_and_neither_falls_nor_is_lost_with_a_vote(born):
    born.tell(SaveLevel(3), SaveMeta(1, 2, 1), SaveLevel(2))
    save_to_the_end(born)
    assert born.heard() == [MetaPersisted(1)]
    meta = newest_meta(born.disk, born.writer._folder._station.folder)
    assert (meta.level, meta.term, meta.vote) == (3, 2, 1)


def test_that_the_log_has_had_a_config_is_saved_in_meta_and_never_taken_back(born):
    born.tell(SaveLevel(4, has_config=True), SaveMeta(1, 2, 1), SaveLevel(4))
    born.settle()
    meta = newest_meta(born.disk, born.writer._folder._station.folder)
    assert (meta.level, meta.has_config, meta.term, meta.vote) == (4, True, 2, 1)
    generation = meta.generation
    born.tell(SaveLevel(4, has_config=True))
    born.settle()
    assert newest_meta(born.disk, born.writer._folder._station.folder).generation == generation


def test_f5_a_failed_flush_in_a_worker_ends_the_process_and_answers_nothing(born):
    born.disk.fail_next("flush", "meta.a")
    born.tell(SaveMeta(1, 2, 1), SaveMeta(2, 3, 1))
    with pytest.raises(WriteFailed):
        save_to_the_end(born)
    assert born.heard() == []
    assert born.stage.bells["writer"].is_ringing


def test_f5_a_failed_records_flush_is_raised_by_the_next_do_work(born):
    born.persist(60 << 10, 60 << 10)
    born.disk.fail_next("flush", ".raft")
    with pytest.raises(WriteFailed):
        born.settle()
    assert born.heard() == []


def test_a_vote_that_comes_while_another_is_saved_holds_up_nothing(born):
    """SAFETY S8: META has its own worker, and the log does not wait for it either."""
    go = Event()
    born.disk.on_call = lambda what, path: path.endswith("meta.a") and go.wait(30)
    born.tell(SaveMeta(1, 2, 1), SaveMeta(2, 3, 1))
    born.persist(96)
    born.writer.do_work(born.stage.now_ns)
    for worker in born.writer._work.workers:
        worker.wait()
    assert born.heard() == [Persisted(1)]
    go.set()
    born.settle()
    assert born.heard() == [MetaPersisted(1), MetaPersisted(2)]


@pytest.mark.parametrize("slow", [".data", ".raft"])
def test_s8_a_vote_that_comes_during_a_flush_of_the_log_waits_for_none(born, slow):
    held = HeldCalls(born.disk, "flush", slow)
    born.persist(96)
    born.writer.do_work(born.stage.now_ns)
    held.wait_until_begun()
    born.tell(SaveMeta(1, 2, 1))
    born.writer.do_work(born.stage.now_ns)
    born.writer._meta_worker.wait()
    assert born.heard() == [MetaPersisted(1)]
    held.release()
    born.settle()
    assert born.heard() == [Persisted(1)]


def test_s8_a_vote_that_comes_during_a_truncation_does_not_wait_for_it(born):
    born.persist(8, 8)
    born.settle()
    go = Event()
    born.disk.on_call = lambda what, path: path.endswith((".data", ".raft")) and go.wait(30)
    born.truncate(2)
    born.tell(SaveMeta(1, 2, 1))
    born.writer.do_work(born.stage.now_ns)
    born.writer._meta_worker.wait()
    assert born.heard() == [Persisted(2), MetaPersisted(1)]
    go.set()
    born.settle()
    assert born.heard() == [Persisted(3)]


def test_a_spare_that_takes_long_to_allocate_makes_no_busy_loop(born):
    go = Event()
    born.disk.on_call = lambda what, path: what == "allocate" and go.wait(30)
    born.truncate(1)  # uses up the spare, so the next one is prepared
    born.work()
    born.stage.now_ns += 5_000_000_000
    assert not born.stage.is_busy_loop(born.writer)
    go.set()
    born.settle()
    assert not born.writer._folder.log.needs_spare


def test_s9_the_next_spare_is_prepared_at_once_however_soon_the_last_one_was_used_up(born):
    """Else a log that rolls within a second finds its disk full when nothing has room any more."""
    for _ in range(2):
        born.persist(8)
        born.truncate(1)  # uses up the spare; no time passes
        born.settle()
        assert not born.writer._folder.log.needs_spare


def test_damage_found_at_start_is_reported_with_its_lsns(tmp_path):
    """SAFETY Q1: raft's loop reads no disk for a status."""
    first = WriterStage(tmp_path)
    first.bear()
    for _ in range(3):
        first.persist(304)  # a group each: its frame takes a sector
        first.settle()
    first.close()
    first.disk.kill_process()
    second = WriterStage(tmp_path, disk=first.disk)
    folder = first.writer._folder._station.folder
    second_frame = SEGMENT_HEADER_SIZE // SECTOR_BYTES + 1
    first.disk.damage(f"{folder}/{segment_name(1, FileRole.DATA)}", second_frame, b"rot")
    second.start()
    [recovered] = second.born
    assert recovered.faulty == (FaultyRange(2, 2, 2, 2),)
    second.close()
