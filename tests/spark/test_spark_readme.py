"""The worked examples of the README work."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.cli.main import main
from tests.spark.lakes import lend
from tests.spark.rows import append, expected
from tests.spark.test_spark_lake_protocol import verify
from tests.tidy.repository import text_of

PROGRESS_TIMEOUT_S = 60.0  # Spark tells it to listeners some time after the batch


def test_the_stream_of_the_readme_finds_its_lines_and_appends_them_once(
    spark: SparkSession, cluster: EmbeddedCluster, log: logstore.LogClient, tmp_path: Path
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", text_of(Path("README.md")), re.DOTALL)
    [code] = [block for block in blocks if "readStream" in block]
    code = code.replace("127.0.0.1:7100", cluster.endpoints[0]).replace(
        "/tmp/errors", str(tmp_path)
    )
    first, last = append(log, [b"ERROR: one", b"fine"], [b"ERROR: two"])
    names: dict[str, Any] = {}
    exec(code, names)
    commit = names["commit"]
    found = [
        json.loads(row[1])
        for row in expected(log, last + 1, log.admin.commit_lsn())
        if row[1].startswith(b'{"lsn"')
    ]
    assert found[-2:] == [
        {"lsn": first, "line": "ERROR: one"},
        {"lsn": last, "line": "ERROR: two"},
    ]
    assert commit.last_lsn == log.admin.commit_lsn()
    assert poll_until(lambda: bool(names["listener"].lags()), PROGRESS_TIMEOUT_S)
    spark.streams.removeListener(names["listener"])
    exec(code, names)
    spark.streams.removeListener(names["listener"])
    assert names["commit"] == commit, "there is nothing new"


def test_the_pipelines_of_the_readme_archive_compare_and_read(
    spark: SparkSession,
    cluster: EmbeddedCluster,
    log: logstore.LogClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    blocks = text_of(Path("README.md")).split("```")[1::2]
    [lines] = [block.strip().splitlines() for block in blocks if "pipeline archive" in block]
    append(log, [b"at the README's end"])
    calls = [
        shlex.split(
            line.replace("127.0.0.1:7100", cluster.endpoints[0]).replace("/tmp", str(tmp_path)),
            comments=True,
        )[1:]
        for line in lines
    ]
    lend(monkeypatch, spark, [call[1] for call in calls])
    assert [call[:2] for call in calls] == [
        ["pipeline", name] for name in ("archive", "audit", "stats", "read")
    ]
    for call in calls:
        capfdbinary.readouterr()
        assert main(call) == 0, call
    assert capfdbinary.readouterr().out.endswith(b"at the README's end\n")
    verify(tmp_path / "lake")
