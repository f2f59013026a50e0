"""Histories that look wrong and are right: no checker may report them."""

from __future__ import annotations

from collections.abc import Callable

from actors.simulation.checkers import client_facts, facts
from logstore.errors import ErrorCode
from logstore.format import session_entries
from logstore.format.peer_messages import HeartbeatReply
from logstore.format.session_entries import OpenEntry
from logstore.model import AckLevel, EntryKind, Index, NodeId, SequenceMode, Term
from logstore.raft.effects import Answer
from logstore.raft.events import EntryRotted, MetaPersisted
from tests.simulation.histories.stage import PRODUCER, Stage, batch_of, log_of

RIGHT: list[Callable[[Stage], None]] = []


def right(story: Callable[[Stage], None]) -> Callable[[Stage], None]:
    RIGHT.append(story)
    return story


# --- clients ---


@right
def an_append_without_an_answer_is_in_the_log(stage: Stage) -> None:
    stage.invoke(0)
    stage.acknowledge(stage.invoke(1), 2)
    stage.end(node1=log_of((1, batch_of(0)), (1, batch_of(1))))


@right
def an_append_without_an_answer_is_not_in_the_log(stage: Stage) -> None:
    stage.acknowledge(stage.invoke(0), 1)
    stage.invoke(1)
    stage.tell(client_facts.AppendRefused(stage.invoke(2), ErrorCode.OUTCOME_UNKNOWN))
    stage.end(node1=log_of((1, batch_of(0))))


@right
def a_refused_batch_comes_again_in_a_new_epoch(stage: Stage) -> None:
    stage.tell(client_facts.AppendRefused(stage.invoke(0), ErrorCode.NOT_COMMITTED))
    stage.acknowledge(stage.invoke(0, epoch=2), 1)
    stage.end(node1=log_of((1, batch_of(0, epoch=2))))


@right
def a_refused_batch_comes_again_under_its_own_numbers(stage: Stage) -> None:
    """E7: NotCommitted allows the same bytes under the same sequence."""
    stage.tell(client_facts.AppendRefused(stage.invoke(0), ErrorCode.NOT_COMMITTED))
    stage.acknowledge(stage.invoke(0), 1)
    stage.end(node1=log_of((1, batch_of(0))))


@right
def a_used_sequence_is_refused_for_other_bytes(stage: Stage) -> None:
    stage.acknowledge(stage.invoke(0, b"first"), 1)
    other = stage.invoke(0, b"other")
    stage.tell(client_facts.AppendRefused(other, ErrorCode.SEQUENCE_REUSED))
    stage.end(node1=log_of((1, batch_of(0, b"first"))))


@right
def a_fenced_producer_finds_its_last_batch_stored(stage: Stage) -> None:
    stage.tell(client_facts.AppendRefused(stage.invoke(0), ErrorCode.FENCED))
    stage.invoke(0, epoch=2)
    stage.end(node1=log_of((1, batch_of(0)), (1, batch_of(0, epoch=2))))


@right
def two_appends_at_once_are_stored_in_the_order_they_did_not_begin_in(stage: Stage) -> None:
    early, late = stage.invoke(0), stage.invoke(0, producer=8)
    stage.acknowledge(early, 2)
    stage.acknowledge(late, 1)
    stage.end(node1=log_of((1, batch_of(0, producer=8)), (1, batch_of(0))))


@right
def an_acknowledgement_comes_twice(stage: Stage) -> None:
    append = stage.invoke(0)
    stage.acknowledge(append, 1)
    stage.acknowledge(append, 1)
    stage.end(node1=log_of((1, batch_of(0))))


@right
def a_monotone_retry_with_other_bytes_gets_the_first_ones_lsns(stage: Stage) -> None:
    stage.tell(client_facts.SessionOpened(PRODUCER, 1, SequenceMode.MONOTONE))
    stage.acknowledge(stage.invoke(5, b"a", b"b"), 1, 2)
    stage.tell(client_facts.SessionOpened(PRODUCER, 2, SequenceMode.MONOTONE))
    stage.acknowledge(stage.invoke(5, b"c", epoch=2), 1, 2)
    stage.end(node1=log_of((2, batch_of(5, b"a", b"b"))))


