"""Histories of promises: terms and votes are durable before they are sent, and kept."""

from __future__ import annotations

from actors.simulation.checkers import client_facts, facts
from logstore.format.peer_messages import VoteReply
from logstore.format.session_entries import OpenEntry, encode_open
from logstore.model import AckLevel, EntryKind, Index, NodeId, Role, SequenceMode, Term
from logstore.raft.effects import Answer, Committed, Lead, SaveMeta
from logstore.raft.events import Persisted, ReplicatorGone
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import Stage, batch_of

PROMISES = Collection()
breaks = PROMISES.breaks

# --- I9 ---


@breaks("I9", says="both lead term 2")
def two_nodes_lead_one_term(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.elect(1, 2)
    if not is_broken:
        stage.campaign(3, 3, [2])
    stage.nodes[3].core.role = Role.LEADER
    stage.idle(3)


@breaks("I9", says="votes for 1 and for 3 in term 2")
def a_node_votes_twice_in_a_term(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell_vote(2, 1, 2)
    stage.boot(2)  # the crash makes it forget that it has answered, not what it had promised
    stage.nodes[2].meta = (2, 1)
    stage.tell_vote(2, 3 if is_broken else 1, 2)


@breaks("I9", says="changes its vote in term 2")
def a_vote_changes_within_its_term(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.idle(2, SaveMeta(2, Term(2), NodeId(3 if is_broken else 1)))


@breaks("I9", says="from term 5 back to 4")
def a_term_goes_back(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 5, 0)
    stage.nodes[2].core.term = 4 if is_broken else 6
    stage.idle(2)


@breaks("I9", says="recovers (2, 0)")
def a_crash_makes_a_voter_forget_its_vote(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell_vote(2, 1, 2)
    stage.nodes[2].meta = (2, 0 if is_broken else 1)
    stage.boot(2)


@breaks("I9", says="recovers (1, 1)")
def a_crash_makes_a_follower_forget_a_term_it_sent(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    noop = stage.elect(1, 2, [3])
    stage.save_meta(2, 2, 0)
    stage.replicate(noop, 1, 2)
    stage.flush(1, 2)
    stage.claim(2, 1, 2)
    stage.nodes[2].meta = (1, 1) if is_broken else (2, 0)
    stage.boot(2)


# --- I10 ---


@breaks("I10", says="committed is up to 0")
def an_append_is_acknowledged_before_it_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    number = stage.invoke(0)
    row = stage.data(1, batch_of(0))
    if not is_broken:
        stage.spread(1, row)
    stage.acknowledge(number, 1)


@breaks("I10", says="lets entry 2 be acknowledged")
def ingress_gets_a_commit_index_that_is_too_high(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    stage.idle(1, Committed(Term(1), Index(2 if is_broken else 1)))


@breaks("I10", says="claims entry 2, only 1 was flushed")
def a_follower_claims_before_its_flush(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    if not is_broken:
        stage.flush(2)
    stage.claim(2, 1, 2)


@breaks("I10", says="only 1 was flushed")
def a_flush_in_flight_is_counted_for_the_entry_that_replaced_its_own(
    stage: Stage, is_broken: bool
) -> None:
    """FAULTS R24: entry 2 is ordered, truncated and ordered again before the first answer."""
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2)
    first_seq = stage.nodes[2].seq
    own = stage.elect(3, 2, [2])
    stage.replicate(own, 3, 2)
    if is_broken:
        stage.step(2, Persisted(first_seq))
    else:
        stage.flush(2)
    stage.idle(2)
    stage.claim(2, 3, 2)


@breaks("I10", says="which only nodes [1] have flushed")
def a_leader_commits_what_a_minority_has_flushed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.replicate(stage.data(1, batch_of(0)), 1, 2, 3)
    stage.flush(1, *(() if is_broken else (2,)))
    stage.commit(1, 2)


@breaks("I10", says="its disk does not")
def a_writer_answers_before_its_flush(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.data(1, batch_of(0))
    if is_broken:
        stage.tell_flushed(1)
    else:
        stage.flush(1)


@breaks("I10", says="sends term 2 and vote 1")
def a_vote_is_sent_before_it_is_durable(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1, is_durable=not is_broken)
    stage.tell_vote(2, 1, 2)


@breaks("I10", says="sends term 2 and vote 1")
def a_candidate_asks_before_its_own_vote_is_durable(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    if is_broken:
        stage.save_meta = lambda node, term, vote: Stage.save_meta(  # type: ignore[method-assign]
            stage, node, term, vote, is_durable=False
        )
    stage.campaign(1, 2, [])


@breaks("I9", says="the other has (1, 0), promised was (2, 1)")
def a_save_leaves_one_copy_of_meta_behind(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell_vote(2, 1, 2)
    stage.nodes[2].copies[0] = None
    if is_broken:
        stage.nodes[2].copies[1] = (1, 0)
    stage.tell(facts.MetaWritten(2, 0))


@breaks("I9", says="the other has None")
def two_saves_follow_each_other_at_once(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell_vote(2, 1, 2)
    stage.nodes[2].copies.update({0: (1, 0) if is_broken else (3, 0), 1: None})
    stage.tell(facts.MetaWritten(2, 0))


@breaks("I9", says="the other has None")
def both_copies_of_meta_are_under_way_together(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell_vote(2, 1, 2)
    stage.nodes[2].copies[0] = None
    if is_broken:
        stage.nodes[2].copies[1] = None
    stage.tell(facts.MetaWritten(2, 1 if is_broken else 0))


# --- I13 ---


@breaks("I13", says="does not order replicator-2 to lead")
def a_leader_does_not_order_its_new_replicator_to_lead(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.tell(facts.ProcessDied(1, "replicator-2", 1))
    stage.idle(1)
    stage.now_ns += 20_000_000
    stage.idle(1)
    if not is_broken:
        lead = Lead(NodeId(2), Term(1), 7 << 32, Index(2), Index(1), 1, Index(1))
        stage.step(1, ReplicatorGone(NodeId(2)), lead)
    for _ in range(3):
        stage.idle(1)


@breaks("I13", says="does not order replicator-3 to lead")
def a_leader_orders_the_replicator_of_another_peer_to_lead(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.tell(facts.ProcessDied(1, "replicator-3", 1))
    for peer in (2, 2, 2) if is_broken else (3, 2, 2):
        lead = Lead(NodeId(peer), Term(1), 7 << 32, Index(2), Index(1), 1, Index(1))
        stage.step(1, ReplicatorGone(NodeId(peer)), lead)
        stage.now_ns += 20_000_000
        stage.idle(1)
        stage.idle(1)


# --- I15 ---


@breaks("I15", says="lives on after its end")
def an_ended_incarnation_goes_on(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.boot(2)
    incarnation = 1 if is_broken else 2
    stage.tell(facts.Stepped(2, incarnation, stage.nodes[2].core, Persisted(0), []))


@breaks("I15", says="lives on after its end")
def a_vote_comes_from_a_raft_that_has_ended(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 2, 1)
    stage.tell(facts.ProcessDied(2, "raft" if is_broken else "egress", 1))
    stage.idle(2, Answer(NodeId(1), VoteReply(Term(2), True)))


@breaks("I15", says="acts after its end")
def a_writer_that_has_ended_writes(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.tell(facts.ProcessDied(2, "writer" if is_broken else "replicator-1", 1))
    stage.tell(facts.ProcessActed(2, "writer", 1))


@breaks("I15", says="starts as incarnation 1")
def an_incarnation_number_is_used_twice(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.nodes[2].incarnation = 0 if is_broken else 1
    stage.boot(2)


@breaks("I10", says="sends term 5 and vote 0, its disk has")
def a_term_is_sent_before_it_is_durable(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.save_meta(2, 5, 0, is_durable=not is_broken)
    stage.idle(2, Answer(NodeId(1), VoteReply(Term(5), False)))


@breaks("I10", says="recovers term 5 and vote 0, its disk has")
def a_term_is_recovered_from_the_page_cache(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    node = stage.nodes[2]
    node.meta = (5, 0)
    node.is_meta_cached = is_broken
    stage.boot(2)


@breaks("I10", says="a client hears that epoch 1 of producer 9 is open")
def a_session_is_open_before_its_entry_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    entry = OpenEntry(9, 1, SequenceMode.DENSE, AckLevel.QUORUM, 8, 1 << 16, b"")
    row = stage.propose(1, EntryKind.OPEN, encode_open(entry))
    if not is_broken:
        stage.spread(1, row)
    stage.tell(client_facts.SessionOpened(9, 1, SequenceMode.DENSE))
