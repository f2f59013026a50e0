"""`logstore explain` on real replicas under load: every stage was passed, in its order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import logstore
from actors.trace import TracePoint
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.cli.explain.breakdown import AWAY, PATH_STAGES, STAGES
from logstore.config_layout import process_of
from tests.cluster.one_cluster import CLI_PATIENCE_S, run_cli, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
# What a leader's entry passes, in this order; it is durable on a majority before it is committed.
WAY = ("received", "proposed", "appended", "committed", "acknowledged")
WRITES = ("appended", "write_begun", "data_flushed", "records_begun", "records_flushed")
INSIDE = ("received", "proposed", *WRITES, "answered")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("explain")) as running:
        yield running


@pytest.fixture
def load(cluster: EmbeddedCluster) -> Iterator[list[float]]:
    """One append after the other in the background; their latencies, in ms."""
    latencies: list[float] = []
    is_over = threading.Event()

    def on_ack(_: int, _payloads: int, appended_ns: int, acknowledged_ns: int) -> None:
        latencies.append((acknowledged_ns - appended_ns) / 1e6)

    def append() -> None:
        options = logstore.ProducerOptions(on_ack=on_ack)
        with (
            logstore.connect(cluster.endpoints, timeout=CLI_PATIENCE_S) as log,
            log.producer(options) as producer,
        ):
            while not is_over.is_set():
                producer.append(b"payload").result(CLI_PATIENCE_S)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        assert poll_until(lambda: len(latencies) > 20, CLI_PATIENCE_S)
        yield latencies
    finally:
        is_over.set()
        thread.join(CLI_PATIENCE_S)


def explained(cluster: EmbeddedCluster) -> dict[str, Any]:
    """What it finds once it has sampled some entries, which takes longer on a slow machine."""
    found: dict[str, Any] = {}

    def has_samples() -> bool:
        done = run_cli(cluster, "explain", "--seconds", "3", "--json", "-")
        assert done.returncode == 0, done.stderr
        found.update(json.loads(done.stdout))
        return found["sampled"] >= 3

    assert poll_until(has_samples, CLI_PATIENCE_S)
    return found


@pytest.mark.long
def test_every_stage_of_an_append_is_found_in_its_order(
    cluster: EmbeddedCluster, load: list[float]
) -> None:
    found = explained(cluster)
    assert found["leader"] == cluster.leader()
    assert found["silent"] == {}
    assert found["sampled"] > 0
    assert [each["stage"] for each in found["stages"]] == list(STAGES)
    assert all(each["count"] == found["sampled"] for each in found["stages"])
    total = found["stages"][-1]
    assert total["median_ms"] > 0
    assert sum(each["share"] for each in found["stages"][:-1]) == pytest.approx(1, abs=0.01)
    assert sum(each["decides"] for each in found["paths"]) == pytest.approx(1, abs=0.01)
    leader, *followers = found["paths"]
    assert (leader["node"], leader["is_leader"]) == (found["leader"], True)
    assert [each["stage"] for each in leader["stages"]] == [*PATH_STAGES[4:8], "total"]
    assert len(followers) == 2
    for path in followers:
        # the newest entries may not have been told by a follower that was asked earlier
        told = [each["stage"] for each in path["stages"] if each["stage"] != AWAY]
        assert told == [each for each in PATH_STAGES if each != AWAY]
        assert all(each["count"] > 0 for each in path["stages"])
    traffic = found["traffic"]
    assert traffic["groups_per_s"] > 0
    assert traffic["payloads_per_group"] >= 1
    assert len(found["flushes"]) == 6
    assert all(each["per_s"] > 0 and each["mean_ms"] > 0 for each in found["flushes"])
    used = {(each["node"], each["process"]): each for each in found["processes"]}
    assert used.keys() == {(node, each) for node in cluster.nodes for each in cluster.layout(node)}
    assert all(0 <= each["busy"] <= 1 for each in used.values())
    leader = found["leader"]
    raft = used[leader, process_of(cluster.layout(leader), "raft")]
    assert raft["bell_wakes"] > 0
    assert raft["cpu"] > 0
    assert found["wakes_per_group"] > 1
    assert found["bound"]["words"]


def test_stamps_rise_along_the_way_of_every_entry(
    cluster: EmbeddedCluster, load: list[float]
) -> None:
    leader = cluster.leader()
    with logstore.connect(cluster.endpoints, timeout=CLI_PATIENCE_S) as log:
        traces = log.admin.traces()
    assert not [each for each in traces.values() if isinstance(each, str)]
    for node, trace in traces.items():
        assert set(TracePoint) - {"sent", "confirmed"} <= trace.stamps.keys()
        for way in (WAY, WRITES) if node == leader else (INSIDE,):
            passed = set.intersection(*(set(trace.stamps[point]) for point in way))
            assert passed
            for index in passed:
                times = [trace.stamps[point][index] for point in way]
                assert times == sorted(times), (node, index)


@pytest.mark.long
def test_a_table_is_shown_and_a_dead_follower_is_named(
    cluster: EmbeddedCluster, load: list[float]
) -> None:
    leader = cluster.leader()
    dead = max({*cluster.nodes} - {leader})  # the command line asks node 1
    cluster.kill(dead)
    try:
        done = run_cli(cluster, "explain", "--seconds", "3")
    finally:
        cluster.start(dead)
    assert done.returncode == 0, done.stderr
    assert f"nothing is known of node {dead}: it does not answer".encode() in done.stderr
    assert b"where an append's time goes" in done.stdout
    assert f"node {leader} leads in term".encode() in done.stdout


def test_explain_without_replicas_has_status_3() -> None:
    done = run_cli(None, "explain", "--timeout", "0.3", "--endpoint", "127.0.0.1:9")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"error: ")
