"""The producer against a played leader: packing, acknowledgements, refusals (SAFETY E9)."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterator

import pytest

import logstore
from logstore import ProducerOptions
from logstore.errors import (
    BatchTooLarge,
    CommittedLsnUnknown,
    ErrorCode,
    Fenced,
    Gap,
    InvalidBatch,
    InvalidRequest,
    InvariantViolated,
    NoQuorum,
    NotCommitted,
    OutcomeUnknown,
    Overloaded,
    SequenceReused,
    Unreachable,
    WrongCluster,
)
from logstore.format.batch import PackedPayloads
from logstore.format.client_messages import (
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateRequest,
)
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def leader(cluster: Cluster) -> FakeReplica:
    return cluster.replicas[1]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoint, timeout=20) as client:
        yield client


def silent(*_: object) -> None:
    """A leader that takes a batch and says nothing."""


def test_an_append_resolves_to_its_lsn(client: logstore.LogClient) -> None:
    with client.producer() as producer:
        assert producer.append(b"one").result(WAIT_S) == (1, 1)
        assert producer.append(b"two").result(WAIT_S) == (2, 2)


def test_a_batch_resolves_to_its_range_and_is_sent_as_one(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with client.producer() as producer:
        assert producer.append_batch([b"a", b"", b"c"]).result(WAIT_S) == (1, 3)
    assert leader.pushed.get(timeout=WAIT_S) == (1, 0, [b"a", b"", b"c"])


def test_appends_made_while_one_is_on_its_way_share_a_batch(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    with client.producer(ProducerOptions(linger_ms=10_000)) as producer:
        first = producer.append(b"first")
        round_number, sequence, _ = leader.pushed.get(timeout=WAIT_S)
        others = [producer.append(b"%d" % n) for n in range(5)]
        leader.on_push = leader.acknowledge
        leader.call(lambda: leader.acknowledge(round_number, sequence, [b"first"]))
        assert first.result(WAIT_S) == (1, 1)
        assert [future.result(WAIT_S).first for future in others] == [2, 3, 4, 5, 6]
    assert leader.pushed.get(timeout=WAIT_S) == (1, 1, [b"0", b"1", b"2", b"3", b"4"])


def test_a_full_pack_goes_without_lingering(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    options = ProducerOptions(linger_ms=60_000, pack_bytes=1_000, ack_timeout_s=60)
    producer = client.producer(options)
    producer.append(b"first")
    leader.pushed.get(timeout=WAIT_S)
    for _ in range(3):
        producer.append(bytes(600))
    assert leader.pushed.get(timeout=WAIT_S)[1:] == (1, [bytes(600)])
    assert leader.pushed.get(timeout=WAIT_S)[1:] == (2, [bytes(600)])
    leader.on_push = leader.acknowledge
    producer.close(timeout=0.01)


def test_a_batch_keeps_its_place_between_single_appends(client: logstore.LogClient) -> None:
    with client.producer() as producer:
        futures = [
            producer.append(b"1"),
            producer.append_batch([b"2", b"3"]),
            producer.append(b"4"),
        ]
        assert [future.result(WAIT_S) for future in futures] == [(1, 1), (2, 3), (4, 4)]


def test_bad_input_is_refused_before_anything_is_sent(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with client.producer() as producer:
        with pytest.raises(InvalidBatch, match="at least one"):
            producer.append_batch([])
        with pytest.raises(BatchTooLarge, match="split it"):
            producer.append(bytes(1 << 20))
        with pytest.raises(BatchTooLarge, match="split it"):
            producer.append_batch([bytes(1 << 19)] * 2)
        with pytest.raises(InvalidRequest, match="encode it"):
            producer.append("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="counts for itself"):
            producer.append_batch([b"x"], sequence=3)
    assert leader.pushed.empty()


def test_buffers_are_copied_before_append_returns(client: logstore.LogClient) -> None:
    with client.producer() as producer:
        mutable = bytearray(b"before")
        producer.append(mutable)  # type: ignore[arg-type]
        mutable[:] = b"after!"
        producer.flush(WAIT_S)
        assert [r.payload for b in client.read(1, 1) for r in b.records()] == [b"before"]


@pytest.mark.parametrize("value", [0, 70_000])
def test_an_impossible_window_is_refused(client: logstore.LogClient, value: int) -> None:
    with pytest.raises(InvalidRequest, match="window"):
        client.producer(ProducerOptions(window=value))


def test_callbacks_run_once_the_outcome_is_known(client: logstore.LogClient) -> None:
    called = threading.Event()
    acked: list[tuple[int, int, int, int]] = []
    options = ProducerOptions(on_ack=lambda *numbers: acked.append(numbers))
    with client.producer(options) as producer:
        future = producer.append(b"x")
        future.add_done_callback(lambda done: done.result(0) and called.set())
        assert called.wait(WAIT_S)
        assert future.done()
    ((size_bytes, payloads, appended_ns, acked_ns),) = acked
    assert (size_bytes > 1, payloads, acked_ns > appended_ns) == (True, 1, True)


def test_an_on_ack_that_raises_is_logged_and_ends_nothing(
    client: logstore.LogClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: int) -> None:
        raise ValueError("a mistake of the user's")

    with client.producer(ProducerOptions(on_ack=fail)) as producer:
        futures = [producer.append_batch([b"x"]) for _ in range(3)]
        assert [future.result(WAIT_S).first for future in futures] == [1, 2, 3]
        assert producer.ending is None
    assert "on_ack" in caplog.text


def test_what_the_feed_lost_session_state_tells(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = lambda _, sequence, payloads: leader.commit(sequence, payloads) and None
    with client.producer(ProducerOptions(ack_timeout_s=0.05)) as producer:
        assert producer.append(b"x").result(WAIT_S) == (1, 1)
    assert leader.pushed.qsize() == 1


def test_what_the_leader_has_in_its_log_is_not_sent_again(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    leader.next_sequence = 0
    with client.producer(ProducerOptions(ack_timeout_s=0.05)) as producer:
        future = producer.append(b"x")
        leader.pushed.get(timeout=WAIT_S)
        leader.rows = [(0, 0, 0, int(ErrorCode.OUTCOME_UNKNOWN), 0)]
        leader.next_sequence = 1
        states = 0
        while states < 3:
            states += isinstance(leader.requests.get(timeout=WAIT_S), SessionStateRequest)
        assert leader.pushed.empty()
        assert not future.done()
        leader.call(lambda: leader.send_acks(9, [(0, 41, 1, 0, 0)]))
        assert future.result(WAIT_S) == (41, 41)


def test_a_lost_batch_and_all_after_it_are_sent_again_in_order(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    with client.producer(ProducerOptions(ack_timeout_s=0.1)) as producer:
        futures = [producer.append_batch([b"%d" % n]) for n in range(3)]
        first_round = [leader.pushed.get(timeout=WAIT_S) for _ in range(3)]
        leader.on_push = leader.acknowledge
        assert [future.result(WAIT_S).first for future in futures] == [1, 2, 3]
        again = [leader.pushed.get(timeout=WAIT_S) for _ in range(3)]
    assert [each[1] for each in first_round] == [each[1] for each in again] == [0, 1, 2]
    assert {each[0] for each in first_round} == {1}
    assert len({each[0] for each in again}) == 1
    assert again[0][0] > 1
    assert [each[2] for each in first_round] == [each[2] for each in again]


def test_a_gap_makes_it_resend_under_the_next_round(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    def gap_once(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        if round_number == 1:
            leader.send_acks(1, [(sequence, 0, 1, int(ErrorCode.GAP), 0)])
        else:
            leader.acknowledge(round_number, sequence, payloads)

    leader.on_push = gap_once
    with client.producer() as producer:
        assert producer.append(b"x").result(WAIT_S) == (1, 1)
    assert [leader.pushed.get(timeout=WAIT_S)[0] for _ in range(2)] == [1, 2]


def test_a_refusal_of_an_older_round_changes_nothing(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    with client.producer() as producer:
        future = producer.append(b"x")
        leader.pushed.get(timeout=WAIT_S)
        leader.call(lambda: leader.send_acks(0, [(0, 0, 1, int(ErrorCode.FENCED), 0)]))
        leader.call(lambda: leader.acknowledge(1, 0, [b"x"]))
        assert future.result(WAIT_S) == (1, 1)


def test_a_log_that_lost_an_acknowledged_batch_ends_the_producer(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with client.producer(ProducerOptions(ack_timeout_s=0.05)) as producer:
        producer.append(b"x").result(WAIT_S)
        leader.on_push = silent
        leader.rows, leader.next_sequence = [], 0
        with pytest.raises(Gap) as caught:
            producer.append(b"y").result(WAIT_S)
        assert caught.value.expected == 0


@pytest.mark.parametrize(
    ("code", "error", "later"),
    [
        (ErrorCode.FENCED, Fenced, Fenced),
        (ErrorCode.SEQUENCE_REUSED, SequenceReused, NotCommitted),
    ],
)
def test_a_final_refusal_fails_every_later_append(
    client: logstore.LogClient,
    leader: FakeReplica,
    code: ErrorCode,
    error: type[Exception],
    later: type[Exception],
) -> None:
    def refuse(round_number: int, sequence: int, _: list[bytes]) -> None:
        leader.on[SessionStateRequest] = lambda _: ErrorReply(code, 0, 2, 0, b"")
        leader.send_acks(round_number, [(sequence, 0, 1, int(code), 0)])

    leader.on_push = refuse
    with client.producer() as producer:
        with pytest.raises(error):
            producer.append(b"x").result(WAIT_S)
        with pytest.raises(later):
            producer.append(b"y").result(WAIT_S)


def test_a_batch_whose_acknowledgement_cannot_be_gets_an_outcome_too(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    """It is answered for, and so in no list any more, when the answer turns out to be nonsense."""
    leader.on_push = silent
    producer = client.producer(ProducerOptions(ack_timeout_s=60))
    future = producer.append_batch([b"one"])
    round_number, sequence = leader.pushed.get(timeout=WAIT_S)[:2]
    row = (sequence, 1, 2, int(ErrorCode.OK), 0)
    leader.call(lambda: leader.send_acks(round_number, [row]))
    with pytest.raises(InvariantViolated, match="acknowledged with 2"):
        future.result(WAIT_S)
    producer.flush(WAIT_S)


def test_a_forgotten_duplicate_fails_alone(client: logstore.LogClient, leader: FakeReplica) -> None:
    leader.on_push = lambda round_number, sequence, payloads: (
        leader.send_acks(round_number, [(sequence, 0, 1, int(ErrorCode.COMMITTED_LSN_UNKNOWN), 0)])
        if sequence == 0
        else leader.acknowledge(round_number, sequence, payloads)
    )
    with client.producer() as producer:
        with pytest.raises(CommittedLsnUnknown):
            producer.append(b"x").result(WAIT_S)
        assert producer.append(b"y").result(WAIT_S) == (1, 1)


def test_an_append_that_was_sent_and_not_answered_has_an_unknown_outcome(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    options = ProducerOptions(delivery_timeout_s=0.1, ack_timeout_s=60)
    with client.producer(options) as producer, pytest.raises(OutcomeUnknown, match="may still"):
        producer.append(b"x").result(WAIT_S)


@pytest.mark.slow
def test_an_append_that_was_never_sent_is_not_committed(
    client: logstore.LogClient, leader: FakeReplica, cluster: Cluster
) -> None:
    options = ProducerOptions(delivery_timeout_s=0.3)
    with client.producer(options) as producer:
        producer.append(b"x").result(WAIT_S)
        cluster.leader = 0
        leader.on_push = lambda round_number, sequence, _: leader.send_acks(
            round_number, [(sequence, 0, 1, int(ErrorCode.NOT_LEADER), 0)]
        )
        with pytest.raises(OutcomeUnknown):
            producer.append(b"y").result(WAIT_S)
        with pytest.raises(NotCommitted, match="append it again"):
            producer.append(b"z").result(WAIT_S)


def test_a_full_window_holds_appends_back_and_then_refuses(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    options = ProducerOptions(window_bytes=1_000, append_timeout_s=0.05, ack_timeout_s=60)
    producer = client.producer(options)
    first = producer.append(bytes(2_000))  # the window is empty: it may pass it
    leader.pushed.get(timeout=WAIT_S)
    with pytest.raises(Overloaded, match="window"):
        producer.append(b"x")
    leader.call(lambda: leader.acknowledge(1, 0, [bytes(2_000)]))
    first.result(WAIT_S)
    leader.on_push = leader.acknowledge
    assert producer.append(b"y").result(WAIT_S) == (2, 2)
    producer.close()


def test_what_may_take_for_ever_takes_infinity(cluster: Cluster, leader: FakeReplica) -> None:
    """It raised OverflowError: at the opening, or only once the window was full."""
    options = ProducerOptions(
        append_timeout_s=math.inf, delivery_timeout_s=math.inf, ack_timeout_s=math.inf,
        linger_ms=math.inf, window_bytes=1_000,
    )  # fmt: skip
    leader.on_push = silent
    with (
        logstore.connect(cluster.endpoint, timeout=math.inf) as client,
        client.producer(options) as producer,
    ):
        producer.append(bytes(2_000))
        leader.pushed.get(timeout=WAIT_S)
        leader.on_push = leader.acknowledge
        acknowledge = threading.Timer(
            0.05, lambda: leader.call(lambda: leader.acknowledge(1, 0, [bytes(2_000)]))
        )
        acknowledge.start()
        assert producer.append(b"x").result(WAIT_S) == (2, 2)
        with client.consumer("earliest") as consumer:
            assert consumer.poll(math.inf)


@pytest.mark.parametrize(
    "name",
    ["append_timeout_s", "delivery_timeout_s", "ack_timeout_s", "linger_ms"],
)
def test_what_is_no_time_is_refused(client: logstore.LogClient, name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        client.producer(ProducerOptions(**{name: math.nan}))


def test_closing_settles_everything(client: logstore.LogClient, leader: FakeReplica) -> None:
    leader.on_push = silent
    producer = client.producer(ProducerOptions(ack_timeout_s=60))
    future = producer.append(b"x")
    leader.pushed.get(timeout=WAIT_S)
    producer.close(timeout=0.01)
    with pytest.raises(OutcomeUnknown, match="closed"):
        future.result(0)
    with pytest.raises(NotCommitted, match="closed"):
        producer.append(b"y")


def test_without_a_cluster_opening_a_producer_says_so() -> None:
    with (
        logstore.connect("127.0.0.1:9", timeout=0.2) as client,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"),
    ):
        client.producer()


@pytest.mark.slow
def test_without_a_leader_opening_a_producer_says_so(cluster: Cluster) -> None:
    cluster.leader = 0
    with (
        logstore.connect(cluster.endpoint, timeout=0.3) as client,
        pytest.raises(NoQuorum, match="none of them leads"),
    ):
        client.producer()


def test_a_replica_of_another_cluster_is_refused(
    client: logstore.LogClient, cluster: Cluster
) -> None:
    client.producer().close()
    cluster.cluster_id = bytes(15) + b"x"
    with pytest.raises(WrongCluster, match="check the endpoints"):
        client.producer()


def test_opening_waits_for_a_leader_that_is_not_ready(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    answers: list[object] = [
        ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b""),
        OpenSessionReply(7, 1, 64, 1 << 22, 1 << 20, 0),
    ]
    leader.on[OpenSessionRequest] = lambda _: answers.pop(0)
    with client.producer() as producer:
        assert producer.session.producer_id == 7
    assert not answers


def test_packed_payloads_are_appended_as_a_batch(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with client.producer() as producer:
        packed = PackedPayloads(array("i", [0, 3, 3, 5]), b"oneto")
        assert producer.append_batch(packed).result(WAIT_S) == (1, 3)
        assert leader.pushed.get(timeout=WAIT_S)[2] == [b"one", b"", b"to"]
        with pytest.raises(InvalidBatch):
            producer.append_batch(PackedPayloads(array("i", [0]), b""))
