"""Histories of the payload rings that the bytes of entries lie in: ranges and bytes (I11, I14)."""

from __future__ import annotations

from actors.simulation.checkers import facts
from logstore.format.peer_messages import Append
from logstore.model import EntryKind, Index, NodeId, Term
from logstore.raft.effects import Settle
from logstore.raft.events import AppendReceived, Proposed
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import RING_BYTES, Stage, batch_of

RINGS = Collection()
breaks = RINGS.breaks


@breaks("I11", says="stores entry 2 with other bytes")
def a_ring_is_overwritten_before_the_write_is_ordered(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    body = batch_of(0)
    row = stage.data(1, body)
    stage.replicate(row, 1, 2, body=bytes(len(body)) if is_broken else body)


@breaks("I11", says="sends entry 2 with other bytes")
def a_replicator_sends_bytes_of_another_entry(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    body = batch_of(0)
    row = stage.data(1, body)
    append = Append(row.header.term, 1, Index(0), row.header)
    stage.tell(facts.EntrySent(1, 2, append, batch_of(1) if is_broken else body))


@breaks("I11", says="that its writer still reads")
def a_range_is_given_back_before_the_flush(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    body = batch_of(0)
    stage.data(1, body)
    if not is_broken:
        stage.nodes[1].disk = list(stage.nodes[1].rows)
        stage.nodes[1].unflushed.clear()
        stage.tell_flushed(1)
    stage.idle(1, Settle(0, len(body)))


@breaks("I11", says="overwrites [0, ")
def a_ring_is_written_over_what_is_not_given_back(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    if not is_broken:
        stage.flush(1)
    each = stage.nodes[1]
    each.ring_end = RING_BYTES
    stage.data(1, batch_of(1))


@breaks("I14", says="neither writes nor gives back what came with Proposed")
def a_refused_proposal_keeps_its_range(stage: Stage, is_broken: bool) -> None:
    """Its gen had ended."""
    stage.elect_first()
    start, end = stage.reserve(stage.nodes[1], batch_of(0))
    settles = [] if is_broken else [Settle(start, end)]
    stage.step(1, Proposed(Term(1), 1, 0, EntryKind.DATA, 1, 0, start, end, 0), *settles)


@breaks("I14", says="neither writes nor gives back what came with AppendReceived")
def an_append_of_a_deposed_leader_keeps_its_range(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.elect(2, 2, [3])
    start, end = stage.reserve(stage.nodes[3], batch_of(0))
    settles = [] if is_broken else [Settle(start, end)]
    append = Append(Term(1), 1, Index(0), row.header)
    stage.step(3, AppendReceived(NodeId(1), 1, append, start, end), *settles)


@breaks("I14", says="settles what is no open range")
def a_range_is_settled_twice(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    body = batch_of(0)
    stage.data(1, body)
    stage.flush(1)
    if is_broken:
        stage.idle(1, Settle(0, len(body)))


@breaks("I14", says="never settled 1 ranges")
def a_range_is_never_settled(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    each = stage.nodes[2]
    stage.replicate(stage.data(1, batch_of(1)), 1, 2)
    stage.flush(1)
    if is_broken:
        each.unflushed.clear()
    stage.flush(2)
    stage.tell(facts.Converged())
