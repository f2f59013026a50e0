"""Histories of messages within a term: votes, rounds of reads, streams, handovers, restarts,
contacts."""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers import client_facts, facts
from logstore.format.entry import Row
from logstore.format.peer_messages import (
    Append,
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    VoteRequest,
)
from logstore.model import Index, Lsn, NodeId, Role, Term
from logstore.raft.effects import (
    AdmissionClosed,
    Admit,
    Answer,
    Effect,
    Lead,
    ReadIndexAnswered,
    SaveMeta,
    Send,
    StopLeading,
)
from logstore.raft.events import (
    AppendReceived,
    ConnectionLost,
    ControlReceived,
    DiskFullChanged,
    ReadIndexRequested,
    StreamAnswer,
    Tick,
)
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import ELECTION_NS, Stage, batch_of

SECOND_NS = 1_000_000_000

TERMS = Collection()
breaks = TERMS.breaks

FIRST = Term(1)


# --- votes ---


@breaks("I9", says="leads term 2, for which nodes [3] have voted")
def a_vote_of_an_earlier_term_makes_a_leader(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.save_meta(2, 1, 3)
    stage.tell_vote(2, 3, 1)
    stage.campaign(3, 2, [] if is_broken else [2])
    stage.lead(3)


@breaks("I9", says="which lost its disk with its votes")
def a_voter_comes_back_with_an_empty_disk(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.tell(facts.DiskLost(2))
    stage.nodes[2].disk, stage.nodes[2].meta = [], (0, 0)
    if not is_broken:
        stage.nodes[2].uuid = bytes([7] * 16)
    stage.boot(2)


@breaks("I9", says="node 2 votes for 1 and for 3 in term 2")
def a_replica_on_a_third_disk_votes_after_the_first_was_put_back(
    stage: Stage, is_broken: bool
) -> None:
    """It is none of those before it; one that comes back has voted."""
    stage.elect_first()
    node = stage.nodes[2]
    first = node.uuid, node.disk, node.meta
    lose_disk(stage, 2, 7)
    node.meta = (2, 1)
    stage.tell_vote(2, 1, 2)
    second = node.uuid, node.disk, node.meta
    put_in(stage, 2, 0, first)
    lose_disk(stage, 2, 8)
    if is_broken:
        put_in(stage, 2, 1, second)
    node.meta = (2, 3)
    stage.tell_vote(2, 3, 2)


def lose_disk(stage: Stage, node: int, uuid: int) -> None:
    """Another replica starts on an empty one."""
    each = stage.nodes[node]
    stage.tell(facts.DiskLost(node))
    each.uuid, each.disk, each.meta = bytes([uuid] * 16), [], (0, 0)
    stage.boot(node)


def put_in(
    stage: Stage, node: int, disk: int, kept: tuple[bytes, list[Row], tuple[int, int]]
) -> None:
    """A disk that had been in, with its replica."""
    each = stage.nodes[node]
    stage.tell(facts.DiskSwapped(node, disk))
    each.uuid, each.disk, each.meta = kept
    stage.boot(node)


# --- what a follower reports ---


@breaks("I12", says="was shown 0 in this term")
def what_an_older_leader_verified_is_reported_to_the_next(stage: Stage, is_broken: bool) -> None:
    """Entry 2 may be another one there."""
    stage.elect_first()
    row = stage.data(1, batch_of(0))
    stage.replicate(row, 1, 2, 3)
    stage.flush()
    noop = stage.elect(1, 2)
    stage.beat(2, 1, 0 if is_broken else 2)
    stage.claim(2, 1, 2)
    assert noop.header.index == 3


@breaks("I12", says="was shown 2 in this term")
def a_follower_accepts_more_than_it_was_sent(stage: Stage, is_broken: bool) -> None:
    """It was restarted with entries 2 and 3, and gets entry 2 again."""
    stage.elect_first()
    rows = [stage.data(1, batch_of(0)), stage.data(1, batch_of(1))]
    for row in rows:
        stage.replicate(row, 1, 2)
    stage.flush(1, 2)
    stage.boot(2)
    stage.beat(2, 1, 2)
    told = AppendAccepted(FIRST, 1, Index(3 if is_broken else 2))
    stage.idle(2, Answer(NodeId(1), told))


# --- linearizable reads ---


@breaks("I6", says="and nodes [] replied to a round that was begun after it came")
def a_read_is_answered_without_a_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.step(1, ReadIndexRequested(1), *round_of(1))
    if not is_broken:
        reply(stage, 1, 2, 1)
    stage.idle(1, ReadIndexAnswered(1, True, Lsn(0)))


@breaks("I6", says="and nodes [] replied to a round that was begun after it came")
def a_read_is_answered_by_the_round_before_it(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.idle(1, *round_of(1))
    stage.step(1, ReadIndexRequested(1), *round_of(2))
    reply(stage, 1, 2, 1 if is_broken else 2)
    stage.idle(1, ReadIndexAnswered(1, True, Lsn(0)))


@breaks("I6", says="which was not requested then")
def a_read_of_an_earlier_term_is_answered(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.step(1, ReadIndexRequested(1), *round_of(1))
    stage.elect(1, 2)
    if not is_broken:
        stage.step(1, ReadIndexRequested(1), *round_of(1, term=2))
    stage.step(1, replied(2, 1, term=2))
    stage.idle(1, ReadIndexAnswered(1, True, Lsn(0)))


@breaks("I6", says="answers round 7 of term 2, in which it heard no such heartbeat")
def a_heartbeat_of_an_older_term_is_answered_with_its_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.elect(1, 2)
    (late, _) = round_of(7, term=1)
    answered = HeartbeatReply(Term(2), 7 if is_broken else 0, Index(1), Index(0), Index(0))
    stage.step(2, ControlReceived(NodeId(1), 1, late.message), Answer(NodeId(1), answered))


@breaks("I6", says="with LSN 0: 1 was committed before")
def a_read_index_is_older_than_what_is_committed(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.write(1, 0)
    stage.step(1, ReadIndexRequested(1), *round_of(1))
    reply(stage, 1, 2, 1)
    stage.idle(1, ReadIndexAnswered(1, True, Lsn(0 if is_broken else 1)))


@breaks("I13", says="begins round 1 of term 1 and tells [3], not each of [2, 3] once")
def a_follower_is_left_out_of_a_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.idle(1, *round_of(1, peers=[3] if is_broken else [2, 3]))


@breaks("I13", says="begins round 1 of term 1 and tells [2, 3, 2], not each of [2, 3] once")
def a_follower_gets_two_heartbeats_of_a_round(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.idle(1, *round_of(1, peers=[2, 3, 2] if is_broken else [2, 3]))


@breaks("I6", says="was answered by node 1 without its own quorum round")
def a_read_joins_the_round_of_another(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    begun_ns = [stage.tick(), 0]
    stage.step(1, ReadIndexRequested(1), *round_of(1))
    begun_ns[1] = stage.tick()
    if not is_broken:
        stage.step(1, ReadIndexRequested(2))
    stage.step(1, replied(2, 1), *round_of(2), ReadIndexAnswered(1, True, Lsn(0)))
    if not is_broken:
        reply(stage, 1, 2, 2)
        stage.idle(1, ReadIndexAnswered(2, True, Lsn(0)))
    for each_ns in begun_ns:
        stage.tell(client_facts.EndTold(each_ns, 0, node=1, is_linearizable=True))


# --- streams ---


@breaks("I12", says="and was sent no such stream in this term")
def an_append_of_an_older_term_is_rejected_under_its_stream(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    row = stage.nodes[1].rows[0]
    stage.elect(1, 2)
    late = AppendReceived(NodeId(1), 1, append_of(row), 0, 0)
    told = AppendReject(Term(2), 1 if is_broken else 0, Index(1), Index(1), Term(2), Index(2))
    stage.step(2, late, Answer(NodeId(1), told))


@breaks("I12", says="sends entry 4 of term 1 to node 2, which was not sent those after 1")
def a_stream_steps_over_entries(stage: Stage, is_broken: bool) -> None:
    """What the peer had in an older term is taken for matched."""
    stage.elect_first()
    rows = [stage.nodes[1].rows[0], *(stage.data(1, batch_of(each)) for each in range(3))]
    for row in [rows[3]] if is_broken else rows:
        stage.tell(facts.EntrySent(1, 2, append_of(row), stage.bodies[row.chain]))


@breaks("I12", says="hears node 2 from a new start, boot 2")
def a_peer_restarts_and_its_stream_goes_on(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.step(1, StreamAnswer(NodeId(2), 1, AppendPersisted(FIRST, Index(1))))
    stage.boot(2)
    effects: list[Effect] = [Lead(NodeId(2), FIRST, 1, Index(2), Index(1), 0, Index(1))]
    heard = StreamAnswer(NodeId(2), 2, AppendPersisted(FIRST, Index(1)))
    stage.step(1, heard, *([] if is_broken else effects))


@breaks("I12", says="hears node 3 from a new start, boot 2")
def a_heartbeat_reply_shows_a_restart_and_its_stream_goes_on(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    reply(stage, 1, 3, 1)
    stage.boot(3)
    again = ControlReceived(NodeId(3), 2, replied(3, 2).message)
    stage.step(1, again, *([] if is_broken else [StopLeading(FIRST)]))


@breaks("I15", says="node 2 starts as boot 1 after boot 1")
def two_starts_have_the_same_boot_number(stage: Stage, is_broken: bool) -> None:
    stage.boot()
    stage.nodes[2].boots -= is_broken
    stage.boot(2)


# --- handovers ---


@breaks("I13", says="takes nothing 0.050 s after it began to hand over")
def a_handover_ends_without_admission(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.step(1, Tick(5), AdmissionClosed(1, 0, "transfer"))
    stage.step(1, Tick(5 + ELECTION_NS - 1))
    effects: list[Effect] = [] if is_broken else [Admit(FIRST, 2, Index(1), 1)]
    stage.step(1, Tick(5 + ELECTION_NS), *effects)


@breaks("I13", says="takes nothing 0.050 s after it began to hand over")
def a_handover_ends_closed_although_there_is_space_again(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.step(1, Tick(5), AdmissionClosed(1, 0, "transfer"))
    stage.step(1, DiskFullChanged(True))
    stage.step(1, Tick(5 + ELECTION_NS))
    reply(stage, 1, 2, 1)
    if is_broken:
        stage.step(1, DiskFullChanged(False))
    else:
        stage.nodes[1].core.role = Role.FOLLOWER
    stage.step(1, Tick(5 + 2 * ELECTION_NS))


@breaks("I13", says="takes nothing 0.050 s after it began to hand over")
def the_second_handover_of_a_full_leader_ends_closed(stage: Stage, is_broken: bool) -> None:
    """It begins when the first has failed, and the admission that is closed is not closed again."""
    stage.elect_first()
    stage.step(1, Tick(5), AdmissionClosed(1, 0, "transfer"))
    stage.step(1, DiskFullChanged(True))
    stage.step(1, Tick(5 + ELECTION_NS))
    reply(stage, 1, 2, 1)
    stage.step(1, DiskFullChanged(False))
    stage.step(1, Tick(5 + 2 * ELECTION_NS - (0 if is_broken else 1)))


# --- contacts ---


@breaks("I13", says="leads term 1 and has heard no majority for 0.100 s")
def a_leader_hears_no_peer_and_leads_on(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    in_office_ns = stage.now_ns
    stage.step(1, Tick(in_office_ns + ELECTION_NS))
    if not is_broken:
        stage.nodes[1].core.role = Role.FOLLOWER
        stage.idle(1, StopLeading(FIRST))
    stage.step(1, Tick(in_office_ns + 2 * ELECTION_NS))


@breaks("I13", says="leads term 1 and has heard no majority for 0.100 s")
def a_leader_hears_only_a_newer_term_and_leads_on(stage: Stage, is_broken: bool) -> None:
    """A message of another term is not from a follower."""
    stage.elect_first()
    in_office_ns = stage.now_ns
    for beat in range(1, 4):
        stage.step(1, Tick(in_office_ns + beat * ELECTION_NS))
        if is_broken:
            stage.step(1, ControlReceived(NodeId(2), 1, PreVoteRequest(Term(2), Index(1), FIRST)))
        else:
            reply(stage, 1, 2, 1)


@breaks("I13", says="node 2 enters a candidate's term, 2, and hears the leader of term 1")
def a_vote_request_changes_the_term_of_a_follower_that_hears_a_leader(
    stage: Stage, is_broken: bool
) -> None:
    stage.elect_first()
    asked = VoteRequest(Term(2), Index(1), FIRST, not is_broken)  # a successor may
    stage.step(2, Tick(stage.now_ns))
    stage.beat(2, 1, 1)
    stage.nodes[2].core.term = 2
    stage.step(2, ControlReceived(NodeId(3), 1, asked), SaveMeta(2, Term(2), NodeId(3)))


@breaks("I13", says="node 1 enters a candidate's term, 2, and hears the leader of term 1")
def a_vote_request_changes_the_term_of_a_leader_with_a_majority(
    stage: Stage, is_broken: bool
) -> None:
    stage.elect_first()
    asked = VoteRequest(Term(2), Index(1), FIRST, False)
    stage.step(1, Tick(stage.now_ns))
    reply(stage, 1, 2, 1)
    stage.step(1, Tick(stage.now_ns + (ELECTION_NS // 2 if is_broken else ELECTION_NS)))
    stage.nodes[1].core.term, stage.nodes[1].core.role = 2, Role.FOLLOWER
    effects: list[Effect] = [StopLeading(FIRST), SaveMeta(2, Term(2), NodeId(3))]
    stage.step(1, ControlReceived(NodeId(3), 1, asked), *effects)


@breaks("I13", says="node 2 grants a pre-vote, 2, and hears the leader of term 1")
def a_pre_vote_is_granted_while_a_leader_is_heard(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    heard_ns = stage.now_ns
    stage.step(2, Tick(heard_ns))
    stage.beat(2, 1, 1)
    stage.step(2, Tick(heard_ns + (ELECTION_NS - 1 if is_broken else ELECTION_NS)))
    asked = ControlReceived(NodeId(3), 1, PreVoteRequest(Term(2), Index(1), FIRST))
    stage.step(2, asked, Answer(NodeId(3), PreVoteReply(Term(2), True)))


@breaks("I13", says="node 2 grants a pre-vote, 2, and hears the leader of term 1")
def the_connection_that_was_lost_is_not_the_leaders(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.beat(2, 1, 1)
    stage.step(2, ConnectionLost(NodeId(3 if is_broken else 1)))
    asked = ControlReceived(NodeId(3), 1, PreVoteRequest(Term(2), Index(1), FIRST))
    stage.step(2, asked, Answer(NodeId(3), PreVoteReply(Term(2), True)))


@breaks("I13", says="node 2 asks for votes in term 2 without a majority's pre-vote")
def a_lost_connection_begins_a_campaign(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    stage.beat(2, 1, 1)
    stage.step(2, ConnectionLost(NodeId(1)))
    if not is_broken:
        stage.idle(3, Answer(NodeId(2), PreVoteReply(Term(2), True)))
    stage.save_meta(2, 2, 2)
    stage.idle(2, Send(NodeId(3), VoteRequest(Term(2), Index(1), FIRST, False)))


# --- times ---


@breaks("I6", says="entry 2 of term 1 has a time 5.0 s beyond what a majority's clocks say")
def an_entry_has_the_time_of_one_clock_that_is_ahead(stage: Stage, is_broken: bool) -> None:
    stage.elect_first()
    clocks = [0, -SECOND_NS, -6 * SECOND_NS]
    if is_broken:
        clocks[1] = -5 * SECOND_NS
    stage.clocks = clocks
    stage.data(1, batch_of(0))


@breaks("I6", says="entry 4 of term 1 has a time")
def old_clocks_of_a_majority_are_no_excuse(stage: Stage, is_broken: bool) -> None:
    """Its clock went back, which the leader may learn late, or never."""
    stage.elect_first()
    clocks = [0, 0, 0]
    stage.clocks = clocks
    stage.data(1, batch_of(0))
    clocks[1:] = [-60 * SECOND_NS, -60 * SECOND_NS]
    stage.data(1, batch_of(1))
    stage.now_ns += (30 if is_broken else 10) * SECOND_NS
    stage.data(1, batch_of(2))


# --- acts ---


def round_of(number: int, *, term: int = 1, peers: Sequence[int] = (2, 3)) -> list[Send]:
    beat = Heartbeat(Term(term), Index(0), number, Index(0), Term(0), Lsn(1), 0)
    return [Send(NodeId(peer), beat) for peer in peers]


def replied(
    peer: int, number: int, *, term: int = 1, last: int = 1, is_full: bool = False
) -> ControlReceived:
    none = Index(0)
    reply_ = HeartbeatReply(Term(term), number, Index(last), none, none, is_disk_full=is_full)
    return ControlReceived(NodeId(peer), 1, reply_)


def reply(stage: Stage, leader: int, peer: int, number: int) -> None:
    stage.step(leader, replied(peer, number))


def append_of(row: Row) -> Append:
    return Append(row.header.term, 1, Index(0), row.header)
