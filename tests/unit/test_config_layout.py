"""Which actors run together: the modes, groups by name, what `auto` chooses, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.config import Config, parse_config, render_config
from logstore.config_layout import (
    actor_names,
    choose_mode,
    kind_of,
    layout_in,
    layout_of,
    names_passed_over,
    process_of,
    with_mode,
)
from logstore.config_placement import placement_of, process_names
from logstore.errors import ConfigError, InvariantViolated

CLUSTER = """
[cluster]
name = "grouped"
[[nodes]]
node = 1
port = 7100
[[nodes]]
node = 2
port = 7110
[[nodes]]
node = 3
port = 7120
[process]
"""
EVERY_ACTOR = ("writer", "raft", "ingress", "egress", "replicator-1", "replicator-3")


def config_of(process: str, cluster: str = CLUSTER) -> Config:
    return parse_config(cluster + process)


def test_every_actor_of_a_node_has_a_name() -> None:
    assert actor_names(2, (1, 2, 3)) == EVERY_ACTOR
    assert actor_names(1, (1,)) == EVERY_ACTOR[:4]


@pytest.mark.parametrize(
    ("process", "layout"),
    [
        ('mode = "processes"', {actor: (actor,) for actor in EVERY_ACTOR}),
        ('mode = "shared"', {"writer": ("writer",), "shared": EVERY_ACTOR[1:]}),
        ('mode = "single"', {"single": EVERY_ACTOR}),
        (
            'mode = "custom"\ngroups = {core = ["ingress", "raft"], out = ["replicator-3"]}',
            {
                "writer": ("writer",),
                "core": ("raft", "ingress"),
                "egress": ("egress",),
                "replicator-1": ("replicator-1",),
                "out": ("replicator-3",),
            },
        ),
    ],
)
def test_a_layout_has_every_actor_once(process: str, layout: dict[str, tuple[str, ...]]) -> None:
    config = config_of(process)
    assert layout_of(config, 2) == layout
    assert process_names(config, 2) == ("supervisor", *layout)
    assert parse_config(render_config(config)) == config
    for name, actors in layout.items():
        assert {process_of(layout, actor) for actor in actors} == {name}
    assert process_of(layout, "supervisor") == "supervisor"


def test_a_group_of_another_nodes_replicators_is_no_process_here() -> None:
    config = config_of('mode = "custom"\ngroups = {out = ["replicator-3"]}')
    assert "out" not in layout_of(config, 3)


@pytest.mark.parametrize(
    ("cpus", "together", "alone"),
    [(1, "shared", "shared"), (3, "shared", "shared"), (4, "shared", "processes"),
     (11, "shared", "processes"), (12, "processes", "processes")],
)  # fmt: skip
def test_auto_goes_by_the_cpus_that_each_replica_of_the_host_has(
    cpus: int, together: str, alone: str
) -> None:
    config = config_of('mode = "auto"')
    assert choose_mode(config, 2, cpus).process.mode == together
    apart = CLUSTER.replace('"grouped"', '"grouped"\ninsecure = true')
    apart = apart.replace("node = 2", 'node = 2\nhost = "10.0.0.2"')
    assert choose_mode(config_of('mode = "auto"', apart), 2, cpus).process.mode == alone
    fixed = config_of('mode = "shared"')
    assert choose_mode(fixed, 2, cpus) is fixed


def test_there_is_no_layout_before_auto_chose_one() -> None:
    with pytest.raises(InvariantViolated, match="auto"):
        layout_of(config_of('mode = "auto"'), 1)


def test_only_a_replicator_has_a_kind_that_is_not_its_name() -> None:
    assert [kind_of(name) for name in ("replicator-12", "my-group", "replicator-x", "raft")] == [
        "replicator", "my-group", "replicator-x", "raft"
    ]  # fmt: skip


def test_placement_goes_by_the_names_of_groups() -> None:
    config = config_of(
        'mode = "custom"\ngroups = {a-b = ["ingress", "raft"], w = ["writer"]}\n'
        'cpus = {a-b = [1], w = [2], egress = [3]}\nnice = {w = 4}\nspin = ["a-b"]\n'
        "io_threads = {a-b = 2}"
    )
    core, writer = placement_of(config, 2, "a-b"), placement_of(config, 2, "w")
    assert (core.cpus, core.io_threads, core.spin) == ((1,), 2, True)
    assert (writer.cpus, writer.nice, writer.io_threads, writer.spin) == ((2,), 4, 0, False)
    assert placement_of(config, 2, "replicator-1").io_threads == 1


def test_with_auto_the_names_of_each_layout_are_taken_and_count_where_they_are() -> None:
    config = config_of('mode = "auto"\ncpus = {raft = [0], shared = [1], writer = [2]}')
    shared = choose_mode(config, 2, 6)
    assert placement_of(shared, 2, "shared").cpus == (1,)
    assert "raft" not in process_names(shared, 2)
    assert placement_of(choose_mode(config, 2, 12), 2, "raft").cpus == (0,)


@pytest.mark.parametrize("cpus", [6, 12])
def test_children_can_read_what_auto_chose_whatever_names_were_placed(cpus: int) -> None:
    config = config_of(
        'mode = "auto"\ncpus = {raft = [0], shared = [1], writer = [2], supervisor = [3]}\n'
        "nice = {ingress = 1, replicator = 2}\nio_threads = {egress = 2, replicator-1 = 3}\n"
        'spin = ["raft", "shared"]',
        CLUSTER.replace("port = 7110", "port = 7110\ncpus = {egress = [4], shared = [5]}"),
    )
    chosen = choose_mode(config, 2, cpus)
    assert parse_config(render_config(chosen)) == chosen
    for process in process_names(chosen, 2):
        modes = with_mode(config, chosen.process.mode)
        assert placement_of(chosen, 2, process) == placement_of(modes, 2, process)


def test_names_that_the_chosen_layout_lacks_are_told() -> None:
    config = config_of(
        'mode = "auto"\ncpus = {raft = [0], writer = [2]}\nspin = ["raft"]\nnice = {egress = 1}',
        CLUSTER.replace("port = 7110", "port = 7110\nio_threads = {ingress = 2}"),
    )
    shared, apart = choose_mode(config, 1, 6), choose_mode(config, 1, 12)
    assert names_passed_over(config, shared, 1) == ["egress", "raft"]
    assert names_passed_over(config, shared, 2) == ["egress", "ingress", "raft"]
    assert names_passed_over(config, apart, 1) == []


CUSTOM = 'mode = "custom"\ngroups = '


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (CUSTOM + '{core = ["ingress", "rafft"]}', r"groups\.core: no such actor, 'rafft'; there"),
        (CUSTOM + '{core = ["supervisor"]}', r"groups\.core: no such actor, 'supervisor'"),
        (CUSTOM + '{core = ["replicator-4"]}', r"groups\.core: no such actor, 'replicator-4'"),
        (CUSTOM + '{a = ["raft"], b = ["raft"]}', r"groups\.b: 'raft' is in a group twice"),
        (CUSTOM + '{a = ["raft", "raft"]}', r"groups\.a: 'raft' is in a group twice"),
        (CUSTOM + '{a = ["replicator"], b = ["replicator-2"]}', r"has replicator-2 twice"),
        (CUSTOM + "{core = []}", r"groups\.core: is empty; name the actors"),
        (CUSTOM + '{raft = ["ingress", "raft"]}', r"groups\.raft: an actor, or the sup"),
        (CUSTOM + '{supervisor = ["raft"]}', r"groups\.supervisor: an actor, or"),
        (CUSTOM + '{replicator-9 = ["raft"]}', r"groups\.replicator-9: an actor, or"),
        (CUSTOM + '{"a.b" = ["raft"]}', r"groups\.a\.b: a group's name has 1 to 16 letters"),
        ('groups = {core = ["raft"]}', r'process\.groups: counts .*, and mode is "auto": write'),
        ('mode = "custom"', r"process\.groups: mode = .custom. needs one group or more"),
        ('mode = "custom"\ngroups = {}', r"process\.groups: mode = .custom. needs one group or"),
        ('mode = "Shared"', r'mode: Invalid .*; write one of "processes", "shared", "single", '),
        ('mode = "shared"\ncpus = {raft = [1]}', r"cpus\.raft: .* runs in shared: name that"),
        ('mode = "single"\nspin = ["writer"]', r"spin: .* runs in single: name that"),
        ('mode = "shared"\nio_threads = {writer = 2}', r"io_threads\.writer: this process has no"),
        ('mode = "processes"\nnice = {shared = 1}', r"nice\.shared: no such process"),
        (
            'mode = "auto"\nspin = ["shared"]\ncpus = {shared = [1], writer = [1]}',
            r"'shared' has no CPU of its own",
        ),
    ],
)
def test_a_grouping_that_cannot_be_is_refused_by_name(process: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config_of(process)


@given(
    st.lists(st.sampled_from(("writer", "raft", "ingress", "egress", "replicator")), unique=True),
    st.data(),
)
def test_any_groups_make_a_partition_of_the_actors(grouped: list[str], data: st.DataObject) -> None:
    groups: dict[str, list[str]] = {}
    for actor in grouped:
        groups.setdefault(data.draw(st.sampled_from("abc")), []).append(actor)
    actors = actor_names(2, (1, 2, 3))
    layout = layout_in(groups, actors)
    assert sorted(actor for each in layout.values() for actor in each) == sorted(actors)
    for process, members in layout.items():
        assert list(members) == sorted(members, key=actors.index)
        if process in groups:
            assert set(map(kind_of, members)) == set(groups[process])
        else:
            assert members == (process,)
