"""`logstore member` on real replicas: who they are, and what the log's format level allows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.exit_status import ExitStatus
from logstore.errors import LevelRefused
from logstore.format.level import CONFIG_LEVEL
from tests.cluster.one_cluster import run_cli, running_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    folder: Path = tmp_path_factory.mktemp("members")
    with running_cluster(folder) as cluster:
        yield cluster


def test_the_members_of_a_new_cluster_are_its_nodes(cluster: EmbeddedCluster) -> None:
    done = run_cli(cluster, "member", "list", "--json", "-")
    assert done.returncode == ExitStatus.DONE, done.stderr
    found = json.loads(done.stdout)
    rows = [(row["number"], row["role"], row["port"]) for row in found["members"]]
    assert rows == [(node.node, "voter", node.port) for node in cluster.config.nodes]
    assert {row["is_damaged"] for row in found["members"]} == {False}
    with logstore.connect(cluster.endpoints, timeout=30) as log:
        assert [each.number for each in log.admin.members().members] == [1, 2, 3]
        assert sorted(log.nodes()) == [1, 2, 3]


def test_a_change_needs_the_level_of_configurations_and_may_be_asked_for_again(
    cluster: EmbeddedCluster,
) -> None:
    """Below that level every way to ask says to upgrade; from there on to ask twice is safe."""
    add = ("member", "add", "4", "127.0.0.1:9100")
    with logstore.connect(cluster.endpoints, timeout=30) as log:
        if log.admin.format_levels().level < CONFIG_LEVEL:
            with pytest.raises(LevelRefused, match="logstore upgrade"):
                log.admin.add_member(4, "127.0.0.1", 9_100)
            done = run_cli(cluster, *add)
            assert done.returncode == ExitStatus.REFUSED
            assert b"run `logstore upgrade`" in done.stderr
            return
        for _ in range(2):
            done = run_cli(cluster, *add)
            assert done.returncode == ExitStatus.DONE, done.stderr
            row = log.admin.members().member(4)
            assert row is not None
            assert row.role == "reserved"
        assert sorted(log.nodes()) == [1, 2, 3]
        for _ in range(2):
            log.admin.remove_member(4)
            assert log.admin.members().member(4) is None
