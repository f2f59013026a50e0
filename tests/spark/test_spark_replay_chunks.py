"""How much one chunk of a replay holds where the source is compressed. No Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from logstore.format.batch import encode_batch
from logstore.format.client_messages import FetchRequest
from logstore.limits import MIB
from logstore.spark import replay
from logstore.spark.connections import close_all
from logstore.spark.lake_manifest import LakeFile, Manifest
from logstore.spark.replay import CHUNK_BYTES, Replay, ReplayOptions
from tests.unit.client_stage import Cluster, FakeReplica


class _Packs:
    """Any codec's number, and a small block: nobody unpacks it here."""

    codec = 1

    def compress(self, data: bytes) -> bytes:
        return data[:8]


def add(replica: FakeReplica, payload: bytes, *, is_compressed: bool) -> None:
    replica.starts.append(replica.next_lsn)
    replica.log.append(
        encode_batch(
            [payload], producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5,
            compressor=_Packs() if is_compressed else None,
        )
    )  # fmt: skip
    replica.next_lsn += 1


@pytest.fixture
def played() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster
        close_all()


def make(monkeypatch: pytest.MonkeyPatch, **given: Any) -> Replay:
    admin = SimpleNamespace(cursors=list, session_commits=lambda _: None)
    target = SimpleNamespace(cluster_id="0c" * 16, client=SimpleNamespace(admin=admin))
    monkeypatch.setattr(replay, "connected", lambda *_, **__: target)
    options = {"lake": None, "source": None, "name": None, "first_lsn": None, "timeout_s": 8.0}
    return Replay(no_spark, ReplayOptions(target="127.0.0.1:2", **(options | given)))


def no_spark() -> Any:
    raise AssertionError("something is read")


@pytest.mark.parametrize("plain_first", [0, 1])
def test_a_chunk_of_a_compressed_log_is_as_large_as_its_payloads(
    played: Cluster, monkeypatch: pytest.MonkeyPatch, plain_first: int
) -> None:
    """32 MiB of what the log stores were gigabytes in the driver, more than one write may have; and
    the chunk was agreed, so the replay failed with it whenever it was called again."""
    for number in range(80):
        add(played.replicas[1], bytes(MIB), is_compressed=number >= plain_first)
    work = make(monkeypatch, source=played.endpoint)
    assert work._choose(1, 80) == CHUNK_BYTES // MIB
    assert work._choose(70, 80) == 80


def test_a_chunk_of_a_log_without_compression_is_not_read_twice(
    played: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(40):
        add(played.replicas[1], bytes(MIB), is_compressed=False)
    work = make(monkeypatch, source=played.endpoint)
    asked: list[Any] = []
    fetch = played.replicas[1].fetch

    def fetched(request: Any) -> Any:
        asked.append((request.first_lsn, request.last_lsn))
        return fetch(request)

    played.replicas[1].on |= {FetchRequest: fetched}
    assert work._choose(1, 40) == CHUNK_BYTES // MIB
    assert asked == [(1, 1), (32, 32)]


def test_a_chunk_of_a_compressed_lake_is_as_large_as_its_payloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = LakeFile(
        first_lsn=1, last_lsn=1_000, batches=1_000, payloads=1_000, payload_bytes=1_000 * MIB,
        stored_bytes=10 * MIB, batch_bytes=11 * MIB, file_bytes=12 * MIB, first_timestamp_us=1,
        last_timestamp_us=2, cluster_id="0a" * 16, digest="0d" * 32, file_digest="0e" * 32,
    )  # fmt: skip
    manifest = Manifest(cluster_id="0a" * 16, first_lsn=1).with_files([file])
    monkeypatch.setattr(replay, "read_manifest", lambda _: manifest)
    assert make(monkeypatch, lake="somewhere")._choose(1, 1_000) == CHUNK_BYTES // MIB
