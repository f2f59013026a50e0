"""SAFETY S11 in the consensus core: who raises the log's format level, and who refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import ErrorCode
from logstore.format.level import level_kind
from logstore.format.peer_messages import AppendAccepted, AppendPersisted, HeartbeatReply
from logstore.model import Index, Role, Term
from logstore.raft.effects import (
    LevelAnswered,
    Persist,
    SaveLevel,
    StreamAccepted,
    Truncate,
)
from logstore.raft.events import DiskFullChanged, LevelRequested, TransferRequested
from tests.paper.one_node import OneNode, of_type, rows_of, sent


def says(node: OneNode, peer: int, newest: int, *, boot: int = 1) -> None:
    """`peer` answers a heartbeat of this term."""
    last = node.core.last_index
    reply = HeartbeatReply(node.core.term, 1, last, Index(0), Index(0), newest_level=newest)
    node.hear(peer, reply, boot=boot)


def leading(*, newest: int = 2, peers: int = 2, **state: Any) -> OneNode:
    """A leader whose no-op is committed; both peers have said that they read level `peers`."""
    node = OneNode(newest_level=newest, **state)
    node.lead_and_commit()
    for peer in (2, 3):
        says(node, peer, peers)
    return node


def ask(node: OneNode, level: int = 2) -> LevelAnswered | None:
    """The answer; None: not yet."""
    answers = of_type(node.step(LevelRequested(7, level)), LevelAnswered)
    return answers[0] if answers else None


def refused(node: OneNode, level: int = 2, code: ErrorCode = ErrorCode.LEVEL_REFUSED) -> str:
    """Why the request is refused; nothing is appended."""
    last = node.core.last_index
    answer = ask(node, level)
    assert answer is not None
    assert answer.code == code
    assert node.core.last_index == last
    return answer.reason


def put_off(node: OneNode, level: int = 2) -> str:
    """Why the requester is to ask again."""
    return refused(node, level, ErrorCode.NOT_READY)


def test_the_level_is_raised_once_its_entry_is_committed_and_no_sooner() -> None:
    node = leading()
    assert ask(node) is None
    index = node.core.last_index
    row = node.core.row(index)
    assert row is not None
    assert row.header.kind == level_kind(2)
    assert node.core.level == 1
    node.flush()
    assert node.core.level == 1
    effects = node.hear_match(2, index)
    assert node.core.level == 2
    assert of_type(effects, LevelAnswered) == [LevelAnswered(7, ErrorCode.OK, 2, "")]
    assert of_type(effects, SaveLevel) == [SaveLevel(2)]
    assert ask(node) == LevelAnswered(7, ErrorCode.OK, 2, "")


@pytest.mark.parametrize("peer", [2, 3])
def test_every_voter_must_read_the_level(peer: int) -> None:
    node = leading()
    says(node, peer, 1)
    assert refused(node) == f"node {peer} reads levels up to 1"
    assert node.core.newest_levels == {1: 2, 2: 2, 3: 2} | {peer: 1}


def test_a_voter_of_a_version_before_levels_reads_the_first_one() -> None:
    node = leading(peers=0)
    assert refused(node) == "node 2 reads levels up to 1; node 3 reads levels up to 1"


def test_what_a_voter_said_in_an_earlier_term_is_not_believed() -> None:
    node = leading()
    node.hear_heartbeat(2, term=node.core.term + 1)
    node.flush_meta()
    assert ask(node) == LevelAnswered(7, ErrorCode.NOT_LEADER, 1, "this replica does not lead")
    node.lead_and_commit()
    assert put_off(node) == "node 2 has not answered lately; node 3 has not answered lately"


def test_what_a_voter_said_before_it_was_restarted_is_not_believed() -> None:
    """Whichever message shows the new incarnation, and however late the old one's comes."""
    node = leading()
    node.hear_answer(3, AppendAccepted(node.core.term, 0, Index(1)), boot=2)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 3, 2, boot=1)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 3, 1, boot=2)
    assert refused(node) == "node 3 reads levels up to 1"
    says(node, 3, 2, boot=3)
    assert ask(node) is None


@pytest.mark.parametrize("newest", [1, 2])
def test_a_voter_that_is_silent_is_waited_for(newest: int) -> None:
    """It may be starting as a newer version."""
    node = leading()
    says(node, 3, newest)
    for _ in range(6):
        node.tick(100)
        says(node, 2, 2)
    assert put_off(node) == "node 3 has not answered lately"
    says(node, 2, 1)
    assert refused(node) == "node 2 reads levels up to 1"


def test_one_level_at_a_time() -> None:
    node = leading(newest=4, peers=4)
    assert refused(node, 3) == "the log is at format level 1: raise it to 2 first"
    assert ask(node, 2) is None
    assert put_off(node, 2) == "another request raises the level"  # maybe its first attempt
    assert put_off(node, 3) == "another request raises the level"
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert ask(node, 3) is None
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert node.core.level == 3


def test_a_leader_raises_no_level_that_it_does_not_read() -> None:
    assert refused(leading(newest=1)) == "node 1 reads levels up to 1"


