"""The producer for asyncio, against a played leader: futures, back-pressure, ends (SAFETY E9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

import logstore
from logstore import ProducerOptions, aio
from logstore.aio import append_queue
from logstore.errors import (
    BatchTooLarge,
    Closed,
    ErrorCode,
    Fenced,
    InvalidBatch,
    InvalidRequest,
    NotCommitted,
    OutcomeUnknown,
    Overloaded,
    SequenceReused,
    Unreachable,
)
from logstore.format.client_messages import (
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateRequest,
)
from tests.unit.aio_stage import LOOPS, Run, run_of, silent
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def leader(cluster: Cluster) -> FakeReplica:
    return cluster.replicas[1]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, cluster: Cluster) -> Run:
    return run_of(request.param, cluster)


def test_an_append_resolves_to_its_lsn(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            assert await producer.append(b"one") == (1, 1)
            assert (await producer.append(b"two")).first == 2

    run(body)


def test_a_batch_resolves_to_its_range_and_is_sent_as_one(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            assert await producer.append_batch([b"a", b"", b"c"]) == (1, 3)

    run(body)
    assert leader.pushed.get(timeout=WAIT_S) == (1, 0, [b"a", b"", b"c"])


def test_gathered_appends_share_batches_and_make_no_task(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            futures = [producer.append(b"%d" % number) for number in range(2_000)]
            assert all(type(future).__name__ == "Future" for future in futures)
            assert len(asyncio.all_tasks()) == 1
            lsns = await asyncio.gather(*futures)
            assert [lsn.first for lsn in lsns] == list(range(1, 2_001))

    run(body)
    assert leader.pushed.qsize() < 20


def test_the_order_of_the_calls_is_the_order_of_the_log(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            one = producer.append(b"1")
            batch = producer.append_batch([b"2", b"3"])
            last = producer.append(b"4")
            assert [await each for each in (last, batch, one)] == [(4, 4), (2, 3), (1, 1)]

    run(body)
    payloads = [payload for _ in range(3) for payload in leader.pushed.get(timeout=WAIT_S)[2]]
    assert payloads == [b"1", b"2", b"3", b"4"]


def test_a_cancelled_wait_leaves_the_append(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            cancelled = producer.append(b"kept")
            cancelled.cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await producer.append(b"kept, too")
            assert await producer.append(b"third") == (3, 3)
            assert cancelled.cancelled()

    run(body)
    assert leader.next_lsn == 4


def test_flush_waits_for_every_outcome_and_room_for_the_window(
    run: Run, leader: FakeReplica
) -> None:
    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(
            window_bytes=4_096, pack_bytes=1_024, append_timeout_s=0.05, ack_timeout_s=0.2
        )
        leader.on_push = silent
        async with log.producer(options) as producer:
            for _ in range(8):
                producer.append(bytes(600))
            with pytest.raises(Overloaded):
                await producer.room()
            with pytest.raises(TimeoutError):
                await producer.flush(timeout=0.05)
            leader.on_push = leader.acknowledge
            await producer.flush()
            await producer.room()
            assert await producer.append(b"x") == (9, 9)

    run(body)


def test_room_comes_with_acknowledgements(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer(ProducerOptions(window_bytes=4_096, pack_bytes=1_024)) as producer:
            for _ in range(100):
                producer.append(bytes(600))
                await producer.room()
            await producer.flush()

    run(body)


def test_no_more_than_a_window_is_sent_and_what_is_queued_behind_is_bounded(
    run: Run, leader: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_queue, "QUEUE_MAX_BYTES", 8_192)

    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(window_bytes=4_096, pack_bytes=1_024, ack_timeout_s=60)
        leader.on_push = silent
        async with log.producer(options) as producer:
            futures = [producer.append(bytes(900)) for _ in range(12)]
            assert 964 * 12 <= 4_096 + 8_192 < 964 * 13
            with pytest.raises(Overloaded, match="room"):
                producer.append(bytes(900))
            while leader.pushed.qsize() < 4:
                await asyncio.sleep(0.001)
            with pytest.raises(TimeoutError):
                await producer.flush(timeout=0.1)
            assert leader.pushed.qsize() == 4
            leader.on_push = leader.acknowledge
            rows = [(number, number + 1, 1, 0, 0) for number in range(4)]
            for number in range(4):
                leader.call(lambda number=number: leader.commit(number, [bytes(900)]))
            leader.call(lambda: leader.send_acks(1, rows))
            lsns = await asyncio.gather(*futures)
            assert [lsn.first for lsn in lsns] == list(range(1, len(futures) + 1))

    run(body)


def test_a_change_of_leader_resends_in_order(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        leader.on_push = silent
        async with log.producer(ProducerOptions(ack_timeout_s=0.1)) as producer:
            futures = [producer.append_batch([b"%d" % number]) for number in range(5)]
            while leader.pushed.qsize() < 5:
                await asyncio.sleep(0.001)
            leader.on_push = leader.acknowledge
            assert [(await each).first for each in futures] == [1, 2, 3, 4, 5]

    run(body)
    assert leader.log
    assert leader.next_lsn == 6


def test_a_refusal_of_one_batch_ends_the_producer(run: Run, leader: FakeReplica) -> None:
    def refuse(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        leader.send_acks(round_number, [(sequence, 0, 0, ErrorCode.SEQUENCE_REUSED, 0)])

    async def body(log: aio.LogClient) -> None:
        leader.on_push = refuse
        async with log.producer() as producer:
            first, second = producer.append_batch([b"a"]), producer.append_batch([b"b"])
            with pytest.raises(SequenceReused):
                await first
            with pytest.raises(OutcomeUnknown):
                await second
            with pytest.raises(NotCommitted):
                producer.append(b"c")
            with pytest.raises(NotCommitted):
                await producer.room()

    run(body)


def test_bad_arguments_are_told_at_once(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        for options in (ProducerOptions(window=1), ProducerOptions(window_bytes=0)):
            with pytest.raises(InvalidRequest):
                await log.producer(options)
        async with log.producer() as producer:
            with pytest.raises(InvalidRequest, match="encode"):
                producer.append("text")  # type: ignore[arg-type]
            with pytest.raises(InvalidBatch):
                producer.append_batch([])
            with pytest.raises(BatchTooLarge):
                producer.append(bytes(1 << 20))
            with pytest.raises(InvalidRequest, match="dense"):
                producer.append_batch([b"x"], sequence=4)
            assert await producer.append(b"x") == (1, 1)

    run(body)


def test_a_monotone_producer_gives_sequences(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(name="m", mode=logstore.SequenceMode.MONOTONE)
        async with log.producer(options) as producer:
            assert await producer.append_batch([b"x"], sequence=4) == (1, 1)
            with pytest.raises(InvalidRequest, match="rise"):
                producer.append_batch([b"x"], sequence=4)
            with pytest.raises(InvalidRequest, match="append_batch"):
                producer.append(b"x")

    run(body)


def test_a_sequence_whose_payloads_could_not_be_read_may_be_given_again(run: Run) -> None:
    def rows() -> Iterator[bytes]:
        yield b"one"
        raise ConnectionError("where the rows come from")

    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(mode=logstore.SequenceMode.MONOTONE, name="query")
        async with log.producer(options) as producer:
            with pytest.raises(ConnectionError):
                producer.append_batch(rows(), sequence=5)  # type: ignore[arg-type]  # any iterable
            assert await producer.append_batch([b"one", b"two"], sequence=5) == (1, 2)

    run(body)


def test_a_producer_is_opened_by_await_too_and_closed_twice(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        leader.answer_in_turn(OpenSessionRequest, OpenSessionReply(7, 2, 64, 1 << 22, 1 << 20, 0))
        producer = await log.producer()
        assert producer.session.producer_epoch == 2
        await producer.close()
        await producer.close()
        assert producer.is_closed
        with pytest.raises(NotCommitted):
            producer.append(b"late")

    run(body)


def test_close_waits_for_outcomes_and_fails_the_rest(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        future = producer.append(b"x")
        await producer.close()
        assert future.result() == (1, 1)
        leader.on_push = silent
        late = await log.producer()
        unknown = late.append(b"y")
        await late.close(timeout=0.05)
        with pytest.raises(OutcomeUnknown):
            await unknown

    run(body)


def test_a_closed_client_refuses_everything(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        future = producer.append(b"x")
        consumer = await log.consumer("latest")
        waiting = asyncio.ensure_future(anext(consumer))
        await asyncio.sleep(0)
        await log.close()
        assert future.result() == (1, 1)
        with pytest.raises(Closed):
            await waiting
        for call in (log.producer, log.consumer, log.reader, log.watch):
            with pytest.raises(Closed):
                call()
        for steps in (log.nodes(), log.admin.leader(), producer.room()):
            with pytest.raises(Closed):
                await steps
        with pytest.raises(Closed):
            producer.append(b"x")
        await log.close()

    run(body)


def test_another_loop_and_no_loop_are_told(run: Run, cluster: Cluster) -> None:
    kept: list[Any] = []

    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        kept.append(producer)

        async def elsewhere() -> None:
            with pytest.raises(InvalidRequest, match="event loop"):
                producer.append(b"x")
            with pytest.raises(InvalidRequest, match="event loop"):
                await log.nodes()

        def without_loop() -> None:
            with pytest.raises(InvalidRequest, match="event loop"):
                producer.append(b"x")

        await asyncio.to_thread(asyncio.run, elsewhere())
        await asyncio.to_thread(without_loop)
        assert await producer.append(b"x") == (1, 1)

    run(body)


def test_an_unreachable_cluster_is_told(run: Run, cluster: Cluster) -> None:
    async def body(_: aio.LogClient) -> None:
        async with aio.connect("127.0.0.1:1", timeout=0.2) as lost:
            with pytest.raises(Unreachable):
                await lost.producer()
            with pytest.raises(Unreachable):
                await lost.nodes()

    run(body)
    with pytest.raises(InvalidRequest):
        aio.connect("127.0.0.1:1", timeout=0)


def test_a_fenced_producer_ends(run: Run, leader: FakeReplica) -> None:
    def fence(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        leader.send_acks(round_number, [(sequence, 0, 0, ErrorCode.FENCED, 2)])

    async def body(log: aio.LogClient) -> None:
        leader.on_push = fence
        producer = await log.producer(ProducerOptions(ack_timeout_s=0.1, delivery_timeout_s=5))
        future = producer.append(b"x")
        fenced = ErrorReply(ErrorCode.FENCED, 0, 0, 0, b"fenced")
        leader.answer_in_turn(SessionStateRequest, fenced)
        with pytest.raises(Fenced):
            await future
        with pytest.raises(Fenced):
            producer.append(b"y")
        await producer.close()

    run(body)


def test_room_lets_the_steps_run(run: Run, leader: FakeReplica) -> None:
    """`append` is "sent when the caller next awaits something"; a loop of append and room sent
    nothing until the window was full, so slow input expired unsent."""

    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(delivery_timeout_s=0.4)
        async with log.producer(options) as producer:
            await producer.append(b"connected")
            futures = []
            for _ in range(30):
                futures.append(producer.append(b"x"))
                await producer.room()
                time.sleep(0.02)  # parses, computes
            assert leader.pushed.qsize() > 1
            results = await asyncio.gather(*futures, return_exceptions=True)
            assert [each for each in results if isinstance(each, Exception)] == []

    run(body)


def test_each_flush_waits_for_what_was_appended_before_it(run: Run, leader: FakeReplica) -> None:
    """A future for each flush, told in order: to wait for each batch in each of a thousand flushes
    took 7 s."""

    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer:
            await producer.append(b"x")

            async def one() -> None:
                future = producer.append_batch([b"y"])
                await producer.flush()
                assert future.done()

            await asyncio.gather(*[one() for _ in range(1_000)])
            assert producer._queue._flushes == {}

    run(body)


def test_room_is_patient_while_acknowledgements_come(run: Run, leader: FakeReplica) -> None:
    """`Overloaded` says that none was acknowledged for so long."""

    def slow(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        time.sleep(0.15)
        leader.acknowledge(round_number, sequence, payloads)

    async def body(log: aio.LogClient) -> None:
        options = ProducerOptions(window_bytes=4_096, pack_bytes=1_024, append_timeout_s=1)
        async with log.producer(options) as producer:
            leader.on_push = slow
            for _ in range(16):
                producer.append(bytes(900))
            await producer.room()

    run(body)
