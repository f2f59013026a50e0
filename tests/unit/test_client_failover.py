"""Producer and consumer when replicas die or change roles, against played replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

import logstore
from logstore import ProducerOptions
from logstore.errors import BatchTooLarge, ErrorCode, NoQuorum
from logstore.format.client_messages import ErrorReply, FetchRequest, Tip
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


@pytest.mark.slow
def test_unanswered_batches_go_to_the_new_leader_in_order_before_new_ones(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    old, new = cluster.replicas[1], cluster.replicas[2]
    old.on_push = lambda *_: None
    with client.producer(ProducerOptions(ack_timeout_s=60)) as producer:
        futures = [producer.append_batch([b"%d" % n]) for n in range(4)]
        for _ in range(4):
            old.pushed.get(timeout=WAIT_S)
        # The new leader has the first one committed, the second in its log, the others not at all.
        new.commit(0, [b"0"])
        new.rows = [(0, 1, 1, 0, 0), (1, 0, 0, int(ErrorCode.OUTCOME_UNKNOWN), 0)]
        new.next_sequence = 2
        new.on_push = lambda *_: None
        cluster.leader, cluster.term = 2, 2
        old.stop()
        assert futures[0].result(WAIT_S) == (1, 1)
        resent = [new.pushed.get(timeout=WAIT_S) for _ in range(2)]
        assert [each[1:] for each in resent] == [(2, [b"2"]), (3, [b"3"])]
        late = producer.append_batch([b"4"])
        assert new.pushed.get(timeout=WAIT_S)[1:] == (4, [b"4"])
        rows = [(sequence, sequence + 1, 1, 0, 0) for sequence in range(1, 5)]
        new.call(lambda: new.send_acks(resent[0][0], rows))
        assert [each.result(WAIT_S).first for each in [*futures, late]] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_follower_that_is_asked_to_append_sends_the_producer_to_the_leader(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    old, new = cluster.replicas[1], cluster.replicas[2]

    def step_down(round_number: int, sequence: int, _: list[bytes]) -> None:
        cluster.leader, cluster.term = 2, 2
        old.send_acks(round_number, [(sequence, 0, 1, int(ErrorCode.NOT_LEADER), 2)])

    old.on_push = step_down
    with client.producer() as producer:
        assert producer.append(b"x").result(WAIT_S) == (1, 1)
    assert new.pushed.get(timeout=WAIT_S)[1:] == (0, [b"x"])


@pytest.mark.slow
@pytest.mark.parametrize("level", ["quorum", "leader"])
def test_appends_keep_to_a_limit_that_a_restart_has_lowered(
    client: logstore.LogClient, cluster: Cluster, level: Literal["quorum", "leader"]
) -> None:
    old, new = cluster.replicas[1], cluster.replicas[2]
    if level == "leader":
        for each in (old, new):
            each.on_push = lambda round_, sequence, _, each=each: each.send_acks(  # type: ignore[misc]
                round_, [(sequence, 0, 1, int(ErrorCode.PROVISIONAL), 0)]
            )
    with client.producer(ProducerOptions(acks=level)) as producer:
        producer.append(b"x").result(WAIT_S)
        new.next_sequence = old.next_sequence
        cluster.leader, cluster.term, cluster.limits = 2, 2, {"batch_max_bytes": 1_000}
        old.stop()
        producer.append(b"y").result(WAIT_S)
        small = [producer.append(b"z" * 400) for _ in range(5)]
        for future in small:
            future.result(WAIT_S)
        with pytest.raises(BatchTooLarge):
            producer.append_batch([b"y" * 2_000])
        with pytest.raises(BatchTooLarge):
            producer.append(b"y" * 2_000)
        assert producer.ending is None
    packed = [new.pushed.get_nowait()[2] for _ in range(new.pushed.qsize())]
    assert all(sum(map(len, payloads)) < 1_000 for payloads in packed)


@pytest.mark.slow
def test_a_leader_of_an_older_term_is_not_believed(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    stale = cluster.replicas[1]
    cluster.leader, cluster.term = 2, 9
    assert client.admin.leader() == 2
    cluster.leader, cluster.term = 1, 8
    asked = stale.requests.qsize()
    client.admin._timeout_s = 0.2
    with pytest.raises(NoQuorum, match="none of them leads"):
        client.admin.leader()
    assert stale.requests.qsize() > asked


def test_who_does_not_answer_is_not_named_among_those_that_do(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    assert client.admin.leader() == 1
    cluster.leader, cluster.term = 0, 2
    cluster.replicas[2].stop()
    client.admin._timeout_s = 0.2
    with pytest.raises(NoQuorum, match="none of them leads") as refused:
        client.admin.leader()
    assert f":{cluster.ports[1]}" in str(refused.value)
    assert f":{cluster.ports[2]}" not in str(refused.value)


@pytest.mark.slow
def test_a_consumer_moves_to_another_replica_and_goes_on_where_it_was(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    for replica in cluster.replicas.values():
        for n in range(6):
            replica.append_to_log([b"%d" % n])
    cluster.replicas[2].hidden = 4  # it lags: what was read already must not come again
    cluster.replicas[1].hidden = 3
    with client.consumer(1) as consumer:
        seen = []
        while len(seen) < 3:
            seen += consumer.poll(WAIT_S)
        assert consumer.node == 1
        cluster.replicas[1].stop()
        while consumer.node == 1:
            assert consumer.poll(0.2) == []
        assert consumer.poll(0.2) == []
        cluster.replicas[2].hidden = 0
        cluster.replicas[2].call(lambda: cluster.replicas[2].publish_tail(Tip(6)))
        while len(seen) < 6:
            seen += consumer.poll(WAIT_S)
    assert [batch.payloads() for batch in seen] == [[b"%d" % n] for n in range(6)]


@pytest.mark.slow
def test_a_reader_goes_to_another_replica_when_one_is_damaged(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    for replica in cluster.replicas.values():
        replica.append_to_log([b"x", b"y"])
    damaged = ErrorReply(ErrorCode.CORRUPT_DATA, 0, 1, 2, b"bad CRC")
    for node in (1, 2):
        cluster.replicas[node].on[FetchRequest] = lambda _: damaged
        with pytest.raises(logstore.LogStoreError, match="bad CRC"):
            list(client.read(1, 2, replica=node))
    cluster.replicas[2].on[FetchRequest] = cluster.replicas[2].fetch
    assert [len(batch) for batch in client.read(1, 2)] == [2]


def fill(cluster: Cluster) -> list[bytes]:
    """Twenty batches on each replica, four or five of which are a reply."""
    payloads = [bytes([number]) * 50_000 for number in range(20)]
    for replica in cluster.replicas.values():
        for payload in payloads:
            replica.append_to_log([payload])
    return payloads


def test_reading_ahead_asks_for_the_next_range_before_it_is_wanted(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    payloads = fill(cluster)
    with client.reader(replica=1, reads_ahead=True) as reader:
        batches = reader.read(1, 20)
        found = [next(batches)]
        asked = [fetched(cluster.replicas[1]) for _ in range(2)]
        assert asked[0] == 1 < asked[1]
        found += batches
    assert [batch.payloads()[0] for batch in found] == payloads
    while not cluster.replicas[1].requests.empty():
        asked.append(fetched(cluster.replicas[1]))
    assert asked == sorted(set(asked)), "each once"


def fetched(replica: FakeReplica) -> int:
    """The LSN at which the next fetch of a replica began."""
    while not isinstance(request := replica.requests.get(timeout=WAIT_S), FetchRequest):
        pass
    return int(request.first_lsn)


def test_what_was_asked_ahead_and_refused_is_asked_elsewhere(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    payloads = fill(cluster)
    first = cluster.replicas[1]
    for replica in cluster.replicas.values():
        replica.on[FetchRequest] = lambda request, replica=replica: (
            ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"")
            if replica is first and request.first_lsn > 1
            else replica.fetch(request)
        )
    with client.reader(reads_ahead=True, timeout=5) as reader:
        reader._machine._replica.node = 1
        found = list(reader.read(1, 20))
    assert [batch.payloads()[0] for batch in found] == payloads
    assert fetched(first) == 1
    assert fetched(cluster.replicas[2]) == fetched(first) > 1
