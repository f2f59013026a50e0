"""Histories of what replicas send to clients, received or not."""

from __future__ import annotations

from actors.simulation.checkers import facts
from logstore.format.session_entries import OpenEntry, encode_open
from logstore.model import AckLevel, EntryKind, SequenceMode
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of

ANSWERS = Collection()
breaks = ANSWERS.breaks
MS_NS = 1_000_000


@breaks("I10", says="committed is up to 0")
def a_leader_acknowledges_before_its_commit(stage: Stage, is_broken: bool) -> None:
    """No client has subscribed to that producer's feed."""
    stage.elect_first()
    stage.invoke(0)
    row = stage.data(1, batch_of(0))
    if not is_broken:
        stage.spread(1, row)
    stage.tell(facts.AckSent(1, PRODUCER, 0, (1, 1)))


@breaks("I1", says="says that 1 of producer 7 has 1 LSNs from 1 on: there is")
def a_leader_acknowledges_what_another_one_replaced(stage: Stage, is_broken: bool) -> None:
    """E4: it led before, and remembers what was truncated since."""
    stage.elect_first()
    stage.write(1, 0)
    sequence = 1 if is_broken else 0
    stage.tell(facts.AckSent(1, PRODUCER, sequence, (1, 1)))


@breaks("I1", says="says that 0 of producer 7 has 2 LSNs from 1 on")
def a_leader_acknowledges_more_than_there_is(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0, 1)
    stage.tell(facts.AckSent(1, PRODUCER, 0, (1, 2 if is_broken else 1)))


@breaks("I10", says="an import has 1 LSNs from 1 on, committed is up to 0")
def a_leader_acknowledges_an_import_before_its_commit(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.invoke(0)
    row = stage.propose(1, EntryKind.IMPORT, batch_of(0), count=1)
    if not is_broken:
        stage.spread(1, row)
    stage.tell(facts.ImportAckSent(1, (1, 1)))


@breaks("I1", says="an import has 2 LSNs from 1 on: there is")
def an_import_is_acknowledged_at_another_place(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.invoke(0)
    stage.invoke(1)
    for sequence in (0, 1):
        row = stage.propose(1, EntryKind.IMPORT, batch_of(sequence), count=1)
        stage.spread(1, row)
    stage.tell(facts.ImportAckSent(1, (1, 2 if is_broken else 1)))


@breaks("I10", says="its OPEN is not committed")
def a_session_is_answered_as_open_and_its_entry_was_dropped(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    entry = OpenEntry(PRODUCER, 1, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, b"")
    row = stage.propose(1, EntryKind.OPEN, encode_open(entry))
    if not is_broken:
        stage.spread(1, row)
    stage.tell(facts.OpenReplySent(1, PRODUCER, 1))


def publish(stage: Stage, at_ns: int) -> None:
    """Node 1 publishes a group."""
    stage.now_ns = at_ns
    stage.ledger.tell(facts.GroupPublished(1))


@breaks("I13", says="has sent no Tip since")
def a_tail_feed_sends_no_tip_after_a_burst(stage: Stage, is_broken: bool) -> None:
    """V8. The first group after the Tip's time may precede it in the same do_work."""
    stage.boot()
    for at_ns in (1, 59 * MS_NS, 70 * MS_NS, 70 * MS_NS):
        publish(stage, at_ns)
    if not is_broken:
        stage.tell(facts.TipPublished(1))
    publish(stage, 71 * MS_NS)


@breaks("I13", says="has sent no Tip since")
def the_tip_of_another_node_is_no_tip(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    publish(stage, 1)
    publish(stage, 61 * MS_NS)
    stage.tell(facts.TipPublished(2 if is_broken else 1))
    publish(stage, 62 * MS_NS)


@breaks("I13", says="has sent no Tip since")
def a_new_egress_owes_nothing_for_the_one_before_it(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    publish(stage, 1)
    publish(stage, 61 * MS_NS)
    stage.tell(facts.ProcessDied(1, "ingress" if is_broken else "egress", 1))
    publish(stage, 62 * MS_NS)
