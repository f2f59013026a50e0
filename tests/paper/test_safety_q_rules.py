"""SAFETY section 5: what a replica with faulty entries claims, votes and leads."""

from __future__ import annotations

import pytest

from logstore.errors import ReplicaLost
from logstore.format.entry import Row
from logstore.format.peer_messages import (
    AppendAccepted,
    HeartbeatReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from logstore.model import Index, Role, Term
from logstore.raft.effects import AdmissionClosed, Admit, Effect, Log, StopLeading, Truncate
from logstore.raft.events import EntryRotted
from tests.paper.one_node import OneNode, of_type, rows_of, sent


def test_q1_an_uncommitted_faulty_entry_caps_claims_a_committed_one_does_not() -> None:
    rows = rows_of([1, 1, 1, 1])
    node = OneNode(rows=rows, term=1, faulty=((Index(2), Index(2)), (Index(4), Index(4))))
    assert node.core.persisted == 1
    node.follow(2, 1)
    node.hear_heartbeat(2, term=1, commit=3, prev=rows[3])
    assert (node.core.commit, node.core.persisted) == (3, 3)
    effects = node.hear_heartbeat(2, term=1, commit=4, prev=rows[3])
    assert node.core.persisted == 4
    (reply,) = [reply for _, reply in sent(effects, HeartbeatReply)]
    assert (reply.last_index, reply.faulty_first, reply.faulty_last) == (4, 2, 2)


def test_q1_damage_found_by_a_reader_counts_from_then_on_and_once() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=1)
    assert of_type(node.step(EntryRotted(Index(2))), Log)
    assert not node.step(EntryRotted(Index(2)))
    assert not node.step(EntryRotted(Index(9)))
    assert node.core.faulty == ((2, 2),)
    assert node.core.persisted == 1


def test_q1_a_truncation_removes_the_damage_with_the_entries() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=2, faulty=((Index(2), Index(3)),))
    node.follow(2, 2)
    node.hear_append(2, rows_of([1, 1, 2])[2])
    assert node.core.faulty == ((2, 2),)
    node.follow(3, 3)
    node.hear_append(3, rows_of([1, 3])[1])
    assert node.core.faulty == ()


def test_q1_an_entry_whose_record_is_unreadable_is_matched_by_its_term_alone() -> None:
    rows = rows_of([1, 1, 1])
    node = OneNode(rows=rows, term=2, faulty=((Index(1), Index(2)),))
    node.files.unreadable = {1, 2}
    node.follow(2, 2)
    assert sent(node.hear_append(2, rows[1]), AppendAccepted)
    assert of_type(node.hear_append(2, rows_of([1, 1, 2])[2]), Truncate)
    assert node.core.row(Index(1)) is None
    assert node.core.row(Index(9)) is None


def hidden_terms() -> tuple[list[Row], OneNode]:
    """Entries 2 to 4 of terms 1, 2, 2: nothing is left of them, and 5 says what 4 was."""
    rows = rows_of([1, 1, 2, 2, 2])
    node = OneNode(
        rows=rows, term=2, faulty=((Index(2), Index(4)),),
        term_runs=((Index(1), Term(1)), (Index(4), Term(2))),
    )  # fmt: skip
    node.files.unreadable = {2, 3, 4}
    return rows, node


@pytest.mark.parametrize(("index", "term"), [(2, 1), (2, 2), (3, 1), (3, 2)])
def test_q1_a_term_that_damage_hides_is_neither_a_match_nor_a_conflict(
    index: int, term: int
) -> None:
    _, node = hidden_terms()
    node.follow(2, 2)
    prev = rows_of([1] * (index - 1) + [term])[-1]
    with pytest.raises(ReplicaLost, match=f"entry {index}, which is of a term in 1 to 2"):
        node.hear_heartbeat(2, term=2, prev=prev)


@pytest.mark.parametrize(("index", "term"), [(1, 1), (3, 1), (3, 2)])
def test_q1_damage_may_hide_the_terms_of_the_first_entries(index: int, term: int) -> None:
    rows = rows_of([1, 1, 2, 2, 2])
    node = OneNode(
        rows=rows, term=2, faulty=((Index(1), Index(4)),), term_runs=((Index(4), Term(2)),)
    )
    node.files.unreadable = {1, 2, 3, 4}
    node.follow(2, 2)
    with pytest.raises(ReplicaLost, match=f"entry {index}, which is of a term in 0 to 2"):
        node.hear_append(2, rows_of([1] * (index - 1) + [term, 2])[-1])


def test_q1_an_append_that_only_a_guess_could_place_is_not_taken() -> None:
    rows, node = hidden_terms()
    node.follow(2, 2)
    with pytest.raises(ReplicaLost, match="entry 2,"):
        node.hear_append(2, rows[2])


def test_q1_the_last_hidden_entry_is_of_the_term_that_the_next_one_says() -> None:
    rows, node = hidden_terms()
    node.follow(2, 2)
    assert sent(node.hear_append(2, rows[4]), AppendAccepted)
    node.hear_heartbeat(2, term=2, commit=5, prev=rows[4])
    assert (node.core.commit, node.core.persisted, node.core.faulty) == (5, 5, ((2, 4),))


