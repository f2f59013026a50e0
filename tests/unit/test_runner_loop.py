"""The loop around actors: parking, wake-ups, timers, the lifeline, who is closed when."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from actors import runner
from actors.loop_usage import USAGE, LoopUsage
from actors.runner import EXIT_ORPHANED, StopFlag, refuse_optimised_python, run
from logstore.limits import PARK_MAX_MS
from transport.doorbell import Doorbell
from transport.poller import Poller

MS = 1_000_000


class StubActor:
    """Does what its script says: each step is called and gives the work done."""

    full_turn = 2

    def __init__(self, *steps, timer_ns=1 << 62, calls=None):
        self.steps = list(steps)
        self.timer_ns = timer_ns
        self.calls = [] if calls is None else calls
        self.looks = 0

    def on_start(self):
        self.calls.append("start")

    def do_work(self, now_ns):
        self.looks += 1
        return self.steps.pop(0)() if self.steps else 0

    def wait_on(self):
        return ()

    def next_timer_ns(self):
        return self.timer_ns

    def on_close(self):
        self.calls.append("close")


class Parks(Poller):
    """Notes how long the loop would park, and parks no longer than it must."""

    def __init__(self):
        super().__init__()
        self.timeouts = []
        Parks.last = self

    def wait(self, items, timeout_ms):
        ready = super().wait(items, 0)
        self.timeouts.append((timeout_ms, len(ready)))
        return ready


@pytest.fixture
def bell():
    bell = Doorbell.create()
    yield bell
    bell.close()


@pytest.fixture
def parks(monkeypatch):
    monkeypatch.setattr(runner, "Poller", Parks)


@pytest.fixture
def standing_clock(monkeypatch):
    """No time passes between the begin of a turn and its end."""
    clocks = SimpleNamespace(monotonic_ns=lambda: 10**15, process_time_ns=lambda: 0)
    monkeypatch.setattr(runner, "time", clocks)


def make_usage():
    return LoopUsage([0] * len(USAGE), lambda name: USAGE.index(name.split(".")[1]), "raft")


def run_loops(actors, bells, loops, *, lifeline=None, spin=False, usage=None):
    """`bells`: of each actor, or the one of all but those that have a silent one."""
    left = iter(range(loops))
    made = [Doorbell.create() for _ in actors[1:]] if isinstance(bells, Doorbell) else []
    bells = [bells, *made] if isinstance(bells, Doorbell) else bells
    run(
        actors, bells, count_loop=lambda: None, usage=usage or make_usage(),
        stop=lambda: next(left, None) is None, lifeline=lifeline, spin=spin,
    )  # fmt: skip


def ring(bell):
    """From another process."""
    os.eventfd_write(bell.fileno(), 1)


def test_m7_what_rings_while_an_actor_works_is_not_slept_through(bell, parks, standing_clock):
    actor = StubActor(lambda: ring(bell) or 0)
    run_loops([actor], bell, 2)
    assert Parks.last.timeouts == [(PARK_MAX_MS, 1), (PARK_MAX_MS, 0)]


def test_m7_a_bell_is_cleared_before_its_actor_works(bell, parks):
    """What is published while it works rings a bell that is silent."""
    seen = []
    actor = StubActor(lambda: ring(bell) or 0, lambda: seen.append(Poller().wait([bell], 0)) or 0)
    run_loops([actor], bell, 2)
    assert seen == [[]]


def test_m7_after_a_full_turn_the_actor_works_again_before_the_loop_parks(
    bell, parks, standing_clock
):
    actor = StubActor(lambda: 2, lambda: 3, lambda: 1)
    run_loops([actor], bell, 3)
    assert [timeout for timeout, _ in Parks.last.timeouts] == [0, 0, PARK_MAX_MS]


def test_an_actor_works_when_its_own_bell_rings_and_the_others_rest(parks):
    bells = [Doorbell.create(), Doorbell.create()]
    first, second = StubActor(lambda: 0, lambda: ring(bells[1]) or 0), StubActor()
    bells[0].ring()
    run_loops([first, second], bells, 3)
    assert (first.looks, second.looks) == (2, 2), "each at the start, and once for its bell"
    for each in bells:
        each.close()


def test_what_an_actor_rings_in_its_own_loop_is_answered_in_the_same_turn(parks):
    """Without a system call, and whatever their order."""
    bells = [Doorbell.create(), Doorbell.create()]
    first = StubActor(lambda: bells[1].ring() or 0, lambda: bells[1].ring() or 0)
    second = StubActor(lambda: bells[0].ring() or 0)
    run_loops([first, second], bells, 1)
    assert (first.looks, second.looks, len(Parks.last.timeouts)) == (2, 2, 1)
    for each in bells:
        each.close()


def test_two_actors_that_answer_each_other_for_ever_keep_nobody_waiting(bell, parks):
    """The loop still polls the other bells and the sockets, without parking."""
    bells = [bell, Doorbell.create()]
    actors = [StubActor(*[lambda other=other: other.ring() or 0] * 99) for other in bells[::-1]]
    run_loops(actors, bells, 3)
    assert [timeout for timeout, _ in Parks.last.timeouts] == [0, 0, 0]
    bells[1].close()


def test_an_actor_works_when_its_socket_can_be_read_and_the_others_rest(bell, parks):
    first, second = Listening(), StubActor()
    run_loops([first, second], bell, 4)
    assert (first.looks, second.looks) == (4, 1)


def test_a_loop_that_spins_never_parks(bell, parks):
    """It still sees its bell."""
    actor = StubActor(lambda: ring(bell) or 0)
    run_loops([actor], bell, 10, spin=True)
    assert {timeout for timeout, _ in Parks.last.timeouts} == {0}
    assert actor.looks == 2


def test_a_signal_ends_the_park_of_a_loop(bell):
    stop = StopFlag()
    stop.wake(bell)
    stop.set()
    assert Poller().wait([bell], 0) == [bell]


@pytest.mark.parametrize(
    ("in_ns", "timeout_ms"),
    [(-5 * MS, 0), (1, 1), (3 * MS, 3), (3 * MS + 1, 4), (10**12, PARK_MAX_MS)],
)
def test_a_park_ends_at_the_next_timer_rounded_up_and_never_lasts_long(
    bell, parks, standing_clock, in_ns, timeout_ms
):
    run_loops([StubActor(), StubActor(timer_ns=10**15 + in_ns)], bell, 1)
    assert Parks.last.timeouts[0][0] == timeout_ms


@pytest.mark.parametrize(("work", "spin"), [(0, False), (2, False), (0, True)])
def test_m3_a_process_without_its_parent_ends_busy_or_not(bell, monkeypatch, work, spin):
    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", leave)
    lifeline, parents_end = os.pipe()
    actor = StubActor(*[lambda: work] * 9)
    if work or spin:  # parked, the loop would wait for its time
        run_loops([actor], bell, 3, lifeline=lifeline, spin=spin)
    os.close(parents_end)
    with pytest.raises(SystemExit) as ended:
        run_loops([actor], bell, 3, lifeline=lifeline, spin=spin)
    assert ended.value.code == EXIT_ORPHANED
    os.close(lifeline)


def fail():
    raise ValueError("broken")


def test_every_actor_that_was_started_is_closed_whatever_fails(bell):
    """FAULTS P23: what fails ends the process."""
    calls = []
    actors = [StubActor(calls=calls), StubActor(fail, calls=calls)]
    actors[1].on_close = fail
    with pytest.raises(ValueError, match="broken"):
        run_loops(actors, bell, 1)
    assert calls == ["start", "start", "close"]


def test_an_actor_that_cannot_start_closes_those_before_it_and_none_works(bell):
    first, second = StubActor(), StubActor()
    second.on_start = fail
    with pytest.raises(ValueError, match="broken"):
        run_loops([first, second], bell, 1)
    assert (first.calls, first.looks, second.calls) == (["start", "close"], 0, [])


def test_a_stop_flag_is_set_by_a_signal_handler_call():
    flag = StopFlag()
    assert not flag.is_set
    flag.set(15, None)
    assert flag.is_set


def test_optimised_python_is_refused(monkeypatch):
    """FAULTS O6."""
    monkeypatch.setattr(runner, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    with pytest.raises(SystemExit, match="without -O"):
        refuse_optimised_python()


# --- what a loop costs ---


class Clocks:
    """Each look at a clock takes a millisecond, each park ten."""

    def __init__(self):
        self.now_ns = 10**15
        self.cpu_ns = 0

    def monotonic_ns(self):
        self.now_ns += MS
        return self.now_ns

    def process_time_ns(self):
        self.cpu_ns += MS
        return self.cpu_ns


@pytest.fixture
def clocks(monkeypatch):
    clocks = Clocks()
    monkeypatch.setattr(runner, "time", clocks)

    class SlowParks(Poller):
        """Parks for ten milliseconds of these clocks."""

        def wait(self, items, timeout_ms):
            clocks.now_ns += 10 * MS
            return super().wait(items, 0)

    monkeypatch.setattr(runner, "Poller", SlowParks)
    return clocks


class Listening(StubActor):
    """Has a descriptor that can be read."""

    def __init__(self, *steps):
        super().__init__(*steps)
        self.readable, self.writing_end = os.pipe()
        os.write(self.writing_end, b"x")

    def wait_on(self):
        return (self.readable,)

    def on_close(self):
        os.close(self.readable)
        os.close(self.writing_end)


def test_each_park_counts_by_what_ended_it(bell, clocks):
    usage = make_usage()
    run_loops([StubActor(lambda: ring(bell) or 0)], bell, 3, usage=usage)
    assert (usage.bell_wakes, usage.socket_wakes, usage.timer_wakes) == (1, 0, 2)
    run_loops([Listening()], bell, 2, usage=usage)
    assert (usage.bell_wakes, usage.socket_wakes, usage.timer_wakes) == (1, 2, 2)


def test_a_wake_up_without_work_after_it_is_empty_and_a_turn_after_work_is_none(bell, clocks):
    usage = make_usage()
    steps = (lambda: 2, lambda: 0, lambda: 1, lambda: 0, lambda: 0)
    run_loops([StubActor(*steps, timer_ns=1)], bell, 5, usage=usage)
    assert usage.timer_wakes == 4
    assert usage.empty_wakes == 2, "the last two: the second turn is no wake-up, the third worked"


def test_time_parked_counts_and_a_loop_that_works_is_not_parked(bell, clocks):
    usage = make_usage()
    run_loops([StubActor(lambda: 2, lambda: 2)], bell, 2, usage=usage)
    assert usage.idle_ns == 0
    run_loops([StubActor()], bell, 4, usage=usage)
    assert usage.idle_ns == 4 * 11 * MS


def test_a_loop_that_spins_is_idle_in_turns_without_work_and_never_woken(bell, clocks):
    usage = make_usage()
    steps = (lambda: 1, lambda: 0, lambda: 1)
    run_loops([StubActor(*steps, timer_ns=1)], bell, 4, spin=True, usage=usage)
    assert usage.idle_ns == 2 * (10 + 2) * MS, "of the second and fourth turn, with their polls"
    assert usage.timer_wakes == usage.empty_wakes == 0


def test_usage_is_published_now_and_then_and_goes_on_where_a_predecessor_ended(bell, clocks):
    slots = memoryview(bytearray(8 * len(USAGE))).cast("Q")
    usage = LoopUsage(slots, lambda name: USAGE.index(name.split(".")[1]), "raft")
    run_loops([StubActor()], bell, 200, usage=usage)
    published = dict(zip(USAGE, slots.tolist(), strict=True))
    assert 0 < published["timer_wakes"] < usage.timer_wakes
    assert clocks.cpu_ns == 3 * MS, "once a second of the 2.4"
    assert published["cpu_ns"] == clocks.cpu_ns
    assert published["idle_ns"] == published["timer_wakes"] * 11 * MS
    assert 10**15 < published["measured_ns"] < clocks.now_ns
    successor = LoopUsage(slots, lambda name: USAGE.index(name.split(".")[1]), "raft")
    assert successor.timer_wakes == published["timer_wakes"]
    assert successor.idle_ns == published["idle_ns"]
