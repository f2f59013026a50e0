"""Which Java Spark would start. No Spark and no Java is needed: the programs are scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logstore.errors import ConfigError
from logstore.spark.java import find_java


def fake_java(folder: Path, says: str) -> str:
    """A `java` in folder/bin that answers every call with `says` on stderr."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "says",
    ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21"', 'java version "25.0.1"'],
)
def test_a_new_enough_java_on_path_is_taken(tmp_path: Path, says: str) -> None:
    java = fake_java(tmp_path, says)
    assert find_java({"PATH": os.path.dirname(java)}) == java


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    chosen = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    other = fake_java(tmp_path / "path", 'openjdk version "21.0.1"')
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": os.path.dirname(other)}
    assert find_java(environment) == chosen


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ('java version "1.8.0_392"', "is Java 8;"),
        ('openjdk version "11.0.22" 2024-01-16', "is Java 11;"),
        ("what?", "does not tell its version;"),
    ],
)
def test_an_old_java_is_refused_with_what_to_install(tmp_path: Path, says: str, found: str) -> None:
    java = fake_java(tmp_path, says)
    with pytest.raises(ConfigError, match="install Java 17 or newer") as caught:
        find_java({"PATH": os.path.dirname(java)})
    assert f"{java} {found}" in str(caught.value)


def test_a_java_home_without_java_is_named_even_if_path_has_one(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "path", 'openjdk version "17.0.1"')
    environment = {"JAVA_HOME": str(tmp_path / "empty"), "PATH": os.path.dirname(java)}
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .*empty, install Java 17"):
        find_java(environment)


def test_as_a_program_it_prints_the_path_or_one_line_and_status_1(tmp_path: Path) -> None:
    java = fake_java(tmp_path, 'openjdk version "17.0.1"')

    def run(path: str) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
        return subprocess.run(
            [sys.executable, "-m", "logstore.spark.java"],
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(os.path.dirname(java)).stdout == java + "\n"
    missing = run(str(tmp_path))
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.count("\n") == 1
    assert "apt-get install openjdk-17-jre-headless" in missing.stderr
