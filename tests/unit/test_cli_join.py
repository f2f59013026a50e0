"""`logstore serve --join`: whom it asks, what it starts with, what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.supervisor.placement import look_at_machine
from actors.supervisor.placement_file import PlacementFile
from logstore.cli import join, run_replica, serve
from logstore.cli.join import ask_members, is_part_of_cluster
from logstore.client.endpoint import Endpoint
from logstore.config import (
    Config,
    NodeSettings,
    joined_config,
    load_config,
    parse_config,
    render_config,
)
from logstore.errors import ConfigError, InvalidRequest, NotReady, Unreachable
from logstore.format.client_messages import StatusRequest
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL
from logstore.format.meta import NO_START, Meta
from logstore.format.segment_header import FileRole
from logstore.model import NO_NODE, NodeId, ReplicaState, Term
from logstore.settings import ClusterSettings
from logstore.storage.disk import RealDisk
from logstore.storage.meta_store import create_meta
from logstore.storage.segment import segment_name
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster, free_base_ports

PLACE = Endpoint("127.0.0.1", 7_400)
OWN = NodeSettings(node=4, port=7_400)


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as cluster:
        yield cluster


def config_of(*nodes: NodeSettings, **cluster: Any) -> Config:
    return Config(cluster=ClusterSettings(name="mine", **cluster), nodes=list(nodes))


def write_config(folder: Path, *nodes: NodeSettings) -> Path:
    path = folder / "mine.toml"
    path.write_text(render_config(config_of(*nodes)), encoding="utf-8")
    return path


def write_meta(
    folder: Path, state: ReplicaState, cluster_id: bytes, *, has_config: bool = False
) -> None:
    folder.mkdir()
    level = CONFIG_LEVEL if has_config else FIRST_LEVEL
    fields = state, cluster_id, b"u" * 16, NodeId(4), NO_NODE, 7, Term(0), 1, 1, NO_START, level
    meta = Meta(*fields, has_config=has_config)
    create_meta(RealDisk(), str(folder), meta).close()


# --- whom it asks ---


def test_one_member_that_answers_names_all(cluster: Cluster) -> None:
    silent = free_base_ports(3)[2]
    found = ask_members(f"127.0.0.1:{silent},{cluster.endpoint}", 4, PLACE, 10)
    assert found == [NodeSettings(node=node, port=port) for node, port in cluster.ports.items()]


def test_a_replica_that_comes_back_to_its_own_place_is_not_refused(cluster: Cluster) -> None:
    mine = Endpoint("127.0.0.1", cluster.ports[2])
    assert [each.node for each in ask_members(cluster.endpoint, 2, mine, 10)] == [1]


def test_the_number_of_a_member_elsewhere_is_refused_while_that_answers(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequest, match="node 2 is a member at 127.0.0.1.*another number"):
        ask_members(cluster.endpoint, 2, PLACE, 10)
    cluster.replicas[2].on[StatusRequest] = lambda _: None
    found = ask_members(cluster.endpoint, 2, PLACE, 10)
    assert [each.node for each in found] == [1]  # the leader decides about a silent one


def test_the_address_of_another_member_is_refused(cluster: Cluster) -> None:
    taken = Endpoint("127.0.0.1", cluster.ports[2])
    with pytest.raises(InvalidRequest, match="is the address of node 2"):
        ask_members(cluster.endpoint, 4, taken, 10)


def test_without_an_answer_it_waits_says_so_and_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(join, "ATTEMPT_S", 0.1)
    port = free_base_ports(1)[0]
    with pytest.raises(Unreachable, match="no replica answers"):
        ask_members(f"127.0.0.1:{port}", 4, PLACE, 0.5)
    said = capfd.readouterr().err
    assert said.startswith("waiting for a member of the cluster: no replica answers")
    assert said.count("waiting") == 1


def test_replicas_of_no_cluster_cannot_be_joined(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.cluster_id = bytes(16)
    with pytest.raises(NotReady, match="part of no cluster yet"):
        ask_members(cluster.endpoint, 4, PLACE, 0.1)


def test_the_process_that_asks_prints_the_members_or_says_why_not(
    cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    place = f"{PLACE.host}:{PLACE.port}"
    assert join.main([cluster.endpoint, "4", place, "10"]) == 0
    rows = json.loads(capfdbinary.readouterr().out)
    assert [row["port"] for row in rows] == list(cluster.ports.values())
    assert join.main([cluster.endpoint, "2", place, "10"]) == 2
    assert capfdbinary.readouterr().err.startswith(b"error: node 2 does not join: node 2 is a")


# --- what it starts with ---


def test_a_joined_configuration_has_the_members_and_forms_no_cluster() -> None:
    config = config_of(NodeSettings(node=9, port=9_000), OWN)
    members = [NodeSettings(node=node, port=7_000 + 20 * node) for node in (1, 2, 3)]
    joined = joined_config(config, 4, [*members, NodeSettings(node=4, port=8_000)])
    assert joined.nodes == [*members, OWN]
    assert not joined.cluster.auto_init
    assert joined_config(config, 4, ()).nodes == [OWN]


def test_as_many_members_as_a_configuration_may_have_lead_to_the_rest() -> None:
    members = [NodeSettings(node=10 + each, port=8_000 + 20 * each) for each in range(18)]
    assert len(joined_config(config_of(OWN), 4, members).nodes) == 9


def test_members_that_break_a_rule_are_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match="cluster.insecure = true"):
        joined_config(config_of(OWN), 4, [NodeSettings(node=1, host="10.0.0.1", port=7_100)])


def test_the_placement_is_read_again_from_a_file_that_names_no_member(tmp_path: Path) -> None:
    path = write_config(tmp_path, OWN)
    members = [NodeSettings(node=node, port=7_000 + 20 * node) for node in (1, 2, 3)]
    joined = joined_config(load_config(path), 4, members)
    file = PlacementFile(joined, NodeId(4), look_at_machine(), path, others=members)
    assert file.look()
    assert file.refusal == ""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """With which members a replica was started."""
    found: list[Any] = []

    def start(
        config_path: Path, node: int, folder: Path, *, others: Sequence[NodeSettings] | None = None
    ) -> int:
        found.append(others)
        return 0

    monkeypatch.setattr(serve, "run_replica", start)
    return found


def test_serve_starts_with_the_members_that_it_was_told(
    cluster: Cluster, started: list[Any], tmp_path: Path
) -> None:
    path = write_config(tmp_path, OWN)
    arguments: list[str | Path] = [
        "serve",
        "--config",
        path,
        "--node",
        "4",
        "--dir",
        tmp_path / "data",
    ]
    assert run(*arguments, "--join", cluster.endpoint) == 0
    assert [[each.node for each in others] for others in started] == [[1, 2]]
    assert run(*arguments) == 0
    assert started[1] is None
    assert run(*arguments, "--join", "nowhere") == 2
    assert len(started) == 2


@pytest.mark.long
def test_serve_ends_where_no_member_answers_but_not_with_a_folder_of_the_cluster(
    started: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(join, "JOIN_WAIT_S", 0.2)
    monkeypatch.setattr(join, "JOINED_WAIT_S", 0.2)
    path, folder = write_config(tmp_path, OWN), tmp_path / "data"
    arguments: list[str | Path] = ["serve", "--config", path, "--node", "4", "--dir", folder]
    nobody = f"127.0.0.1:{free_base_ports(1)[0]}"
    assert run(*arguments, "--join", nobody) == 3
    assert "error: node 4 does not join: no replica answers" in capfd.readouterr().err
    assert not started
    write_meta(folder, ReplicaState.VOTER, b"c" * 16, has_config=True)
    assert run(*arguments, "--join", nobody) == 0
    assert started == [[]]
    assert "its folder is part of the cluster already" in capfd.readouterr().err


@pytest.mark.parametrize("state", [ReplicaState.STARTING, ReplicaState.VOTER])
def test_a_founder_goes_by_its_file_until_its_log_names_the_members(
    started: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    state: ReplicaState,
) -> None:
    """It would be a majority by itself where no member answers, as when all of them start."""
    monkeypatch.setattr(join, "JOINED_WAIT_S", 0.2)
    folder = tmp_path / "data"
    write_meta(folder, state, b"c" * 16)
    nobody = f"127.0.0.1:{free_base_ports(1)[0]}"
    for others, status in (((NodeSettings(node=1, port=7_100),), 0), ((), 2)):
        path = write_config(tmp_path, *others, OWN)
        arguments: list[str | Path] = ["serve", "--config", path, "--node", "4", "--dir", folder]
        assert run(*arguments, "--join", nobody) == status
    assert started == [None]
    said = capfd.readouterr().err
    assert "node 4 starts with the nodes of its file" in said
    assert "start it without --join" in said


def test_a_folder_is_part_of_a_cluster_as_its_meta_says(tmp_path: Path) -> None:
    assert not is_part_of_cluster(tmp_path / "none")
    assert not is_part_of_cluster(tmp_path)
    write_meta(tmp_path / "empty", ReplicaState.EMPTY, bytes(16))
    assert not is_part_of_cluster(tmp_path / "empty")
    write_meta(tmp_path / "voter", ReplicaState.VOTER, b"c" * 16)
    assert is_part_of_cluster(tmp_path / "voter")
    write_meta(tmp_path / "learner", ReplicaState.LEARNER, b"c" * 16)
    assert not is_part_of_cluster(tmp_path / "learner")  # it may not have joined
    (tmp_path / "learner" / segment_name(1, FileRole.RAFT)).touch()
    assert not is_part_of_cluster(tmp_path / "learner")  # so has one that has no place yet
    write_meta(tmp_path / "joined", ReplicaState.LEARNER, b"c" * 16, has_config=True)
    assert is_part_of_cluster(tmp_path / "joined")
    (tmp_path / "voter" / "meta.a").write_bytes(b"x")
    (tmp_path / "voter" / "meta.b").write_bytes(b"x")
    assert is_part_of_cluster(tmp_path / "voter")  # it ran, and may have voted


def test_replace_lost_is_auto_or_manual() -> None:
    text = render_config(config_of(OWN))
    assert parse_config(text).cluster.replace_lost == "auto"
    manual = text.replace('"auto"', '"manual"', 1)
    assert parse_config(manual).cluster.replace_lost == "manual"
    with pytest.raises(ConfigError, match=r'replace_lost.*write one of "auto", "manual"'):
        parse_config(text.replace('"auto"', '"never"', 1))


def test_run_replica_joins_the_configuration_with_the_members(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[Config] = []

    def serve_processes(config: Config, *_: object, **__: object) -> int:
        ran.append(config)
        return 0

    monkeypatch.setattr(run_replica, "serve_processes", serve_processes)
    path = write_config(tmp_path, OWN)
    members = [NodeSettings(node=1, port=7_100)]
    assert run_replica.run_replica(path, 4, tmp_path, others=members) == 0
    assert run_replica.run_replica(path, 4, tmp_path) == 0
    assert [each.node_ids() for each in ran] == [[1, 4], [4]]
