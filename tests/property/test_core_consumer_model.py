"""The core's consumer against a played log: whatever the tail loses, repeats or shows late, and
whichever replica dies, each payload is handed on once, in order (SAFETY V8)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.client.core.consumer_machine import ConsumerMachine
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


@given(st.lists(STEPS, max_size=40), st.integers(1, 4), st.integers(0, 3))
def test_every_payload_is_handed_on_once_and_in_order(
    steps: list[tuple[str, int]], start: int, dead: int
) -> None:
    """`dead`: the node that is down when all others have come back."""
    world = World()
    world.fill([b"1"], [b"2", b"3"], [b"4"])
    machine = ConsumerMachine(
        world.host, world.routing, batches_of, end_lsn=None, replica=None, timeout_s=3_600.0
    )
    world.finish(machine.locate(start))
    found: list[tuple[int, bytes]] = []
    task = Task(machine.poll(1.0))

    def work() -> None:
        """What one look brings; the next one begins at once."""
        nonlocal task
        world.work(task)
        while task.is_done:
            for batch in task.result:
                found.extend((each.lsn, each.payload) for each in batch.records())
            task = Task(machine.poll(1.0))
            world.work(task)

    work()
    for what, number in steps:
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
            until_ns = world.now_ns + number * 1_000_000
            while world.now_ns < until_ns:
                work()
                world.pass_time(min(until_ns, max(task.wait.until_ns, world.now_ns + 1)))
        elif what == "wake early":
            task.do_work(world.now_ns)
        work()
    world.hidden.clear()
    world.stop(dead)
    for node in {*world.nodes} - {dead}:
        world.start(node)
        world.publish(PortOffset.TAIL, Tip(world.visible_lsn(node)), node=node)
    until_ns = world.now_ns + 30 * SECOND_NS
    while found[-1:] != [(world.next_lsn - 1, b"%d" % (world.next_lsn - 1))]:
        work()
        assert world.now_ns < until_ns
        world.pass_time(max(task.wait.until_ns, world.now_ns + 1))
    task.close()
    assert found == [(lsn, b"%d" % lsn) for lsn in range(start, world.next_lsn)]


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
