"""Simulated shared memory: late, in each writer's own order, and a bell as a barrier; flush workers
beside their process."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.world.machine import WORKER_START_NS, NodeClock, SimulatedWorker
from actors.simulation.world.process import ProcessKilled
from actors.simulation.world.rings import (
    CommandRingReceiver,
    CommandRingSender,
    LaggingSlots,
    OwnTimeSlots,
    SharedSlots,
    SimulatedBell,
    SimulatedCommandRing,
    StoreBuffer,
)
from actors.simulation.world.world import World
from tests.simulation.process_stage import MILLISECOND_NS, Clocked, OneProcess, as_job
from transport.command_ring import record_bytes
from transport.errors import MessageTooLarge

RING_BYTES = 4_096
DELAY_NS = 1_000_000


class OneRing:
    """A sender's clock, a receiver's clock and the ring between them."""

    def __init__(self, *, delay_ns: int, seed: int = 1) -> None:
        self.sender, self.receiver = Clocked(), Clocked()
        self.memory = StoreBuffer(self.sender, Random(seed), delay_ns)
        self.ring = SimulatedCommandRing(RING_BYTES)
        self.out = CommandRingSender(self.ring, self.memory)
        self.into = CommandRingReceiver(self.ring, self.receiver)
        self.bell = SimulatedBell(self.receiver, self.memory)

    def drained_at(self, at_ns: int, limit: int = 1_000) -> list[bytes]:
        self.receiver.local_now_ns = at_ns
        return self.into.drain(limit)


def numbered(count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(count)]


# --- command rings ---


@pytest.mark.parametrize("seed", range(20))
def test_stores_of_one_process_are_seen_in_the_order_they_were_made(seed: int) -> None:
    stage = OneRing(delay_ns=DELAY_NS, seed=seed)
    messages = numbered(50)
    for at_ns, message in enumerate(messages):
        stage.sender.local_now_ns = at_ns * 10_000
        assert stage.out.offer(message)
    seen: list[bytes] = []
    for at_ns in range(0, 50 * 10_000 + DELAY_NS + 1, 10_000):
        seen += stage.drained_at(at_ns)
        assert seen == messages[: len(seen)]
    assert seen == messages


def test_a_store_is_seen_late_by_less_than_the_delay() -> None:
    lates = []
    for seed in range(200):
        stage = OneRing(delay_ns=DELAY_NS, seed=seed)
        stage.out.offer(b"a")
        lates.append(stage.memory.visible_ns)
        assert stage.drained_at(stage.memory.visible_ns - 1) == []
        assert stage.drained_at(stage.memory.visible_ns) == [b"a"]
    assert max(lates) < DELAY_NS
    assert max(lates) - min(lates) > DELAY_NS // 2


def test_without_a_delay_a_store_is_seen_at_once() -> None:
    stage = OneRing(delay_ns=0)
    stage.out.offer(b"a")
    assert stage.drained_at(0) == [b"a"]


def test_a_bell_is_a_barrier() -> None:
    """The process that it wakes sees everything that was stored before it (SAFETY M7)."""
    for seed in range(50):
        stage = OneRing(delay_ns=DELAY_NS, seed=seed)
        for message in numbered(5):
            stage.out.offer(message)
        stage.bell.ring()
        (woken_ns,) = stage.receiver.woken_at
        assert stage.drained_at(woken_ns) == numbered(5)


def test_what_an_ended_sender_would_have_stored_later_was_never_stored() -> None:
    """FAULTS S1."""
    stage = OneRing(delay_ns=0)
    for at_ns in (10, 20, 30):
        stage.sender.local_now_ns = at_ns
        stage.out.offer(b"%04d" % at_ns)
    stage.ring.drop_after(20)
    assert stage.out.free_bytes() == RING_BYTES - 2 * record_bytes(4)
    assert stage.drained_at(30) == [b"0010", b"0020"]
    assert stage.out.free_bytes() == RING_BYTES


def test_a_full_ring_refuses_until_something_is_drained() -> None:
    stage = OneRing(delay_ns=0)
    sent = 0
    while stage.out.offer(b"x" * 100):
        sent += 1
    assert sent == RING_BYTES // record_bytes(100)
    assert stage.drained_at(0, limit=1) == [b"x" * 100]
    assert stage.out.offer(b"y" * 100)
    assert not stage.out.offer(b"y" * 100)


def test_a_message_that_never_fits_is_an_error() -> None:
    stage = OneRing(delay_ns=0)
    with pytest.raises(MessageTooLarge):
        stage.out.offer(b"x" * (stage.out.message_bytes_max + 1))


# --- slots ---


class TwoViews:
    """Two processes on the same slots. `one` is the writer in these tests."""

    def __init__(
        self, lagging: frozenset[int] | None, *, seed: int = 1, delay_ns: int = DELAY_NS
    ) -> None:
        self.clocks = Clocked(), Clocked()
        self.memory = StoreBuffer(self.clocks[0], Random(seed), delay_ns)
        shared = self.shared = SharedSlots([0] * 4)
        timed = frozenset((1,))
        self.one = LaggingSlots(shared, self.clocks[0], self.memory, lagging, timed)
        other = StoreBuffer(self.clocks[1], Random(seed + 1), delay_ns)
        self.other = LaggingSlots(shared, self.clocks[1], other, lagging)

    def pass_until(self, at_ns: int) -> None:
        for clock in self.clocks:
            clock.local_now_ns = at_ns


def test_a_process_reads_its_own_store_at_once_and_others_later() -> None:
    for seed in range(20):
        views = TwoViews(None, seed=seed)
        views.one[2] = 7
        assert views.one[2] == 7
        assert views.other[2] == 0
        views.pass_until(views.memory.visible_ns)
        assert views.other[2] == 7


def test_a_reader_whose_own_time_is_ahead_shows_the_others_nothing() -> None:
    views = TwoViews(None)
    views.one[2] = 7
    views.clocks[1].local_now_ns = views.memory.visible_ns
    assert views.other[2] == 7
    assert views.shared.seen(2, 0) == 0
    views.clocks[1].local_now_ns = 0
    assert views.other[2] == 0


def test_a_busy_writer_stores_at_its_own_time() -> None:
    """Its do_work began before: its last stores are not visible at its begin."""
    views = TwoViews(None, delay_ns=0)
    views.clocks[0].local_now_ns = 5_000
    views.one[2] = 7
    assert (views.one[2], views.other[2], views.shared.seen(2, 4_999)) == (7, 0, 0)
    views.clocks[1].local_now_ns = 5_000
    assert (views.other[2], views.shared.seen(2, 5_000)) == (7, 7)


def test_stores_to_one_slot_are_seen_one_after_the_other() -> None:
    views = TwoViews(None)
    visible_ns = []
    for value in (1, 2, 3):
        views.one[0] = value
        visible_ns.append(views.memory.visible_ns)
    values = []
    for at_ns in range(0, DELAY_NS, 1_000):
        views.pass_until(at_ns)
        values.append(views.other[0])
    assert values == sorted(values)
    assert views.one[0] == values[-1] == 3
    assert visible_ns == sorted(visible_ns)


def test_slots_of_one_process_are_seen_in_the_order_they_were_stored() -> None:
    """x86: a process that sees the later store sees the earlier one, too, in any slots."""
    for seed in range(50):
        views = TwoViews(None, seed=seed)
        views.one[0] = 1
        views.one[1] = 1
        for at_ns in range(0, DELAY_NS, 20_000):
            views.pass_until(at_ns)
            later, earlier = views.other[1], views.other[0]
            assert earlier >= later


def test_a_slot_that_does_not_lag_is_seen_at_once() -> None:
    views = TwoViews(frozenset({1}))
    views.one[0], views.one[1] = 5, 6
    assert (views.other[0], views.other[1]) == (5, 0)


# --- flush workers ---


def worker_of(stage: OneProcess) -> SimulatedWorker:
    return SimulatedWorker("raft", stage.process, stage.process.wake)


def test_jobs_of_a_worker_run_in_order_beside_their_process() -> None:
    stage = OneProcess()
    worker = worker_of(stage)
    begun: list[tuple[str, int]] = []

    def job(name: str, cost_ns: int) -> None:
        begun.append((name, stage.world.now_ns))
        stage.process.charge(cost_ns)

    start_ns = stage.world.now_ns
    worker.start(as_job(lambda: job("first", 3 * MILLISECOND_NS)))
    worker.start(as_job(lambda: job("second", MILLISECOND_NS)))
    assert worker.is_busy
    stage.world.run_until(start_ns + 2 * MILLISECOND_NS)
    assert worker.is_busy
    assert stage.process.local_now_ns == stage.world.now_ns  # the actor itself is free
    stage.world.run_until(start_ns + 10 * MILLISECOND_NS)
    assert not worker.is_busy
    first_ns = start_ns + WORKER_START_NS
    assert begun == [("first", first_ns), ("second", first_ns + 3 * MILLISECOND_NS)]


def test_the_end_of_a_job_wakes_its_process() -> None:
    stage = OneProcess()
    start_ns = stage.world.now_ns
    worker_of(stage).start(as_job(lambda: stage.process.charge(MILLISECOND_NS)))
    stage.world.run_until(start_ns + 5 * MILLISECOND_NS)
    assert stage.runs == [start_ns + WORKER_START_NS + MILLISECOND_NS]


def test_waiting_for_a_worker_takes_as_long_as_its_jobs() -> None:
    stage = OneProcess()
    worker = worker_of(stage)
    worker.start(as_job(lambda: stage.process.charge(MILLISECOND_NS)))
    worker.wait()
    assert stage.process.busy_ns == WORKER_START_NS + MILLISECOND_NS


def test_an_error_of_a_job_is_raised_once_and_no_job_follows_it() -> None:
    stage = OneProcess()
    worker = worker_of(stage)
    ran = []

    def fail() -> None:
        raise OSError("flush failed")

    worker.start(as_job(fail))
    worker.start(as_job(lambda: ran.append("after")))
    stage.world.run_until(stage.world.now_ns + MILLISECOND_NS)
    with pytest.raises(OSError, match="flush failed"):
        worker.check()
    worker.check()
    assert ran == []


def test_the_error_of_a_job_is_not_known_before_the_call_that_fails_has_ended() -> None:
    """What it wrote lies ahead of the world. A process that followed it there read of a META copy
    what the flush that failed had not yet been given."""
    stage = OneProcess()
    worker = worker_of(stage)

    def fail_slowly() -> None:
        stage.process.charge(5 * MILLISECOND_NS)
        raise OSError("flush failed")

    worker.start(as_job(fail_slowly))
    stage.world.run_until(stage.world.now_ns + 2 * MILLISECOND_NS)
    worker.check()
    stage.world.run_until(stage.world.now_ns + 4 * MILLISECOND_NS)
    with pytest.raises(OSError, match="flush failed"):
        worker.check()


def test_killed_in_a_slow_flush_the_process_dies_at_its_end() -> None:
    stage = OneProcess()

    def die() -> None:
        stage.process.charge(5 * MILLISECOND_NS)
        raise ProcessKilled("before flush")

    worker_of(stage).start(as_job(die))
    stage.world.run_until(stage.world.now_ns + 2 * MILLISECOND_NS)
    assert stage.supervisor.deaths == []
    stage.world.run_until(stage.world.now_ns + 4 * MILLISECOND_NS)
    assert stage.supervisor.deaths == ["killed in a flush thread"]


def test_killed_in_a_flush_thread_the_whole_process_dies() -> None:
    stage = OneProcess()
    ran = []

    def die() -> None:
        raise ProcessKilled("before flush")

    worker = worker_of(stage)
    worker.start(as_job(die))
    worker.start(as_job(lambda: ran.append("after")))
    stage.world.run_until(stage.world.now_ns + MILLISECOND_NS)
    assert stage.supervisor.deaths == ["killed in a flush thread"]
    assert ran == []


def test_a_paused_process_flushes_nothing() -> None:
    stage = OneProcess()
    ran = []
    start_ns = stage.world.now_ns
    stage.process.pause(10 * MILLISECOND_NS)
    worker_of(stage).start(as_job(lambda: ran.append(stage.world.now_ns)))
    stage.world.run_until(start_ns + 20 * MILLISECOND_NS)
    assert ran == [start_ns + 10 * MILLISECOND_NS]


# --- clocks ---


def test_a_clock_has_offset_drift_and_jumps() -> None:
    """FAULTS T1, T2."""
    world = World(Random(1))
    even = NodeClock(world, drift_ppm=0, offset_ns=0)
    odd = NodeClock(world, drift_ppm=200, offset_ns=-5_000)
    assert odd.wall_ns() - even.wall_ns() == -5_000
    assert odd.monotonic_ns() == even.monotonic_ns()
    second_ns = 1_000_000_000
    world.run_until(second_ns)
    assert odd.monotonic_ns() - even.monotonic_ns() == 200_000
    odd.jump_wall(-second_ns)
    assert odd.wall_ns() - even.wall_ns() == -5_000 + 200_000 - second_ns
    odd.jump_monotonic(second_ns)
    assert odd.monotonic_ns() - even.monotonic_ns() == 200_000 + second_ns


def test_a_monotonic_clock_never_goes_back() -> None:
    clock = NodeClock(World(Random(1)), drift_ppm=0, offset_ns=0)
    before_ns = clock.monotonic_ns()
    clock.jump_monotonic(-1_000)
    assert clock.monotonic_ns() == before_ns


def test_events_of_one_moment_come_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[int]:
        world = World(Random(seed))
        ran: list[int] = []
        for number in range(10):
            world.at(5, ran.append, number)
        world.run_until(6)
        return ran

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(10))


def test_slots_of_a_slow_process_are_seen_when_it_has_come_so_far() -> None:
    stage = OneProcess()
    values = [0, 0, 0]
    slots = OwnTimeSlots(values, stage.process, frozenset((0, 1)))
    start_ns = stage.world.now_ns
    stage.process.charge(MILLISECOND_NS)
    slots[0] += 1
    slots[2] = 9
    stage.process.charge(MILLISECOND_NS)
    slots[0] += 1
    slots[1] = 7
    assert [slots[0], slots[1], slots[2]] == [2, 7, 9]
    assert values == [0, 0, 9]
    stage.world.run_until(start_ns + MILLISECOND_NS + 1)
    assert values == [1, 0, 9]
    stage.world.run_until(start_ns + 2 * MILLISECOND_NS + 1)
    assert values == [2, 7, 9]


def test_a_thread_sees_what_another_of_its_process_stores_ahead_when_it_has_come_so_far() -> None:
    """A flush worker has stored 3 at 2 ms of its time, while its process is at 0 (seed
    108554532)."""
    stage = OneProcess()
    values = [0, 0]
    slots = OwnTimeSlots(values, stage.process, frozenset((0, 1)))
    stage.process.charge(2 * MILLISECOND_NS)
    slots[0] = 3
    assert slots[0] == 3
    stage.process.charge(-2 * MILLISECOND_NS)
    assert [slots[0], slots[1]] == [0, 0]
    slots[0] += 1  # by a thread that is behind: no rise is lost
    stage.process.charge(2 * MILLISECOND_NS)
    assert slots[0] == 4
    stage.world.run_until(stage.world.now_ns + 2 * MILLISECOND_NS + 1)
    assert values == [4, 0]


def test_a_thread_of_a_lagging_process_sees_timed_slots_at_its_own_time() -> None:
    views = TwoViews(None, delay_ns=0)
    views.clocks[0].local_now_ns = 5_000
    views.one[1] = 3
    views.one[2] = 3
    assert [views.one[1], views.one[2]] == [3, 3]
    views.clocks[0].local_now_ns = 1_000
    assert [views.one[1], views.one[2]] == [0, 3]
    views.one[1] += 1
    views.clocks[0].local_now_ns = 5_000
    assert views.one[1] == 4
    assert views.other[1] == 0
    views.pass_until(5_000)
    assert views.other[1] == 4


def test_slots_that_an_ended_process_would_have_stored_are_never_seen() -> None:
    stage = OneProcess()
    values = [0]
    slots = OwnTimeSlots(values, stage.process, frozenset((0,)))
    stage.process.charge(MILLISECOND_NS)
    slots[0] = 5
    stage.process.kill()
    stage.world.run_until(stage.world.now_ns + 2 * MILLISECOND_NS)
    assert values == [0]
