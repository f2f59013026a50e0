"""Appends that expect an LSN against a played leader: what a refusal leaves behind (SAFETY E11)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import logstore
from logstore import ProducerOptions, SequenceMode, aio
from logstore.client.core import producer_machine
from logstore.errors import (
    ErrorCode,
    InvalidBatch,
    InvalidRequest,
    LevelRefused,
    NextLsnIs,
    OutcomeUnknown,
)
from tests.unit.aio_stage import LOOPS, Run, run_of
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10
OPTIONS = ProducerOptions(mode=SequenceMode.MONOTONE, name="writer", ack_timeout_s=60)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def leader(cluster: Cluster) -> FakeReplica:
    return cluster.replicas[1]


@pytest.fixture
def client(leader: FakeReplica) -> Iterator[logstore.LogClient]:
    with logstore.connect(leader.cluster.endpoint, timeout=20) as client:
        yield client


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, cluster: Cluster) -> Run:
    return run_of(request.param, cluster)


def comparing(leader: FakeReplica) -> Callable[..., None]:
    """It stores what expects the LSN where its log ends, or nothing."""

    def take(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        expectation = leader.expectations[-1]
        if expectation is None or expectation.expected_lsn == leader.next_lsn:
            leader.acknowledge(round_number, sequence, payloads)
        else:
            refuse(leader, round_number, sequence, ErrorCode.NEXT_LSN_IS, leader.next_lsn)

    return take


def refuse(
    leader: FakeReplica, round_number: int, sequence: int, code: ErrorCode, detail: int = 0
) -> None:
    expectation = leader.expectations[-1]
    assert expectation is not None
    leader.send_acks(round_number, [(sequence, expectation.attempt, 1, int(code), detail)])


def expected(leader: FakeReplica) -> list[int | None]:
    return [each and each.expected_lsn for each in leader.expectations]


def test_a_refused_append_says_the_next_lsn_and_the_session_goes_on(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = comparing(leader)
    with client.producer(OPTIONS) as producer:
        assert producer.append_batch([b"a"], sequence=1, expected_next_lsn=1).result(WAIT_S).first
        with pytest.raises(NextLsnIs, match="next LSN was 2.*read on, decide again") as refused:
            producer.append_batch([b"b"], sequence=2, expected_next_lsn=1).result(WAIT_S)
        assert refused.value.next_lsn == 2
        again = producer.append_batch([b"c"], sequence=2, expected_next_lsn=2)
        assert again.result(WAIT_S) == (2, 2)
        assert producer.append_batch([b"d"], sequence=3).result(WAIT_S) == (3, 3)
    assert expected(leader) == [1, 1, 2, None]
    assert {leader.pushed.get(timeout=WAIT_S)[0] for _ in range(4)} == {1}  # one round


def test_a_refusal_that_comes_twice_is_not_the_answer_to_the_next_attempt(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = comparing(leader)
    with client.producer(OPTIONS) as producer:
        with pytest.raises(NextLsnIs):
            producer.append_batch([b"a"], sequence=1, expected_next_lsn=4).result(WAIT_S)
        leader.on_push = lambda *_: None
        again = producer.append_batch([b"b"], sequence=1, expected_next_lsn=4)
        number, *_ = [leader.pushed.get(timeout=WAIT_S) for _ in range(2)][1]
        row = (1, 1, 1, int(ErrorCode.NEXT_LSN_IS), 1)
        leader.call(lambda: leader.send_acks(number, [row]))
        leader.call(lambda: leader.acknowledge(number, 1, [b"b"]))
        assert again.result(WAIT_S) == (1, 1)
    assert [each and each.attempt for each in leader.expectations] == [1, 2]


def test_appends_behind_a_refused_one_are_decided_by_themselves(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = comparing(leader)
    with client.producer(OPTIONS) as producer:
        futures = [
            producer.append_batch([b"x"], sequence=sequence, expected_next_lsn=expected)
            for sequence, expected in ((1, 5), (2, 1), (3, 1), (4, None))
        ]
        outcomes = [future.exception(WAIT_S) for future in futures]
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [NextLsnIs, type(None), NextLsnIs, type(None)]
        assert futures[3].result(WAIT_S) == (2, 2)
        with pytest.raises(InvalidRequest, match="after 4: they must rise"):
            producer.append_batch([b"y"], sequence=3, expected_next_lsn=3)


def test_an_append_to_a_new_log_is_sent_again_until_the_level_is_raised(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    refusals = iter([ErrorCode.LEVEL_REFUSED] * 3)

    def answer(number: int, sequence: int, payloads: list[bytes]) -> None:
        code = next(refusals, None)
        if code is None:
            comparing(leader)(number, sequence, payloads)
        else:
            refuse(leader, number, sequence, code)
            refuse(leader, number, sequence, code)  # twice, as a late copy

    leader.on_push = answer
    with client.producer(OPTIONS) as producer:
        assert producer.append_batch([b"a"], sequence=4, expected_next_lsn=1).result(WAIT_S)
        with pytest.raises(NextLsnIs):
            producer.append_batch([b"b"], sequence=5, expected_next_lsn=1).result(WAIT_S)
    pushes = [leader.pushed.get(timeout=WAIT_S) for _ in range(4)]
    assert [push[1:] for push in pushes] == [pushes[0][1:]] * 4
    attempts = [(each and (each.round, each.attempt)) for each in leader.expectations]
    assert len(set(attempts)) == 5, "each push is another attempt"
    assert expected(leader) == [1] * 5


def test_below_the_level_the_append_fails_and_the_session_goes_on(
    client: logstore.LogClient, leader: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_machine, "LEVEL_PATIENCE_S", 0.2)
    leader.on_push = lambda number, sequence, _: refuse(
        leader, number, sequence, ErrorCode.LEVEL_REFUSED
    )
    with client.producer(OPTIONS) as producer:
        with pytest.raises(LevelRefused, match="run `logstore upgrade`"):
            producer.append_batch([b"a"], sequence=1, expected_next_lsn=1).result(WAIT_S)
        leader.on_push = leader.acknowledge
        assert producer.append_batch([b"b"], sequence=1).result(WAIT_S) == (1, 1)


def test_an_append_whose_leader_is_silent_is_sent_again_with_what_it_expects(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = lambda *_: None
    options = ProducerOptions(mode=SequenceMode.MONOTONE, name="writer", ack_timeout_s=0.1)
    with client.producer(options) as producer:
        future = producer.append_batch([b"a"], sequence=1, expected_next_lsn=1)
        first = leader.pushed.get(timeout=WAIT_S)
        leader.on_push = comparing(leader)
        assert future.result(WAIT_S) == (1, 1)
        again = leader.pushed.get(timeout=WAIT_S)
    assert again[0] > first[0]
    assert again[1:] == first[1:]
    assert set(expected(leader)) == {1}


def test_an_append_that_was_given_up_keeps_its_sequence_until_it_is_refused(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    leader.on_push = lambda *_: None
    options = ProducerOptions(
        mode=SequenceMode.MONOTONE, name="writer", ack_timeout_s=60, delivery_timeout_s=0.2
    )
    with client.producer(options) as producer:
        future = producer.append_batch([b"a"], sequence=1, expected_next_lsn=9)
        number, *_ = leader.pushed.get(timeout=WAIT_S)
        with pytest.raises(OutcomeUnknown):
            future.result(WAIT_S)
        with pytest.raises(InvalidRequest, match="must rise"):
            producer.append_batch([b"b"], sequence=1)
        leader.call(lambda: refuse(leader, number, 1, ErrorCode.NEXT_LSN_IS, 1))
        leader.on_push = leader.acknowledge
        assert producer.append_batch([b"b"], sequence=2).result(WAIT_S) == (1, 1)


def test_an_interrupt_after_an_append_was_queued_does_not_free_its_sequence(
    client: logstore.LogClient, leader: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader.on_push = lambda *_: None
    with client.producer(OPTIONS) as producer:
        with interrupted(monkeypatch, producer._queue, "_ring"):
            producer.append_batch([b"a"], sequence=5, expected_next_lsn=1)
        with pytest.raises(InvalidRequest, match="sequence 5 after 5: they must rise"):
            producer.append_batch([b"b"], sequence=5)
        number, sequence, payloads = leader.pushed.get(timeout=WAIT_S)
        leader.on_push = leader.acknowledge
        leader.call(lambda: leader.acknowledge(number, sequence, payloads))
        with pytest.raises(InvalidBatch):
            producer.append_batch([], sequence=6)
        assert producer.append_batch([b"c"], sequence=6).result(WAIT_S) == (2, 2)


def test_asyncio_an_interrupt_after_an_append_was_queued_does_not_free_its_sequence(
    run: Run, leader: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer(OPTIONS) as producer:
            with interrupted(monkeypatch, producer._queue, "_wake"):
                producer.append_batch([b"a"], sequence=5, expected_next_lsn=1)
            with pytest.raises(InvalidRequest, match="sequence 5 after 5: they must rise"):
                producer.append_batch([b"b"], sequence=5)
            with pytest.raises(InvalidBatch):
                producer.append_batch([], sequence=6)
            assert await producer.append_batch([b"c"], sequence=6) == (2, 2)

    run(body)


@contextmanager
def interrupted(monkeypatch: pytest.MonkeyPatch, queue: object, wakes: str) -> Iterator[None]:
    """Ctrl-C comes right after a batch was queued."""
    wake = getattr(queue, wakes)

    def interrupt() -> None:
        wake()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(queue, wakes, interrupt)
        with pytest.raises(KeyboardInterrupt):
            yield


def test_a_dense_producer_expects_no_lsn_and_nobody_expects_what_is_none(
    client: logstore.LogClient, leader: FakeReplica
) -> None:
    with client.producer() as producer, pytest.raises(InvalidRequest, match="dense.*monotone one"):
        producer.append_batch([b"a"], expected_next_lsn=1)
    with client.producer(OPTIONS) as producer:
        for lsn in (0, -1, 1 << 63):
            with pytest.raises(InvalidRequest, match="give an LSN"):
                producer.append_batch([b"a"], sequence=1, expected_next_lsn=lsn)
        assert producer.append_batch([b"a"], sequence=1).result(WAIT_S) == (1, 1)
    assert expected(leader) == [None]


def test_asyncio_a_refused_append_says_the_next_lsn_and_the_session_goes_on(
    run: Run, leader: FakeReplica
) -> None:
    leader.on_push = comparing(leader)

    async def body(log: aio.LogClient) -> None:
        async with log.producer(OPTIONS) as producer:
            with pytest.raises(NextLsnIs) as refused:
                await producer.append_batch([b"a"], sequence=3, expected_next_lsn=7)
            assert refused.value.next_lsn == 1
            lsns = await producer.append_batch([b"b"], sequence=3, expected_next_lsn=1)
            assert lsns == (1, 1)
            with pytest.raises(InvalidRequest, match="must rise"):
                producer.append_batch([b"c"], sequence=3, expected_next_lsn=2)
        async with log.producer() as dense:
            with pytest.raises(InvalidRequest, match="dense"):
                dense.append_batch([b"c"], expected_next_lsn=2)

    run(body)
    assert expected(leader) == [7, 1]
