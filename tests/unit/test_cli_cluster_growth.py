"""`cluster up --replicas N`: the steps that add voters, each of which may be done already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.cli import cluster_growth
from logstore.cli.cluster_folder import CONFIG_NAME, ClusterState, default_config
from logstore.cli.cluster_growth import add_nodes, grow
from logstore.config import load_config, render_config
from logstore.errors import ConfigError, InvalidRequest, LevelRefused, NotReady
from logstore.format.client_messages import DoneReply, RaiseLevelRequest
from tests.unit.client_stage import Cluster
from tests.unit.test_client_members import ADD, PROMOTE, Played


class Folder:
    """A folder whose replicas one leader plays: at level 3, which every replica can raise."""

    def __init__(self, path: Path, played: Played) -> None:
        self.path, self.played = path, played
        self.config = path / CONFIG_NAME
        text = "# mine\n" + render_config(default_config(auto_init=True))
        self.config.write_text(text, encoding="utf-8")
        self.state = ClusterState([played.cluster.endpoint], str(self.config), [])
        self.said: list[str] = []
        self.started: list[list[int]] = []
        self.level = 3
        plain = played.status
        played.status = lambda: plain() | {"level": self.level, "newest_level": 4}
        played.leader.on[RaiseLevelRequest] = self.raise_level

    def raise_level(self, request: RaiseLevelRequest) -> DoneReply:
        self.level = request.level
        return DoneReply(request.level)

    def bring_up(
        self, folder: Path, config_path: Path | None, *, first_lsn: int | None
    ) -> ClusterState:
        assert (folder, config_path, first_lsn) == (self.path, None, None)
        self.started.append(load_config(self.config).node_ids())
        return self.state

    def grow(self, replicas: int, timeout_s: float = 10.0) -> ClusterState:
        return grow(self.path, self.state, replicas, timeout_s, say=self.said.append)

    def asked(self) -> list[tuple[int, int]]:
        return [(each.kind, each.number) for each in self.played.asked]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    with Cluster(nodes=1) as cluster:
        folder = Folder(tmp_path, Played(cluster))
        monkeypatch.setattr(cluster_growth, "bring_up", folder.bring_up)
        yield folder


def test_nodes_are_written_placed_started_and_promoted_in_this_order(folder: Folder) -> None:
    folder.grow(5)
    assert folder.level == 4
    assert folder.said[0] == "the log is raised to format level 4"
    assert folder.asked() == [(ADD, 4), (ADD, 5), (PROMOTE, 4), (PROMOTE, 5)]
    assert folder.started == [[1, 2, 3, 4, 5]]
    config = load_config(folder.config)
    assert [each.port for each in config.nodes] == [7_100, 7_110, 7_120, 7_130, 7_140]
    text = folder.config.read_text(encoding="utf-8")
    assert text.startswith("# mine\n")
    assert "\n\n[[nodes]]\nnode = 5\n" in text
    assert "\n\n[raft]\n" in text
    assert folder.said[-1] == "node 5 is a voter"


def test_what_is_done_already_is_not_done_again(folder: Folder) -> None:
    folder.level = 4
    add_nodes(folder.config, [1, 2, 3], 2)  # an earlier one was interrupted after that
    folder.grow(5)
    assert load_config(folder.config).node_ids() == [1, 2, 3, 4, 5]
    assert "raised" not in " ".join(folder.said)
    asked = folder.asked()
    folder.grow(5)
    assert folder.asked() == asked
    assert len(folder.started) == 1


def test_two_at_once_write_the_same_nodes(folder: Folder) -> None:
    """Both have found two to be missing: the second would write two more."""
    first = add_nodes(folder.config, [1, 2, 3], 2)
    assert add_nodes(folder.config, [1, 2, 3], 2) == first
    assert load_config(folder.config).node_ids() == [1, 2, 3, 4, 5]


def test_a_replica_that_does_not_join_is_named(folder: Folder) -> None:
    folder.played.joins_as = "reserved"
    with pytest.raises(NotReady, match="node 4 has not joined yet.*stays done"):
        folder.grow(4, 0.5)
    assert folder.said[-1].startswith("waiting: node 4 has not joined yet")


def test_a_cluster_whose_members_are_not_in_the_log_yet_is_waited_for(folder: Folder) -> None:
    folder.played.id = 0
    with pytest.raises(NotReady, match="has not written the members into the log yet"):
        folder.grow(4, 0.5)
    assert not folder.played.asked


def test_fewer_replicas_and_a_config_of_somebody_else_s_are_refused(
    folder: Folder, tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequest, match="has 3 voters: `logstore member remove NUMBER`"):
        folder.grow(2)
    other = tmp_path / "theirs.toml"
    other.write_text(folder.config.read_text(encoding="utf-8"), encoding="utf-8")
    folder.state = ClusterState(folder.state.endpoints, str(other), [])
    with pytest.raises(InvalidRequest, match=r"2 too few.*add \[\[nodes\]\] there"):
        folder.grow(5)
    assert not folder.played.asked


def test_a_version_that_cannot_change_members_is_named(folder: Folder) -> None:
    plain = folder.played.status
    folder.played.status = lambda: plain() | {"newest_level": 3}
    with pytest.raises(LevelRefused, match="which node 1 does not read"):
        folder.grow(5)


def test_a_config_has_at_most_nine_nodes_and_stays_as_it_is(folder: Folder) -> None:
    before = folder.config.read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match="nodes"):
        add_nodes(folder.config, [1, 2, 3], 7)
    assert folder.config.read_text(encoding="utf-8") == before
