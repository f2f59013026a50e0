"""What an operator asks: merged status, transfer, verification, against played replicas."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import logstore
from logstore.client.status import merge_status
from logstore.errors import ErrorCode, FormatError, InvalidRequest, TransferFailed
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    InitializeRequest,
    MetadataReply,
    MetadataRequest,
    StatusReply,
    StatusRequest,
    TransferRequest,
    VerifyReply,
    VerifyRequest,
)
from logstore.format.first_lsn import pack_first_lsn
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as cluster:
        for replica in cluster.replicas.values():
            replica.on[StatusRequest] = status_of(replica)
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


def status_of(replica: FakeReplica):
    role = "leader" if replica.node == replica.cluster.leader else "follower"
    document = {"node": replica.node, "role": role, "term": 3, "visible_lsn": 10 * replica.node}
    return lambda _: StatusReply(json.dumps(document).encode())


def test_status_merges_what_the_nodes_say(client: logstore.LogClient) -> None:
    status = client.admin.status()
    assert (status["leader"], status["term"], status["commit_lsn"]) == (1, 3, 10)
    assert [row["role"] for row in status["nodes"]] == ["leader", "follower"]
    assert all("port" in row for row in status["nodes"])


@pytest.mark.slow
def test_status_lists_nodes_that_do_not_answer(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    cluster.replicas[2].stop()
    (dead,) = client.admin.status()["nodes"][1:]
    assert (dead["node"], dead["role"], dead["pid"], dead["lag_payloads"]) == (
        2,
        "unreachable",
        None,
        None,
    )


def test_the_newest_term_decides_who_leads() -> None:
    old = {"role": "leader", "term": 4, "visible_lsn": 70, "log_start_lsn": 1}
    new = {"role": "leader", "term": 5, "visible_lsn": 60, "log_start_lsn": 1, "faulty": [{}]}
    lagging = {"role": "follower", "term": 5, "visible_lsn": 55, "log_start_lsn": 1}
    status = merge_status({1: old, 2: new, 3: lagging})
    assert (status["leader"], status["term"], status["commit_lsn"]) == (2, 5, 60)
    assert [row["lag_payloads"] for row in status["nodes"]] == [0, 0, 5]
    assert status["nodes"][1]["faulty"] == [{}]


def test_what_a_node_lacks_is_what_the_leader_says_where_it_knows() -> None:
    """`status` and `lag` gave different numbers; of a dead follower only `lag` had one."""
    rows = [{"node": 2, "payloads": 7}, {"node": 3, "payloads": 1}, {"node": 4, "payloads": None}]
    lag = {"followers": rows}
    leader = {"role": "leader", "term": 5, "visible_lsn": 60, "lag": lag}
    follower = {"role": "follower", "term": 5, "visible_lsn": 50}
    status = merge_status({1: leader, 2: None, 3: follower, 4: follower, 5: None})
    assert [row["lag_payloads"] for row in status["nodes"]] == [0, 7, 1, 10, None]


def test_without_a_leader_the_highest_visible_lsn_is_told() -> None:
    status = merge_status({1: None, 2: {"role": "follower", "term": 2, "visible_lsn": 8}})
    assert (status["leader"], status["commit_lsn"], status["term"]) == (0, 8, 2)


def test_a_status_says_what_each_node_is_and_which_places_are_reserved() -> None:
    """As the leader says, or, without one, as the newest configuration that a replica names."""
    rows = [{"number": number, "role": "voter", "host": "h", "port": 7100} for number in (1, 2)]
    learner = {"number": 3, "role": "learner", "host": "h", "port": 7120}
    place = {"number": 4, "role": "reserved", "host": "h", "port": 7130}
    newest = {"id": 5, "members": [*rows, learner, place]}
    older = {"role": "follower", "term": 2, "members": {"id": 4, "members": rows}}
    leader = {"role": "leader", "term": 2, "visible_lsn": 1, "members": newest}
    for first in (leader, leader | {"role": "follower"}):
        status = merge_status({1: first, 2: older, 3: None, 9: None})
        assert [row["member"] for row in status["nodes"]] == ["voter", "voter", "learner", None]
        assert status["reserved"] == [{"node": 4, "host": "h", "port": 7130}]
    of_file = merge_status(
        {1: {"role": "leader", "term": 1, "members": {"id": 0, "members": rows}}}
    )
    assert (of_file["nodes"][0]["member"], of_file["reserved"]) == (None, [])


def test_a_status_shows_replicas_that_left_where_the_client_was_told_to_ask(
    cluster: Cluster,
) -> None:
    left = {"role": "none", "node": 2, "state": "voter", "refusal": "it is no member any more"}
    cluster.replicas[2].on[StatusRequest] = lambda _: StatusReply(json.dumps(left).encode())
    named = {
        "cluster_id": cluster.cluster_id.hex(), "node": 1, "leader": 1, "term": 1, "limits": {},
        "configuration": 3, "nodes": [{"node": 1, "host": "127.0.0.1", "port": cluster.ports[1]}],
    }  # fmt: skip
    for node, replica in cluster.replicas.items():
        reply = MetadataReply(json.dumps(named | {"node": node}).encode())
        replica.on[MetadataRequest] = lambda _, reply=reply: reply
    seeds = [f"127.0.0.1:{port}" for port in cluster.ports.values()]
    with logstore.connect(seeds, timeout=10) as log:
        found = log.admin.status()
    assert [row["node"] for row in found["nodes"]] == [1]
    assert found["others"] == [
        {"host": "127.0.0.1", "port": cluster.ports[2]}
        | {key: left[key] for key in ("node", "state", "refusal")}
    ]


def test_a_status_says_how_far_a_replica_is_that_begins_anew_at_the_log_start() -> None:
    leading = {"role": "leader", "term": 3, "visible_lsn": 90, "last_bytes": 9_000}
    leading |= {"catching_up": [2, 3, 4]}
    behind = {"role": "follower", "term": 3, "visible_lsn": 40, "last_bytes": 4_000}
    older = {"role": "follower", "term": 3, "visible_lsn": 40}
    level = {"role": "follower", "term": 3, "visible_lsn": 90, "last_bytes": 9_000}
    documents = {1: leading, 2: behind, 3: None, 4: older, 5: level}
    rows = merge_status(documents)["nodes"]
    assert [row["install"] for row in rows] == [
        None,
        {"next_lsn": 41, "bytes_left": 5_000},
        {"next_lsn": None, "bytes_left": None},
        {"next_lsn": 41, "bytes_left": None},
        None,
    ]
    alone = merge_status({2: behind | {"is_installing": True}})["nodes"]
    assert alone[0]["install"] == {"next_lsn": 41, "bytes_left": None}


def test_a_transfer_ends_when_the_next_leader_is_known(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    def hand_over(request: TransferRequest) -> DoneReply:
        cluster.leader, cluster.term = request.target, 2
        return DoneReply(0)

    cluster.replicas[1].on[TransferRequest] = hand_over
    assert client.admin.transfer(2) == 2
    assert client.admin.transfer(2) == 2


def test_a_transfer_that_fails_says_so(client: logstore.LogClient, cluster: Cluster) -> None:
    refusal = ErrorReply(ErrorCode.TRANSFER_FAILED, 0, 0, 0, b"node 2 is too far behind")
    cluster.replicas[1].on[TransferRequest] = lambda _: refusal
    with pytest.raises(TransferFailed, match="too far behind"):
        client.admin.transfer(2)
    with pytest.raises(InvalidRequest, match="no node 9"):
        client.admin.transfer(9)


@pytest.mark.parametrize(("target", "is_asked_again"), [(3, True), (2, False), (0, False)])
def test_a_leader_that_has_just_been_deposed_does_not_end_a_transfer(
    target: int, is_asked_again: bool
) -> None:
    """The next one is asked, unless it is whom the transfer was to; 0 is anybody else."""
    with Cluster(nodes=3) as cluster, logstore.connect(cluster.endpoint, timeout=20) as client:

        def deposed(_: TransferRequest) -> ErrorReply:
            cluster.leader, cluster.term = 2, 2
            return ErrorReply(ErrorCode.NOT_LEADER, 2, 0, 0, b"")

        def hand_over(request: TransferRequest) -> DoneReply:
            asked.append(request.target)
            cluster.leader, cluster.term = request.target, 3
            return DoneReply(0)

        asked: list[int] = []
        cluster.replicas[1].on[TransferRequest] = deposed
        cluster.replicas[2].on[TransferRequest] = hand_over
        assert client.admin.transfer(target) == (target or 2)
        assert asked == [target] * is_asked_again


@pytest.mark.parametrize(
    "document",
    [b"", b"{", b"[]", b'{"term": "x"}', b'{"a": "\xff"}', b'{"lag": {"followers": [{}]}}'],
)
def test_a_status_that_cannot_be_read_names_its_node(
    client: logstore.LogClient, cluster: Cluster, document: bytes
) -> None:
    cluster.replicas[2].on[StatusRequest] = lambda _: StatusReply(document)
    with pytest.raises(FormatError, match="status of node 2 cannot be read .*version"):
        client.admin.status()


def test_initialisation_goes_to_the_first_node(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    """And again, as long as a node is not there yet: the same question changes nothing."""
    answers = [ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"being recovered"), DoneReply(0)]
    asked = []
    cluster.replicas[1].on[InitializeRequest] = lambda request: (
        asked.append(request) or answers[len(asked) - 1]
    )
    client.admin.initialize(first_lsn=7_000)
    assert asked == [InitializeRequest(pack_first_lsn(7_000))] * 2


def test_a_cluster_whose_log_begins_elsewhere_says_so(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    refusal = ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"the log begins at LSN 1")
    cluster.replicas[1].on[InitializeRequest] = lambda _: refusal
    with pytest.raises(InvalidRequest, match="begins at LSN 1"):
        client.admin.initialize(first_lsn=2)
    with pytest.raises(InvalidRequest, match="first LSN 0: give 1 to"):
        client.admin.initialize(first_lsn=0)


def play_log(replica: FakeReplica, chains: list[int], faulty: str = "[]") -> None:
    """A log of one entry a chain, one payload each; a slice is three entries, or one."""

    def answer(request: VerifyRequest) -> VerifyReply:
        count = 1 if request.max_bytes == 1 else 3
        last = min(request.first_index + count - 1, len(chains))
        payloads = max(0, last - request.first_index + 1)
        return VerifyReply(
            last, len(chains), chains[last - 1], payloads, 100, last, faulty.encode()
        )

    replica.on[VerifyRequest] = answer


def test_equal_logs_verify_though_one_is_ahead(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    play_log(cluster.replicas[1], [11, 12, 13, 14, 15])
    play_log(cluster.replicas[2], [11, 12, 13, 14])
    found = client.admin.verify()
    assert (found.is_good, found.compared_index, found.compared_lsn) == (True, 4, 4)
    assert [row.payloads for row in found.replicas] == [5, 4]


def test_logs_that_differ_do_not_verify(client: logstore.LogClient, cluster: Cluster) -> None:
    play_log(cluster.replicas[1], [11, 12, 13, 14])
    play_log(cluster.replicas[2], [11, 12, 13, 99])
    assert not client.admin.verify().chains_equal


def test_damage_is_listed_and_is_not_good(client: logstore.LogClient, cluster: Cluster) -> None:
    play_log(cluster.replicas[1], [11, 12])
    play_log(cluster.replicas[2], [11, 12], faulty='[{"first_index": 2}]')
    found = client.admin.verify()
    assert found.chains_equal
    assert not found.is_good
    assert found.replicas[1].faulty == [{"first_index": 2}]


def test_damage_that_cannot_be_read_is_an_error_of_its_replica(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    play_log(cluster.replicas[1], [11, 12])
    play_log(cluster.replicas[2], [11, 12], faulty="[1]")
    found = client.admin.verify()
    assert not found.is_good
    assert "faulty on node 2 cannot be read" in found.replicas[1].error
