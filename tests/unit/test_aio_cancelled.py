"""Calls of the asyncio client that are cancelled, loops that are left, other tasks' turns."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from logstore import ProducerOptions, aio
from logstore.aio import driver as driver_module
from logstore.client.clock import monotonic_ns
from logstore.client.core.steps import Steps, Wait
from logstore.format.client_messages import TailGroup
from tests.unit.aio_stage import LOOPS, Run, fill, run_of, silent
from tests.unit.client_stage import Cluster, FakeReplica


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


@pytest.mark.parametrize("how", ["poll", "anext"])
def test_a_poll_cancelled_as_its_result_comes_loses_nothing(
    run: Run, leader: FakeReplica, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A timer is due in the turn that settles the call: the caller's task is not resumed yet."""
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest", end_lsn=20) as consumer:
            call = consumer.poll(60) if how == "poll" else anext(consumer)
            task = asyncio.ensure_future(call)
            settle = driver_module.Run._settle

            def settle_then_time_out(self: object, error: object) -> None:
                settle(self, error)  # type: ignore[arg-type]
                task.cancel()

            monkeypatch.setattr(driver_module.Run, "_settle", settle_then_time_out)
            with pytest.raises(asyncio.CancelledError):
                await task
            monkeypatch.undo()
            assert consumer.position == 1
            assert [record.lsn async for record in consumer] == list(range(1, 21))

    run(body)


def test_a_seek_cancelled_after_it_took_effect_hands_on_nothing_from_before(
    run: Run, leader: FakeReplica
) -> None:
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest", end_lsn=20) as consumer:
            assert (await anext(consumer)).lsn == 1
            assert consumer.position == 2, "it was read, and is not handed on yet"
            task = asyncio.ensure_future(consumer.seek(18))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            position = consumer.position
            assert [record.lsn async for record in consumer] == list(range(position, 21))

    run(body)


def test_polls_under_timeouts_lose_nothing(run: Run, leader: FakeReplica) -> None:
    """The same without a patch: many short timeouts, on a stream of groups."""
    stop = threading.Event()
    places = iter(range(100_000))

    def publish() -> None:
        for place in (next(places) for _ in range(4)):
            leader.append_to_log([b"x"])
            leader.publish_tail(TailGroup(leader.next_lsn - 1), leader.piece(place))

    def publish_on() -> None:
        while not stop.is_set():
            leader.call(publish)
            time.sleep(0.0005)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest") as consumer:
            thread = threading.Thread(target=publish_on)
            thread.start()
            expected, end = 1, time.monotonic() + 1.5
            number = 0
            try:
                while time.monotonic() < end:
                    number += 1
                    try:
                        async with asyncio.timeout(0.001 + (number % 97) * 0.00003):
                            batches = await consumer.poll(60)
                    except TimeoutError:
                        continue
                    for batch in batches:
                        assert batch.first_lsn == expected, (
                            f"after {expected - 1} came {batch.first_lsn}, poll {number}"
                        )
                        expected = batch.last_lsn + 1
            finally:
                stop.set()
                await asyncio.to_thread(thread.join)
            assert expected > 1

    run(body)


def test_a_cancelled_anext_of_batches_is_not_the_end(run: Run, leader: FakeReplica) -> None:
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer("latest", end_lsn=22) as consumer:
            batches = consumer.batches()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(batches)
            leader.call(lambda: leader.append_to_log([b"new", b"newer"]))
            leader.call(lambda: leader.publish_tail(TailGroup(22), leader.piece(10)))
            assert (await anext(batches)).first_lsn == 21  # StopAsyncIteration: "the end"

    run(body)


def test_leaving_batches_loses_nothing(run: Run, leader: FakeReplica) -> None:
    fill(leader)

    async def body(log: aio.LogClient) -> None:
        async with log.consumer("earliest", end_lsn=20) as consumer:
            async for batch in consumer.batches():
                assert batch.first_lsn == 1
                break
            assert consumer.position == 3
            assert (await anext(consumer.batches())).first_lsn == 3

    run(body)


def test_a_consumer_that_is_behind_lets_other_tasks_run(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        async with log.consumer("latest") as consumer:
            assert await consumer.poll(0.2) == []

            def publish() -> None:
                for place in range(100):
                    leader.append_to_log([b"x"])
                    leader.publish_tail(TailGroup(leader.next_lsn - 1), leader.piece(place))

            leader.call(publish)
            time.sleep(0.3)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.ensure_future(other())
            for _ in range(90):
                await anext(consumer)
            task.cancel()
            assert turns > 10

    run(body)


def test_a_cancelled_close_of_the_client_ends_soon(run: Run, leader: FakeReplica) -> None:
    async def body(log: aio.LogClient) -> None:
        leader.on_push = silent
        for _ in range(3):
            producer = await log.producer(ProducerOptions(delivery_timeout_s=3))
            producer.append(b"x")
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await log.close()
        assert time.monotonic() - begun < 1

    run(body)


def test_a_loop_that_was_held_up_is_told_and_a_time_that_is_over_is_not_late(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_module, "_LATE_NS", 50_000_000)

    def wait_until(ns: int) -> Steps[None]:
        yield Wait(ns)

    async def body(log: aio.LogClient) -> None:
        await log._driver.run(wait_until(1))
        assert not caplog.records
        waiting = log._driver.start(wait_until(monotonic_ns() + 1_000_000))
        time.sleep(0.1)  # does not await
        await log._driver.outcome(waiting)
        assert "the event loop did not run for 0." in caplog.text

    run(body)
