"""`logstore lag` and /metrics on real replicas: exactly what was appended past a stopped follower,
and past a cursor; nothing once they have it.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.format.batch import encode_batch
from logstore.settings import PortOffset
from tests.cluster.one_cluster import CLI_PATIENCE_S, run_cli, running_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
BATCHES = [[b"x" * size] * count for size, count in ((1, 1), (100, 7), (0, 3), (5_000, 2))] * 25
CURSOR = 'odd "name"'
KINDS = ("logstore_follower_", "logstore_cursor_")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("lag")) as running:
        yield running


def stored_bytes(payloads: list[bytes]) -> int:
    """What a batch takes in the log."""
    return len(encode_batch(payloads, producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=1))


def lag(cluster: EmbeddedCluster) -> dict[str, Any]:
    done = run_cli(cluster, "lag", "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def row_of(found: dict[str, Any], who: int | str) -> dict[str, Any]:
    rows = [*found["followers"], *found["cursors"]]
    return next(row for row in rows if who in (row.get("node"), row.get("name")))


def is_even(found: dict[str, Any]) -> bool:
    return all(row["payloads"] == 0 for row in found["followers"])


def scraped(cluster: EmbeddedCluster, node: int) -> dict[str, float]:
    """The lags in a replica's /metrics, by their line without the value."""
    host, _, port = cluster.endpoint(node).rpartition(":")
    connection = http.client.HTTPConnection(host, int(port) + PortOffset.METRICS, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    rows = (line.rpartition(" ") for line in lines if line.startswith(KINDS))
    return {name: float(value) for name, _, value in rows}


def lags(cluster: EmbeddedCluster, node: int) -> list[float]:
    return [value for name, value in scraped(cluster, node).items() if "_lag_" in name]


@pytest.mark.long
def test_a_stopped_follower_and_a_cursor_lag_by_exactly_what_was_appended(
    cluster: EmbeddedCluster,
) -> None:
    leader = cluster.wait_for_leader()
    stopped = 3 if leader == 2 else 2  # the command line asks node 1
    metric = f'{{node="{leader}",of="{stopped}"}}'
    with logstore.connect(cluster.endpoints, timeout=CLI_PATIENCE_S) as log, log.producer() as to:
        # Before there are payloads: entries for cursors, sessions and members have bytes, too.
        assert poll_until(lambda: log.admin.members().id > 0, CLI_PATIENCE_S)
        first_lsn = log.admin.commit_lsn() + 1
        log.admin.set_cursor("read", first_lsn)
        log.admin.set_cursor(CURSOR, first_lsn + 10)
        _, last_lsn = to.append_batch([b"before"] * 10).result(timeout=CLI_PATIENCE_S)
        assert poll_until(lambda: is_even(lag(cluster)), CLI_PATIENCE_S)
        cluster.pause(stopped)
        try:
            for batch in BATCHES:  # one after the other: an entry each
                to.append_batch(batch).result(timeout=CLI_PATIENCE_S)
            found = lag(cluster)
            payloads, size_bytes = sum(map(len, BATCHES)), sum(map(stored_bytes, BATCHES))
            expected = {"next_lsn": last_lsn + 1, "payloads": payloads, "bytes": size_bytes}
            for who in (stopped, CURSOR):
                row = row_of(found, who)
                assert {key: row[key] for key in expected} == expected, row
                assert 0 < row["seconds"] < CLI_PATIENCE_S
            read = row_of(found, "read")
            assert read["payloads"] == payloads + 10
            assert read["bytes"] == size_bytes + stored_bytes([b"before"] * 10)
            assert read["seconds"] > row_of(found, CURSOR)["seconds"]
            assert row_of(found, stopped)["role"] == "unreachable"
            assert 0 < row_of(found, stopped)["silent_seconds"] < CLI_PATIENCE_S
            (other,) = {1, 2, 3} - {leader, stopped}
            shows_all = f"logstore_follower_lag_payloads{metric}"
            assert poll_until(
                lambda: scraped(cluster, leader).get(shows_all) == payloads, CLI_PATIENCE_S
            )
            rows = scraped(cluster, leader)
            name = CURSOR.replace('"', '\\"')
            assert rows[f"logstore_follower_lag_bytes{metric}"] == size_bytes
            assert rows[f"logstore_follower_lag_seconds{metric}"] > 0
            assert rows[f"logstore_follower_silent_seconds{metric}"] > 0
            cursor = f'{{cursor="{name}",node="{leader}"}}'
            assert rows[f"logstore_cursor_lag_payloads{cursor}"] == payloads
            assert rows[f"logstore_cursor_lag_bytes{cursor}"] == size_bytes
            assert scraped(cluster, other) == {}, "only the leader knows"
        finally:
            cluster.resume(stopped)
        assert poll_until(lambda: is_even(lag(cluster)), CLI_PATIENCE_S)
        log.admin.set_cursor(CURSOR, last_lsn + 1 + payloads)
        log.admin.delete_cursor("read")
    found = lag(cluster)
    nothing = {"payloads": 0, "bytes": 0, "seconds": 0.0}
    for who in (stopped, CURSOR):
        row = row_of(found, who)
        assert {key: row[key] for key in nothing} == nothing
    assert len(found["cursors"]) == 1
    assert poll_until(lambda: not any(lags(cluster, leader)), CLI_PATIENCE_S)
    assert run_cli(cluster, "lag").stdout.startswith(b"node ")


def test_lag_without_replicas_has_status_3(tmp_path: Path) -> None:
    done = run_cli(None, "lag", "--timeout", "0.3", "--endpoint", "127.0.0.1:9")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr.startswith(b"error: ")