@right
def monotone_sequences_leave_numbers_out(stage: Stage) -> None:
    stage.tell(client_facts.SessionOpened(PRODUCER, 1, SequenceMode.MONOTONE))
    stage.acknowledge(stage.invoke(5), 1)
    stage.acknowledge(stage.invoke(90), 2)
    stage.end(node1=log_of((1, batch_of(5)), (1, batch_of(90))))


@right
def a_consumer_goes_back_when_it_seeks(stage: Stage) -> None:
    stage.invoke(0)
    stage.tell(client_facts.Subscribed("reader", 1))
    stage.deliver("reader", 1, batch_of(0))
    stage.tell(client_facts.Subscribed("reader", 1))
    stage.deliver("reader", 1, batch_of(0))
    stage.end(node1=log_of((1, batch_of(0))))


@right
def a_range_read_says_that_it_cut_a_batch(stage: Stage) -> None:
    stage.invoke(0, b"a", b"b", b"c")
    batch = batch_of(0, b"a", b"b", b"c")
    stage.tell(client_facts.Delivered("reader", 1, 1, batch, handed=(2, 3), is_whole=False))
    stage.end(node1=log_of((3, batch)))


@right
def a_tail_read_shows_an_append_that_is_not_answered_yet(stage: Stage) -> None:
    append = stage.invoke(0)
    stage.tell(client_facts.EndTold(stage.tick(), 1, node=None, is_linearizable=True))
    stage.acknowledge(append, 1)
    stage.end(node1=log_of((1, batch_of(0))))


@right
def the_log_is_empty_and_a_read_says_so(stage: Stage) -> None:
    stage.invoke(0)
    stage.tell(client_facts.EndTold(stage.tick(), 0, node=None, is_linearizable=True))
    stage.end(node1=[])


# --- replicas ---


@right
def a_follower_read_shows_less_than_is_acknowledged(stage: Stage) -> None:
    stage.elect_first()
    number = stage.invoke(0)
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.acknowledge(number, 1)
    stage.tell(client_facts.EndTold(stage.tick(), 0, node=None, is_linearizable=False))
    stage.follow(2, 2, 3)
    stage.deliver("reader", 1, batch_of(0))
    stage.end()


@right
def a_leader_commits_by_its_followers_before_its_own_flush(stage: Stage) -> None:
    """F9."""
    stage.elect_first()
    stage.invoke(0)
    stage.replicate(stage.data(1, batch_of(0)), 1, 2, 3)
    stage.flush(2, 3)
    stage.nodes[1].core.commit = 2
    stage.claim(2, 1, 2)
    stage.claim(3, 1, 2)
    stage.idle(1)
    stage.flush(1)


@right
def a_claimed_entry_that_was_never_committed_is_truncated(stage: Stage) -> None:
    stage.elect_first()
    stage.invoke(0)
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.claim(2, 1, 2)
    noop = stage.elect(3, 2, [1])
    stage.replicate(noop, 3, 1, 2)
    stage.flush()
    stage.boot(2)


@right
def a_late_leader_of_an_older_term_lacks_what_a_newer_one_committed(stage: Stage) -> None:
    """Its votes were cast before; it can commit nothing."""
    stage.elect_first()
    stage.campaign(3, 2, [2])  # the answer is on its way for long
    stage.invoke(0)
    noop = stage.elect(1, 3, [2])
    row = stage.data(1, batch_of(0))
    stage.replicate(noop, 1, 2)
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.commit(1, 3)
    stage.lead(3)
    assert stage.nodes[3].core.term == 2


@right
def a_truncation_that_was_not_flushed_is_undone_by_a_crash(stage: Stage) -> None:
    stage.elect_first()
    stage.invoke(0)
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    stage.flush(2)
    stage.claim(2, 1, 2)
    stage.replicate(stage.elect(3, 2, [2]), 3, 2)
    stage.boot(2)


