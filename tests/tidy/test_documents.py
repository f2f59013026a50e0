"""Documents and dependencies say what is: words of the Makefile, pins, root files."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.repository import ROOT, python_files, text_of, tracked

ROOT_FILES = (
    "README.md", "ARCHITECTURE.md", "SAFETY.md", "FAULTS.md", "PROTOCOL.md", "CONTRIBUTING.md",
    "CHANGELOG.md", "LICENSE", "Makefile", "pyproject.toml", "constraints.txt",
    "constraints-spark.txt",
)  # fmt: skip


def pins(name: str = "constraints.txt") -> dict[str, str]:
    """Package name to version, from a constraints file."""
    lines = text_of(Path(name)).splitlines()
    return {
        canonicalize_name(name): version for name, _, version in (x.partition("==") for x in lines)
    }


def test_root_files_are_there() -> None:
    assert not [name for name in ROOT_FILES if Path(name) not in tracked()]


def test_contributing_names_every_word_of_the_makefile() -> None:
    words = re.findall(r"^([.a-z-]+):.*## ", text_of(Path("Makefile")), re.MULTILINE)
    assert words
    text = text_of(Path("CONTRIBUTING.md"))
    assert not [word for word in words if f"`make {word}`" not in text]


def test_contributing_names_files_and_tests_that_are_there() -> None:
    text = text_of(Path("CONTRIBUTING.md"))
    paths = re.findall(r"`((?:actors|benchmarks|logstore|tests|tools|transport)/[^`…]*)`", text)
    assert len(paths) > 40
    assert not [path for path in paths if not (ROOT / path).exists()]
    tests = "\n".join(text_of(path) for path in python_files() if path.parts[0] == "tests")
    named = re.findall(r"`(test_\w+)`", text)
    assert len(named) > 15
    assert not [name for name in named if f"\ndef {name}(" not in tests]


def test_ci_runs_the_words_of_the_makefile() -> None:
    """`begin` runs `make` with its words beside what follows, `finish` waits for it."""
    lines = [line.partition("  #")[0] for line in text_of(Path(".ci/run")).splitlines()]
    assert [line for line in lines if line.startswith(("make ", "begin ", "finish "))] == [
        "begin .venv-spark",
        "make check",
        "finish .venv-spark",
        'make test-all PYTEST_ARGS="--ignore=tests/tidy $left_out"',
        'begin soak bench-quick explore simulate SOAK_ARGS="--seconds 60"',
        'make test-spark PYTEST_ARGS="$long_of_spark"',
        "finish soak bench-quick explore simulate",
    ]


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-spark.txt"])
def test_constraints_are_names_and_versions_only(name: str) -> None:
    lines = text_of(Path(name)).splitlines()
    assert not [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.+!-]+", line)
    ]
    names = list(pins(name))
    assert names == sorted(names)


def test_constraints_of_spark_add_what_the_others_have_not() -> None:
    """What they need in turn is looked at where they are installed (tests/spark)."""
    project = tomllib.loads(text_of(Path("pyproject.toml")))["project"]
    wanted = {
        canonicalize_name(Requirement(x).name) for x in project["optional-dependencies"]["spark"]
    }
    added = pins("constraints-spark.txt").keys()
    assert wanted <= added
    assert not added & pins().keys()


@pytest.mark.parametrize(
    ("extra", "too_old"),
    [
        ("lz4", "2.0.2"),  # has no LZ4BlockError
        ("zstandard", "0.18.0"),  # decompresses what lies behind the frame, or leaves it out
    ],
)
def test_a_codec_that_lacks_what_is_called_is_not_enough(extra: str, too_old: str) -> None:
    project = tomllib.loads(text_of(Path("pyproject.toml")))["project"]
    (requirement,) = map(Requirement, project["optional-dependencies"][extra])
    assert requirement.name == extra
    assert too_old not in requirement.specifier
    assert pins()[extra] in requirement.specifier


def test_every_dependency_is_pinned_with_all_it_needs() -> None:
    project = tomllib.loads(text_of(Path("pyproject.toml")))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"]]
    for extra in ("dev", "types", "lz4", "zstandard"):
        wanted += extras[extra]
    seen: set[str] = set()
    missing: list[str] = []
    while wanted:
        requirement = Requirement(wanted.pop())
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        if name not in pins():
            missing.append(name)
            continue
        wanted += metadata.requires(name) or []
    assert not missing
    assert not sorted(pins().keys() - seen), "pinned, but nothing needs it"


def test_installed_packages_are_the_pinned_ones() -> None:
    wrong = {
        name: metadata.version(name)
        for name, pin in pins().items()
        if metadata.version(name) != pin
    }
    assert not wrong, "run `make .venv`"
