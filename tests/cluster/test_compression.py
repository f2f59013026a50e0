"""Compressed batches on real replicas, from end to end: the same bytes everywhere, both sizes
shown, blocks that are none, and a log restored from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import logstore
from logstore import ProducerOptions
from logstore.cli.embedded import EmbeddedCluster, make_small_config, poll_until
from logstore.errors import CorruptData, ErrorCode
from logstore.format.batch import read_batch_header
from logstore.format.level import COMPRESSION_LEVEL
from logstore.model import Codec
from tests.cluster.one_cluster import run_cli, running_cluster
from tests.cluster.raw_client import RawClient
from tests.unit.compressed_batches import TEXT, with_block

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
CODECS = {"lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("compression")) as running:
        wait_for_level(running)
        yield running


@pytest.fixture
def log(cluster: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=PATIENCE_S) as log:
        yield log


def wait_for_level(cluster: EmbeddedCluster) -> None:
    def is_raised() -> bool:
        levels = [cluster.counters(node).get("format_level", 0) for node in cluster.nodes]
        return min(levels) >= COMPRESSION_LEVEL

    assert poll_until(is_raised, PATIENCE_S)


def append(log: logstore.LogClient, name: str, batches: int) -> tuple[int, int]:
    """So many batches of TEXT; the first and the last LSN."""
    with log.producer(ProducerOptions(compression=name)) as producer:
        found = [producer.append_batch(TEXT) for _ in range(batches)]
        return found[0].result(PATIENCE_S).first, found[-1].result(PATIENCE_S).last


@pytest.mark.promise("P2")
@pytest.mark.parametrize("name", CODECS)
def test_every_replica_serves_the_bytes_that_were_sent_and_readers_see_the_payloads(
    cluster: EmbeddedCluster, log: logstore.LogClient, name: str
) -> None:
    with log.consumer("latest") as tail:
        first, last = append(log, name, 20)
        followed: list[bytes] = []
        while len(followed) < last - first + 1:
            followed += [each for batch in tail.poll(PATIENCE_S) for each in batch.payloads()]
    assert followed == TEXT * 20
    copies = []
    for node in cluster.nodes:
        with log.reader(replica=node) as reader:
            found = list(reader.read_batches(first, last, min_lsn=last))
            copies.append([bytes(each.data) for each in found])
            assert [p for b in reader.read(first, last) for p in b.payloads()] == TEXT * 20
    assert copies[0] == copies[1] == copies[2]
    assert {read_batch_header(each).codec for each in copies[0]} == {CODECS[name]}
    assert sum(map(len, copies[0])) < 20 * sum(map(len, TEXT)) / 2
    assert log.admin.verify().is_good


def test_both_sizes_are_counted_and_inspected(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    leader = cluster.wait_for_leader()
    before = cluster.counters(leader)
    first, _ = append(log, "zstd", 5)
    after = cluster.counters(leader)
    grown = {
        name: after[name] - before[name]
        for name in ("payload_bytes_acknowledged", "stored_bytes_acknowledged")
    }
    assert grown["payload_bytes_acknowledged"] == 5 * sum(map(len, TEXT))
    assert 0 < grown["stored_bytes_acknowledged"] < grown["payload_bytes_acknowledged"] / 2
    rows = []
    for path in sorted(cluster.node_folder(leader).glob("*.data")):
        done = run_cli(None, "inspect", "record", str(path))
        assert done.returncode == 0, done.stderr
        rows += [json.loads(line) for line in done.stdout.splitlines()]
    mine = [row for row in rows if row["kind"] == "DATA" and row["first_lsn"] >= first]
    assert sum(row["compressed"] for row in mine) == sum(row["batches"] for row in mine) == 5
    assert sum(row["payload_bytes"] for row in mine) == grown["payload_bytes_acknowledged"]
    assert sum(row["stored_bytes"] for row in mine) == grown["stored_bytes_acknowledged"]


@pytest.mark.long
@pytest.mark.parametrize("name", CODECS)
def test_the_command_line_compresses_and_reads_back(cluster: EmbeddedCluster, name: str) -> None:
    lines = b"".join(line + b"\n" for line in TEXT * 40)
    before = cluster.counters(cluster.wait_for_leader())["stored_bytes_acknowledged"]
    done = run_cli(cluster, "produce", "-", "--compression", name, "--json", "-", stdin=lines)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    stored = cluster.counters(cluster.wait_for_leader())["stored_bytes_acknowledged"] - before
    assert stored < len(lines) / 2
    span = ("--from", str(report["first_lsn"]), "--to", str(report["last_lsn"]))
    assert run_cli(cluster, "consume", *span).stdout == lines
    assert run_cli(cluster, "consume", *span, "--raw").stdout == lines.replace(b"\n", b"")
    refused = run_cli(cluster, "produce", "-", "--compression", "gzip", stdin=lines)
    assert refused.returncode == 2


def test_a_bomb_is_refused_and_a_block_that_is_none_is_stored_for_readers_to_leave_out(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    limit = 4 << 20
    with RawClient(cluster.endpoints[0]) as raw:
        producer = raw.open_session()
        numbers = {"producer_id": producer.producer_id, "epoch": producer.producer_epoch}
        producer.push(with_block([limit], b"a bomb", Codec.LZ4, **numbers))
        (row,) = producer.next_rows()
        assert row.code == ErrorCode.BATCH_TOO_LARGE
        sequence = producer.next_sequence
        lie = with_block([5, 900], b"no block", Codec.ZSTD, sequence=sequence, **numbers)
        producer.batches[sequence] = lie
        producer.next_sequence += 1
        producer.push(lie)
        first = producer.wait_acknowledged(sequence).first_lsn
    after, _ = append(log, "lz4", 1)
    assert log.admin.verify().is_good  # what is stored is what was sent
    with log.consumer(first, end_lsn=after) as consumer:
        with pytest.raises(CorruptData, match=f"go on at LSN {first + 2}"):
            list(consumer)
        consumer.seek(first + 2)
        assert [record.payload for record in consumer] == TEXT[:1]
    done = run_cli(cluster, "consume", "--from", str(first), "--to", str(after))
    assert done.returncode == 5
    assert f"go on at LSN {first + 2}" in done.stderr.decode()


@pytest.mark.long
def test_a_log_with_compressed_batches_is_restored_to_the_byte(
    cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    append(log, "none", 2)
    first, last = 1, log.admin.commit_lsn()
    with log.reader() as reader:
        batches = [bytes(each.data) for each in reader.read_batches(first, last)]
    assert {read_batch_header(each).codec for each in batches} == {0, *CODECS.values()}
    with EmbeddedCluster(tmp_path, make_small_config(3, Random())) as other:
        other.start_all()
        other.wait_for_leader()
        wait_for_level(other)
        with logstore.connect(other.endpoints, timeout=PATIENCE_S) as restored:
            assert restored.admin.import_batches(first, batches) == last + 1
            found = [each.digest(first, last, min_lsn=last).hexdigest() for each in (restored, log)]
            assert found[0] == found[1]
            assert [p for b in restored.read(1, 3) for p in b.payloads()] == [
                p for b in log.read(1, 3) for p in b.payloads()
            ]