def test_q1_a_term_that_a_hidden_entry_cannot_have_is_a_conflict() -> None:
    _, node = hidden_terms()
    node.follow(2, 3)
    (cut,) = of_type(node.hear_append(2, rows_of([1, 3])[1]), Truncate)
    assert (cut.first_index, node.core.last_index, node.core.faulty) == (2, 2, ())


def test_q2_a_voter_compares_with_its_claimed_last_entry_faulty_or_not() -> None:
    node = OneNode(rows=rows_of([1, 1, 1]), term=1, faulty=((Index(3), Index(3)),))
    node.hear(2, VoteRequest(Term(2), Index(2), Term(1), False))
    assert sent(node.flush_meta(), VoteReply) == [(2, VoteReply(Term(2), False))]


def test_q3_a_damaged_candidate_waits_three_election_timeouts_longer() -> None:
    whole = OneNode(rows=rows_of([1]), term=1)
    damaged = OneNode(rows=rows_of([1]), term=1, faulty=((Index(1), Index(1)),))
    extra = damaged.core.deadline_ns - whole.core.deadline_ns
    assert extra == 3 * whole.config.election_timeout_ns


def test_q3_a_leader_with_an_uncommitted_faulty_entry_admits_nothing_and_hands_over() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1, faulty=((Index(2), Index(2)),))
    effects = node.lead()
    assert not of_type(effects, Admit)
    node.hear_reply(2, 1, faulty=2)
    node.hear_reply(3, 1)
    node.hear_match(2, 3)
    node.hear_match(3, 1)
    effects = node.tick(50)
    assert not sent(effects, TimeoutNow), "the whole one is not level yet"
    assert [peer for peer, _ in sent(node.hear_match(3, 3), TimeoutNow)] == [3]


def lone_holder() -> OneNode:
    """Entry 2 is damaged, this leader alone has it, and it may be uncommitted."""
    node = OneNode(rows=rows_of([1, 1]), term=1, faulty=((Index(2), Index(2)),))
    node.lead()
    return node


def lead_in_vain(node: OneNode, milliseconds: int) -> list[Effect]:
    """The others answer, have entry 1, and get no further."""
    effects: list[Effect] = []
    for _ in range(milliseconds // 50):
        for peer in (2, 3):
            if node.core.role == Role.LEADER:
                node.hear_reply(peer, 1)
                node.hear_match(peer, 1)
        effects += node.tick(50)
    return effects


def test_q3_a_leader_whose_damage_lets_nobody_get_level_steps_down() -> None:
    node = lone_holder()
    effects = lead_in_vain(node, 700)
    assert of_type(effects, StopLeading)
    assert not sent(effects, TimeoutNow)
    assert (node.core.role, node.core.term, node.core.vote) == (Role.FOLLOWER, 2, 1)


def test_q3_who_stepped_down_for_damage_lets_the_others_elect_one_of_themselves() -> None:
    node = lone_holder()
    lead_in_vain(node, 700)
    quiet_ns = node.core.deadline_ns - node.now_ns
    assert quiet_ns >= 5 * node.config.election_timeout_ns
    node.hear_heartbeat(2, term=3)
    assert node.core.deadline_ns - node.now_ns >= quiet_ns, "nor while it hears another leader"


def test_q3_who_stepped_down_for_damage_still_votes() -> None:
    node = lone_holder()
    lead_in_vain(node, 700)
    node.hear(2, VoteRequest(Term(3), Index(9), Term(2), False))
    assert sent(node.flush_meta(), VoteReply) == [(2, VoteReply(Term(3), True))]


def test_q3_a_leader_with_damage_that_is_committed_stays() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1, faulty=((Index(1), Index(1)),), commit_floor=2)
    node.lead()
    node.hear_reply(2, 1, faulty=1)
    assert not of_type(lead_in_vain(node, 700), StopLeading)


def test_q3_once_the_damaged_entry_is_committed_by_others_admission_opens() -> None:
    node = OneNode(rows=rows_of([1, 1]), term=1, faulty=((Index(2), Index(2)),))
    node.lead()
    node.flush()
    node.hear_match(2, 3)
    assert node.core.commit == 0, "one of three: the leader's own copy does not count"
    assert of_type(node.hear_match(3, 3), Admit)


def test_q3_damage_found_while_leading_closes_admission_if_it_may_be_uncommitted() -> None:
    node = OneNode()
    node.lead_and_commit()
    node.hear_reply(2, 1)
    node.propose(0)
    node.flush()
    assert of_type(node.step(EntryRotted(Index(2))), AdmissionClosed)
    other = OneNode()
    other.lead_and_commit()
    other.hear_reply(2, 1)
    effects = other.step(EntryRotted(Index(1)))
    assert [peer for peer, _ in sent(effects, TimeoutNow)] == [2]
