"""Runs one replica, from the command line's arguments to the exit status."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random

from actors import topology
from actors.child import ChildSpec
from actors.naming import name_process
from actors.runner import refuse_optimised_python
from actors.supervisor.held_folder import sole_supervisor
from actors.supervisor.http_listener import HttpListener
from actors.supervisor.placement import Machine, look_at_machine
from actors.supervisor.placement_file import PlacementFile
from actors.supervisor.placement_keeper import PlacementKeeper
from actors.supervisor.signals import StopSignals
from actors.supervisor.supervisor import Supervisor
from logstore.config import Config, NodeSettings, PortOffset
from logstore.config_layout import choose_mode, layout_of, names_passed_over
from logstore.errors import ConfigError, FolderRefused
from logstore.model import NodeId
from logstore.storage.disk import make_folder_durable
from transport.errors import RegionUnavailable
from transport.process_memory import raise_descriptor_limit
from transport.shm import require_total_store_order

_log = logging.getLogger(__name__)


def serve_processes(
    config: Config,
    node: int,
    folder: str | Path,
    config_path: Path,
    run_child: Callable[[ChildSpec], None],
    *,
    others: Sequence[NodeSettings] | None = None,
) -> int:
    """Run replica `node` with its data in `folder` until SIGTERM, SIGINT or a crash loop.

    Must be called in the main thread of a process that has no other (SAFETY M3). `config_path`:
    where `config` was read, and where the placement of the processes is read again. `run_child`:
    what each child does, which is forked from this process (`actors.child_main`). `others`: the
    members that `config` has in place of the file's other nodes, where this replica joins them.

    Returns:
      The exit status: 0 stopped, 70 crash loop, 78 if starting again cannot help, or the data
      folder is gone.

    Raises:
      ConfigError, InvalidRequest, FolderRefused, UnsupportedMachine: before anything was started.
    """
    refuse_optimised_python()
    raise_descriptor_limit()
    require_total_store_order()
    settings = config.node(node)
    node_id = NodeId(node)
    machine = look_at_machine()
    asked = config
    config = choose_mode(config, node_id, len(machine.cpus))
    file = PlacementFile(config, node_id, machine, config_path.absolute(), others=others)
    is_new = not Path(folder).exists()
    path = prepare_folder(Path(folder))
    _enter_own_process_group()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    name_process(config.cluster.name, node, topology.SUPERVISOR)
    with (
        sole_supervisor(path, is_new=is_new) as held,
        StopSignals() as signals,
        closing(PlacementKeeper(file, node_id, path)) as placement,
    ):
        placement.place_supervisor()
        metrics: HttpListener | None = None
        supervisor: Supervisor | None = None
        if config.process.metrics:
            metrics = HttpListener(
                settings.host,
                settings.port + PortOffset.METRICS,
                _renderer(node, lambda: supervisor.counter_values() if supervisor else {}),
            )
        try:
            random = Random(int.from_bytes(os.urandom(8), "little"))
            supervisor = Supervisor(
                config,
                node_id,
                held,
                signals=signals,
                metrics=metrics,
                random=random,
                run_child=run_child,
                placement=placement,
            )
            _say_layout(config, node_id, asked, machine)
            return supervisor.run()
        except RegionUnavailable as error:
            raise ConfigError(str(error)) from error
        finally:
            if metrics is not None:
                metrics.close()


def _say_layout(config: Config, node: NodeId, asked: Config, machine: Machine) -> None:
    """The first lines of a replica's log: what it runs as, why if nobody wrote it, and what of the
    placement is not used then."""
    host = config.node(node).host
    beside = sum(each.host == host for each in config.nodes)
    share = len(machine.cpus) / beside
    chosen = f", which auto chose: {share:.3g} CPUs for each replica of this host"
    _log.info(
        "starting in mode %s%s, as %s",
        config.process.mode,
        chosen if asked.process.mode != config.process.mode else "",
        "; ".join(
            name if actors == (name,) else f"{name} ({', '.join(actors)})"
            for name, actors in layout_of(config, node).items()
        ),
    )
    for name in names_passed_over(asked, config, node):
        _log.info(
            "no process %s in this mode: its cpus, nice, io_threads and spin are not used", name
        )


def _renderer(node: int, read: Callable[[], Mapping[str, int]]) -> Callable[[], tuple[str, bytes]]:
    """What serves /metrics. The first scrape imports it: it takes a tenth of all imports. Should
    that fail, for want of descriptors for example, the next scrape tries again."""

    @cache
    def make() -> Callable[[], tuple[str, bytes]]:
        from actors.supervisor.metrics import make_renderer

        return make_renderer(node, read)

    return lambda: make()()


def prepare_folder(folder: Path) -> Path:
    """Create the data folder for this user only; returns its absolute path, since children may
    start elsewhere."""
    try:
        make_folder_durable(folder)
    except OSError as error:
        raise FolderRefused(
            f"{folder}: cannot be made: {error.strerror}; name another folder"
        ) from error
    return folder.resolve()


def _enter_own_process_group() -> None:
    """Give the replica its own process group, so that a signal to the group
    hits only this replica."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
