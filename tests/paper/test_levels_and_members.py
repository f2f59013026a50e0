"""Whom a leader asks what it reads before it raises the log's format level, where members come and
go (SAFETY S11, C8)."""

from __future__ import annotations

from logstore.errors import ErrorCode
from logstore.format.configuration_body import Configuration
from logstore.format.peer_messages import HeartbeatReply
from logstore.model import Index
from logstore.raft.effects import LevelAnswered, ProposeConfiguration
from logstore.raft.events import ChangeKind, DiskFullChanged, LevelRequested
from tests.paper.one_node import OneNode, of_type
from tests.paper.test_changes_of_members import (
    ROWS,
    THREE,
    WITH_D,
    A,
    B,
    C,
    D,
    all_have,
    append,
    ask,
    joined,
    refusal,
)


def leading(configuration: Configuration = WITH_D) -> OneNode:
    """A leader at level 4 of a version that reads 5; the founders have said that they do, too."""
    held = ((Index(4), configuration),)
    node = OneNode(newest_level=5, rows=ROWS, term=1, commit_floor=4, configurations=held)
    node.lead_and_commit()
    for peer in (2, 3):
        reads(node, peer, 5)
    return node


def reads(node: OneNode, peer: int, level: int) -> None:
    fields = (node.core.term, 1, node.core.last_index, Index(0), Index(0))
    node.hear(peer, HeartbeatReply(*fields, newest_level=level))


def raise_to_5(node: OneNode) -> LevelAnswered | None:
    """The answer; None: the level is being raised."""
    answers = of_type(node.step(LevelRequested(9, 5)), LevelAnswered)
    return answers[0] if answers else None


def test_s11_a_learner_that_is_silent_holds_up_nothing() -> None:
    assert raise_to_5(leading()) is None


def test_s11_a_voter_that_is_silent_is_waited_for_by_name() -> None:
    four = Configuration(2, (A, B, C, D))
    answer = raise_to_5(leading(four))
    assert answer is not None
    assert (answer.code, answer.reason) == (
        ErrorCode.NOT_READY, "node 4 has not answered lately",
    )  # fmt: skip


def test_s11_a_learner_that_answers_reads_the_level() -> None:
    """It would stop at it, an upgrade that is not done."""
    node = leading()
    reads(node, 4, 4)
    answer = raise_to_5(node)
    assert answer is not None
    assert answer.code == ErrorCode.LEVEL_REFUSED
    assert answer.reason.startswith("node 4 reads levels up to 4: it is a learner")
    reads(node, 4, 5)
    assert raise_to_5(node) is None


def test_s11_a_replica_that_has_left_is_not_asked() -> None:
    node = leading(Configuration(2, (A, B, C, D)))
    reads(node, 4, 4)
    ask(node, ChangeKind.REMOVE, 4, is_forced=True)
    append(node, Configuration(3, (A, B, C, D), (A, B, C)))
    all_have(node, 2, 3)
    append(node, Configuration(4, (A, B, C)), prop=1)
    for peer in (2, 3):
        node.hear_match(peer, node.core.last_index)
    node.flush()
    assert 4 in node.core.match, "it still gets the log, until it knows that it has left"
    assert raise_to_5(node) is None


def test_c8_a_learner_that_does_not_read_the_log_s_level_becomes_no_voter() -> None:
    """It stands right before the entry that raised the level, within a window of the end."""
    node = leading()
    joined(node, 4)
    reads(node, 4, 4)
    for _ in range(6):
        node.tick(100)
        for peer in (2, 3):
            reads(node, peer, 5)
    assert raise_to_5(node) is None
    reads(node, 4, 4)
    words = "node 4 has not said that it reads format level 5: run a newer version"
    assert refusal(ask(node, ChangeKind.PROMOTE, 4, is_forced=True)) == words, "on its way"
    all_have(node, 2, 3)
    assert node.core.level == 5
    assert refusal(ask(node, ChangeKind.PROMOTE, 4)) == words
    reads(node, 4, 5)
    node.hear_match(4, node.core.last_index)
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


def test_s11_no_level_is_raised_while_who_votes_next_is_not_in_the_log_yet() -> None:
    node = leading()
    joined(node, 4)
    reads(node, 4, 5)
    ask(node, ChangeKind.PROMOTE, 4)
    answer = raise_to_5(node)
    assert answer is not None
    assert answer.code == ErrorCode.NOT_READY
    assert "change of the members" in answer.reason
    append(node, Configuration(3, (A, B, C), (A, B, C, D)))
    assert raise_to_5(node) is None


def test_s11_a_change_that_waits_for_space_is_named() -> None:
    node = leading(THREE)
    ask(node, ChangeKind.ADD, members=(D,))
    node.step(DiskFullChanged(True, 4_096, 8))
    answer = raise_to_5(node)
    assert answer is not None
    assert "`logstore member list` shows it" in answer.reason
