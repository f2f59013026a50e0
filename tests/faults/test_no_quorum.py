"""Two of three replicas are dead: explicit answers in bounded time, and all is well when one is
back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import (
    ErrorCode,
    LogStoreError,
    NoQuorum,
    NotReady,
    OutcomeUnknown,
    Unreachable,
)
from tests.cluster.one_cluster import run_cli
from tests.cluster.raw_client import RawClient
from tests.cluster.raw_messages import Refused
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = pytest.mark.slow
TIMEOUT_S = 2.0
APPEND_TIMEOUT_S = 5.0
# A request may use its timeout, what follows from it a little more; two busy cores the rest.
BOUND_S = 30.0
PAYLOADS = [b"committed %d" % number for number in range(100)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("no-quorum"), quick_config()) as running:
        yield running


@pytest.fixture
def whole(cluster: QuickCluster) -> Iterator[QuickCluster]:
    """All three replicas run and show the same, before and after."""
    cluster.visible_everywhere()
    yield cluster
    cluster.visible_everywhere()


def bounded(call: Callable[[], Any]) -> LogStoreError:
    """The error a call ends with, in bounded time."""
    started = time.monotonic()
    with pytest.raises(LogStoreError) as raised:
        call()
    assert time.monotonic() - started < BOUND_S, raised.value
    return raised.value


def append(cluster: QuickCluster, payloads: list[bytes]) -> tuple[int, int]:
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        lsns = log.producer().append_batch(payloads).result(RECOVERY_TIMEOUT_S)
    for node in cluster.nodes:
        if cluster.is_running(node):
            cluster.wait_until_visible(node, lsns.last)
    return lsns.first, lsns.last


def kill_all_but(cluster: QuickCluster, survivor: int) -> None:
    for node in cluster.nodes:
        if node != survivor:
            cluster.kill(node)


def assert_refuses_everything(cluster: QuickCluster, survivor: int) -> None:
    """Appends, linearizable reads and the command line: an explicit error, and not for ever."""
    with (
        logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log,
        ThreadPoolExecutor() as pool,
    ):
        calls: list[Callable[[], Any]] = [
            log.producer,
            log.admin.commit_lsn,
            lambda: log.admin.watermarks(linearizable=True),
            lambda: list(log.read(1, 1, linearizable=True)),
        ]
        commands = [("produce", "-"), ("consume",), ("status", "--json", "-"), ("verify",)]
        options = ("--endpoint", cluster.endpoint(survivor), "--timeout", str(TIMEOUT_S))
        errors = [pool.submit(bounded, call) for call in calls]
        runs = {
            command[0]: pool.submit(run_cli, None, *command, *options, stdin=b"line\n")
            for command in commands
        }
        with RawClient(cluster.endpoint(survivor)) as raw, pytest.raises(Refused) as refusal:
            raw.fetch(survivor, 1, is_linearizable=True)
        assert refusal.value.code in (ErrorCode.NOT_LEADER, ErrorCode.NO_QUORUM)
        for error in errors:
            assert isinstance(error.result(), NoQuorum | Unreachable), repr(error.result())
        for command, run in runs.items():
            done = run.result()
            assert done.returncode == 3, (command, done.stdout, done.stderr)
            assert b"Traceback" not in done.stderr
    found = json.loads(runs["status"].result().stdout)
    assert found["leader"] == 0
    assert [row["role"] for row in found["nodes"]].count("unreachable") == 2


@pytest.mark.long
@pytest.mark.promise("P6")
def test_without_a_majority_a_follower_refuses_writes_and_keeps_showing_what_it_showed(
    whole: QuickCluster,
) -> None:
    """SAFETY V3, V4: visible never goes back within an incarnation; nothing new becomes visible."""
    first_lsn, last_lsn = append(whole, PAYLOADS)
    survivor = whole.followers()[0]
    kill_all_but(whole, survivor)
    assert_refuses_everything(whole, survivor)
    assert whole.visible_lsn(survivor) == last_lsn
    with logstore.connect(whole.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        found = [
            payload
            for batch in log.read(first_lsn, last_lsn, replica=survivor)
            for payload in batch.payloads()
        ]
        assert found == PAYLOADS
    done = run_cli(
        whole, "consume", "--from", str(first_lsn), "--to", str(last_lsn), "--replica",
        str(survivor), "--endpoint", whole.endpoint(survivor),
    )  # fmt: skip
    assert (done.returncode, done.stdout.split(b"\n")[:-1]) == (0, PAYLOADS)
    whole.start(next(node for node in whole.nodes if node != survivor))
    assert append(whole, [b"a majority again"])[0] > last_lsn


@pytest.mark.long
def test_a_leader_that_loses_its_followers_steps_down_and_appends_end_unknown_in_time(
    whole: QuickCluster,
) -> None:
    """SAFETY V6, E9, FAULTS K13: what was sent may be in the log; it is told so, and committed once
    only."""
    _, last_lsn = append(whole, PAYLOADS)
    survivor = whole.wait_for_leader()
    options = logstore.ProducerOptions(
        append_timeout_s=APPEND_TIMEOUT_S,
        delivery_timeout_s=APPEND_TIMEOUT_S,
        window_bytes=4_096,
    )
    with logstore.connect(whole.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        producer = log.producer(options)
        producer.append(b"with a majority").result(RECOVERY_TIMEOUT_S)
        kill_all_but(whole, survivor)
        future = producer.append(b"without one")
        error = bounded(lambda: future.result(BOUND_S))
        assert isinstance(error, OutcomeUnknown | NoQuorum | Unreachable), repr(error)
        producer.close(TIMEOUT_S)
    assert poll_until(lambda: whole.leader() == 0, RECOVERY_TIMEOUT_S), "it still leads"
    assert_refuses_everything(whole, survivor)
    assert whole.visible_lsn(survivor) == last_lsn + 1
    other = next(node for node in whole.nodes if node != survivor)
    whole.start(other)
    _, end_lsn = append(whole, [b"a majority again"])
    with logstore.connect(whole.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        found = [
            payload
            for batch in log.read(last_lsn + 1, end_lsn, replica=other)
            for payload in batch.payloads()
        ]
    assert found in (
        [b"with a majority", b"without one", b"a majority again"],
        [b"with a majority", b"a majority again"],
    )


@pytest.mark.long
@pytest.mark.promise("P6")
def test_a_replica_that_starts_alone_serves_nothing_until_it_knows_what_is_committed(
    whole: QuickCluster,
) -> None:
    """SAFETY V4, FAULTS K10: what it has on disk may be uncommitted."""
    first_lsn, last_lsn = append(whole, PAYLOADS)
    whole.kill_all()
    alone = 2
    whole.start(alone)
    with logstore.connect(whole.endpoint(alone), timeout=RECOVERY_TIMEOUT_S) as log:
        assert set(log.nodes()) == set(whole.nodes)  # it is up
    assert_refuses_everything(whole, alone)
    with RawClient(whole.endpoint(alone)) as raw, pytest.raises(Refused) as refusal:
        raw.fetch(alone, first_lsn, wait_ms=50)
    assert refusal.value.code == ErrorCode.NOT_READY
    with logstore.connect(whole.endpoint(alone), timeout=TIMEOUT_S) as log:
        error = bounded(lambda: list(log.read(first_lsn, last_lsn, replica=alone)))
        assert isinstance(error, NotReady | Unreachable), repr(error)
    assert whole.visible_lsn(alone) == -1
    whole.start(3)
    append(whole, [b"a majority again"])
    with RawClient(whole.endpoint(alone)) as raw:
        assert raw.read(alone, first_lsn, last_lsn) == PAYLOADS
