"""Which of the replicas that call themselves leader a client believes: by terms in which one was
elected."""

from __future__ import annotations

import pytest

from logstore.client.core.routing import Routing
from logstore.errors import NoQuorum
from logstore.format.client_messages import MetadataReply, MetadataRequest
from tests.unit.core_stage import SECOND_NS, World


def find_after_node_3_was_asked(leader_of_3: int) -> int:
    """The leader for a client that has first asked node 3, which is in term 9 and goes by this
    leader. Node 1 leads term 8."""
    world = World()

    def answer(node: int, _: object) -> MetadataReply:
        world.leader, world.term = (leader_of_3, 9) if node == 3 else (1, 8)
        return world.metadata(node)

    world.on[MetadataRequest] = answer
    routing = Routing(world.host, [world.nodes[3]])
    world.finish(routing.nodes(timeout_s=1.0))
    world.stop(3)
    node, _ = world.finish(routing.find_leader(deadline_ns=world.now_ns + SECOND_NS))
    return node


def test_a_term_in_which_no_replica_was_elected_hides_no_leader() -> None:
    """A candidate entered it and died before another node heard of it."""
    assert find_after_node_3_was_asked(0) == 1


def test_a_leader_is_deposed_where_another_one_is_known_in_a_later_term() -> None:
    with pytest.raises(NoQuorum, match="none of them leads"):
        find_after_node_3_was_asked(2)
