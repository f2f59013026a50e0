"""The core's consumer over played links: which replica it reads and leaves, for how much it asks,
and when it says that nobody answers.

That each payload comes once and in order, `tests/property/test_core_consumer_model.py` shows.
"""

from __future__ import annotations

import pytest

from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.records import batches_of
from logstore.errors import CorruptData, ErrorCode, Unreachable
from logstore.format.client_messages import ErrorReply, FetchRequest, Tip, WatermarksRequest
from logstore.settings import PortOffset
from tests.unit.core_stage import CLUSTER, SECOND_NS, World


def consumer_of(
    world: World, *, timeout_s: float = 10.0, fetch_bytes: int = 1_000, replica: int | None = None
) -> ConsumerMachine:
    """One that stands before the first payload."""
    machine = ConsumerMachine(
        world.host,
        world.routing,
        batches_of,
        end_lsn=None,
        replica=replica,
        timeout_s=timeout_s,
        fetch_bytes=fetch_bytes,
    )
    world.finish(machine.locate(1))
    return machine


def payloads(world: World, machine: ConsumerMachine, *, timeout_s: float = 30.0) -> list[bytes]:
    batches = world.finish(machine.poll(timeout_s))
    return [payload for batch in batches for payload in batch.payloads()]


def poll_with_tip(world: World, machine: ConsumerMachine) -> list[bytes]:
    """The payloads of the next batches; the replica that is read says what it shows."""

    def tip() -> None:
        world.publish(PortOffset.TAIL, Tip(world.visible_lsn(machine.node)), node=machine.node)

    world.at(0.1, tip)
    return payloads(world, machine, timeout_s=1.0)


def test_a_consumer_whose_replica_died_while_its_user_was_busy_reads_another_one() -> None:
    """It called the others silent, though it had not listened to them, at every later poll."""
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    assert payloads(world, machine) == [b"1"]
    world.fill([b"2"])
    world.stop(machine.node)
    world.now_ns += 60 * SECOND_NS
    assert payloads(world, machine) == [b"2"]


def test_a_consumer_to_which_nobody_spoke_tries_all_replicas_anew() -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    assert payloads(world, machine) == [b"1"]
    for node in world.nodes:
        world.stop(node)
    for _ in range(2):
        begun_ns = world.now_ns
        with pytest.raises(Unreachable, match="no replica has said anything"):
            payloads(world, machine)
        assert 6 * SECOND_NS < world.now_ns - begun_ns < 20 * SECOND_NS
    world.fill([b"2"])
    world.start(next(iter({*world.nodes} - {machine.node})))
    assert payloads(world, machine) == [b"2"]


def test_whoever_polls_again_after_everybody_was_silent_finds_the_one_that_came_back() -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world, timeout_s=1.0)
    assert poll_with_tip(world, machine) == [b"1"]
    for node in world.nodes:
        world.stop(node)
    with pytest.raises(Unreachable, match="no replica has said anything"):
        payloads(world, machine, timeout_s=60.0)
    world.fill([b"2"])
    back = min(set(world.nodes) - {machine.node})
    world.start(back)
    found: list[bytes] = []
    for _ in range(20):
        found = found or payloads(world, machine, timeout_s=1.0)
    assert machine.node == back
    assert found == [b"2"]


def damage(world: World, *nodes: int) -> None:
    """These cannot read their log any more."""
    whole = world.on[FetchRequest]
    rot = ErrorReply(ErrorCode.CORRUPT_DATA, 0, 1, 1, b"rot")
    world.on[FetchRequest] = lambda node, request: rot if node in nodes else whole(node, request)


def test_what_one_replica_has_damaged_is_read_from_another_that_starts_meanwhile() -> None:
    """It was called damaged on every replica, of which two had not been asked."""
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    damage(world, machine.node)
    others = {*world.nodes} - {machine.node}
    for node in others:
        world.stop(node)
        world.at(5.0, lambda node=node: world.start(node))
    assert payloads(world, machine) == [b"1"]
    assert machine.node in others


def test_damage_that_a_replica_which_is_down_might_not_have_is_told_when_the_time_is_over() -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    down = min({*world.nodes} - {machine.node})
    damage(world, *{*world.nodes} - {down})
    world.stop(down)
    begun_ns = world.now_ns
    with pytest.raises(CorruptData):
        payloads(world, machine)
    assert 9 * SECOND_NS < world.now_ns - begun_ns < 20 * SECOND_NS


def test_one_that_is_moved_reads_on_where_it_was_from_another_replica() -> None:
    world = World()
    world.fill([b"1"], [b"2"])
    machine = consumer_of(world)
    assert poll_with_tip(world, machine) == [b"1", b"2"]
    before = machine.node
    world.finish(machine.move())
    assert machine.node != before
    world.fill([b"3"])
    assert poll_with_tip(world, machine) == [b"3"]


def test_a_fetch_asks_for_as_many_bytes_as_it_was_told() -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world, fetch_bytes=512)
    assert poll_with_tip(world, machine) == [b"1"]
    asked = [each for _, each in world.requests if isinstance(each, FetchRequest)]
    assert [each.max_bytes for each in asked] == [512]


def test_one_that_was_made_before_the_cluster_was_formed_reads_once_it_is() -> None:
    world = World()
    world.cluster_id = bytes(16)
    machine = consumer_of(world)
    world.cluster_id = CLUSTER
    world.fill([b"1"])
    assert poll_with_tip(world, machine) == [b"1"]


def tip_each_second(world: World, *, seconds: int) -> None:
    """Every replica says what it shows, as often as a real one does."""

    def tips() -> None:
        for node in world.nodes:
            world.publish(PortOffset.TAIL, Tip(world.visible_lsn(node)), node=node)

    for second in range(seconds):
        world.at(second + 0.5, tips)


def test_a_consumer_leaves_a_replica_that_stands_still_while_others_go_on() -> None:
    """It is cut off from its leader, or its disk is full, and goes on to answer and to send Tips:
    its consumers got nothing more for ever."""
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    assert payloads(world, machine) == [b"1"]
    behind = machine.node
    world.fill([b"2"])
    world.hidden[behind] = 1
    tip_each_second(world, seconds=60)
    assert payloads(world, machine, timeout_s=60.0) == [b"2"]
    assert machine.node != behind


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_consumer_stays_where_no_other_replica_has_more(is_answered: bool) -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world)
    assert payloads(world, machine) == [b"1"]
    node = machine.node
    if not is_answered:
        for other in {*world.nodes} - {node}:
            world.stop(other)
    tip_each_second(world, seconds=200)
    assert payloads(world, machine, timeout_s=200.0) == []
    assert machine.node == node
    asked = [each for each, request in world.requests if isinstance(request, WatermarksRequest)]
    assert len(asked) == (0 if not is_answered else pytest.approx(5, abs=1))
    assert node not in asked


def test_a_pinned_consumer_waits_for_its_replica_that_stands_still() -> None:
    world = World()
    world.fill([b"1"])
    machine = consumer_of(world, replica=2)
    assert payloads(world, machine) == [b"1"]
    world.fill([b"2"])
    world.hidden[2] = 1
    tip_each_second(world, seconds=100)
    assert payloads(world, machine, timeout_s=100.0) == []
    assert machine.node == 2
