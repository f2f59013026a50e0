"""The asyncio client while leaders die: nothing acknowledged is lost, doubled or out of order (E9,
V8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop

from logstore import LsnRange, aio
from tests.faults.quick_cluster import QuickCluster, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
BATCHES = 1_500
SINGLES = 3
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("aio"), quick_config()) as started:
        yield started


async def _read(log: aio.LogClient, first_lsn: int, count: int) -> list[bytes]:
    """What a consumer gets, from before the first append on."""
    payloads = []
    async with log.consumer(first_lsn, end_lsn=first_lsn + count - 1) as consumer:
        async for record in consumer:
            assert record.lsn == first_lsn + len(payloads)
            payloads.append(record.payload)
    return payloads


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_appends_and_a_consumer_go_on_through_a_killed_leader(
    cluster: QuickCluster, loop: str
) -> None:
    sent = [b"%s %d" % (loop.encode(), number) for number in range(BATCHES * (SINGLES + 2))]

    async def append(log: aio.LogClient) -> list[LsnRange]:
        payloads = iter(sent)
        futures = []
        async with log.producer() as producer:
            for number in range(BATCHES):
                futures.append(producer.append_batch([next(payloads), next(payloads)]))
                futures += [producer.append(next(payloads)) for _ in range(SINGLES)]
                await producer.room()
                if number == BATCHES // 2:
                    await futures[-1]
                    leader = await asyncio.to_thread(cluster.wait_for_leader)
                    await asyncio.to_thread(cluster.kill, leader)
                    cluster.start(leader)  # in the main thread: its replicas die with it
            return await asyncio.gather(*futures)

    async def body() -> None:
        async with asyncio.timeout(120), aio.connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
            first_lsn = await log.admin.commit_lsn() + 1
            reading = asyncio.ensure_future(_read(log, first_lsn, len(sent)))
            acknowledged = await append(log)
            assert await reading == sent
            next_lsn = first_lsn
            for lsns in acknowledged:
                assert lsns.first == next_lsn
                next_lsn = lsns.last + 1
            assert await log.admin.commit_lsn() == next_lsn - 1

    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(body())
