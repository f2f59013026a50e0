"""How Spark is started, and what it needs: Java, the right Python, pinned packages."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyspark.sql import SparkSession

from logstore.cli.main import main
from logstore.errors import ConfigError
from logstore.spark import start_session
from tests.kept.kept import LAKE, unpack
from tests.tidy.repository import text_of


def test_workers_run_the_interpreter_that_has_this_package(spark: SparkSession) -> None:
    found = (
        spark.sparkContext.parallelize([0], 1)
        .map(lambda _: (sys.executable, __import__("logstore").__name__))
        .collect()
    )
    assert found == [(sys.executable, "logstore")]
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_a_second_start_gives_the_session_that_is_there(spark: SparkSession) -> None:
    assert start_session().sparkContext is spark.sparkContext


def test_results_of_a_batch_of_the_log_come_directly_unless_told_otherwise(
    spark: SparkSession,
) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.task.maxDirectResultSize") == "32m"
    assert settings.get("spark.driver.memory") == "1g", "what is given comes first"


def test_without_java_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="install Java 17 or newer") as caught:
        start_session()
    assert "\n" not in str(caught.value)


def test_a_pipeline_without_java_ends_with_that_line_and_status_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["pipeline", "stats", "--lake", str(unpack(LAKE, tmp_path / "lake"))]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "install Java 17 or newer" in line


def test_installed_packages_are_the_pinned_ones_with_all_they_need() -> None:
    lines = [
        line
        for name in ("constraints.txt", "constraints-spark.txt")
        for line in text_of(Path(name)).splitlines()
    ]
    pins = {canonicalize_name(name): pin for name, _, pin in (x.partition("==") for x in lines)}
    assert {name: metadata.version(name) for name in pins} == pins
    needed = {
        canonicalize_name(requirement.name)
        for name in pins
        for requirement in map(Requirement, metadata.requires(name) or [])
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }
    assert needed <= pins.keys()
