"""Archives and lakes of the tests: small files, a cursor of their own, and what a lake holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.spark.archive import Archive, ArchiveOptions
from logstore.spark.jobs import StartSpark, own_errors
from logstore.spark.lake import LakeWriter, data_path, read_manifest
from logstore.spark.lake_file import read_lake_file
from logstore.spark.lake_manifest import Manifest


def append_some(log: logstore.LogClient, batches: int = 12) -> tuple[int, int]:
    """Batches of 9 to 18 kB, an entry of the log each; first and last LSN."""
    with log.producer() as producer:
        found = [
            producer.append_batch([b"%d" % n * 9_000, b"", b"x" * n]).result(timeout=60)
            for n in range(batches)
        ]
    return found[0].first, found[-1].last


def options(cluster: EmbeddedCluster, cursor: str, **changes: object) -> ArchiveOptions:
    settings = {"file_bytes": 40_000, "files_at_once": 3, "timeout_s": 30.0} | changes
    return ArchiveOptions(endpoints=",".join(cluster.endpoints), cursor=cursor, **settings)  # type: ignore[arg-type]


def archive_once(
    spark: SparkSession, cluster: EmbeddedCluster, folder: Path, cursor: str, **changes: object
) -> Manifest:
    """Archive what there is; the manifest."""
    with LakeWriter(str(folder)) as writer:
        work = Archive(lambda: spark, writer, options(cluster, cursor, **changes))
        work.begin()
        for _ in work.rounds(work.head_lsn()):
            pass
    return read_manifest(str(folder))


def digest_of(folder: Path) -> logstore.BatchDigest:
    """Of every batch in the lake, from its files."""
    digest = logstore.BatchDigest()
    for file in read_manifest(str(folder)).files:
        for batch in read_lake_file(data_path(str(folder), file), file):
            digest.add(batch.first_lsn, batch.count, batch.data)
    return digest


def damage_payloads(path: Path, *, row_group: int = 0) -> None:
    """Flip a bit amid the payloads of a file: other columns are not read by everybody."""
    group = pq.read_metadata(path).row_group(row_group)
    columns = [group.column(place) for place in range(group.num_columns)]
    column = next(each for each in columns if each.path_in_schema == "payload")
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    path.write_bytes(data)


def cursor_lsn(log: logstore.LogClient, name: str) -> int:
    return next((each.lsn for each in log.admin.cursors() if each.name == name), 0)


def files_of(folder: Path) -> list[str]:
    """Every Parquet file under the lake's folder, named or not."""
    return sorted(path.name for path in folder.rglob("*.parquet"))


def lend(monkeypatch: pytest.MonkeyPatch, spark: SparkSession, modules: Sequence[str]) -> None:
    """Let commands run in the session of the tests, which they must not stop."""

    @contextmanager
    def lent(_name: str, _master: str, _conf: Sequence[str]) -> Iterator[StartSpark]:
        with own_errors():
            yield lambda: spark

    for module in modules:
        monkeypatch.setattr(f"logstore.cli.pipeline.{module}.spark_session", lent)
