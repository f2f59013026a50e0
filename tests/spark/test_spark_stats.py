"""Traffic as a dumb count of the same records has it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.main import main
from logstore.errors import InvalidRequest
from logstore.spark import read_log, stats
from logstore.spark.stats import NOTHING, STATS_COLUMNS, Stats, Traffic, gather_stats
from tests.spark.lakes import archive_once, lend
from tests.spark.rows import append, expected

SIZES = (0, 1, 2, 3, 4, 5, 1_023, 1_024, 1_025, 65_536)


@pytest.fixture(scope="module")
def span(log: logstore.LogClient) -> tuple[int, int]:
    """Of three producers."""
    first, _ = append(log, *[[b"x" * size] * (place + 1) for place, size in enumerate(SIZES)])
    append(log, [b"y"], [b"y" * 7] * 3)
    with log.producer(logstore.ProducerOptions(compression="zstd")) as producer:
        last = producer.append_batch([b"z" * 30_000, b"z"]).result(60).last
    return first, last


def stored_sizes(log: logstore.LogClient, first: int, last: int) -> dict[int, int]:
    """By the first LSN of each batch."""
    found = log.read(first, last, min_lsn=last)
    return {batch.batch_first_lsn: batch.batch_stored_bytes for batch in found}


def dumb(
    rows: list[tuple[Any, ...]], stored: dict[int, int], key: int | None, step_us: int = 1
) -> dict[Any, Traffic]:
    """By a column of `rows.NAMES`: 1 the payload's size, 2 time, 5 the producer."""
    records: Counter[Any] = Counter()
    batches: Counter[Any] = Counter()
    size: Counter[Any] = Counter()
    kept: Counter[Any] = Counter()
    for row in rows:
        value = None if key is None else row[key]
        if key == 1:
            value = 0 if not row[1] else 1 << (len(row[1]) - 1).bit_length()
        if key == 2:
            value = int(row[2].timestamp() * 1_000_000) // step_us * step_us
        records[value] += 1
        batches[value] += row[0] == row[3]
        size[value] += len(row[1])
        kept[value] += stored[row[0]] if row[0] == row[3] else 0
    return {each: Traffic(records[each], batches[each], size[each], kept[each]) for each in records}


def check(found: Stats, rows: list[tuple[Any, ...]], stored: dict[int, int], step_us: int) -> None:
    assert found.total == dumb(rows, stored, None)[None]
    assert found.total.stored_bytes < found.total.payload_bytes - 29_000
    assert {each.time_us: each.traffic for each in found.by_time} == dumb(rows, stored, 2, step_us)
    assert {each.size_bytes: each.traffic for each in found.by_size} == dumb(rows, stored, 1)
    producers = dumb(rows, stored, 5)
    assert found.producers == len(producers)
    for each in found.by_producer:
        assert each.traffic == producers[each.producer_id]
    sizes = [each.traffic.payload_bytes for each in found.by_producer]
    assert sizes == sorted((each.payload_bytes for each in producers.values()), reverse=True)[:2]


def test_traffic_by_time_producer_and_size_is_what_a_count_gives(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, span: tuple[int, int]
) -> None:
    frame = read_log(
        spark, endpoints=cluster.endpoints[0], first_lsn=span[0], last_lsn=span[1],
        columns=STATS_COLUMNS,
    )  # fmt: skip
    rows, stored = expected(log, *span), stored_sizes(log, *span)
    check(gather_stats(frame, step_us=1_000, top=2), rows, stored, 1_000)
    with pytest.raises(InvalidRequest, match="1ms or more"):
        gather_stats(frame, step_us=999, top=2)


def test_nothing_is_nothing(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    frame = read_log(spark, endpoints=cluster.endpoints[0], columns=STATS_COLUMNS).limit(0)
    assert gather_stats(frame, step_us=1_000, top=1) == NOTHING


def test_the_command_tells_it_of_a_lake_as_tables_and_as_json(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    span: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive_once(spark, cluster, tmp_path, "stats")
    lend(monkeypatch, spark, ["stats"])
    monkeypatch.delenv("LOGSTORE_ENDPOINT", raising=False)
    call = ["pipeline", "stats", "--lake", str(tmp_path), "--step", "1s", "--top", "2"]
    call += ["--from", str(span[0]), "--to", str(span[1])]
    assert main(call) == 0
    assert "payload bytes up to" in capsys.readouterr().out
    assert main([*call, "--json", "-"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Stats)
    check(found, expected(log, *span), stored_sizes(log, *span), 1_000_000)


def test_steps_that_are_left_out_are_told(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stats, "ROWS_MAX", 3)
    first, last = append(log, [b"1"])
    while len(dumb(expected(log, first, last), stored_sizes(log, first, last), 2, 1_000)) < 5:
        _, last = append(log, [b"more"])
    lend(monkeypatch, spark, ["stats"])
    call = ["pipeline", "stats", "--endpoint", cluster.endpoints[0], "--step", "1ms", "--top", "2"]
    call += ["--from", str(first), "--to", str(last), "--json", "-"]
    assert main(call) == 0
    said = capsys.readouterr()
    found = msgspec.json.decode(said.out, type=Stats)
    assert (found.steps, len(found.by_time)) == (5, 3)
    assert "5 steps of time have records, and the last 2 of them are left out" in said.err
