"""Changes of the members while disks are full, or damaged: what waits says so, and for what, and is
judged again before it is in the log (SAFETY S9, C8, C11, C13).
"""

from __future__ import annotations

import pytest

from logstore.errors import ErrorCode
from logstore.format.configuration_body import Configuration
from logstore.format.peer_messages import HeartbeatReply
from logstore.format.trim_entry import TRIM_BODY_SIZE
from logstore.limits import FULL_DISK_KEPT_BYTES
from logstore.model import EntryKind, Index
from logstore.raft.effects import Accepted, ProposeConfiguration
from logstore.raft.events import ChangeKind, DiskFullChanged, Proposed
from tests.paper.one_node import MS, OneNode, of_type
from tests.paper.test_changes_of_members import (
    THREE,
    WITH_D,
    A,
    B,
    C,
    D,
    E,
    all_have,
    answers,
    append,
    ask,
    joined,
    leader_with,
    offered,
    refusal,
)
from tests.paper.test_joins import NEW_C, join, pass_timeouts

SMALL = DiskFullChanged(True, 4_096, 8)


def says_full(node: OneNode, peer: int, *, is_full: bool = True, room_bytes: int = 0) -> None:
    """`peer`, which has the whole log, reports that its disk is full, or not any more."""
    fields = (node.core.term, 1, node.core.last_index, Index(0), Index(0))
    disk = {"is_disk_full": is_full, "room_bytes": room_bytes}
    node.hear(peer, HeartbeatReply(*fields, newest_level=4, **disk))


def waits_for(node: OneNode) -> str:
    return node.core.configuration.waits_for


def test_c8_a_learner_with_a_full_disk_becomes_no_voter() -> None:
    """Of three voters and it, one less may be down, and it takes no batch."""
    node = leader_with(WITH_D)
    joined(node, 4)
    says_full(node, 4)
    words = "node 4 reports a full disk: free some space there before it becomes a voter"
    assert refusal(ask(node, ChangeKind.PROMOTE, 4)) == words
    assert refusal(ask(node, ChangeKind.PROMOTE, 4, is_forced=True)) == words
    assert refusal(ask(node, ChangeKind.REPLACE, 2, 4)) == words
    assert waits_for(node) == words
    says_full(node, 4, is_full=False)
    assert waits_for(node) == ""
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


def test_s9_a_change_that_waits_for_the_leader_s_space_says_so() -> None:
    node = leader_with(Configuration(1, (A,)), voters=(1,))
    ask(node, ChangeKind.ADD, members=(D,))
    assert waits_for(node) == "", "it is offered, and there is room"
    node.step(SMALL)
    words = (
        "configuration 2 waits for space, the disks of nodes [1] are full: free some, or trim the "
        "log"
    )
    assert waits_for(node) == words
    assert refusal(ask(node, ChangeKind.ADD, members=(E,))).endswith(words)
    node.step(DiskFullChanged(True, 0, 0))
    assert refusal(ask(node, ChangeKind.ADD, members=(E,))).endswith(words), "not even for a TRIM"
    node.step(DiskFullChanged(False))
    assert waits_for(node) == ""


def test_s9_a_change_that_waits_for_a_majority_s_space_says_whose() -> None:
    node = leader_with(THREE)
    for peer in (2, 3):
        says_full(node, peer)
    ask(node, ChangeKind.ADD, members=(D,))
    assert "the disks of nodes [2, 3] are full" in waits_for(node)
    says_full(node, 3, is_full=False)
    assert waits_for(node) == ""


def test_s9_a_change_that_is_appended_and_that_full_disks_may_not_take_says_whose() -> None:
    node = leader_with(THREE)
    ask(node, ChangeKind.ADD, members=(D,))
    append(node, WITH_D)
    assert "configuration" not in waits_for(node)
    for peer in (2, 3):
        says_full(node, peer)
    assert "configuration 2 waits for space, the disks of nodes [2, 3]" in waits_for(node)
    assert "waits for space" in refusal(ask(node, ChangeKind.REMOVE, C.number))
    all_have(node, 2)
    assert waits_for(node) == ""


