"""The layout of a replica: which of its actors run together in one process.

Pure. An actor that no group has runs alone, in a process of its name; `replicator` is all of them.
Owns which groups a mode has, and what `auto` chooses. `config_relations` refuses impossible groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from logstore.errors import InvariantViolated
from logstore.settings import Config, NodeSettings, ProcessSettings

REPLICATOR = "replicator"
# Replicators for members that the configuration file does not name. Each runs alone, in no layout.
SPARE = "spare"
SUPERVISOR = "supervisor"
SHARED = "shared"
SINGLE = "single"
# The order in which processes start, and in which a group's actors have their turns. The writer's
# recovery takes longest. Replicators come last: what raft orders in a turn they send in the same.
ACTOR_KINDS = ("writer", "raft", "ingress", "egress", REPLICATOR)
# The groups of a mode: a process to the actors that it runs. `custom` has those of the settings.
_GROUPS: dict[str, dict[str, list[str]]] = {
    "processes": {},
    "shared": {SHARED: ["ingress", "raft", "egress", REPLICATOR]},
    "single": {SINGLE: list(ACTOR_KINDS)},
}
AUTO_MODES = ("processes", SHARED)
MODES = (*_GROUPS, "auto")
# CPUs for each replica of the host from which on `auto` chooses `processes`; `shared` below. With
# three replicas and their client on two CPUs, or on one, `shared` had the lowest latency and took
# the least processor time an append that is alone; `single` is about as quick (2026-11-24).
PROCESSES_FROM_CPUS = 4

Layout = Mapping[str, tuple[str, ...]]
_Settings = TypeVar("_Settings", NodeSettings, ProcessSettings)


def actor_names(node: int, nodes: Iterable[int]) -> tuple[str, ...]:
    """The actors of `node`, in the order of `ACTOR_KINDS`."""
    peers = (f"{REPLICATOR}-{peer}" for peer in nodes if peer != node)
    return (*(kind for kind in ACTOR_KINDS if kind != REPLICATOR), *peers)


def kind_of(name: str) -> str:
    """`replicator` of `replicator-2` and of `spare-2`, and any other name of an actor or a process
    as it is."""
    kind, _, number = name.partition("-")
    return REPLICATOR if kind in (REPLICATOR, SPARE) and number.isdigit() else name


def layout_of(config: Config, node: int) -> Layout:
    """Process to the actors that it runs, both in the order of `ACTOR_KINDS`; without the
    supervisor, which runs none. `config`: one whose mode was chosen, if it was `auto`."""
    return layout_in(groups_of(config.process), actor_names(node, config.node_ids()))


def layout_in(groups: Mapping[str, Sequence[str]], actors: Iterable[str]) -> Layout:
    """The layout of `actors` by these groups. A group that has none of them is no process."""
    process_of = {name: process for process, names in groups.items() for name in names}
    found: dict[str, tuple[str, ...]] = {}
    for actor in actors:
        process = process_of.get(actor) or process_of.get(kind_of(actor)) or actor
        found[process] = (*found.get(process, ()), actor)
    return found


def groups_of(process: ProcessSettings) -> Mapping[str, Sequence[str]]:
    """The groups of a mode that is not `auto`."""
    if process.mode == "auto":
        raise InvariantViolated("a layout was asked for before `auto` chose one")
    return process.groups if process.mode == "custom" else _GROUPS[process.mode]


def possible_groups(process: ProcessSettings) -> list[Mapping[str, Sequence[str]]]:
    """The groups of each layout that these settings may come to: of `auto` several."""
    if process.mode == "auto":
        return [_GROUPS[mode] for mode in AUTO_MODES]
    return [groups_of(process)]


def process_of(layout: Layout, actor: str) -> str:
    """The process that runs `actor`; the supervisor's name is its own."""
    return next((process for process, actors in layout.items() if actor in actors), actor)


def actors_in(layout: Layout, process: str) -> tuple[str, ...]:
    """The actors that `process` runs; a spare replicator, which no layout has, runs itself."""
    return layout.get(process, (process,))


def choose_mode(config: Config, node: int, cpus: int) -> Config:
    """`config` with what `auto` means for `node` on a machine with so many CPUs, of which each
    replica of the same host has its share, and without the placement of processes that it then
    has not: children check what they get, and it is of one mode. As it is in another mode."""
    if config.process.mode != "auto":
        return config
    host = config.node(node).host
    share = cpus / sum(each.host == host for each in config.nodes)
    chosen = with_mode(config, "processes" if share >= PROCESSES_FROM_CPUS else SHARED)
    names = {SUPERVISOR}
    for each in chosen.node_ids():
        for process in layout_of(chosen, each):
            names |= {process, kind_of(process)}
    spin = [name for name in chosen.process.spin if name in names]
    return msgspec.structs.replace(
        chosen,
        nodes=[_placing_only(names, each) for each in chosen.nodes],
        process=msgspec.structs.replace(_placing_only(names, chosen.process), spin=spin),
    )


def names_passed_over(asked: Config, chosen: Config, node: int) -> list[str]:
    """The processes whose placement `choose_mode` left out of what was asked for `node`."""
    return sorted(_placed_names(asked, node) - _placed_names(chosen, node))


def _placed_names(config: Config, node: int) -> set[str]:
    names = set(config.process.spin)
    for settings in (config.process, config.node(node)):
        names |= {*settings.cpus, *settings.nice, *settings.io_threads}
    return names


def _placing_only(names: Collection[str], settings: _Settings) -> _Settings:
    def kept(table: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in table.items() if name in names}

    return msgspec.structs.replace(
        settings,
        cpus=kept(settings.cpus),
        nice=kept(settings.nice),
        io_threads=kept(settings.io_threads),
    )


def with_mode(config: Config, mode: str) -> Config:
    """`config` in one of `MODES`, which need no groups of the settings."""
    process = msgspec.structs.replace(config.process, mode=mode)
    return msgspec.structs.replace(config, process=process)
