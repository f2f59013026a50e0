"""`cluster forget NODE`: a replica that was removed leaves the folder; a member does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from logstore.cli.cluster_folder import (
    CONFIG_NAME,
    ClusterState,
    default_config,
    read_state,
    write_state,
)
from logstore.cli.cluster_shrinking import forget
from logstore.cli.replica_process import ReplicaProcess
from logstore.config import load_config, render_config
from logstore.errors import InvalidRequest
from logstore.format.client_messages import StatusRequest
from logstore.storage.meta_store import META_NAMES
from tests.unit.client_stage import Cluster
from tests.unit.test_client_members import Played

NEVER_A_PID = 1 << 30


class Folder:
    """Of nodes 1, 2 and 3, of which node 1 is played and the others do not run."""

    def __init__(self, path: Path, played: Played) -> None:
        self.path, self.played = path, played
        self.config = path / CONFIG_NAME
        text = "# mine\n" + render_config(default_config(auto_init=True))
        self.config.write_text(text, encoding="utf-8")
        rows = [ReplicaProcess(node, NEVER_A_PID, "nowhere", 1) for node in (1, 2, 3)]
        self.state = ClusterState([played.cluster.endpoint], str(self.config), rows)
        write_state(path, self.state)
        self.data = path / "node-3"
        self.data.mkdir()
        (self.data / META_NAMES[0]).write_bytes(b"what it was")

    def remove_member(self, node: int) -> None:
        self.played.rows = [row for row in self.played.rows if row["number"] != node]

    def forget(self, node: int) -> Path | None:
        return forget(self.path, node, 10.0, say=lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Cluster(nodes=1) as cluster:
        yield Folder(tmp_path, Played(cluster))


def test_a_removed_replica_leaves_config_and_state_and_its_data_is_kept(folder: Folder) -> None:
    folder.remove_member(3)
    aside = folder.forget(3)
    assert aside is not None
    assert (aside / META_NAMES[0]).read_bytes() == b"what it was"
    assert not folder.data.exists()
    assert load_config(folder.config).node_ids() == [1, 2]
    assert folder.config.read_text(encoding="utf-8").startswith("# mine\n")
    state = read_state(folder.path)
    assert state is not None
    assert [row.node for row in state.nodes] == [1, 2]
    assert state.endpoints == ["127.0.0.1:7100", "127.0.0.1:7110"]


def test_one_that_was_interrupted_goes_on(folder: Folder) -> None:
    folder.remove_member(3)
    aside = folder.data.rename(folder.data.with_name("node-3.aside-before"))
    assert folder.forget(3) is None
    assert aside.exists()
    assert load_config(folder.config).node_ids() == [1, 2]
    write_state(folder.path, folder.state)  # the last step was not made
    assert folder.forget(3) is None
    state = read_state(folder.path)
    assert state is not None
    assert [row.node for row in state.nodes] == [1, 2]


def test_what_another_command_starts_meanwhile_stays_in_the_folder(folder: Folder) -> None:
    """`cluster down` knows a replica by its row only."""
    folder.remove_member(3)
    started = [
        msgspec.structs.replace(row, start_tick=2) if row.node == 2 else row
        for row in folder.state.nodes
    ]
    answer = folder.played.leader.on[StatusRequest]

    def start_node_2(request: StatusRequest) -> object:
        write_state(folder.path, msgspec.structs.replace(folder.state, nodes=started))
        return answer(request)

    folder.played.leader.on[StatusRequest] = start_node_2
    folder.forget(3)
    state = read_state(folder.path)
    assert state is not None
    assert state.nodes == started[:2]


def test_a_member_an_unknown_node_and_another_config_are_refused(folder: Folder) -> None:
    with pytest.raises(InvalidRequest, match="member of the cluster, voter: `logstore member rem"):
        folder.forget(3)
    with pytest.raises(InvalidRequest, match=r"has no node 7: it has 1, 2, 3$"):
        folder.forget(7)
    folder.remove_member(3)
    other = folder.path / "theirs.toml"
    other.write_text(folder.config.read_text(encoding="utf-8"), encoding="utf-8")
    write_state(folder.path, msgspec.structs.replace(folder.state, config=str(other)))
    with pytest.raises(InvalidRequest, match="not the folder's own config"):
        folder.forget(3)
    assert folder.data.exists()
    assert load_config(other).node_ids() == [1, 2, 3]
