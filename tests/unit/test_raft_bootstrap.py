"""Bootstrap (SAFETY L2, L3): one cluster id whatever stops in between; lost disks stay out (L1)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from logstore.errors import InvariantViolated
from logstore.format.first_lsn import pack_first_lsn
from logstore.format.peer_messages import (
    InitCommit,
    InitPrepare,
    InitPrepared,
    InitStatus,
    InitStatusRequest,
)
from logstore.limits import LOG_AGAIN_NS
from logstore.model import FIRST_LSN, Lsn, NodeId, ReplicaState
from logstore.raft.bootstrap import (
    NEVER_NS,
    NO_CLUSTER,
    RETRIES_YIELDED,
    RETRY_NS,
    Bootstrap,
    InitDone,
    SaveInit,
    SendInit,
)
from logstore.raft.effects import Log

CLUSTER = bytes(range(16))
UUIDS = {node: bytes([node]) * 16 for node in range(1, 6)}


def make(node: int = 1, voters: int = 3, *, seed: int = 0, **changes: Any) -> Bootstrap:
    values: dict[str, Any] = {
        "node": NodeId(node),
        "voters": [NodeId(each) for each in range(1, voters + 1)],
        "replica_uuid": UUIDS[node],
        "auto_init": True,
        "state": ReplicaState.EMPTY,
        "nonce": 0,
        "cluster_id": NO_CLUSTER,
        "first_lsn": FIRST_LSN,
        "random": Random(seed * 10 + node),
    }
    return Bootstrap(**(values | changes))


class Nodes:
    """A few nodes, their META and the wire between them, under a random schedule."""

    def __init__(self, voters: int, seed: int, **changes: Any) -> None:
        self.random = Random(seed)
        self.changes = changes
        self.voters = voters
        self.meta: dict[int, tuple[int, int, bytes, Lsn]] = {}
        self.saves: dict[int, list[SaveInit]] = {}
        self.done: dict[int, bytes] = {}
        self.wire: list[tuple[int, SendInit]] = []
        self.now_ns = 0
        self.boots = 0
        self.nodes = {node: self.boot(node) for node in range(1, voters + 1)}

    def boot(self, node: int) -> Bootstrap:
        self.boots += 1
        unborn = (ReplicaState.EMPTY, 0, NO_CLUSTER, FIRST_LSN)
        state, nonce, cluster, first_lsn = self.meta.get(node, unborn)
        self.saves[node] = []
        return make(
            node, self.voters, seed=self.boots, state=state, nonce=nonce, cluster_id=cluster,
            first_lsn=first_lsn, **self.changes,
        )  # fmt: skip

    def take(self, node: int, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case SaveInit():
                    self.saves[node].append(effect)
                case SendInit():
                    self.wire.append((node, effect))
                case InitDone():
                    assert self.meta[node][2] == effect.cluster_id
                    self.done[node] = effect.cluster_id

    def act(self, *, loss: float, crash: float) -> None:
        node = self.random.randint(1, self.voters)
        draw = self.random.random()
        if draw < crash:
            self.nodes[node] = self.boot(node)
        elif draw < 0.2:
            self.now_ns += RETRY_NS // 4
            for each, bootstrap in self.nodes.items():
                self.take(each, bootstrap.on_tick(self.now_ns))
        elif draw < 0.4 and self.saves[node]:
            save = self.saves[node].pop(0)
            self.meta[node] = (save.state, save.nonce, save.cluster_id, save.first_lsn)
            self.take(node, self.nodes[node].on_saved(save.seq))
        elif self.wire:
            sender, sent = self.wire.pop(self.random.randrange(len(self.wire)))
            if self.random.random() >= loss:
                effects = self.nodes[sent.peer].on_message(
                    NodeId(sender), UUIDS[sender], sent.message
                )
                self.take(sent.peer, effects)
        voters = {meta[2:] for meta in self.meta.values() if meta[0] == ReplicaState.VOTER}
        assert len(voters) <= 1, "two cluster ids, or two first LSNs"

    @property
    def is_one_cluster(self) -> bool:
        states = [self.meta.get(node, (0,))[0] for node in self.nodes]
        return all(state == ReplicaState.VOTER for state in states)


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
def test_all_nodes_become_voters_of_one_cluster_through_loss_and_crashes(
    voters: int, seed: int
) -> None:
    nodes = Nodes(voters, seed)
    for _ in range(400):
        nodes.act(loss=0.2, crash=0.02)
    for _ in range(20_000):
        nodes.act(loss=0.0, crash=0.0)
        if nodes.is_one_cluster:
            return
    raise AssertionError(nodes.meta)


@pytest.mark.parametrize("seed", range(8))
def test_two_coordinators_do_not_make_two_clusters(seed: int) -> None:
    """P1: nor two logs that begin at different LSNs."""
    nodes = Nodes(3, seed)
    nodes.take(3, nodes.nodes[3].on_init_requested(Lsn(7_000)))
    for _ in range(30_000):
        nodes.act(loss=0.1, crash=0.001)
        if nodes.is_one_cluster:
            return
    raise AssertionError(nodes.meta)


def test_without_auto_init_nothing_begins_unasked() -> None:
    nodes = Nodes(2, 1, auto_init=False)
    for _ in range(2_000):
        nodes.act(loss=0.0, crash=0.0)
    assert not nodes.meta
    nodes.take(2, nodes.nodes[2].on_init_requested(FIRST_LSN))
    for _ in range(2_000):
        nodes.act(loss=0.0, crash=0.0)
    assert nodes.is_one_cluster


def test_an_attempt_that_was_stopped_goes_on_with_its_first_lsn() -> None:
    nodes = Nodes(1, 1)
    nodes.take(1, nodes.nodes[1].on_init_requested(Lsn(7_000)))
    (save,) = nodes.saves[1]
    nodes.meta[1] = (save.state, save.nonce, save.cluster_id, save.first_lsn)
    nodes.nodes[1] = nodes.boot(1)
    while not nodes.is_one_cluster:
        nodes.act(loss=0.0, crash=0.0)
    assert nodes.meta[1][3] == nodes.nodes[1].first_lsn == 7_000


def sends(effects: list[Any], kind: type[Any]) -> list[tuple[int, Any]]:
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, SendInit) and isinstance(effect.message, kind)
    ]


def saves(effects: list[Any]) -> list[SaveInit]:
    return [effect for effect in effects if isinstance(effect, SaveInit)]


def hear(bootstrap: Bootstrap, sender: int, message: Any) -> list[Any]:
    return bootstrap.on_message(NodeId(sender), UUIDS[sender], message)


def test_l2_no_attempt_begins_before_every_configured_node_answered() -> None:
    bootstrap = make()
    assert len(sends(bootstrap.on_tick(0), InitStatusRequest)) == 2
    assert not bootstrap.on_tick(1), "not asked again before the retry is due"
    assert not saves(hear(bootstrap, 2, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)))
    assert not saves(bootstrap.on_tick(RETRY_NS))
    (save,) = saves(hear(bootstrap, 3, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)))
    assert save.state == ReplicaState.STARTING
    prepares = sends(bootstrap.on_saved(save.seq), InitPrepare)
    assert [peer for peer, _ in prepares] == [2, 3]


def make_among_empty() -> Bootstrap:
    """Node 2, which has heard that neither other is of a cluster."""
    bootstrap = make(2)
    for peer in (1, 3):
        assert not hear(bootstrap, peer, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))
    return bootstrap


def test_l2_a_follower_is_prepared_only_when_that_is_durable() -> None:
    bootstrap = make_among_empty()
    (save,) = hear(bootstrap, 1, InitPrepare(7, CLUSTER))
    assert save == SaveInit(1, ReplicaState.STARTING, 7, CLUSTER, FIRST_LSN)
    assert not hear(bootstrap, 1, InitPrepare(7, CLUSTER)), "under way already"
    assert sends(bootstrap.on_saved(1), InitPrepared) == [(1, InitPrepared(7))]
    assert sends(hear(bootstrap, 1, InitPrepare(7, CLUSTER)), InitPrepared)
    assert bootstrap.cluster_id == CLUSTER
    assert not bootstrap.on_saved(1)


def test_p1_a_prepared_node_takes_the_first_lsn_of_the_attempt_and_no_impossible_one() -> None:
    bootstrap = make_among_empty()
    for bad in (bytes(8), (1).to_bytes(8, "little"), b"\xff" * 8, bytes(16)):
        (log,) = hear(bootstrap, 1, InitPrepare(7, CLUSTER, bad))
        assert "node 1 is dropped" in log.text
    (save,) = hear(bootstrap, 1, InitPrepare(7, CLUSTER, pack_first_lsn(Lsn(500))))
    assert save.first_lsn == 500
    bootstrap.on_saved(save.seq)
    (status,) = hear(bootstrap, 3, InitStatusRequest(0))
    assert status.message == InitStatus(ReplicaState.STARTING, 7, CLUSTER, pack_first_lsn(Lsn(500)))


def test_l1_an_empty_node_is_prepared_only_once_it_has_heard_that_no_cluster_was_formed() -> None:
    """Node 3 coordinates, and missed that node 1 formed the cluster; node 2 voted in it, and has
    lost its disk: prepared, it would become a VOTER once node 1 says VOTER."""
    bootstrap = make(2)
    unborn = [(3, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))]
    for state in (ReplicaState.STARTING, ReplicaState.VOTER):
        assert sends(hear(bootstrap, 3, InitPrepare(9, NO_CLUSTER)), InitStatus) == unborn
        hear(bootstrap, 3 if state == ReplicaState.STARTING else 1, InitStatus(state, 8, CLUSTER))
    assert sends(hear(bootstrap, 3, InitPrepare(9, NO_CLUSTER)), InitStatus) == unborn
    assert joined(bootstrap).state == ReplicaState.LEARNER


def test_l1_an_empty_node_asks_again_where_another_disk_answers() -> None:
    bootstrap = make_among_empty()
    assert not saves(bootstrap.on_message(NodeId(1), UUIDS[5], InitPrepare(9, CLUSTER)))
    other = InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
    assert not bootstrap.on_message(NodeId(1), UUIDS[5], other)
    assert saves(bootstrap.on_message(NodeId(1), UUIDS[5], InitPrepare(9, CLUSTER)))


def test_l2_a_starting_node_takes_a_newer_nonce_and_refuses_an_older_one() -> None:
    bootstrap = make(2, state=ReplicaState.STARTING, nonce=5, cluster_id=CLUSTER)
    known = InitStatus(ReplicaState.STARTING, 5, CLUSTER)
    assert sends(hear(bootstrap, 1, InitPrepare(4, CLUSTER)), InitStatus) == [(1, known)]
    assert sends(hear(bootstrap, 3, InitPrepare(5, NO_CLUSTER)), InitStatus) == [(3, known)]
    (save,) = hear(bootstrap, 1, InitPrepare(6, CLUSTER))
    assert save.nonce == 6


def test_l2_a_starting_node_that_hears_of_a_voter_becomes_one() -> None:
    for message in (InitCommit(9, CLUSTER), InitStatus(ReplicaState.VOTER, 9, CLUSTER)):
        bootstrap = make(2, state=ReplicaState.STARTING, nonce=5, cluster_id=NO_CLUSTER)
        (save,) = hear(bootstrap, 3, message)
        assert save == SaveInit(1, ReplicaState.VOTER, 9, CLUSTER, FIRST_LSN)
        assert not hear(bootstrap, 3, message), "under way already"
        effects = hear(bootstrap, 1, InitPrepare(99, CLUSTER))
        assert sends(effects, InitStatus), "no newer nonce any more"
        effects = bootstrap.on_saved(1)
        assert effects[-1] == InitDone(CLUSTER)
        assert bootstrap.state == ReplicaState.VOTER


def test_p1_a_node_that_comes_late_begins_where_its_attempt_did_and_not_at_a_log_start() -> None:
    """It was prepared, and missed the commit; the cluster was trimmed, and its voters restarted."""
    bootstrap = make(
        2, state=ReplicaState.STARTING, nonce=9, cluster_id=CLUSTER, first_lsn=Lsn(7_000)
    )
    trimmed = InitStatus(ReplicaState.VOTER, 9, CLUSTER, pack_first_lsn(Lsn(90_000)))
    (save,) = hear(bootstrap, 3, trimmed)
    assert save == SaveInit(1, ReplicaState.VOTER, 9, CLUSTER, Lsn(7_000))


def test_l2_a_voter_goes_on_answering() -> None:
    bootstrap = make(2, state=ReplicaState.VOTER, nonce=5, cluster_id=CLUSTER)
    assert bootstrap.deadline_ns == NEVER_NS
    assert not bootstrap.on_tick(10**15)
    told = [(1, InitStatus(ReplicaState.VOTER, 5, CLUSTER))]
    assert sends(hear(bootstrap, 1, InitStatusRequest(0)), InitStatus) == told
    assert sends(hear(bootstrap, 1, InitPrepare(99, NO_CLUSTER)), InitStatus) == told
    assert not hear(bootstrap, 1, InitCommit(5, CLUSTER))
    (log,) = hear(bootstrap, 1, InitCommit(5, NO_CLUSTER))
    assert "another cluster" in log.text
    assert not bootstrap.on_init_requested(FIRST_LSN)


MEMBER_STATES = [ReplicaState.VOTER, ReplicaState.LEARNER]


def joined(bootstrap: Bootstrap) -> SaveInit:
    """What an EMPTY node saves at its next tick."""
    (save,) = saves(bootstrap.on_tick(bootstrap.deadline_ns))
    return save


@pytest.mark.parametrize("auto_init", [True, False])
@pytest.mark.parametrize("state", MEMBER_STATES)
def test_l1_an_empty_node_among_voters_joins_and_does_not_come_back_in_place(
    state: ReplicaState, auto_init: bool
) -> None:
    bootstrap = make(1, auto_init=auto_init)
    assert not saves(bootstrap.on_tick(0))
    hear(bootstrap, 2, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))
    assert not hear(bootstrap, 3, InitStatus(state, 5, CLUSTER)), "others may know better"
    assert not saves(bootstrap.on_init_requested(FIRST_LSN))
    save = joined(bootstrap)
    assert save == SaveInit(1, ReplicaState.LEARNER, 5, CLUSTER, FIRST_LSN)
    assert not saves(bootstrap.on_tick(bootstrap.deadline_ns)), "once"
    assert bootstrap.on_saved(1) == [InitDone(CLUSTER)]
    assert (bootstrap.state, bootstrap.deadline_ns) == (ReplicaState.LEARNER, NEVER_NS)
    told = [(2, InitStatus(ReplicaState.LEARNER, 5, CLUSTER))]
    assert sends(hear(bootstrap, 2, InitStatusRequest(0)), InitStatus) == told
    assert sends(hear(bootstrap, 2, InitPrepare(99, NO_CLUSTER)), InitStatus) == told
    assert not saves(hear(bootstrap, 3, InitCommit(5, CLUSTER)))


def test_a_node_that_joins_takes_the_lowest_first_lsn_it_hears_of() -> None:
    """A voter whose log was trimmed does not know where it began."""
    bootstrap = make(4, voters=4)
    bootstrap.on_tick(0)
    for peer, lsn in ((1, 90_000), (2, 7_000), (3, 90_000)):
        told = InitStatus(ReplicaState.VOTER, 5, CLUSTER, pack_first_lsn(Lsn(lsn)))
        hear(bootstrap, peer, told)
    assert joined(bootstrap) == SaveInit(1, ReplicaState.LEARNER, 5, CLUSTER, Lsn(7_000))


def test_an_empty_node_whose_peers_are_of_two_clusters_joins_none() -> None:
    bootstrap = make(1)
    bootstrap.on_tick(0)
    hear(bootstrap, 2, InitStatus(ReplicaState.VOTER, 5, CLUSTER))
    hear(bootstrap, 3, InitStatus(ReplicaState.VOTER, 5, bytes(15) + b"2"))
    effects = bootstrap.on_tick(bootstrap.deadline_ns)
    assert not saves(effects)
    assert "nodes [2, 3] are of different clusters" in bootstrap.refusal
    hear(bootstrap, 3, InitStatus(ReplicaState.VOTER, 5, CLUSTER))  # it was set right
    assert joined(bootstrap).cluster_id == CLUSTER
    assert bootstrap.refusal == ""


def test_a_node_that_joined_names_peers_of_another_cluster() -> None:
    bootstrap = make(2, state=ReplicaState.LEARNER, nonce=5, cluster_id=CLUSTER)
    assert not bootstrap.on_tick(10**15)
    assert not hear(bootstrap, 1, InitStatus(ReplicaState.LEARNER, 5, CLUSTER))
    (log,) = hear(bootstrap, 1, InitStatus(ReplicaState.LEARNER, 5, NO_CLUSTER))
    assert "another cluster" in log.text


def test_nodes_of_two_clusters_are_named_once_then_every_minute() -> None:
    bootstrap = make(1)
    said = []
    for now_ns in range(0, 3 * LOG_AGAIN_NS, RETRY_NS):
        effects = bootstrap.on_tick(now_ns)
        for voter, cluster in ((2, CLUSTER), (3, bytes(15) + b"2")):
            effects += hear(bootstrap, voter, InitStatus(ReplicaState.VOTER, 5, cluster))
        said += [(now_ns, each.text) for each in effects if isinstance(each, Log)]
    assert [now_ns for now_ns, _ in said] == [
        RETRY_NS, RETRY_NS + LOG_AGAIN_NS, RETRY_NS + 2 * LOG_AGAIN_NS,
    ]  # fmt: skip
    assert {text for _, text in said} == {bootstrap.refusal}


def test_no_cluster_is_formed_beside_a_node_that_joined_one() -> None:
    bootstrap = make(1)
    hear(bootstrap, 2, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))
    assert not saves(hear(bootstrap, 3, InitStatus(ReplicaState.LEARNER, 5, CLUSTER)))
    assert not saves(bootstrap.on_init_requested(FIRST_LSN))


def test_a_node_that_missed_the_commit_takes_the_cluster_of_one_that_joined() -> None:
    bootstrap = make(2, state=ReplicaState.STARTING, nonce=5, cluster_id=CLUSTER)
    (save,) = saves(hear(bootstrap, 3, InitStatus(ReplicaState.LEARNER, 5, CLUSTER)))
    assert save == SaveInit(1, ReplicaState.VOTER, 5, CLUSTER, FIRST_LSN)


def test_l3_one_uuid_at_two_nodes_is_refused() -> None:
    bootstrap = make(1)
    for uuid in (UUIDS[1], UUIDS[2]):
        hear(bootstrap, 2, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))
        effects = bootstrap.on_message(
            NodeId(3), uuid, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
        )
        assert not saves(effects)
        assert "same replica uuid" in bootstrap.refusal


def test_l3_a_copy_that_was_replaced_by_another_folder_is_a_reason_no_more() -> None:
    """A request to form the cluster was refused, and the status named it, until a restart."""
    empty = InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
    bootstrap = make(1, auto_init=False)
    hear(bootstrap, 2, empty)
    bootstrap.on_message(NodeId(3), UUIDS[2], empty)
    hear(bootstrap, 2, InitStatusRequest(0))
    assert "same replica uuid" in bootstrap.refusal
    hear(bootstrap, 3, InitStatusRequest(0))
    assert bootstrap.refusal == ""
    hear(bootstrap, 3, empty)
    assert saves(bootstrap.on_init_requested(FIRST_LSN))


def test_l3_a_node_of_another_cluster_that_was_emptied_is_a_reason_no_more() -> None:
    bootstrap = make(2, state=ReplicaState.VOTER, nonce=5, cluster_id=CLUSTER)
    hear(bootstrap, 3, InitCommit(5, NO_CLUSTER))
    hear(bootstrap, 1, InitStatusRequest(0))
    assert "another cluster" in bootstrap.refusal
    bootstrap.on_message(NodeId(3), b"x" * 16, InitStatusRequest(0))
    assert bootstrap.refusal == ""


def between_two_clusters(*, auto_init: bool) -> Bootstrap:
    bootstrap = make(1, auto_init=auto_init)
    for voter, cluster in ((2, CLUSTER), (3, bytes(15) + b"2")):
        hear(bootstrap, voter, InitStatus(ReplicaState.VOTER, 5, cluster))
    bootstrap.on_tick(RETRY_NS)
    assert "different clusters" in bootstrap.refusal
    return bootstrap


def test_nodes_of_two_clusters_that_were_emptied_are_a_reason_no_more() -> None:
    bootstrap = between_two_clusters(auto_init=False)
    for voter in (2, 3):
        bootstrap.on_message(NodeId(voter), bytes([voter]) * 15 + b"x", InitStatusRequest(0))
    bootstrap.on_tick(2 * RETRY_NS)
    assert bootstrap.refusal == ""


def test_a_node_between_two_clusters_that_forms_one_with_emptied_nodes_is_refused_no_more() -> None:
    empty = InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
    bootstrap = between_two_clusters(auto_init=True)
    bootstrap.on_message(NodeId(2), b"x" * 16, empty)
    assert saves(bootstrap.on_message(NodeId(3), b"y" * 16, empty))
    assert bootstrap.refusal == ""


def test_l3_another_disk_at_a_node_voids_what_the_old_one_said() -> None:
    bootstrap = make(1)
    hear(bootstrap, 2, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER))
    bootstrap.on_message(NodeId(2), b"x" * 16, InitStatusRequest(0))
    assert not saves(hear(bootstrap, 3, InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)))


def test_an_attempt_yields_to_a_newer_one_and_is_repeated_later_above_it() -> None:
    bootstrap = make(1)
    empty = InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
    hear(bootstrap, 2, empty)
    (first,) = saves(hear(bootstrap, 3, empty))
    bootstrap.on_saved(first.seq)
    newer = InitStatus(ReplicaState.STARTING, first.nonce << 8, CLUSTER)
    assert not saves(hear(bootstrap, 3, newer))
    tried = []
    for round_number in range(RETRIES_YIELDED + 1):
        tried += saves(bootstrap.on_tick(round_number * RETRY_NS))
    (again,) = tried
    assert again.nonce > newer.nonce


def test_strangers_are_not_answered_and_saves_never_ordered_stop() -> None:
    bootstrap = make(1)
    request = NodeId(9), b"y" * 16, InitStatusRequest(0)
    assert not bootstrap.on_message(*request)
    with pytest.raises(InvariantViolated):
        bootstrap.on_saved(1)


@pytest.mark.parametrize("state", [ReplicaState.VOTER, ReplicaState.LEARNER])
def test_strangers_hear_that_there_is_a_cluster(state: ReplicaState) -> None:
    bootstrap = make(1, state=state, cluster_id=CLUSTER)
    [sent] = bootstrap.on_message(NodeId(9), b"y" * 16, InitStatusRequest(0))
    assert isinstance(sent, SendInit)
    assert isinstance(sent.message, InitStatus)
    assert (sent.peer, sent.message.state, sent.message.cluster_id) == (9, state, CLUSTER)
    prepare = InitPrepare(7, CLUSTER)
    assert not bootstrap.on_message(NodeId(9), b"y" * 16, prepare)


def test_a_prepare_saved_for_an_attempt_given_up_meanwhile_is_answered_to_nobody() -> None:
    bootstrap = make(1)
    empty = InitStatus(ReplicaState.EMPTY, 0, NO_CLUSTER)
    hear(bootstrap, 2, empty)
    (own,) = saves(hear(bootstrap, 3, empty))
    hear(bootstrap, 3, InitStatus(ReplicaState.STARTING, own.nonce << 8, CLUSTER))
    assert bootstrap.on_saved(own.seq) == []
    assert bootstrap.state == ReplicaState.STARTING
