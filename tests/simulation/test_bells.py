"""What is published without a bell behind it is noticed, at a ring and in a whole cluster."""

from __future__ import annotations

from random import Random

from actors.simulation.oracle.ledger import Ledger
from actors.simulation.world.rings import (
    CommandRingReceiver,
    CommandRingSender,
    Memory,
    SimulatedBell,
    SimulatedCommandRing,
)
from actors.station import Outbox
from tests.mutants.catalogue import mutant_named
from tests.mutants.patch import applied
from tests.simulation.process_stage import Clocked
from tests.simulation.quiet_cluster import QuietCluster

RAFT = (1, "raft")
RING_BYTES = 256


class OneRing:
    """A product's outbox into a ring that is full."""

    def __init__(self) -> None:
        self.ledger = Ledger((1,), election_timeout_ns=1_000_000)
        memory = Memory(Clocked(), Random(1), 0)
        ring = SimulatedCommandRing(RING_BYTES)
        sender = CommandRingSender(
            ring, memory, on_offered=lambda: self.ledger.offered(RAFT, "writer")
        )
        bell = SimulatedBell(Clocked(), memory, on_rung=lambda: self.ledger.rung(RAFT, "writer"))
        self.receiver = CommandRingReceiver(ring, Clocked())
        self.outbox = Outbox(sender, bell)  # type: ignore[arg-type]
        while not self.outbox.is_congested:
            self.outbox.send_encoded(bytes(64))

    def work(self) -> list[str]:
        """The end of a do_work; what is complained of so far."""
        self.outbox.flush()
        self.ledger.worked(RAFT, 1)
        return [each.text for each in self.ledger.violations]


def test_an_outbox_rings_behind_what_finds_room_late() -> None:
    stage = OneRing()
    assert stage.work() == []
    assert len(stage.receiver.drain(1)) == 1
    assert stage.work() == []
    assert not stage.outbox.is_congested


def test_a_bell_in_front_of_what_finds_room_late_is_noticed() -> None:
    stage = OneRing()
    with applied(mutant_named("bell-rung-before-the-news")):
        assert stage.work() == []
        assert len(stage.receiver.drain(1)) == 1
        assert stage.work() == ["1.raft publishes for writer and does not ring afterwards"]


def test_what_finds_no_room_is_owed_no_bell() -> None:
    stage = OneRing()
    assert stage.work() == []
    assert stage.outbox.is_congested


def test_each_process_of_a_cluster_is_watched() -> None:
    with applied(mutant_named("bell-not-rung")):
        violations = QuietCluster().cluster.ledger.violations
    assert all(" publishes for " in each.text for each in violations)
    givers = {each.text.partition(" ")[0].partition(".")[2] for each in violations}
    assert givers >= {"raft", "writer", "ingress", "replicator-2"}
