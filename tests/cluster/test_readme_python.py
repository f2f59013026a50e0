"""The Python of the README's and the asyncio client's pages, as it stands there, on a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.format.level import EXPECTED_LSN_LEVEL
from tests.cluster.one_cluster import running_cluster
from tests.tidy.repository import text_of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("readme")) as running:
        yield running


def run_block(block: str, endpoint: str) -> None:
    """Run it as a program of its own: no block needs what another one has defined."""
    text = block.replace("127.0.0.1:7100", endpoint)
    exec(compile(text, "README", "exec"), {"__name__": "__main__"})


def blocks_of(section: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.mark.long
def test_the_readmes_python_runs_from_top_to_bottom(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    section = text_of(Path("README.md")).partition("\n## In Python\n")[2].partition("\n## ")[0]
    for block in blocks_of(section):
        run_block(block, cluster.endpoints[0])
    import logstore  # after its own import, as a reader has it

    with logstore.connect(cluster.endpoints[0]) as log:
        last_lsn = log.admin.commit_lsn()
        positions = {each.name: each.lsn for each in log.admin.cursors()}
    said = capsys.readouterr().out
    assert "LSN 1\n" in said
    assert "b'999'" in said
    assert "b'GET /index.html 200'" in said
    assert positions == {"reader": 5, "billing": last_lsn + 1}


def test_the_readmes_append_that_expects_an_lsn_is_refused_where_the_log_has_gone_on(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    import logstore

    heading = "\n## Only if nothing came between\n"
    (block,) = blocks_of(text_of(Path("README.md")).partition(heading)[2].partition("\n## ")[0])
    with logstore.connect(cluster.endpoints[0]) as log, log.producer() as producer:
        assert poll_until(lambda: log.admin.format_levels().level >= EXPECTED_LSN_LEVEL, 60)
        last_lsn = producer.append(b"somebody was faster").result(30).last
        run_block(block, cluster.endpoints[0])
    assert capsys.readouterr().out == f"read on up to {last_lsn} and decide again\n"


def test_the_readmes_append_at_the_level_of_the_leader_is_provisional(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    heading = "\n## When an append is done\n"
    block, _push = blocks_of(text_of(Path("README.md")).partition(heading)[2].partition("\n## ")[0])
    run_block(block, cluster.endpoints[0])
    assert capsys.readouterr().out == "Provisional(is_flushed=True)\n0\n"


def test_the_page_of_the_asyncio_client_runs(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks_of(text_of(Path("logstore/aio/README.md")))
    run_block(block, cluster.endpoints[0])
    said = capsys.readouterr().out
    assert "LsnRange(first=" in said
    assert "b'payload 999'" in said


def test_the_page_of_the_client_runs(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    block, *_ = blocks_of(text_of(Path("logstore/client/README.md")))
    run_block(block, cluster.endpoints[0])
    assert "LsnRange(first=" in capsys.readouterr().out
