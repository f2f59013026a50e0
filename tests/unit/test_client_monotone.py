"""A monotone producer against a played leader: what becomes of the batches behind one that is given
up (SAFETY E1, E7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import logstore
from logstore import ProducerOptions, SequenceMode
from logstore.errors import (
    BatchTooLarge,
    CommittedLsnUnknown,
    ErrorCode,
    InvalidRequest,
    NotCommitted,
    OutcomeUnknown,
)
from logstore.format.client_messages import SessionStateReply, SessionStateRequest
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


@pytest.fixture
def leader() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        yield cluster.replicas[1]


@pytest.fixture
def client(leader: FakeReplica) -> Iterator[logstore.LogClient]:
    with logstore.connect(leader.cluster.endpoint, timeout=20) as client:
        yield client


def silent(*_: object) -> None:
    """A leader that takes a batch and says nothing."""


def test_monotone_producers_bring_rising_sequences(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with pytest.raises(InvalidRequest, match="needs a name"):
        client.producer(ProducerOptions(mode=SequenceMode.MONOTONE))
    options = ProducerOptions(mode=SequenceMode.MONOTONE, name="query")
    with client.producer(options) as producer:
        assert producer.append_batch([b"a"], sequence=5).result(WAIT_S) == (1, 1)
        assert producer.append_batch([b"b", b"c"], sequence=9).result(WAIT_S) == (2, 3)
        with pytest.raises(InvalidRequest, match="must rise"):
            producer.append_batch([b"d"], sequence=9)
        with pytest.raises(InvalidRequest, match="gives each batch"):
            producer.append_batch([b"d"])
        with pytest.raises(InvalidRequest, match="append_batch"):
            producer.append(b"d")
    assert [leader.pushed.get(timeout=WAIT_S)[1] for _ in range(2)] == [5, 9]


def test_a_monotone_batch_that_expires_unsent_ends_all_behind_it_and_the_producer(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    """Were 11 stored after 10 was given up, 10 would count as committed ever after (SAFETY E1)."""
    options = ProducerOptions(
        mode=SequenceMode.MONOTONE, name="query", delivery_timeout_s=0.5, ack_timeout_s=60
    )
    producer = client.producer(options)
    leader.on_push = silent
    under_way = producer.append_batch([b"nine"], sequence=9)
    leader.pushed.get(timeout=WAIT_S)
    expired = producer.append_batch([b"ten"], sequence=10)
    later = producer.append_batch([b"eleven"], sequence=11)
    # 10 is given up for its time, 11 because of 10: whichever of the two is late itself.
    producer._queue._sealed[-1].deadline_ns += 60_000_000_000
    with pytest.raises(OutcomeUnknown, match=r"not acknowledged within 0\.5 s"):
        under_way.result(WAIT_S)
    with pytest.raises(NotCommitted, match=r"not sent within 0\.5 s \(the leader did not get"):
        expired.result(WAIT_S)
    with pytest.raises(NotCommitted, match=r"sequence 11 was never sent: .*since its sequence 10"):
        later.result(WAIT_S)
    with pytest.raises(NotCommitted, match=r"producer ended, .*append from sequence 9 on"):
        producer.append_batch([b"twelve"], sequence=12)
    assert leader.pushed.empty()
    leader.on_push = leader.acknowledge
    with client.producer(options) as again:
        assert again.append_batch([b"ten"], sequence=10).result(WAIT_S) == (1, 1)


def test_a_sequence_whose_payloads_could_not_be_read_may_be_given_again(
    client: logstore.LogClient,
) -> None:
    def rows() -> Iterator[bytes]:
        yield b"one"
        raise ConnectionError("where the rows come from")

    options = ProducerOptions(mode=SequenceMode.MONOTONE, name="query")
    with client.producer(options) as producer:
        with pytest.raises(ConnectionError):
            producer.append_batch(rows(), sequence=5)  # type: ignore[arg-type]  # any iterable is taken
        assert producer.append_batch([b"one", b"two"], sequence=5).result(WAIT_S) == (1, 2)


@pytest.mark.parametrize("is_told_by_state", [False, True])
def test_a_replay_of_what_was_stored_long_ago_keeps_none_of_its_sequences(
    client: logstore.LogClient, leader: FakeReplica, is_told_by_state: bool
) -> None:
    """Its batches are older than what the log remembers of the session."""

    def refuse(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        row = (sequence, 0, len(payloads), int(ErrorCode.COMMITTED_LSN_UNKNOWN), 0)
        leader.send_acks(round_number, [row])

    if is_told_by_state:
        leader.on[SessionStateRequest] = lambda _: SessionStateReply(7, 1, 1_000, b"")
        leader.on_push = silent
    else:
        leader.on_push = refuse
    options = ProducerOptions(mode=SequenceMode.MONOTONE, name="query", ack_timeout_s=0.05)
    with client.producer(options) as producer:
        for sequence in range(3):
            with pytest.raises(CommittedLsnUnknown):
                producer.append_batch([b"again"], sequence=sequence).result(WAIT_S)
        assert list(producer._given._given) == []
        with pytest.raises(InvalidRequest, match="must rise"):
            producer.append_batch([b"again"], sequence=2)


def test_a_monotone_batch_that_is_refused_ends_all_behind_it_and_the_producer(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = silent
    options = ProducerOptions(mode=SequenceMode.MONOTONE, name="query", ack_timeout_s=60)
    producer = client.producer(options)
    refused = producer.append_batch([b"ten"], sequence=10)
    later = producer.append_batch([b"eleven"], sequence=11)
    round_number = leader.pushed.get(timeout=WAIT_S)[0]
    code = int(ErrorCode.BATCH_TOO_LARGE)
    leader.call(lambda: leader.send_acks(round_number, [(10, 0, 1, code, 0)]))
    with pytest.raises(BatchTooLarge):
        refused.result(WAIT_S)
    with pytest.raises(NotCommitted, match="sequence 11 was never sent: .*sequence 10 was refused"):
        later.result(WAIT_S)
    with pytest.raises(NotCommitted, match="producer ended"):
        producer.append_batch([b"twelve"], sequence=12)
    assert leader.pushed.empty()