@right
def an_entry_is_truncated_and_comes_again(stage: Stage) -> None:
    """A, then C, then A: the leaders disagree, the last one has A after all."""
    stage.elect_first()
    stage.invoke(0)
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.replicate(stage.elect(3, 2, [2]), 3, 2)
    stage.flush(2)
    stage.elect(1, 3, [2])
    stage.replicate(row, 1, 2)
    stage.flush(2)
    stage.boot(2)
    assert stage.nodes[2].rows[-1] == row


@right
def a_vote_is_sent_when_a_newer_term_is_durable_with_it(stage: Stage) -> None:
    """Two saves became durable at once, and both answers leave."""
    stage.boot()
    stage.save_meta(2, 2, 1, is_durable=False)
    stage.save_meta(2, 3, 0)
    stage.tell_vote(2, 1, 2)
    stage.boot(2)


@right
def a_disk_that_lied_loses_what_it_had_claimed(stage: Stage) -> None:
    stage.elect_first()
    stage.write(1, 0)
    node = stage.nodes[2]
    node.disk.pop()
    node.is_excused = True
    stage.boot(2)
    stage.replicate(stage.nodes[1].rows[1], 1, 2)
    stage.flush(2)
    stage.follow(2, 2)
    stage.end()


@right
def a_replica_whose_medium_rotted_still_catches_up_in_the_end(stage: Stage) -> None:
    """Its ring is in use; no process waits for it (seed 2014 at commit 14cd7be)."""
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.invoke(0)
    stage.nodes[3].is_excused = True
    stage.replicate(row, 1, 2, 3)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    stage.commit(1, 2)
    stage.follow(2, 2)
    stage.tell(facts.Converged())


@right
def a_committed_entry_is_faulty_and_caps_nothing(stage: Stage) -> None:
    """Q1: below the commit index it is listed, and the claims go on above it."""
    stage.elect_first()
    row = stage.write(1, 0)
    node = stage.nodes[2]
    node.lost.add(row.chain)
    stage.rot(2, "frame")
    node.faulty = ((Index(2), Index(2)),)
    stage.boot(2)
    node.core.commit = 2
    stage.invoke(1)
    stage.replicate(stage.data(1, batch_of(1)), 1, 2)
    stage.flush(2)
    stage.claim(2, 1, 3)


@right
def an_answer_that_waited_for_meta_does_not_report_damage_found_meanwhile(stage: Stage) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.rot(2, "frame")
    stage.step(2, EntryRotted(Index(2)))
    beat = HeartbeatReply(Term(1), 0, Index(2), Index(0), Index(0))
    stage.step(2, MetaPersisted(1), Answer(NodeId(1), beat))


@right
def a_replica_forgets_its_commit_index_and_shows_it_again(stage: Stage) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.boot(2)
    stage.follow(1, 2)
    stage.follow(2, 2)
    stage.end()


@right
def a_replicator_dies_and_is_back_in_the_same_incarnation(stage: Stage) -> None:
    stage.boot()
    stage.tell(facts.ProcessDied(2, "replicator-1", 1))
    stage.tell(facts.ProcessRespawned(2, "replicator-1", 1))
    stage.tell(facts.ProcessActed(2, "replicator-1", 1))


@right
def one_bell_is_for_all_that_was_published_before_it(stage: Stage) -> None:
    stage.boot()
    for _ in range(3):
        stage.offer((2, "raft"), "ingress")
    stage.ring((2, "raft"), "ingress")
    stage.end_work((2, "raft"))


@right
def a_producer_is_fenced_by_an_epoch_that_is_truncated(stage: Stage) -> None:
    stage.elect_first()
    first = OpenEntry(PRODUCER, 1, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, b"")
    stage.spread(1, stage.propose(1, EntryKind.OPEN, session_entries.encode_open(first)))
    stage.tell(client_facts.SessionOpened(PRODUCER, 1, SequenceMode.DENSE))
    second = OpenEntry(PRODUCER, 2, SequenceMode.DENSE, AckLevel.QUORUM, 16, 1 << 20, b"")
    stage.propose(1, EntryKind.OPEN, session_entries.encode_open(second))
    noop = stage.elect(2, 2, [3])
    stage.save_meta(1, 2, 0)
    stage.spread(2, noop)
    stage.write(2, 0)
    stage.end()
