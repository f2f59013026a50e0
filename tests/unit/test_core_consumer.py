"""The core's consumer over played links: whom it leaves, and when it says that nobody answers."""

from __future__ import annotations

import pytest

from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.errors import Unreachable
from tests.unit.core_stage import SECOND_NS, World


def consumer_of(world: World) -> ConsumerMachine:
    machine = ConsumerMachine(world.host, world.routing, end_lsn=None, replica=None, timeout_s=10.0)
    world.finish(machine.locate(1))
    return machine


def payloads(world: World, machine: ConsumerMachine) -> list[bytes]:
    return [p for batch in world.finish(machine.poll(30.0)) for p in batch.payloads()]


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
