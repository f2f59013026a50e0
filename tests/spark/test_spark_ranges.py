"""A task's way through replicas that are damaged, each elsewhere. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logstore.errors import CorruptData, ErrorCode
from logstore.format.client_messages import ErrorReply, FetchRequest
from logstore.model import Lsn
from logstore.spark.planning import Planner
from logstore.spark.ranges import LsnPartition, read_partition
from logstore.spark.read_options import parse_read_options
from tests.unit.client_stage import Cluster, FakeReplica

LAST_LSN = 30


@pytest.fixture
def played() -> Iterator[Cluster]:
    """Three played replicas with LSNs 1 to 30, three a batch; a task asks 2, 3, 1."""
    with Cluster(nodes=3) as cluster:
        for replica in cluster.replicas.values():
            for _ in range(10):
                replica.append_to_log([b"x"] * 3)
        yield cluster


def damage(replica: FakeReplica, lsn: int) -> None:
    """The batch at `lsn` is damaged from now on; what is around it is served."""

    def answer(request: FetchRequest) -> object:
        if request.first_lsn > lsn:
            return replica.fetch(request)
        if request.first_lsn == lsn:
            return ErrorReply(ErrorCode.CORRUPT_DATA, 0, lsn, lsn + 2, b"body CRC")
        return replica.fetch(FetchRequest(request.first_lsn, Lsn(lsn - 1), Lsn(0), 1, 0, False))

    replica.on[FetchRequest] = answer


def lsns_read(played: Cluster, **options: str) -> Iterator[int]:
    given = {"endpoints": played.endpoint, "fetchTimeoutMs": "20000"} | options
    partition = LsnPartition(
        first_lsn=1, last_lsn=LAST_LSN, number=0, leader=1, cluster_id=played.cluster_id.hex()
    )
    for batch in read_partition(parse_read_options(given, is_streaming=False), partition):
        yield from range(batch.first_lsn, batch.last_lsn + 1)


def test_replicas_that_are_damaged_at_different_lsns_give_all_of_them_together(
    played: Cluster,
) -> None:
    for node, lsn in ((2, 4), (3, 13), (1, 22)):
        damage(played.replicas[node], lsn)
    assert list(lsns_read(played)) == list(range(1, LAST_LSN + 1))


def test_damage_of_all_replicas_at_one_lsn_ends_a_task_there(played: Cluster) -> None:
    for replica in played.replicas.values():
        damage(replica, 13)
    found = lsns_read(played)
    assert [next(found) for _ in range(12)] == list(range(1, 13))
    with pytest.raises(CorruptData, match="body CRC"):
        next(found)


def test_damage_below_a_log_start_that_rises_does_not_count_above_it(played: Cluster) -> None:
    """Nodes 2 and 3 were damaged where all is trimmed now; node 1 is where the log begins."""
    for node in (2, 3):
        damage(played.replicas[node], 1)

    def trim(request: FetchRequest) -> object:
        for replica in played.replicas.values():
            replica.trim(13)
        damage(played.replicas[1], 13)
        played.leader = 2  # so that node 1 is the next one to be asked
        return played.replicas[1].fetch(request)

    played.replicas[1].on[FetchRequest] = trim
    found = list(lsns_read(played, failOnDataLoss="false"))
    assert found == list(range(13, LAST_LSN + 1))


def test_a_new_worker_finds_a_cluster_that_has_moved_away_from_its_endpoints(
    played: Cluster,
) -> None:
    """The driver has followed the members, and names them to each task."""
    given = {"endpoints": "127.0.0.1:1", "fetchTimeoutMs": "20000"}
    partition = LsnPartition(
        first_lsn=1,
        last_lsn=LAST_LSN,
        number=0,
        leader=1,
        cluster_id=played.cluster_id.hex(),
        endpoints=f"127.0.0.1:{played.ports[2]},127.0.0.1:{played.ports[3]}",
    )
    found = read_partition(parse_read_options(given, is_streaming=False), partition)
    assert sum(batch.last_lsn - batch.first_lsn + 1 for batch in found) == LAST_LSN


def test_a_plan_names_the_members_of_today(played: Cluster) -> None:
    given = {"endpoints": played.endpoint, "fetchTimeoutMs": "20000"}
    planner = Planner(parse_read_options(given, is_streaming=False))
    expected = ",".join(f"127.0.0.1:{port}" for port in played.ports.values())
    assert planner.endpoints == expected
    assert {each.endpoints for each in planner.partitions(1, LAST_LSN)} == {expected}
