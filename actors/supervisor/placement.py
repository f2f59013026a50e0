"""What this machine lets a replica's processes have, and what follows from it for each of them.

Owns the refusal of what cannot be had here. `logstore.config_placement` says what is wanted.
"""

from __future__ import annotations

import os

import msgspec

from actors.thread_placement import cpus_and_nice, lowest_nice
from actors.topology import SPARE_NAMES
from logstore.config import Config
from logstore.config_layout import SUPERVISOR, Layout, choose_mode, layout_of
from logstore.config_placement import Placement, placement_of, process_names
from logstore.errors import ConfigError
from logstore.model import NodeId


class Machine(msgspec.Struct, frozen=True):
    """What a replica may have, as its supervisor found it when it started.

    Attributes:
      cpus: those that the supervisor could use: of the machine, less what a cgroup or `taskset`
        keeps from it.
      nice: what it was started with; a process without a niceness of its own has it.
      nice_min: the lowest that it may give a process.
    """

    cpus: tuple[int, ...]
    nice: int
    nice_min: int


def look_at_machine() -> Machine:
    """What this process may have now. Call it before it is placed itself, and before it starts
    another."""
    cpus, nice = cpus_and_nice(os.getpid())
    return Machine(cpus, nice, min(nice, lowest_nice()))


def placements_on(machine: Machine, config: Config, node: NodeId) -> dict[str, Placement]:
    """Where each process of `node` is to run here, nothing left open. `auto` is decided by the CPUs
    that there are.

    Raises:
      ConfigError: as `check_placement`.
      InvalidRequest: there is no such node.
    """
    config = choose_mode(config, node, len(machine.cpus))
    names = process_names(config, node)
    return {process: _placement_on(machine, config, node, process) for process in names}


def spare_placement_on(machine: Machine, config: Config, node: NodeId) -> Placement:
    """Where a spare replicator of `node` is to run here, as all replicators. Errors as
    `placements_on`."""
    config = choose_mode(config, node, len(machine.cpus))
    return _placement_on(machine, config, node, SPARE_NAMES[0])


def _placement_on(machine: Machine, config: Config, node: NodeId, process: str) -> Placement:
    wanted = placement_of(config, node, process)
    check_placement(wanted, machine, f"node {node}", process)
    return msgspec.structs.replace(
        wanted,
        cpus=wanted.cpus or machine.cpus,
        nice=machine.nice if wanted.nice is None else wanted.nice,
    )


def layout_on(machine: Machine, config: Config, node: NodeId) -> Layout:
    """Which actors each process of `node` runs here."""
    return layout_of(choose_mode(config, node, len(machine.cpus)), node)


def check_placement(wanted: Placement, machine: Machine, where: str, process: str) -> None:
    """Refuse what `process` cannot have: children would die of it one by one.

    Raises:
      ConfigError: names `where`, the process, what it cannot have and what there is.
    """
    absent = [cpu for cpu in wanted.cpus if cpu not in machine.cpus]
    if absent:
        raise ConfigError(
            f"{where}: cpus of {process}: no CPU {absent[0]} here; this process may use "
            f"{list(machine.cpus)}, as it was when the replica started (see `nproc`, the cgroup's "
            "cpuset, and `taskset -p` of the supervisor)"
        )
    if wanted.nice is not None and process != SUPERVISOR and wanted.nice < machine.nice_min:
        raise ConfigError(
            f"{where}: nice of {process}: {wanted.nice} is not allowed here, {machine.nice_min} is "
            "the lowest: write that or more, or start the replica with the right to it "
            f"(CAP_SYS_NICE, `ulimit -e {20 - wanted.nice}`, systemd's LimitNICE={wanted.nice})"
        )
