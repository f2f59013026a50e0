"""Levels of acknowledgement under kills: what is lost is counted, and nothing is ever stored twice
or out of order (SAFETY E10)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest

import logstore
from logstore import ProducerOptions, ProducerStatistics, Provisional, aio
from logstore.cli.embedded import poll_until
from logstore.errors import LogStoreError, NotCommitted, OutcomeUnknown
from logstore.format.batch import batch_payloads, read_batch_header
from logstore.format.level import ACK_LEVELS_LEVEL
from logstore.model import AckLevel
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
KILLS = 3
PACE_S = 0.0005
BETWEEN_KILLS = 400  # payloads at least
WAIT_S = 60
TRIES = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("levels"), quick_config()) as started:
        started.wait_for_level(ACK_LEVELS_LEVEL)
        yield started


class Outcomes(msgspec.Struct):
    """What a producer was told, by the number in the payload."""

    appended: int = 0
    provisional: set[int] = set()
    unknown: set[int] = set()
    unsent: set[int] = set()

    def take(self, number: int, error: LogStoreError | None) -> None:
        if error is None:
            self.provisional.add(number)
        else:
            assert isinstance(error, OutcomeUnknown | NotCommitted), error
            (self.unknown if isinstance(error, OutcomeUnknown) else self.unsent).add(number)


class Kept(msgspec.Struct):
    """What the log has of one producer."""

    numbers: list[int]
    batches: list[tuple[int, int]]  # epoch and sequence


def options(acks: str) -> ProducerOptions:
    return ProducerOptions(acks=acks, append_timeout_s=WAIT_S, delivery_timeout_s=WAIT_S)


def kept(cluster: QuickCluster, producer_id: int, base_lsn: int) -> Kept:
    last_lsn = cluster.visible_everywhere()
    found = Kept([], [])
    with logstore.connect(cluster.endpoints, timeout=WAIT_S) as log:
        for batch in log.read_batches(base_lsn + 1, last_lsn, linearizable=True):
            header = read_batch_header(batch.data)
            if header.producer_id == producer_id:
                found.batches.append((header.producer_epoch, header.sequence))
                found.numbers += [int(each) for each in batch_payloads(batch.data, 0, header)]
    return found


def check(acks: str, outcomes: Outcomes, found: Kept, told: ProducerStatistics) -> int:
    """0 doubled, 0 reordered, losses only where an epoch ends; returns how many are lost."""
    assert len(set(found.numbers)) == len(found.numbers), "doubled"
    assert found.numbers == sorted(found.numbers), "reordered"
    assert found.batches == sorted(found.batches)
    for (epoch, sequence), (next_epoch, next_sequence) in pairwise(found.batches):
        expected = sequence + 1 if next_epoch == epoch else 0
        assert next_sequence == expected, "lost within an epoch"
    lost = set(range(outcomes.appended)) - set(found.numbers) - outcomes.unsent
    assert len(lost) <= told.possibly_lost_payloads
    assert not outcomes.unsent & set(found.numbers)
    assert told.sent_payloads == outcomes.appended - len(outcomes.unsent)
    assert told.provisional_payloads == len(outcomes.provisional)
    if acks == "none":
        assert not outcomes.unknown
    if not told.reopened:
        assert not lost
    return len(lost)


def settle(outcomes: Outcomes, number: int, future: logstore.AppendFuture) -> None:
    error = future.exception(WAIT_S)
    outcomes.take(number, error)
    if error is None:
        assert isinstance(future.result(0), Provisional)


def append_while(
    cluster: QuickCluster, acks: str, stop: threading.Event, outcomes: Outcomes
) -> tuple[ProducerStatistics, int]:
    """Append one payload after the other, several in flight; the statistics and the producer id."""
    with logstore.connect(cluster.endpoints, timeout=WAIT_S) as log:
        with log.producer(options(acks)) as producer:
            futures = []
            while not stop.wait(PACE_S):
                futures.append(producer.append_batch([b"%d" % outcomes.appended]))
                outcomes.appended += 1
            producer.flush(WAIT_S)
        for number, future in enumerate(futures):
            settle(outcomes, number, future)
        return producer.statistics(), producer.session.producer_id


@contextmanager
def appending(
    cluster: QuickCluster, acks: str, outcomes: Outcomes
) -> Iterator[list[tuple[ProducerStatistics, int]]]:
    """`append_while` in a thread meanwhile; afterwards the list has what it gave."""
    stop = threading.Event()
    ended: list[tuple[ProducerStatistics, int]] = []
    thread = threading.Thread(
        target=lambda: ended.append(append_while(cluster, acks, stop, outcomes))
    )
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join(2 * WAIT_S)


def wait_for_more(outcomes: Outcomes) -> None:
    until = outcomes.appended + BETWEEN_KILLS
    assert poll_until(lambda: outcomes.appended >= until, RECOVERY_TIMEOUT_S)


@pytest.mark.long
@pytest.mark.parametrize("acks", ["leader", "none"])
def test_kills_of_leaders_lose_what_is_counted_and_double_and_reorder_nothing(
    cluster: QuickCluster, acks: str, record_property: pytest.RecordProperty
) -> None:
    base_lsn = cluster.visible_everywhere()
    outcomes = Outcomes()
    with appending(cluster, acks, outcomes) as ended:
        for _ in range(KILLS):
            wait_for_more(outcomes)
            leader = cluster.wait_for_leader()
            cluster.kill(leader)
            cluster.wait_for_leader(RECOVERY_TIMEOUT_S, other_than=leader)
            cluster.start(leader)
        wait_for_more(outcomes)
    ((told, producer_id),) = ended
    lost = check(acks, outcomes, kept(cluster, producer_id, base_lsn), told)
    record_property("lost", lost)
    record_property("possibly_lost", told.possibly_lost_payloads)
    assert told.reopened >= 1
    assert told.reopened <= 3 * KILLS


def append_undisturbed(
    cluster: QuickCluster, acks: str
) -> tuple[ProducerStatistics, Outcomes, int]:
    """5,000 payloads within one term: a busy machine may elect another leader without any fault of
    ours, and then the same is tried once more, by another producer."""
    for _ in range(TRIES):
        leader = cluster.wait_for_leader(RECOVERY_TIMEOUT_S)
        term = cluster.counters(leader)["term"]
        outcomes = Outcomes()
        with logstore.connect(cluster.endpoints, timeout=WAIT_S) as log:
            producer = log.producer(options(acks))
            futures = [producer.append(b"%d" % number) for number in range(5_000)]
            outcomes.appended = len(futures)
            producer.close()
            for number, future in enumerate(futures):
                settle(outcomes, number, future)
            told = producer.statistics()
        if cluster.counters(leader)["term"] == term:
            return told, outcomes, producer.session.producer_id
    raise AssertionError(f"the leader changed in each of {TRIES} tries: {cluster.said()}")


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_without_a_fault_nothing_is_lost_and_close_knows_it(
    cluster: QuickCluster, acks: str
) -> None:
    base_lsn = cluster.visible_everywhere()
    told, outcomes, producer_id = append_undisturbed(cluster, acks)
    assert (told.possibly_lost_payloads, told.reopened) == (0, 0)
    assert check(acks, outcomes, kept(cluster, producer_id, base_lsn), told) == 0
    assert told.provisional_payloads == 5_000


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_leader_that_stands_still_and_comes_back_is_left(
    cluster: QuickCluster, acks: str
) -> None:
    """Its connection does not break at once, and what it reads when it is back, it refuses."""
    base_lsn = cluster.visible_everywhere()
    outcomes = Outcomes()
    with appending(cluster, acks, outcomes) as ended:
        wait_for_more(outcomes)
        leader = cluster.wait_for_leader()
        cluster.pause(leader)
        cluster.wait_for_leader(RECOVERY_TIMEOUT_S, other_than=leader)
        cluster.resume(leader)
        wait_for_more(outcomes)
    ((told, producer_id),) = ended
    check(acks, outcomes, kept(cluster, producer_id, base_lsn), told)
    assert told.reopened >= 1


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_the_asyncio_client_does_the_same(cluster: QuickCluster, acks: str) -> None:
    base_lsn = cluster.visible_everywhere()
    outcomes = Outcomes()

    async def body() -> tuple[ProducerStatistics, int]:
        async with asyncio.timeout(2 * WAIT_S), aio.connect(cluster.endpoints) as log:
            futures = []
            async with log.producer(options(acks)) as producer:
                for number in range(4_000):
                    futures.append(producer.append_batch([b"%d" % number]))
                    outcomes.appended += 1
                    await producer.room()
                    if number == 2_000:
                        leader = await asyncio.to_thread(cluster.wait_for_leader)
                        await asyncio.to_thread(cluster.kill, leader)
                        cluster.start(leader)
                await producer.flush(WAIT_S)
            told = await asyncio.gather(*futures, return_exceptions=True)
            for number, each in enumerate(told):
                assert isinstance(each, LogStoreError | Provisional)
                outcomes.take(number, each if isinstance(each, LogStoreError) else None)
            return producer.statistics(), producer.session.producer_id

    told, producer_id = asyncio.run(body())
    check(acks, outcomes, kept(cluster, producer_id, base_lsn), told)
    assert told.reopened >= 1


def test_a_name_keeps_its_producer_and_may_change_its_level(cluster: QuickCluster) -> None:
    with logstore.connect(cluster.endpoints, timeout=WAIT_S) as log:
        name = "changes its level"
        with log.producer(ProducerOptions(name=name, acks="leader")) as producer:
            assert producer.append(b"x").result(WAIT_S) == Provisional(is_flushed=True)
            assert producer.session.producer_epoch == 1
        with log.producer(ProducerOptions(name=name)) as producer:
            assert producer.append(b"y").result(WAIT_S).first > 0
            assert producer.session.producer_epoch == 2
        (listed,) = [each for each in log.admin.sessions() if each.name == name]
        assert listed.acks == AckLevel.QUORUM.name.lower()
