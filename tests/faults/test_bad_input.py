"""Bad input to a running cluster: a clear answer to whoever erred, nobody else notices."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
import zmq

import logstore
from logstore.errors import (
    BatchTooLarge,
    ErrorCode,
    Fenced,
    InvalidBatch,
    InvalidRequest,
    OutOfRange,
)
from tests.cluster.raw_client import (
    ACKS,
    APPENDS,
    CONTROL,
    FETCH,
    NO_BOUND,
    RawClient,
    RawProducer,
)
from tests.cluster.raw_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    Refused,
    Row,
    decode_message,
    encode_batch,
    encode_message,
    seal,
)
from tests.faults.quick_cluster import QuickCluster, quick_cluster, quick_config

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
BATCH_MAX = 256 << 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("bad-input"), quick_config()) as running:
        processes = {node: running.processes(node) for node in running.nodes}
        yield running
        assert {node: running.processes(node) for node in running.nodes} == processes, (
            f"bad input ended a process:\n{running.said()}"
        )


@pytest.fixture
def raw(cluster: QuickCluster) -> Iterator[RawClient]:
    with RawClient(cluster.endpoints[0]) as client:
        yield client
        assert client.leader()


@pytest.fixture
def producer(raw: RawClient) -> Iterator[RawProducer]:
    """A session with one batch in the log; still of use when the test is over."""
    opened = raw.open_session(window=16)
    opened.wait_acknowledged(opened.append([b"first"]))
    yield opened
    opened.close()


@pytest.fixture
def log(cluster: QuickCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=PATIENCE_S) as client:
        yield client


def refusal_of(producer: RawProducer, batch: bytes, *, version: int = 1) -> Row:
    """Push it, and the refusal it gets; the session goes on with its next batch."""
    producer.push(batch, version=version)
    (row,) = producer.next_rows()
    assert row.code
    producer.wait_acknowledged(producer.append([b"after a refusal"]))
    return row


def foreign_producer_row(raw: RawClient, node: int, batch: bytes, producer_id: int) -> Row:
    """Push to any node as any producer, and what the ack feed says about it."""
    feed = raw.socket(zmq.SUB, raw.nodes[node], ACKS)
    feed.subscribe(struct.pack("<Q", producer_id))
    assert decode_message(feed.recv_multipart()[1:]).type == 129
    push = raw.socket(zmq.PUSH, raw.nodes[node], APPENDS)
    push.send(APPEND_PREFIX.pack(b"LA", 1, 77) + batch)
    acks = decode_message(feed.recv_multipart()[1:])
    assert struct.unpack_from("<QII", acks.body)[2] == 77
    return Row(*ACK_ROW.unpack(acks.body[16:]))


# --- batches (FAULTS K6) ---


def test_a_payload_or_batch_above_the_limit_is_refused_before_it_is_sent(
    log: logstore.LogClient,
) -> None:
    with log.producer() as producer:
        assert producer.session.batch_max_bytes == BATCH_MAX
        with pytest.raises(BatchTooLarge):
            producer.append(b"x" * BATCH_MAX)
        with pytest.raises(BatchTooLarge):
            producer.append_batch([b"x" * 1_024] * 256)
        assert producer.append(b"goes on").result(PATIENCE_S).first


def test_an_oversize_batch_that_is_sent_nevertheless_is_refused_and_takes_no_sequence(
    producer: RawProducer,
) -> None:
    row = refusal_of(producer, producer.encode([b"x" * BATCH_MAX], producer.next_sequence))
    assert (row.code, row.sequence) == (ErrorCode.BATCH_TOO_LARGE, 1)


def test_a_message_above_every_limit_ends_its_connection_only(
    raw: RawClient, producer: RawProducer
) -> None:
    """SAFETY W6: ZeroMQ hangs up; what the producer does is what it does after any broken link."""
    producer.push(b"x" * (5 << 20))
    producer.connect(raw.leader())
    producer.wait_acknowledged(producer.append([b"after the giant"]))


def test_a_batch_without_payloads_is_refused(
    log: logstore.LogClient, producer: RawProducer
) -> None:
    with log.producer() as library, pytest.raises(InvalidBatch):
        library.append_batch([])
    one = producer.encode([b""], producer.next_sequence)
    none = seal(one[:12] + bytes(4) + one[16:], 28)
    assert refusal_of(producer, none).code == ErrorCode.INVALID_BATCH


def test_zero_length_payloads_are_payloads(
    cluster: QuickCluster, raw: RawClient, producer: RawProducer
) -> None:
    row = producer.wait_acknowledged(producer.append([b"", b"", b"x", b""]))
    assert row.count == 4
    for node in cluster.nodes:
        assert raw.read(node, row.first_lsn, row.first_lsn + 3) == [b"", b"", b"x", b""]


def test_a_frame_with_a_flipped_byte_is_counted_and_dropped_and_resolved_like_a_lost_one(
    cluster: QuickCluster, raw: RawClient, producer: RawProducer
) -> None:
    """SAFETY W6, FAULTS N17: nothing in damaged bytes is believed, not even whose they are."""
    leader = raw.leader()
    before = cluster.counters(leader)["bulk_corrupt"]
    sequence = producer.next_sequence
    batch = producer.encode([b"whole", b"and sound"], sequence)
    for place in (4, 13, 17, 25, 28, 33, 50, len(batch) - 1):
        producer.push(batch[:place] + bytes([batch[place] ^ 4]) + batch[place + 1 :])
    producer.batches[sequence] = batch
    producer.next_sequence += 1
    producer.connect(leader)  # what the ack timeout does
    assert producer.wait_acknowledged(sequence).count == 2
    assert producer.refused == []
    assert cluster.counters(leader)["bulk_corrupt"] == before + 8


def test_an_unknown_version_of_push_or_batch_is_refused(producer: RawProducer) -> None:
    batch = producer.encode([b"x"], producer.next_sequence)
    assert refusal_of(producer, batch, version=3).code == ErrorCode.UNSUPPORTED_VERSION
    batch = producer.encode([b"x"], producer.next_sequence)
    newer = seal(batch[:4] + b"\x02" + batch[5:], 28)
    assert refusal_of(producer, newer).code == ErrorCode.UNSUPPORTED_VERSION


def test_a_codec_that_the_body_does_not_have_is_refused(producer: RawProducer) -> None:
    batch = producer.encode([b"x"], producer.next_sequence)
    assert refusal_of(producer, seal(batch[:6] + b"\x01" + batch[7:], 28)).code == (
        ErrorCode.INVALID_BATCH
    )


# --- sessions ---


def test_a_second_opening_of_a_name_fences_the_first(
    raw: RawClient, log: logstore.LogClient
) -> None:
    """SAFETY E2."""
    old = raw.open_session(name=b"one name", window=16)
    new = raw.open_session(name=b"one name", window=16)
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 2)
    old.append([b"too late"])
    (row,) = old.next_rows()
    assert (row.code, row.detail) == (ErrorCode.FENCED, 2)
    with pytest.raises(Refused) as refused:
        old.connect(raw.leader())
    assert refused.value.code == ErrorCode.FENCED
    assert new.wait_acknowledged(new.append([b"in force"])).count == 1
    options = logstore.ProducerOptions(name="another name")
    with log.producer(options) as first, log.producer(options) as second:
        assert second.append(b"in force").result(PATIENCE_S).first
        with pytest.raises(Fenced):
            first.append(b"too late").result(PATIENCE_S)
        with pytest.raises(Fenced):
            first.append(b"and it stays so").result(PATIENCE_S)


def test_a_gap_is_refused_once_a_round_with_the_expected_sequence(producer: RawProducer) -> None:
    """SAFETY E1, E9."""
    for sequence in (5, 6, 7):
        producer.push(producer.encode([b"x"], sequence))
    (row,) = producer.next_rows()
    assert (row.sequence, row.code, row.detail) == (5, ErrorCode.GAP, 1)
    assert producer.wait_acknowledged(producer.append([b"the expected one"])).count == 1


def test_a_used_sequence_with_other_bytes_is_refused(producer: RawProducer) -> None:
    """SAFETY E7."""
    row = refusal_of(producer, producer.encode([b"other bytes"], 0))
    assert (row.sequence, row.code) == (0, ErrorCode.SEQUENCE_REUSED)


@pytest.mark.promise("P7")
def test_a_retry_gets_the_lsns_it_got_and_is_stored_once(
    raw: RawClient, producer: RawProducer
) -> None:
    """P7, FAULTS X7."""
    sequence = producer.next_sequence
    batch = producer.encode([b"once", b"only"], sequence)
    producer.next_sequence += 1
    producer.push(batch)
    producer.push(batch)
    row = producer.wait_acknowledged(sequence)
    producer.connect(raw.leader())
    for _ in range(3):
        producer.push(batch)
        assert producer.next_rows() == [row]
    after = producer.wait_acknowledged(producer.append([b"next"]))
    assert after.first_lsn == row.first_lsn + 2


def test_a_retry_from_below_the_window_is_committed_with_lsns_unknown(
    producer: RawProducer,
) -> None:
    """SAFETY E1."""
    first = producer.encode([b"early"], producer.next_sequence)
    producer.push(first)
    producer.wait_acknowledged(1)
    producer.next_sequence = 2
    for _ in range(producer.window + 1):
        producer.wait_acknowledged(producer.append([b"later"]))
    assert refusal_of(producer, first).code == ErrorCode.COMMITTED_LSN_UNKNOWN


def test_a_producer_nobody_opened_is_told_so(raw: RawClient, producer: RawProducer) -> None:
    """SAFETY E2: never a silent session."""
    leader = raw.leader()
    for producer_id, producer_epoch in ((producer.producer_id ^ 1, 1), (producer.producer_id, 9)):
        batch = encode_batch(
            [b"x"], producer_id=producer_id, producer_epoch=producer_epoch, sequence=0
        )
        row = foreign_producer_row(raw, leader, batch, producer_id)
        assert row.code == ErrorCode.UNKNOWN_PRODUCER
    with pytest.raises(Refused) as refused:
        raw.open_session(producer_id=producer.producer_id ^ 1)
    assert refused.value.code == ErrorCode.UNKNOWN_PRODUCER


@pytest.mark.parametrize(
    "wish", [{"mode": 0}, {"mode": 9}, {"name": b"\xff\xfe"}, {"name": b"x" * 256}]
)
def test_a_session_that_makes_no_sense_is_refused(raw: RawClient, wish: dict[str, int]) -> None:
    with pytest.raises(Refused) as refused:
        raw.open_session(**wish)  # type: ignore[arg-type]
    assert refused.value.code == ErrorCode.INVALID_REQUEST


def test_a_follower_that_is_asked_to_append_says_who_leads(
    cluster: QuickCluster, raw: RawClient, producer: RawProducer
) -> None:
    leader = raw.leader()
    for node in cluster.nodes:
        if node != leader:
            batch = producer.encode([b"x"], producer.next_sequence)
            row = foreign_producer_row(raw, node, batch, producer.producer_id)
            assert (row.code, row.detail) == (ErrorCode.NOT_LEADER, leader)
            with pytest.raises(Refused) as refused:
                raw.ask(node, CONTROL, 66, struct.pack("<QIII", 0, 1, 1, 0))
            assert (refused.value.code, refused.value.leader) == (ErrorCode.NOT_LEADER, leader)


# --- reads ---


@pytest.mark.parametrize("node", [1, 2, 3])
def test_reads_outside_of_the_log_are_answered_with_its_bounds(
    raw: RawClient, producer: RawProducer, node: int
) -> None:
    """SAFETY G3, V8, FAULTS K9: never an empty success, never a silent jump."""
    last = producer.acknowledged[0].first_lsn
    assert raw.fetch(node, last, min_lsn=last).payloads[0] == (last, b"first")
    last = raw.fetch(node, last).visible_lsn
    for first_lsn in (0, last + 2, 1 << 63, NO_BOUND):
        with pytest.raises(Refused) as refused:
            raw.fetch(node, first_lsn)
        assert refused.value.code == ErrorCode.OUT_OF_RANGE
        assert (refused.value.first, refused.value.last) == (1, last)
    with pytest.raises(Refused):
        raw.fetch(node, 2, 1)
    at_the_end = raw.fetch(node, last + 1)
    assert (at_the_end.payloads, at_the_end.next_lsn) == ([], last + 1)
    across = raw.fetch(node, last, last + 1_000)
    assert [lsn for lsn, _ in across.payloads] == [last]
    assert raw.fetch(node, last, max_bytes=0).payloads, "at least one whole batch"
    with pytest.raises(Refused) as refused:
        raw.fetch(node, 1, min_lsn=NO_BOUND, wait_ms=20)
    assert refused.value.code == ErrorCode.TIMED_OUT


@pytest.mark.parametrize("node", [1, 2, 3])
def test_times_and_indexes_beyond_everything_are_answered(
    raw: RawClient, producer: RawProducer, node: int
) -> None:
    last = producer.acknowledged[0].first_lsn
    last = raw.fetch(node, last, min_lsn=last).visible_lsn

    def lsn_of_time(timestamp_ns: int) -> int:
        reply = raw.ask(node, FETCH, 164, struct.pack("<Q", timestamp_ns))
        return int.from_bytes(reply.body, "little")

    assert lsn_of_time(0) == 1
    assert lsn_of_time(NO_BOUND) == last + 1
    assert raw.ask(node, FETCH, 166, struct.pack("<QI", 0, 1 << 20)).type == 167
    for first_index in (1 << 32, 1 << 62, NO_BOUND):
        with pytest.raises(Refused) as refused:
            raw.ask(node, FETCH, 166, struct.pack("<QI", first_index, 1 << 20))
        assert refused.value.code == ErrorCode.OUT_OF_RANGE


def test_the_library_refuses_lsns_that_are_none(
    cluster: QuickCluster, log: logstore.LogClient
) -> None:
    last = log.admin.commit_lsn()
    for node in cluster.nodes:
        cluster.wait_until_visible(node, last)
    for first, end in ((0, 1), (-1, 1), (2, 1)):
        with pytest.raises(InvalidRequest):
            list(log.read(first, end))
    with pytest.raises(OutOfRange) as refused:
        list(log.read(last + 2, last + 3))
    assert (refused.value.first, refused.value.last) == (1, last)
    with pytest.raises(OutOfRange):
        list(log.read(1, last + 1))
    for start in (0, -1, "tomorrow"):
        with pytest.raises(InvalidRequest):
            log.consumer(start)


# --- another cluster ---


def test_a_client_of_another_cluster_is_told_so(cluster: QuickCluster, raw: RawClient) -> None:
    """FAULTS K12."""
    raw.cluster_id = b"another cluster!"
    for node in cluster.nodes:
        before = cluster.counters(node)["frames_foreign"]
        for offset, type_, body in ((CONTROL, 64, b""), (FETCH, 162, struct.pack("<QIB", 0, 0, 0))):
            with pytest.raises(Refused) as refused:
                raw.ask(node, offset, type_, body)
            assert refused.value.code == ErrorCode.WRONG_CLUSTER
        assert cluster.counters(node)["frames_foreign"] == before + 2
    raw.cluster_id = bytes(16)


def test_requests_that_cannot_be_served_are_refused_and_what_says_nothing_is_counted(
    cluster: QuickCluster, raw: RawClient
) -> None:
    names = ("requests_invalid", "frames_dropped", "frames_damaged")
    before = [cluster.counters(1)[name] for name in names]
    newer = bytearray(encode_message(64, b"", correlation=1))
    newer[4] = 2
    whole = encode_message(64, b"", correlation=1)
    refused = (
        ([encode_message(127, b"", correlation=1)], ErrorCode.INVALID_REQUEST),
        ([encode_message(160, bytes(33), correlation=1)], ErrorCode.INVALID_REQUEST),
        ([encode_message(68, bytes(15), correlation=1)], ErrorCode.INVALID_REQUEST),
        ([b"", whole], ErrorCode.INVALID_REQUEST),
        ([seal(bytes(newer), 12)], ErrorCode.UNSUPPORTED_VERSION),
    )
    silent = ([b"noise"], [encode_message(65, b"{}", correlation=1)], [whole[:63] + b"\2"])
    control = raw.socket(zmq.DEALER, raw.nodes[1], CONTROL)
    for frames, code in refused:
        control.send_multipart(frames)
        reply = decode_message(control.recv_multipart())
        assert (reply.type, reply.correlation, Refused(reply.body).code) == (74, 1, code)
    for frames in silent:
        control.send_multipart(frames)
    control.send(encode_message(64, b"", correlation=5))
    assert decode_message(control.recv_multipart()).correlation == 5
    counted = [cluster.counters(1)[name] for name in names]
    assert [now - was for now, was in zip(counted, before, strict=True)] == [5, 2, 1]