@pytest.mark.parametrize("event", [DiskFullChanged(True), TransferRequested(9, 2)], ids=str)
def test_a_leader_that_takes_no_entries_raises_no_level(event: Any) -> None:
    node = leading()
    node.propose(0)  # the target of a transfer lacks it, so the transfer waits
    node.step(event)
    assert "the leader takes no entries now" in put_off(node)


def test_a_leader_that_stops_leading_does_not_know_whether_the_level_is_raised() -> None:
    node = leading()
    assert ask(node) is None
    effects = node.hear_heartbeat(2, term=node.core.term + 1)
    (answer,) = of_type(effects, LevelAnswered)
    assert (answer.code, answer.level) == (ErrorCode.OUTCOME_UNKNOWN, 1)


@pytest.mark.parametrize("level", [2, 3])
def test_an_entry_of_an_earlier_leader_is_waited_for_and_not_repeated(level: int) -> None:
    """A new leader knows the log's level once its no-op is committed."""
    rows = rows_of([1, 1], raises={Index(2): 2})
    node = OneNode(rows=rows, term=1, newest_level=3)
    node.lead()
    for peer in (2, 3):
        says(node, peer, 3)
    assert put_off(node, level) == "this leader is not ready yet"
    node.flush()
    node.hear_match(2, node.core.last_index)
    answer = ask(node, level)
    assert (answer and answer.level) == (2 if level == 2 else None)


def test_a_truncated_entry_raises_nothing() -> None:
    rows = rows_of([1, 1, 1], raises={Index(3): 2})
    node = OneNode(rows=rows, term=2, newest_level=2, commit_floor=2)
    node.follow(2, 2)
    longer = rows_of([1, 1, 2, 2], noops=[3])
    effects = node.hear_append(2, longer[2], commit=3)
    assert of_type(effects, Truncate)
    node.flush()
    assert node.core.commit == 3
    assert node.core.level == 1


def test_a_follower_learns_the_level_with_its_commit_index() -> None:
    node = OneNode(term=1, newest_level=2)
    node.follow(2, 1)
    rows = rows_of([1, 1, 1], noops=[1], raises={Index(2): 2})
    node.hear_append(2, rows[0], commit=0)
    assert not of_type(node.hear_append(2, rows[1], commit=1), SaveLevel)
    assert node.core.level == 1
    assert of_type(node.hear_append(2, rows[2], commit=2), SaveLevel) == [SaveLevel(2)]
    assert node.core.level == 2
    assert node.core.newest_levels == {}


@pytest.mark.parametrize(
    ("meta", "floor", "level", "saved"),
    [
        (1, 1, 1, []), (1, 2, 2, [SaveLevel(2)]), (2, 1, 2, []), (2, 2, 2, []),
        (2, 3, 3, [SaveLevel(3)]),
    ],
)  # fmt: skip
def test_after_a_restart_the_level_is_that_of_meta_or_of_what_is_known_to_be_committed(
    meta: int, floor: int, level: int, saved: list[SaveLevel]
) -> None:
    node = OneNode(
        rows=rows_of([1, 1, 1], raises={Index(2): 2, Index(3): 3}),
        term=1,
        newest_level=3,
        level=meta,
        commit_floor=floor,
    )
    assert node.core.level == level
    assert of_type(node.started, SaveLevel) == saved


def test_an_entry_of_a_level_that_is_passed_already_changes_nothing() -> None:
    """Damage may hide that the log was raised, and a leader raises it again."""
    node = OneNode(rows=rows_of([1]), term=1, newest_level=3, level=3)
    node.follow(2, 1)
    rows = rows_of([1, 1], raises={Index(2): 2})
    assert not of_type(node.hear_append(2, rows[1], commit=2), SaveLevel)
    assert node.core.commit == 2
    assert node.core.level == 3


def test_a_level_that_is_too_new_is_neither_taken_nor_rejected() -> None:
    rows = rows_of([1, 1, 1, 1], raises={Index(3): 2})
    node = OneNode(rows=rows[:2], term=1, newest_level=1)
    node.follow(2, 1)
    effects = node.hear_append(2, rows[2], commit=2)
    assert not of_type(effects, Persist)
    assert not sent(effects, AppendAccepted)
    assert [each.is_dead for each in of_type(effects, StreamAccepted)] == [True]
    assert node.core.refused_level == 2
    assert not sent(node.hear_append(2, rows[3], commit=3), AppendAccepted)
    assert (node.core.last_index, node.core.faulty, node.unsettled) == (2, (), {})
    node.hear_heartbeat(2, term=1, commit=4, round=2)
    assert node.core.commit <= 2
    assert node.core.role == Role.FOLLOWER
    node.hear_heartbeat(3, term=2)
    assert node.core.refused_level == 0


def test_a_replica_that_refuses_the_level_still_claims_what_it_has() -> None:
    rows = rows_of([1, 1, 1], raises={Index(3): 2})
    node = OneNode(term=1, newest_level=1)
    node.follow(2, 1)
    for row in rows:
        node.hear_append(2, row)
    assert sent(node.flush(), AppendPersisted) == [(2, AppendPersisted(Term(1), Index(2)))]
