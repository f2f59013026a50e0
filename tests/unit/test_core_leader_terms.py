"""Which of the replicas that call themselves leader a client believes: by terms in which one was
elected, and of its own cluster."""

from __future__ import annotations

import pytest

from logstore.client.core.routing import Routing
from logstore.errors import NoQuorum, WrongCluster
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


def find_where_node_3_is_of_another_cluster(*, has_left: bool) -> int:
    """The leader for a client that was given the address of node 3 alone, and has learned the
    members of a CONFIG; then another cluster has that machine. Node 1 is elected a second later."""
    world = World()
    world.configuration, world.leader = 5, 0
    mine, machine, elected_ns = world.cluster_id, world.nodes[3], world.now_ns + 2 * SECOND_NS
    routing = Routing(world.host, [machine])

    def answer(node: int, _: object) -> MetadataReply:
        world.leader = 1 if world.now_ns > elected_ns else 0
        if node == 3:
            world.cluster_id, world.leader = bytes(15) + b"x", 3
        elif has_left:
            del world.nodes[3]
        said = world.metadata(node)
        world.cluster_id, world.nodes[3] = mine, machine
        return said

    world.finish(routing.nodes(timeout_s=1.0))
    world.on[MetadataRequest] = answer
    world.stop(3)
    world.finish(routing.current_nodes(timeout_s=1.0))
    world.start(3)
    node, _ = world.finish(routing.find_leader(deadline_ns=elected_ns + 5 * SECOND_NS))
    return node


def test_a_machine_that_left_and_is_another_clusters_by_now_is_passed_over() -> None:
    """A client that was given its address was told of a wrong cluster at the next election, and its
    producer ended."""
    assert find_where_node_3_is_of_another_cluster(has_left=True) == 1


def test_a_member_that_is_of_another_cluster_is_told() -> None:
    with pytest.raises(WrongCluster):
        find_where_node_3_is_of_another_cluster(has_left=False)
