"""docs/names.md: every public name is in it, and its program runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import aio, spark
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.format.level import CONFIG_LEVEL
from tests.cluster.one_cluster import running_cluster
from tests.tidy.repository import text_of

PAGE = text_of(Path("docs/names.md"))
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """All replicas have reported what they read, as on a cluster that has run for a while."""
    with running_cluster(tmp_path_factory.mktemp("names")) as running:
        with logstore.connect(running.endpoints, timeout=PATIENCE_S) as log:
            assert poll_until(lambda: log.admin.format_levels().level >= CONFIG_LEVEL, PATIENCE_S)
        yield running


@pytest.mark.parametrize("module", [logstore, aio, spark])
def test_every_public_name_has_an_example(module: Any) -> None:
    section = PAGE.partition(f"\n## {module.__name__}\n")[2].partition("\n## ")[0]
    titles = re.findall(r"^### (.*)$", section, re.MULTILINE)
    named = [name for title in titles for name in re.findall(r"`(\w+)`", title)]
    assert sorted(named) == sorted(module.__all__)
    for part in section.split("\n### ")[1:]:
        names, _, example = part.partition("```python\n")
        for name in re.findall(r"`(\w+)`", names.splitlines()[0]):
            assert re.search(rf"{module.__name__.rpartition('.')[2]}\.{name}\b", example), name


def test_the_examples_run_as_one_program(cluster: EmbeddedCluster) -> None:
    """Those of Spark run in tests/spark."""
    host, _, port = cluster.endpoints[0].rpartition(":")
    page = PAGE.partition("\n## logstore.spark\n")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        text = block.replace("127.0.0.1:7100", cluster.endpoints[0])
        text = text.replace('Endpoint("127.0.0.1", 7100)', f'Endpoint("{host}", {port})')
        exec(compile(text, f"names.md, {block.splitlines()[0]}", "exec"), names)
