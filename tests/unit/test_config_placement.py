"""Placement in the configuration: which entry counts, and what is refused by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.supervisor.placement import Machine, placements_on
from logstore.cli.cpu_list import parse_cpus
from logstore.config import load_config, parse_config, render_config
from logstore.config_placement import Placement, placement_of, process_names
from logstore.errors import ConfigError, InvalidRequest
from logstore.model import NodeId

PLACED = """
[cluster]
name = "placed"
[[nodes]]
node = 1
port = 7100
cpus = {raft = [1], replicator = [2, 0, 2], replicator-2 = [3], ingress = [0]}
nice = {writer = -5}
io_threads = {egress = 3}
[[nodes]]
node = 2
port = 7110
[[nodes]]
node = 3
port = 7120
[process]
mode = "processes"
cpus = {raft = [5], writer = [6], replicator-2 = [7]}
nice = {writer = 3, replicator-3 = 4}
io_threads = {egress = 2, replicator = 4}
"""


def test_a_nodes_own_entry_counts_before_the_one_of_all_nodes() -> None:
    config = parse_config(PLACED)
    assert placement_of(config, 1, "raft").cpus == (1,)
    assert placement_of(config, 2, "raft").cpus == (5,)
    assert placement_of(config, 1, "writer") == Placement(cpus=(6,), nice=-5, io_threads=0)
    assert placement_of(config, 2, "writer").nice == 3
    assert placement_of(config, 1, "egress").io_threads == 3


def test_the_name_with_the_peer_counts_before_the_name_of_all_replicators() -> None:
    config = parse_config(PLACED)
    assert placement_of(config, 1, "replicator-2").cpus == (3,)
    assert placement_of(config, 1, "replicator-3").cpus == (0, 2)
    assert placement_of(config, 3, "replicator-2").cpus == (7,)
    assert placement_of(config, 3, "replicator-1").cpus == ()
    assert placement_of(config, 2, "replicator-3").nice == 4


def test_what_is_not_named_is_left_open_and_only_sockets_have_io_threads() -> None:
    config = parse_config(PLACED)
    assert placement_of(config, 2, "ingress") == Placement(cpus=(), nice=None, io_threads=1)
    assert placement_of(config, 2, "raft").io_threads == 0
    assert placement_of(config, 2, "supervisor").io_threads == 0
    assert placement_of(config, 2, "replicator-1").io_threads == 4


def test_a_node_has_a_replicator_for_each_other_node() -> None:
    config = parse_config(PLACED)
    fixed = ("supervisor", "writer", "raft", "ingress", "egress")
    assert process_names(config, 2) == (*fixed, "replicator-1", "replicator-3")
    with pytest.raises(InvalidRequest, match="no node 4"):
        placement_of(config, 4, "raft")


def test_a_placement_survives_rendering() -> None:
    config = parse_config(PLACED)
    assert parse_config(render_config(config)) == config


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "cpus = {disk = [1]}",
            r"process\.cpus\.disk: no such process; there are supervisor",
        ),
        ("cpus = {replicator-4 = [1]}", r"process\.cpus\.replicator-4: no such process"),
        ("cpus = {raft = []}", r"process\.cpus\.raft: is \[\]; write at least one CPU"),
        ("cpus = {raft = [4096]}", r"process\.cpus\.raft: is \[4096\]; .* 0 to 4095"),
        ("nice = {raft = -21}", r"process\.nice\.raft: is -21; it must be between -20 and 19"),
        ("nice = {supervisor = 1}", r"process\.nice\.supervisor: .* nice -n"),
        ("nice = {disk = 1}", r"process\.nice\.disk: no such process"),
        ("io_threads = {raft = 2}", r"process\.io_threads\.raft: this process has no ZeroMQ"),
        ("io_threads = {egress = 9}", r"process\.io_threads\.egress: is 9; .* 1 and 8"),
        ("io_threads = {disk = 2}", r"process\.io_threads\.disk: no such process"),
    ],
)
def test_what_no_machine_could_do_is_refused_with_its_key(line: str, reason: str) -> None:
    head = PLACED.partition("[process]")[0]
    with pytest.raises(ConfigError, match=reason):
        parse_config(f"{head}[process]\n{line}\n")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cpus = {replicator-2 = [1]}", r"nodes\[1\]\.cpus\.replicator-2: no such process"),
        ("nice = {raft = 20}", r"nodes\[1\]\.nice\.raft: is 20"),
        ("io_threads = {writer = 2}", r"nodes\[1\]\.io_threads\.writer: this process has no"),
    ],
)
def test_a_nodes_own_entries_are_refused_with_their_place(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_config(PLACED.replace("port = 7110", f"port = 7110\n{line}"))


# --- spinning (SAFETY M7) ---

TWO = """
[cluster]
name = "two"
[[nodes]]
node = 1
port = 7100
[[nodes]]
node = 2
port = 7110
%s
[process]
mode = "processes"
spin = ["%s"]
cpus = {%s}
"""


def test_m7_a_process_may_spin_on_a_cpu_that_process_gives_it_alone() -> None:
    config = parse_config(TWO % ("", "raft", "raft = [1], writer = [0]"))
    assert placement_of(config, 2, "raft").spin
    assert not placement_of(config, 2, "writer").spin


@pytest.mark.parametrize(
    ("own", "spin", "shared"),
    [
        ("", "raft", "raft = [1], writer = [0, 1]"),
        ("", "raft", "writer = [0]"),
        ("cpus = {writer = [1]}", "raft", "raft = [1]"),
        ("", "raft", "raft = [1], replicator-2 = [1]"),
    ],
)
def test_m7_spinning_on_a_cpu_that_another_process_has_is_refused(
    own: str, spin: str, shared: str
) -> None:
    with pytest.raises(ConfigError, match=r"process\.spin: 'raft' has no CPU of its own on node"):
        parse_config(TWO % (own, spin, shared))


def test_m7_two_replicators_of_a_node_do_not_spin_on_one_cpu() -> None:
    two = TWO % ("", "replicator", "replicator = [1]")
    assert parse_config(two).process.spin == ["replicator"]
    third = "[[nodes]]\nnode = 3\nport = 7120\n[process]"
    with pytest.raises(ConfigError, match="'replicator' has no CPU of its own on node 1"):
        parse_config(two.replace("[process]", third))


# --- the layouts that ship ---

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CORES = (2, 4, 8, 16)


def test_there_is_a_layout_for_each_number_of_cores() -> None:
    names = {path.name for path in CONFIGS.glob("placement-*.toml")}
    assert names == {f"placement-{cores}.toml" for cores in CORES}


@pytest.mark.parametrize("cores", CORES)
def test_a_layout_is_possible_on_its_cores_and_needs_no_right(cores: int) -> None:
    config = load_config(CONFIGS / f"placement-{cores}.toml")
    machine = Machine(cpus=tuple(range(cores)), nice=0, nice_min=0)
    for node in config.node_ids():
        placements_on(machine, config, NodeId(node))
        used = {
            cpu
            for name in process_names(config, node)
            for cpu in placement_of(config, node, name).cpus
        }
        assert max(used) >= cores // 2  # and it is for no smaller one


@pytest.mark.parametrize("cores", CORES)
def test_a_layout_keeps_ingress_from_the_writer_and_everybody_from_who_spins(cores: int) -> None:
    config = load_config(CONFIGS / f"placement-{cores}.toml")
    for node in config.node_ids():
        placed = {name: placement_of(config, node, name) for name in process_names(config, node)}
        assert set(placed["ingress"].cpus).isdisjoint(placed["writer"].cpus)
        if any(each.spin for each in placed.values()):
            assert all(each.cpus for each in placed.values())


def test_the_table_of_layouts_is_what_the_files_say() -> None:
    table = (CONFIGS / "placement.md").read_text().partition("## The layouts")[2]
    for cores in CORES:
        config = load_config(CONFIGS / f"placement-{cores}.toml")
        row = next(line for line in table.splitlines() if line.startswith(f"| {cores} |"))
        cells = [cell.strip().removesuffix(", spins") for cell in row.split("|")[2:]]
        for kind, cell in zip(
            ("ingress", "raft", "writer", "replicator-2", "egress", "supervisor"),
            cells,
            strict=False,
        ):
            cpus = placement_of(config, 1, kind).cpus
            written = cell.replace(" to ", "-").replace(" ", "")
            assert cpus == (() if written == "any" else tuple(parse_cpus(written)))
