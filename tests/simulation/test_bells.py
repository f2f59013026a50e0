"""A message published without a bell is noticed, at one ring and in a whole cluster."""

from __future__ import annotations

from random import Random

import pytest

from actors.simulation.checkers import invariant
from actors.simulation.world.rings import (
    CommandRingReceiver,
    CommandRingSender,
    OwedBells,
    SimulatedBell,
    SimulatedCommandRing,
    StoreBuffer,
)
from actors.station import Outbox
from tests.mutants.catalogue import mutant_named
from tests.mutants.patch import applied
from tests.simulation.process_stage import Clocked
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster

RING_BYTES = 256


class OneRing:
    """A product's outbox into a ring that is full."""

    def __init__(self) -> None:
        self.owed = OwedBells()
        memory = StoreBuffer(Clocked(), Random(1), 0)
        ring = SimulatedCommandRing(RING_BYTES)
        sender = CommandRingSender(ring, memory, on_offered=self.owed.mark_owed("writer"))
        bell = SimulatedBell(Clocked(), memory, on_rung=self.owed.mark_rung("writer"))
        self.receiver = CommandRingReceiver(ring, Clocked())
        self.outbox = Outbox(sender, bell)  # type: ignore[arg-type]
        while not self.outbox.is_congested:
            self.outbox.send_encoded(bytes(64))

    def work(self) -> list[str]:
        """End a do_work; returns the processes whose bells are still to be rung."""
        self.outbox.flush()
        return list(self.owed)


def test_an_outbox_rings_after_a_message_that_waited_for_room() -> None:
    stage = OneRing()
    assert stage.work() == []
    assert len(stage.receiver.drain(1)) == 1
    assert stage.work() == []
    assert not stage.outbox.is_congested


def test_a_bell_before_a_message_that_waited_for_room_is_noticed() -> None:
    stage = OneRing()
    with applied(mutant_named("bell-rung-before-the-news")):
        assert stage.work() == []
        assert len(stage.receiver.drain(1)) == 1
        assert stage.work() == ["writer"]


def test_a_message_without_room_needs_no_bell() -> None:
    stage = OneRing()
    assert stage.work() == []
    assert stage.outbox.is_congested


def test_each_process_of_a_cluster_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    # raft's requests of a bootstrap that gets no further are 100 before anybody else has news
    monkeypatch.setattr(invariant, "VIOLATIONS_MAX", 10_000)
    with applied(mutant_named("bell-not-rung")):
        violations = QuietCluster().cluster.ledger.violations
    texts = [each.text for each in violations if " slept for " not in each.text]  # so it does, too
    assert all(" publishes for " in each for each in texts)
    givers = {each.partition(" ")[0].partition(".")[2] for each in texts}
    assert givers >= {"raft", "writer", "ingress", "replicator-2"}


def test_an_ended_process_owes_no_bell() -> None:
    quiet = QuietCluster()
    replica = quiet.replica(quiet.follower)
    process = replica.processes["replicator-1" if replica.node != 1 else "replicator-2"]
    name = process.name.partition(".")[2]
    process.on_worked.args[1][0].owed.mark_owed("ingress")()  # type: ignore[attr-defined]
    replica.kill_process(name)
    quiet.run_for(SECOND_NS)
    assert replica.processes[name] is not process
    assert quiet.problems == []
