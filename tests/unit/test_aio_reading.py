"""Consumers, readers, watches and an operator's requests for asyncio, against a played replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from logstore import AtCursor, aio
from logstore.errors import Closed, CursorMoved, ErrorCode, InvalidRequest, OutOfRange
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    FetchRequest,
    SetCursorRequest,
    TailGroup,
    Tip,
)
from tests.unit.aio_stage import LOOPS, Run, fill, run_of
from tests.unit.client_stage import Cluster, FakeReplica
from tests.unit.test_client_fork import in_child
from tests.unit.test_client_positions import CursorTable


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def replica(cluster: Cluster) -> FakeReplica:
    replica = cluster.replicas[1]
    fill(replica)
    return replica


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, cluster: Cluster) -> Run:
    return run_of(request.param, cluster)


def test_a_consumer_gives_every_record_to_the_end(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest", end_lsn=20) as consumer:
            records = [record async for record in consumer]
            assert consumer.is_at_end
        assert [record.lsn for record in records] == list(range(1, 21))
        assert records[2].payload == b"1 a"

    run(body)


def test_a_loop_that_is_left_goes_on_after_its_last_record(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer(4, end_lsn=20) as consumer:
            async for record in consumer:
                if record.lsn == 7:
                    break
            assert consumer.position == 8
            assert (await anext(consumer)).lsn == 8
            assert [record.lsn async for record in consumer][-1] == 20

    run(body)


def test_a_cancelled_call_loses_nothing(run: Run, replica: FakeReplica) -> None:
    answer = replica.fetch
    asked = []

    def late(request: FetchRequest) -> object:
        asked.append(request)
        return None if len(asked) == 1 else answer(request)

    async def body(log: aio.LogClient) -> None:
        replica.on[FetchRequest] = late
        async with log.consumer("earliest", end_lsn=20) as consumer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(consumer)
            assert [record.lsn async for record in consumer] == list(range(1, 21))

    run(body)


def test_what_is_appended_later_comes_by_the_tail(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer("latest") as consumer:
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0.1)
            replica.call(lambda: replica.append_to_log([b"new"]))
            replica.call(lambda: replica.publish_tail(TailGroup(21), replica.piece(10)))
            assert (await waiting).payload == b"new"
            replica.call(lambda: replica.append_to_log([b"lost"]))
            replica.call(lambda: replica.publish_tail(Tip(22)))
            batches = consumer.batches()
            assert (await anext(batches)).first_lsn == 22

    run(body)


def test_positions_are_sought_committed_and_paused(run: Run, replica: FakeReplica) -> None:
    cursors = CursorTable(replica)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer(AtCursor("mine"), end_lsn=20) as consumer:
            seen = []
            async for record in consumer:
                seen.append(record.lsn)
                if record.lsn == 2:
                    assert await consumer.commit("mine") == 3
                    await consumer.seek(19)
            assert seen == [1, 2, 19, 20]
        async with log.consumer(AtCursor("mine"), end_lsn=20) as consumer:
            assert consumer.position == 3
            consumer.pause()
            assert await consumer.poll(0.05) == []
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
            consumer.resume()
            assert (await waiting).lsn == 3
            consumer.pause()  # holds back what was read, too
            assert await consumer.poll(0.05) == []
            assert consumer.position == 4
            consumer.resume()
            cursors.held["mine"] = (9, False)
            with pytest.raises(CursorMoved):
                await consumer.commit("mine")

    run(body)


def test_a_poll_amid_which_a_pause_ends_hands_on_first_what_was_read_before_it(
    run: Run, replica: FakeReplica
) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest") as consumer:
            assert (await anext(consumer)).lsn == 1
            while consumer._machine.next_lsn <= 20:
                consumer._unread.add(await consumer._poll(10))
            replica.call(lambda: replica.append_to_log([b"new"]))
            consumer.pause()
            asyncio.get_running_loop().call_later(0.05, consumer.resume)
            found: list[int] = []
            while not found or found[-1] < 21:
                for batch in await consumer.poll(10):
                    found += range(batch.first_lsn, batch.last_lsn + 1)
            assert found == list(range(2, 22))

    run(body)


def test_two_tasks_at_one_consumer_are_told(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer("latest") as consumer:
            waiting = asyncio.ensure_future(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(InvalidRequest, match="two tasks"):
                await consumer.poll(0)
            await consumer.close()
            with pytest.raises(Closed):
                await waiting
            with pytest.raises(Closed):
                await consumer.poll(0)

    run(body)


def test_ranges_are_read_as_arrays_and_as_whole_batches(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        batches = [batch async for batch in log.read(2, 5)]
        assert [batch.first_lsn for batch in batches] == [2, 3, 5]
        assert [raw.first_lsn async for raw in log.read_batches(2, 5)] == [1, 3, 5]
        with pytest.raises(OutOfRange):
            [batch async for batch in log.read(2, 500)]
        async with log.reader(reads_ahead=True) as reader:
            assert sum([len(batch) async for batch in reader.read(1, 20)]) == 20
        with pytest.raises(Closed):
            await anext(reader.read(1, 2))
        assert (await log.digest(1, 20)).payloads == 20

    run(body)


def test_an_operators_requests(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        assert await log.admin.leader() == 1
        assert (await log.admin.watermarks()).visible_lsn == 20
        assert list(await log.nodes()) == [1]
        assert log.cluster_id
        async with log.watch() as watch:
            assert (await watch.now()).visible_lsn == 20
        replica.answer_in_turn(
            SetCursorRequest,
            DoneReply(4),
            ErrorReply(ErrorCode.CURSOR_MOVED, 1, 6, 0, b"moved"),
        )
        assert await log.admin.set_cursor("mine", 5) == 4
        with pytest.raises(CursorMoved):
            await log.admin.set_cursor("mine", 5, expected_lsn=5)
        with pytest.raises(InvalidRequest, match="delete_cursor"):
            await log.admin.set_cursor("mine", 0)

    run(body)


def test_a_forked_child_is_told(run: Run, replica: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.producer() as producer, log.consumer("earliest") as consumer:
            calls: list[Callable[[], object]] = [
                lambda: producer.append(b"x"),
                lambda: producer.flush().send(None),
                lambda: anext(consumer).send(None),
                lambda: log.nodes().send(None),
                log.producer,
                log.reader,
            ]
            assert [in_child(call) for call in calls] == ["Closed"] * len(calls)
            assert (await producer.append(b"x")).first == 21
            assert (await anext(consumer)).lsn == 1

    run(body)
