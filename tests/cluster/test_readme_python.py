"""The Python of the README's and the asyncio client's pages, as it stands there, on a cluster."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logstore.cli.embedded import EmbeddedCluster
from tests.cluster.one_cluster import running_cluster
from tests.tidy.repository import text_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("readme")) as running:
        yield running


def run_block(block: str, names: dict[str, Any], endpoint: str) -> None:
    """Run it as a notebook would: `await` may stand outside of a function."""
    text = block.replace("127.0.0.1:7100", endpoint)
    code = compile(text, "README", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def blocks_of(section: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_readmes_python_runs_from_top_to_bottom(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    section = text_of(Path("README.md")).partition("\n## In Python\n")[2].partition("\n## ")[0]
    sync, aio, cursor = blocks_of(section)
    names: dict[str, Any] = {"asyncio": asyncio}
    run_block(sync, names, cluster.endpoints[0])
    run_block(aio, names, cluster.endpoints[0])
    import logstore  # after its own import, as a reader has it

    with logstore.connect(cluster.endpoints[0]) as log:
        names["log"] = log
        run_block(cursor, names, cluster.endpoints[0])
        held = {each.name: each.lsn for each in log.admin.cursors()}
    said = capsys.readouterr().out
    assert "LSN 1\n" in said
    assert "b'999'" in said
    assert held == {"reader": 5, "billing": 5}


def test_the_page_of_the_asyncio_client_runs(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks_of(text_of(Path("logstore/aio/README.md")))
    run_block(block, {"__name__": "__main__"}, cluster.endpoints[0])
    said = capsys.readouterr().out
    assert "LsnRange(first=" in said
    assert "b'payload 999'" in said


def test_the_page_of_the_client_runs(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    block, *_ = blocks_of(text_of(Path("logstore/client/README.md")))
    run_block(block, {}, cluster.endpoints[0])
    assert "LsnRange(first=" in capsys.readouterr().out
