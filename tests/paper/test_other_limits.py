"""Replicas whose limits differ go on together, and their leader names them."""

from __future__ import annotations

from logstore.format.peer_messages import HeartbeatReply
from logstore.model import Index, Role
from logstore.raft.core import RaftCore
from logstore.raft.effects import Answer, Effect, Log
from tests.paper.one_node import OneNode, of_type

OURS, THEIRS = 7, 8


def reply(node: OneNode, peer: int, round: int, digest: int) -> list[Effect]:
    none = Index(0)
    core: RaftCore = node.core
    return node.hear(peer, HeartbeatReply(core.term, round, Index(1), none, none, 0, digest))


def test_a_leader_names_each_peer_whose_limits_are_not_its_own_once() -> None:
    node = OneNode(voters=(1, 2, 3), limits_digest=OURS)
    node.lead()
    node.flush()
    assert of_type(reply(node, 2, 1, OURS), Log) == []
    [line] = of_type(reply(node, 3, 1, THEIRS), Log)
    assert "limits of node 3" in line.text
    assert of_type(reply(node, 3, 2, THEIRS), Log) == []
    assert node.core.other_limits == [3]
    reply(node, 3, 3, OURS)  # it was started again
    assert node.core.other_limits == []
    reply(node, 3, 4, 0)  # of a version that does not tell
    assert node.core.other_limits == []
    assert node.core.role is Role.LEADER


def test_a_follower_tells_of_its_limits_with_every_answer() -> None:
    node = OneNode(voters=(1, 2, 3), limits_digest=OURS)
    node.follow(2, 1)
    answers = of_type(node.hear_heartbeat(2, term=1), Answer)
    told = [each.message for each in answers if isinstance(each.message, HeartbeatReply)]
    assert [each.limits_digest for each in told] == [OURS]
