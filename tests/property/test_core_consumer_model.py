"""The core's consumer against a played log: whatever the tail loses, repeats or shows late, and
whichever replica dies, each payload is handed on once, in order (SAFETY V8)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core.consumer_machine import ON_OUT_OF_RANGE, ConsumerMachine
from logstore.client.core.range_machine import RangeMachine, RangeWalk
from logstore.client.core.task import Task
from logstore.client.records import batches_of, raw_batches_of
from logstore.errors import OutOfRange
from logstore.format.client_messages import Tip
from logstore.settings import PortOffset
from tests.unit.core_stage import SECOND_NS, World

NODES = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("publish"), st.just(0)),
    st.tuples(st.just("publish again"), st.just(0)),
    st.tuples(st.just("tip"), NODES),
    st.tuples(st.just("lag"), NODES),
    st.tuples(st.just("stop"), NODES),
    st.tuples(st.just("start"), NODES),
    st.tuples(st.just("pass"), st.integers(1, 4_000)),
    st.tuples(st.just("wake early"), NODES),
)


class Reading:
    """A consumer from `start` on that polls without end."""

    def __init__(self, world: World, start: int | str, *, on_out_of_range: str = "error") -> None:
        self.found: list[tuple[int, bytes]] = []
        self.machine = ConsumerMachine(
            world.host, world.routing, batches_of, end_lsn=None, replica=None, timeout_s=3_600.0,
            on_out_of_range=on_out_of_range,
        )  # fmt: skip
        self._world = world
        world.finish(self.machine.locate(start))
        self.task = Task(self.machine.poll(1.0))
        self.work()

    def work(self) -> None:
        """What one look brings; the next one begins at once."""
        self._world.work(self.task)
        while self.task.is_done:
            for batch in self.task.result:
                self.found.extend((each.lsn, each.payload) for each in batch.records())
            self.task = Task(self.machine.poll(1.0))
            self._world.work(self.task)

    def work_until(self, until_ns: int) -> None:
        while self._world.now_ns < until_ns:
            self.work()
            next_ns = max(self.task.wait.until_ns, self._world.now_ns + 1)
            self._world.pass_time(min(until_ns, next_ns))

    def take(self, what: str, number: int) -> None:
        """One of STEPS."""
        world = self._world
        if what == "append":
            for count in range(1, number + 1):
                lsn = world.next_lsn
                world.fill([b"%d" % (lsn + each) for each in range(count)])
        elif what.startswith("publish"):
            for node in world.nodes:
                world.publish_group(len(world.log) - 1 if what == "publish" else 0, node=node)
        elif what == "tip":
            world.publish(PortOffset.TAIL, Tip(world.visible_lsn(number)), node=number)
        elif what == "lag":
            world.hidden[number] = 1
        elif what == "stop":
            world.stop(number)
        elif what == "start":
            world.start(number)
        elif what == "pass":
            self.work_until(world.now_ns + number * 1_000_000)
        elif what == "wake early":
            self.task.do_work(world.now_ns)

    def read_to_the_end(self, dead: int) -> None:
        """All others than `dead` come back and show everything."""
        world = self._world
        world.hidden.clear()
        world.stop(dead)
        for node in {*world.nodes} - {dead}:
            world.start(node)
            world.publish(PortOffset.TAIL, Tip(world.visible_lsn(node)), node=node)
        until_ns = world.now_ns + 30 * SECOND_NS
        while self.machine.next_lsn != world.next_lsn:
            self.work()
            assert world.now_ns < until_ns
            world.pass_time(max(self.task.wait.until_ns, world.now_ns + 1))
        self.task.close()


@given(st.lists(STEPS, max_size=40), st.integers(1, 4), st.integers(0, 3))
def test_every_payload_is_handed_on_once_and_in_order(
    steps: list[tuple[str, int]], start: int, dead: int
) -> None:
    """`dead`: the node that is down when all others have come back."""
    world = World()
    world.fill([b"1"], [b"2", b"3"], [b"4"])
    reading = Reading(world, start)
    for what, number in steps:
        reading.take(what, number)
        reading.work()
    reading.read_to_the_end(dead)
    assert reading.found == [(lsn, b"%d" % lsn) for lsn in range(start, world.next_lsn)]


TRIM = st.tuples(st.just("trim"), st.integers(0, 3))


@given(
    st.lists(st.one_of(STEPS, TRIM), max_size=40),
    st.sampled_from((1, 3, "earliest")),
    st.sampled_from(ON_OUT_OF_RANGE),
    st.integers(0, 3),
)
def test_what_falls_below_the_log_start_is_told_or_counted(
    steps: list[tuple[str, int]], start: int | str, on_out_of_range: str, dead: int
) -> None:
    """`trim` leaves so many batches. What is not handed on was below the log start, but for a
    consumer that goes on at the end; and it is counted, or raised."""
    world = World()
    world.fill([b"1"], [b"2", b"3"], [b"4"])
    reading = Reading(world, start, on_out_of_range=on_out_of_range)
    log_starts = {1}
    try:
        for what, number in steps:
            if what == "trim":
                kept = [lsn for lsn, _ in world.log][-number:] if number else [world.next_lsn]
                world.log_start_lsn = max(world.log_start_lsn, kept[0])
                log_starts.add(world.log_start_lsn)
            reading.take(what, number)
            reading.work()
        reading.read_to_the_end(dead)
    except OutOfRange as bounds:
        assert on_out_of_range == "error"
        assert reading.machine.next_lsn < bounds.first == world.log_start_lsn
        assert "below the log start" in str(bounds)
    lsns = [lsn for lsn, _ in reading.found]
    assert [payload for _, payload in reading.found] == [b"%d" % lsn for lsn in lsns]
    first = 1 if start == "earliest" else int(start)
    jumps = [(a, b) for a, b in pairwise([first - 1, *lsns, reading.machine.next_lsn]) if b > a + 1]
    if start == "earliest" and jumps and jumps[0][0] == 0:
        # it has not begun: where the log starts by then is where it begins
        assert on_out_of_range == "latest" or jumps.pop(0)[1] in log_starts
    if on_out_of_range == "error":
        assert jumps == []
    if on_out_of_range == "earliest":
        assert {b for _, b in jumps} <= log_starts
    if jumps and start != "earliest":
        assert reading.machine.skipped_payloads == sum(b - a - 1 for a, b in jumps)


BATCHES = st.lists(st.integers(1, 4), min_size=1, max_size=12)


@given(BATCHES, st.data())
def test_a_range_is_read_whole_whatever_a_reply_holds(
    counts: list[int], data: st.DataObject
) -> None:
    world = World()
    for count in counts:
        world.fill([b"%d" % (world.next_lsn + each) for each in range(count)])
    end_lsn = world.next_lsn - 1
    first = data.draw(st.integers(1, end_lsn))
    last = data.draw(st.integers(first, end_lsn + 2))
    reads_ahead = data.draw(st.booleans())
    machine = RangeMachine(
        world.host, world.routing, replica=None, timeout_s=5.0, reads_ahead=reads_ahead
    )
    for decode in (batches_of, raw_batches_of):
        walk = RangeWalk(machine, decode, first, last, min_lsn=0, is_linearizable=False)
        found = []
        try:
            while not walk.is_at_end:
                found += world.finish(walk.next_batches())
        except OutOfRange:
            assert last > end_lsn
        assert found[-1].last_lsn >= min(last, end_lsn)
        if decode is batches_of:
            payloads = [payload for batch in found for payload in batch.payloads()]
            assert payloads == [b"%d" % lsn for lsn in range(first, min(last, end_lsn) + 1)]
        else:
            held = [b for lsn, b in world.log if lsn >= found[0].first_lsn]
            assert [bytes(each.data) for each in found] == held[: len(found)]
            assert found[0].first_lsn <= first