def test_s9_what_cursors_leave_has_room_for_the_config_that_a_trim_needs() -> None:
    """The log start stays below the newest CONFIG, which is the first entry of most logs. A trim
    asks for the same members once more, and nothing else makes space."""
    node = leader_with(THREE)
    joined(node, 2)
    joined(node, 3)
    for peer in (2, 3):
        says_full(node, peer, room_bytes=1 << 20)
    node.step(DiskFullChanged(True, FULL_DISK_KEPT_BYTES, 1_000))
    assert node.core.room_for_changes == 0, "cursors used it up"
    renewed = offered(ask(node, ChangeKind.RENEW))
    append(node, renewed)
    assert answers(all_have(node, 2)) == [(ErrorCode.OK, "")]
    start, end = node.reserve(TRIM_BODY_SIZE)
    gen = (node.core.term, node.core.open_gen or 0, 1)
    assert of_type(node.step(Proposed(*gen, EntryKind.TRIM, 0, 7, start, end, 0)), Accepted)


@pytest.mark.parametrize("is_leader_short", [True, False])
def test_s9_configs_leave_half_of_what_is_kept_for_trims(*, is_leader_short: bool) -> None:
    node = leader_with(THREE)
    joined(node, 2)
    joined(node, 3)
    short, ample = FULL_DISK_KEPT_BYTES // 2 + 500, 1 << 20
    for peer in (2, 3):
        says_full(node, peer, room_bytes=ample if is_leader_short else short)
    node.step(DiskFullChanged(True, short if is_leader_short else ample, 1_000))
    assert not of_type(ask(node, ChangeKind.RENEW), ProposeConfiguration)
    assert "waits for space" in waits_for(node)


def test_c11_a_change_that_waited_for_space_is_given_up_once_its_majority_is_silent() -> None:
    """Committed by node 4 alone, it would end the only leader."""
    node = leader_with(Configuration(1, (A,), (), (D,)), voters=(1,))
    joined(node, 4)
    node.step(SMALL)
    assert not of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)
    node.tick(2 * node.config.election_timeout_ns // MS)
    effects = node.step(DiskFullChanged(False))
    assert refusal(effects) == "node 4 has not answered within an election timeout"
    joined(node, 4)
    assert of_type(ask(node, ChangeKind.PROMOTE, 4), ProposeConfiguration)


def test_c13_a_change_that_waited_for_space_is_given_up_once_one_that_stays_is_damaged() -> None:
    node = leader_with(THREE)
    for peer in (2, 3):
        says_full(node, peer)
    assert not of_type(ask(node, ChangeKind.REMOVE, 3), ProposeConfiguration)
    effects = node.hear_reply(2, 1, faulty=2)
    assert "entries of nodes [2] are damaged" in refusal(effects)
    assert of_type(ask(node, ChangeKind.REMOVE, 3, is_forced=True), ProposeConfiguration)


@pytest.mark.parametrize("configuration", [THREE, Configuration(1, (A, B), (), (C,))])
def test_l5_a_member_heard_again_while_a_join_waited_for_space_keeps_its_place(
    configuration: Configuration,
) -> None:
    """Node 3 was cut off, and another replica asked for its place."""
    node = leader_with(configuration)
    pass_timeouts(node, 2)
    says_full(node, 2)
    assert not of_type(join(node, NEW_C), ProposeConfiguration)
    effects = node.hear_reply(3, 1) + node.hear_reply(2, 1)
    assert refusal(effects) == "another replica answers as node 3: one of the two must stop"
    pass_timeouts(node, 2)
    assert of_type(join(node, NEW_C), ProposeConfiguration)


def test_a_forced_change_that_waited_for_space_is_not_given_up() -> None:
    node = leader_with(THREE)
    for peer in (2, 3):
        says_full(node, peer)
    assert not of_type(ask(node, ChangeKind.REMOVE, 3, is_forced=True), ProposeConfiguration)
    assert of_type(node.hear_reply(2, 1, faulty=2), ProposeConfiguration)


def test_c13_the_only_voter_is_replaced_by_a_whole_learner_only() -> None:
    node = leader_with(Configuration(1, (A,), (), (D,)), voters=(1,))
    joined(node, 4)
    node.hear_reply(4, 1, faulty=2)
    assert "entries of nodes [4] are damaged" in refusal(ask(node, ChangeKind.REPLACE, 1, 4))
    says_full(node, 4, is_full=False)
    assert of_type(ask(node, ChangeKind.REPLACE, 1, 4), ProposeConfiguration)


def test_a_replica_that_does_not_lead_says_nothing_of_waiting() -> None:
    node = OneNode(newest_level=4)
    node.step(SMALL)
    assert waits_for(node) == ""
