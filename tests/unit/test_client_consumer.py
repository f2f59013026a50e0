"""Consumer, range reader and watermarks against a played replica (SAFETY V8)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import logstore
from logstore import AtTime
from logstore.client.endpoint import parse_endpoint
from logstore.errors import (
    ErrorCode,
    FormatError,
    InvalidRequest,
    OutOfRange,
    Unreachable,
)
from logstore.format.client_messages import (
    ErrorReply,
    FetchReply,
    FetchRequest,
    TailGroup,
    TailNotice,
    TimeLookupReply,
    TimeLookupRequest,
    Tip,
    WatermarksReply,
    WatermarksRequest,
)
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        yield cluster.replicas[1]


@pytest.fixture
def client(replica: FakeReplica) -> Iterator[logstore.LogClient]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client


def fill(replica: FakeReplica, *batches: list[bytes]) -> None:
    replica.call(lambda: [replica.append_to_log(batch) for batch in batches] and None)


def payloads(batches: list[logstore.RecordBatch]) -> list[bytes]:
    return [payload for batch in batches for payload in batch.payloads()]


def publish(replica: FakeReplica, place: int) -> None:
    replica.call(lambda: replica.publish_tail(TailGroup(replica.visible_lsn), replica.piece(place)))


def test_a_bounded_consumer_reads_what_is_there_and_ends(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"a", b"", b"c"], [b"d"])
    with client.consumer("earliest", end_lsn=4) as consumer:
        records = list(consumer)
    assert [(each.lsn, each.payload) for each in records] == [
        (1, b"a"), (2, b""), (3, b"c"), (4, b"d"),
    ]  # fmt: skip
    assert [each.timestamp_ns for each in records] == [1_000, 1_000, 1_000, 1_001]


def test_groups_of_the_tail_are_handed_on_without_a_fetch(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    with client.consumer(1) as consumer:
        assert consumer.poll(0.05) == []
        while not replica.requests.empty():
            replica.requests.get()
        fill(replica, [b"a"], [b"b", b"c"])
        publish(replica, 0)
        publish(replica, 1)
        assert payloads(consumer.poll(WAIT_S)) == [b"a"]
        assert payloads(consumer.poll(WAIT_S)) == [b"b", b"c"]
    assert replica.requests.empty()


def test_a_group_that_the_tail_dropped_is_fetched_before_the_next(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    with client.consumer(1) as consumer:
        assert consumer.poll(0.05) == []
        fill(replica, [b"a"], [b"b"], [b"c"])
        publish(replica, 0)
        assert payloads(consumer.poll(WAIT_S)) == [b"a"]
        publish(replica, 2)
        assert payloads(consumer.poll(WAIT_S)) == [b"b", b"c"]
        publish(replica, 2)  # and again: it is old by now
        assert consumer.poll(0.05) == []
        assert consumer.position == 4


def test_a_lost_last_group_is_noticed_by_the_tip(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    with client.consumer(1) as consumer:
        assert consumer.poll(0.05) == []
        fill(replica, [b"a"])
        replica.call(lambda: replica.publish_tail(Tip(1)))
        assert payloads(consumer.poll(WAIT_S)) == [b"a"]


def test_a_notice_makes_it_fetch(client: logstore.LogClient, replica: FakeReplica) -> None:
    with client.consumer(1) as consumer:
        assert consumer.poll(0.05) == []
        fill(replica, [b"a"])
        replica.call(lambda: replica.publish_tail(TailNotice(1, 1)))
        assert payloads(consumer.poll(WAIT_S)) == [b"a"]


def test_a_damaged_tail_group_is_fetched(client: logstore.LogClient, replica: FakeReplica) -> None:
    with client.consumer(1) as consumer:
        assert consumer.poll(0.05) == []
        fill(replica, [b"abcdefgh"])
        torn = bytearray(replica.piece(0))
        torn[-3] ^= 1
        replica.call(lambda: replica.publish_tail(TailGroup(1), bytes(torn)))
        assert consumer.poll(0.05) == []
        replica.call(lambda: replica.publish_tail(Tip(1)))
        assert payloads(consumer.poll(WAIT_S)) == [b"abcdefgh"]


def test_a_start_inside_a_batch_cuts_it(client: logstore.LogClient, replica: FakeReplica) -> None:
    fill(replica, [b"a", b"b", b"c", b"d"])
    with client.consumer(2, end_lsn=3) as consumer:
        (batch,) = consumer.poll(WAIT_S)
    assert (batch.first_lsn, batch.last_lsn, batch.is_whole) == (2, 3, False)
    assert batch.payloads() == [b"b", b"c"]
    assert batch.payload_bytes == 2


def test_starts_are_located(client: logstore.LogClient, replica: FakeReplica) -> None:
    replica.on[WatermarksRequest] = lambda _: WatermarksReply(3, 9)
    asked: list[int] = []
    replica.on[TimeLookupRequest] = lambda request: (
        asked.append(request.timestamp_ns) or TimeLookupReply(7)
    )
    day = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    for start, expected in [
        ("earliest", 3), ("latest", 10), (5, 5), (day, 7), (AtTime(123), 7),
    ]:  # fmt: skip
        with client.consumer(start) as consumer:
            assert consumer.position == expected
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert asked == [(day - epoch) // timedelta(microseconds=1) * 1_000, 123]


def test_a_time_start_leaves_out_what_is_older_where_a_follower_lagged(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    """It named the LSN after its last one, and what came there is older, too."""
    replica.append_to_log([b"1", b"2"])  # at time 1,000, the next one at 1,001
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(3)
    for number in range(3, 7):
        replica.append_to_log([b"%d" % number])
    with client.consumer(AtTime(1_003), end_lsn=6) as consumer:
        assert [record.lsn for record in consumer] == [5, 6]
        consumer.seek(AtTime(2_000))
        assert [record.lsn for record in consumer] == []
        consumer.seek(3)
        assert [record.lsn for record in consumer] == [3, 4, 5, 6]
        assert consumer.skipped_payloads == 0


@pytest.mark.parametrize("start", [0, -1, "newest", datetime(2026, 1, 1), AtTime(-1)])
def test_senseless_starts_are_refused(client: logstore.LogClient, start: object) -> None:
    with pytest.raises(InvalidRequest):
        client.consumer(start)  # type: ignore[arg-type]


def test_below_the_log_start_a_consumer_says_what_there_is(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"a"], [b"b"], [b"c"])
    replica.log_start_lsn = 3
    words = "LSN 1 lies below the log start, LSN 3; the log holds LSN 3 to 3. .* begin at the log"
    with client.consumer(1) as consumer, pytest.raises(OutOfRange, match=words) as caught:
        consumer.poll(WAIT_S)
    assert (caught.value.first, caught.value.last) == (3, 3)
    with pytest.raises(OutOfRange, match=words):
        list(client.read(1, 3))
    with pytest.raises(OutOfRange, match=words):
        client.admin.spans(1, 3)
    replica.log_start_lsn = 4
    with pytest.raises(OutOfRange, match="LSN 2 lies below the log start, LSN 4; it is empty now"):
        list(client.read_batches(2, 3))


@pytest.mark.parametrize(("policy", "first_lsn"), [("earliest", 3), ("latest", 4)])
def test_below_the_log_start_a_consumer_goes_on_as_it_was_told_to(
    client: logstore.LogClient,
    replica: FakeReplica,
    policy: str,
    first_lsn: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(replica, [b"a"], [b"b"], [b"c"])
    replica.log_start_lsn = 3
    with client.consumer(1, on_out_of_range=policy) as consumer:
        assert payloads(consumer.poll(0.1)) == [b"c"][first_lsn - 3 :]
        fill(replica, [b"d"])
        publish(replica, 3)
        assert payloads(consumer.poll(WAIT_S)) == [b"d"]
        assert consumer.skipped_payloads == first_lsn - 1
    with client.consumer(1, end_lsn=2, on_out_of_range=policy) as consumer:
        assert (list(consumer), consumer.skipped_payloads) == ([], 2)
    over = ", and 1 more passed over to go on at the end" if policy == "latest" else ""
    told = f"2 payloads were trimmed before this consumer read them{over}: left out"
    without_more = "2 payloads were trimmed before this consumer read them: left out"
    assert caplog.messages == [told, without_more]


def test_a_policy_that_nobody_knows_is_refused(client: logstore.LogClient) -> None:
    with pytest.raises(InvalidRequest, match="give one of error, earliest, latest"):
        client.consumer(1, on_out_of_range="none")


def test_the_earliest_payload_is_the_first_that_is_there_when_reading_begins(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"a"], [b"b"], [b"c"], [b"d"])
    with client.consumer("earliest", end_lsn=4) as consumer:
        replica.log_start_lsn = 3
        assert payloads(consumer.poll(WAIT_S)) == [b"c", b"d"]
        assert consumer.skipped_payloads == 0


def test_a_reader_yields_arrow_shaped_views(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"ab", b"", b"cde"])
    (batch,) = client.read(1, 3)
    assert batch.offsets.dtype == np.dtype("<i4")
    assert batch.offsets.tolist() == [0, 2, 2, 5]
    assert batch.values.tobytes() == b"abcde"
    assert not batch.offsets.flags.owndata
    assert not batch.values.flags.owndata
    assert (batch.batch.producer_id, batch.index, batch.term) == (7, 1, 1)


def test_a_long_range_takes_several_fetches(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, *[[bytes([n]) * 90_000] for n in range(7)])
    read = payloads(list(client.read(2, 6)))
    assert read == [bytes([n]) * 90_000 for n in range(1, 6)]
    fetches = 0
    while not replica.requests.empty():
        fetches += isinstance(replica.requests.get(), FetchRequest)
    assert fetches > 1


def test_reads_outside_the_bounds_are_refused(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"a"], [b"b"])
    with pytest.raises(OutOfRange):
        list(client.read(5, 6))
    across = client.read(2, 3)
    assert next(across).payloads() == [b"b"]
    with pytest.raises(OutOfRange, match="not committed yet"):
        next(across)
    for bounds in [(0, 1), (3, 2)]:
        with pytest.raises(InvalidRequest):
            list(client.read(*bounds))


def test_a_damaged_reply_is_refused(client: logstore.LogClient, replica: FakeReplica) -> None:
    fill(replica, [b"abcdefgh"])
    torn = bytearray(replica.piece(0))
    torn[-3] ^= 1
    replica.on[FetchRequest] = lambda _: (FetchReply(1, 1, 2, 1), bytes(torn))
    with pytest.raises(FormatError, match="damaged"):
        list(client.read(1, 1))


def test_a_replica_that_is_not_ready_is_asked_again(
    client: logstore.LogClient, replica: FakeReplica
) -> None:
    fill(replica, [b"a"])
    answers = [ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"")] * 2
    replica.on[FetchRequest] = lambda request: answers.pop() if answers else replica.fetch(request)
    assert payloads(list(client.read(1, 1, replica=1))) == [b"a"]


def test_an_unknown_replica_is_refused(client: logstore.LogClient) -> None:
    with pytest.raises(InvalidRequest, match="no node 5"):
        client.consumer(1, replica=5)


def test_watermarks_wait_on_the_replica(client: logstore.LogClient, replica: FakeReplica) -> None:
    fill(replica, [b"a", b"b"])
    marks = client.admin.watermarks(min_lsn=2)
    assert (marks.node, marks.log_start_lsn, marks.visible_lsn) == (1, 1, 2)


def test_without_a_cluster_reading_says_so() -> None:
    with logstore.connect("127.0.0.1:9", timeout=0.2) as client, pytest.raises(Unreachable):
        client.consumer()


def test_the_last_base_port_of_a_configuration_is_an_endpoint() -> None:
    """Eight ports in a row, of which the last is 65,535."""
    assert parse_endpoint("host:65528").port == 65_528


@pytest.mark.parametrize(
    "endpoint", ["", "host", "host:x", "host:0", "host:65529", "host:70000", ":7"]
)
def test_senseless_endpoints_are_refused(endpoint: str) -> None:
    with pytest.raises(InvalidRequest):
        logstore.connect(endpoint)


def test_what_is_closed_is_forgotten_and_of_no_more_use(client: logstore.LogClient) -> None:
    consumer = client.consumer(1)
    reader = client.reader()
    consumer.close()
    reader.close()
    with pytest.raises(InvalidRequest, match="closed"):
        consumer.poll(0)
    with pytest.raises(InvalidRequest, match="closed"):
        next(reader.read(1, 1))
    for _ in range(5):
        client.reader().close()
    assert len(client._opened) == 1
    client.close()
    with pytest.raises(InvalidRequest, match="closed"):
        client.reader()
