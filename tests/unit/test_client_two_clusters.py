"""Endpoints of two clusters in one list: refused before anything is asked of either or sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

import logstore
from logstore.cli.embedded import poll_until
from logstore.cli.main import main
from logstore.client.threads import new_context
from logstore.errors import WrongCluster
from logstore.format.client_messages import MetadataRequest
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10
ZERO = bytes(16)


@pytest.fixture
def mine() -> Iterator[Cluster]:
    with Cluster(nodes=1) as cluster:
        yield cluster


@pytest.fixture
def other(mine: Cluster) -> Iterator[Cluster]:
    """Another cluster, on ports of its own; none of its replicas runs yet."""
    cluster = Cluster(nodes=1)
    cluster.cluster_id = bytes(range(1, 17))
    yield cluster
    cluster.close()


def kinds_asked(replica: FakeReplica) -> set[type]:
    return {type(replica.requests.get_nowait()) for _ in range(replica.requests.qsize())}


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except WrongCluster:
        return True
    return False


def test_a_list_of_two_clusters_is_refused_by_connect_and_nothing_else_was_asked(
    mine: Cluster, other: Cluster
) -> None:
    there = other.start(1)
    for endpoints in ([mine.endpoint, other.endpoint], [other.endpoint, mine.endpoint]):
        with pytest.raises(WrongCluster, match="all must be of one cluster"):
            logstore.connect(endpoints, timeout=WAIT_S)
    assert kinds_asked(there) == kinds_asked(mine.replicas[1]) == {MetadataRequest}


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["verify"],
        ["transfer"],
        ["init"],
        ["digest"],
        ["consume"],
        ["consume", "--follow"],
        ["produce"],
        ["cursor", "list"],
        ["cursor", "set", "name", "1"],
        ["cursor", "delete", "name"],
    ],
)
def test_every_command_refuses_a_list_of_two_clusters_with_status_4(
    mine: Cluster,
    other: Cluster,
    command: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    there = other.start(1)
    source = tmp_path / "lines"
    source.write_bytes(b"never sent\n")
    arguments = [*command, str(source)] if command == ["produce"] else command
    try:
        status = main([*arguments, "--endpoint", f"{mine.endpoint},{other.endpoint}"])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    assert status == 4
    assert "all must be of one cluster" in capfd.readouterr().err
    assert kinds_asked(there) == kinds_asked(mine.replicas[1]) == {MetadataRequest}
    assert there.pushed.empty()
    assert mine.replicas[1].pushed.empty()


def test_an_endpoint_that_answers_later_as_another_cluster_is_refused_then(
    mine: Cluster, other: Cluster
) -> None:
    with logstore.connect([mine.endpoint, other.endpoint], timeout=WAIT_S) as client:
        assert client.admin.leader() == 1
        there = other.start(1)
        assert poll_until(lambda: is_refused(client.admin.watermarks), WAIT_S)
        for ask in (client.admin.watermarks, client.admin.leader, client.admin.status):
            with pytest.raises(WrongCluster):  # and it stays so
                ask()
        with pytest.raises(WrongCluster):
            client.producer()
        assert kinds_asked(there) == {MetadataRequest}


def test_a_producer_and_a_consumer_at_work_end_when_a_listed_endpoint_is_another_clusters(
    mine: Cluster, other: Cluster
) -> None:
    with (
        logstore.connect([mine.endpoint, other.endpoint], timeout=WAIT_S) as client,
        client.producer() as producer,
        client.consumer(1) as consumer,
    ):
        assert producer.append(b"x").result(WAIT_S) == (1, 1)
        assert consumer.poll(WAIT_S)[0].payloads() == [b"x"]
        other.start(1)
        assert poll_until(lambda: is_refused(lambda: consumer.poll(0.05)), WAIT_S)
        assert poll_until(lambda: is_refused(lambda: producer.append(b"y").result(WAIT_S)), WAIT_S)


def test_once_all_have_told_their_cluster_no_request_asks_for_it_again(mine: Cluster) -> None:
    """The same replica under two names: each is asked once, then reads go out alone."""
    replica = mine.replicas[1]
    names = [mine.endpoint, mine.endpoint.replace("127.0.0.1", "localhost")]
    with logstore.connect(names, timeout=WAIT_S) as client:
        assert [type(replica.requests.get_nowait()) for _ in range(2)] == [MetadataRequest] * 2
        for _ in range(5):
            client.admin.watermarks()
        assert MetadataRequest not in kinds_asked(replica)


def test_a_replica_that_is_not_part_of_a_cluster_yet_is_known_by_its_configured_nodes(
    mine: Cluster, other: Cluster
) -> None:
    other.cluster_id = ZERO
    other.start(1)
    with pytest.raises(WrongCluster, match="a cluster not formed yet"):
        logstore.connect([mine.endpoint, other.endpoint], timeout=WAIT_S)


def test_a_replica_that_lost_its_disk_is_no_other_cluster() -> None:
    with Cluster(nodes=2) as cluster:
        lost = cluster.replicas[2]
        known, cluster.cluster_id = lost.metadata, ZERO
        empty = known()
        cluster.cluster_id = bytes(range(16))
        lost.on[MetadataRequest] = lambda _: empty
        names = [f"127.0.0.1:{port}" for port in cluster.ports.values()]
        with logstore.connect(names, timeout=WAIT_S) as client:
            assert client.admin.leader() == 1


def test_refusals_are_watched_only_while_somebody_reads_them(mine: Cluster, other: Cluster) -> None:
    """Unread they would halt libzmq's I/O thread, and whoever closes the client, after minutes."""
    with logstore.connect([mine.endpoint, other.endpoint], timeout=WAIT_S) as client:
        listed = client._routing._listed
        assert not listed.are_all_known
        for _ in range(2):
            assert [each.port.link.monitor for each in listed._unknown.values()] == [None]
            client._routing.check_endpoints_now()


def test_a_name_that_is_slow_to_look_up_halts_only_other_names_of_which_one_is_asked() -> None:
    """libzmq looks a name up in the I/O thread of its socket: data has a thread of its own."""
    context = new_context()
    threads = {}
    for address, is_probe in (
        ("tcp://some.name:7100", True),
        ("tcp://some.name:7100", False),
        ("tcp://127.0.0.1:7100", True),
    ):
        requester = context.requester(address, is_probe=is_probe)
        threads[address, is_probe] = requester.socket.getsockopt(zmq.AFFINITY)
        requester.close()
    context.close()
    assert list(threads.values()) == [2, 1, 1]
