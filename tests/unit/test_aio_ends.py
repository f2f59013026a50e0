"""How clients and producers for asyncio are closed: twice, elsewhere, too late, or never."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from logstore import ProducerOptions, aio
from logstore.errors import Closed, InvalidRequest, LogStoreError
from tests.unit.aio_stage import LOOPS, Run, fill, run_of, runner_of
from tests.unit.client_stage import Cluster, FakeReplica
from tests.unit.test_client_fork import in_child


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


def late_acks(leader: FakeReplica) -> None:
    def later(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        time.sleep(0.2)
        leader.acknowledge(round_number, sequence, payloads)

    leader.on_push = later


async def _awaited(opening: aio.client.Opening) -> object:  # type: ignore[type-arg]
    return await opening


LEFT_OPEN = """
import asyncio, gc, sys
from logstore import aio
async def main():
    log = await aio.connect(sys.argv[1], timeout=5)
    producer = await log.producer()
    await producer.append(b"x")
asyncio.run(main())
gc.collect()
"""


def test_what_is_not_open_yet_says_how_to_open_it(cluster: Cluster) -> None:
    opening: Any = aio.connect(cluster.endpoint)
    with pytest.raises(
        AttributeError, match=r"`async with .*, or `it = await .*then `it.producer`"
    ):
        opening.producer()
    assert not hasattr(opening, "producer")


def test_what_are_no_options_is_refused_in_words(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        options: Any = {"acks": "leader"}
        with pytest.raises(InvalidRequest, match="give a ProducerOptions"):
            log.producer(options)
        with pytest.raises(InvalidRequest, match="LSN '5': give a whole number"):
            await log.admin.set_cursor("q", cast(int, "5"))

    run(body)


def test_a_second_close_of_the_client_does_not_cut_the_first_ones_flush(
    run: Run, leader: FakeReplica
) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        late_acks(leader)
        future = producer.append(b"x")
        first = asyncio.ensure_future(log.close())
        await asyncio.sleep(0.05)
        await log.close()
        await first
        assert await future == (1, 1)

    run(body)


def test_closing_the_client_waits_for_a_producer_that_is_closing(
    run: Run, leader: FakeReplica
) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        late_acks(leader)
        future = producer.append(b"x")
        closing = asyncio.ensure_future(producer.close())
        await asyncio.sleep(0.05)
        await log.close()
        await closing
        assert await future == (1, 1)

    run(body)


def test_a_producer_closed_in_another_loop_is_told_and_stays(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()

        async def elsewhere() -> None:
            with pytest.raises(InvalidRequest, match="event loop"):
                await producer.close()

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await producer.append(b"x") == (1, 1)

    run(body)


def test_a_consumer_closed_in_another_loop_is_told_and_stays(run: Run, leader: FakeReplica) -> None:
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        consumer = await log.consumer("earliest")

        async def elsewhere() -> None:
            with pytest.raises(InvalidRequest, match="event loop"):
                await consumer.close()

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert (await anext(consumer)).lsn == 1

    run(body)


def test_a_client_closed_in_another_loop_is_told_and_stays(run: Run) -> None:
    async def body(log: aio.LogClient) -> None:
        async def elsewhere() -> None:
            with pytest.raises(InvalidRequest, match="event loop"):
                await log.close()

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert await log.admin.leader() == 1

    run(body)


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
@pytest.mark.parametrize("what", ["producer", "consumer", "nothing"])
def test_a_client_is_closed_after_its_loop(cluster: Cluster, kind: str, what: str) -> None:
    """Its sockets and descriptors are given back, in whatever loop."""

    async def open_it() -> aio.LogClient:
        log = await aio.connect(cluster.endpoint, timeout=20)
        if what == "producer":
            await log.producer()
        elif what == "consumer":
            await log.consumer("latest")
        return log

    with runner_of(kind) as runner:
        log = runner.run(open_it())
    with contextlib.suppress(LogStoreError):
        asyncio.run(log.close())
    assert log._driver.poller._epoll.closed
    deadline_s = time.monotonic() + 10
    while not log._driver._context._context.closed and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert log._driver._context._context.closed


def test_keyboard_interrupt_in_a_turn_settles_the_appends(cluster: Cluster) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        log = loop.run_until_complete(_awaited(aio.connect(cluster.endpoint, timeout=20)))
        options = ProducerOptions(on_ack=interrupted, delivery_timeout_s=3)

        async def append() -> None:
            producer = await log.producer(options)
            first = producer.append_batch([b"x"])
            second = producer.append_batch([b"y"])
            await asyncio.wait([first, second], timeout=10)

        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(append())
        begun = time.monotonic()
        loop.run_until_complete(log.close())
        assert time.monotonic() - begun < 2
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_records_do_not_come_from_a_closed_consumer(run: Run, leader: FakeReplica) -> None:
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        consumer = await log.consumer("earliest")
        assert (await anext(consumer)).lsn == 1
        await consumer.close()
        with pytest.raises(Closed):
            await anext(consumer)

    run(body)


def test_a_producer_closed_by_its_own_callback_ends(run: Run, leader: FakeReplica) -> None:
    """As with `asyncio.eager_task_factory` (3.12): a task that a callback makes begins at once."""

    async def body(log: aio.LogClient) -> None:
        seen: list[object] = []
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))

        def on_ack(*_: object) -> None:
            coroutine = producer.close()
            try:
                coroutine.send(None)
            except StopIteration:
                seen.append("closed")
            except BaseException as error:
                seen.append(error)

        producer = await log.producer(ProducerOptions(on_ack=on_ack))
        assert await producer.append(b"x") == (1, 1)
        await asyncio.sleep(0.1)
        assert seen == ["closed"]
        assert reports == []
        with pytest.raises(LogStoreError):
            await producer.append(b"y")

    run(body)


def test_one_opening_is_entered_by_two_tasks(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        opening = log.producer()
        async with contextlib.AsyncExitStack() as outer:
            first = await opening.__aenter__()
            with contextlib.suppress(InvalidRequest, RuntimeError):
                second = await opening.__aenter__()
                outer.push_async_callback(second.close)
            await opening.__aexit__(None, None, None)
            assert first.is_closed

    run(body)


def test_a_client_that_is_left_open_does_not_hang_the_collector(cluster: Cluster) -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN, cluster.endpoint], timeout=15)
    assert ended.returncode == 0


def test_a_forked_child_may_close(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        consumer = await log.consumer("latest")
        for each in (producer, consumer, log):
            assert in_child(lambda each=each: asyncio.run(each.close())) == ""  # type: ignore[misc]
        assert await producer.append(b"x") == (1, 1)

    run(body)


def test_a_producer_opened_while_the_client_closes_is_refused_or_flushed(
    run: Run, leader: FakeReplica
) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer()
        late_acks(leader)
        producer.append(b"x")
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(0.01)
        with contextlib.suppress(Closed):
            late = await log.producer()
            future = late.append(b"late")
            await closing
            assert late.is_closed
            assert future.exception() is None
        await closing

    run(body)
