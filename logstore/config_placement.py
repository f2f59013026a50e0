"""What the configuration says about where and how each process of a node runs.

Owns which entry counts: a node's own before `[process]`, `replicator-2` before `replicator`. Must
not know any machine: what a process gets that is not named, the supervisor decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from logstore.config_layout import REPLICATOR, SUPERVISOR, actors_in, kind_of, layout_of
from logstore.settings import Config

# ZeroMQ's own default, of the processes that have sockets.
IO_THREADS = 1
WITH_SOCKETS = ("ingress", "egress", REPLICATOR)
_V = TypeVar("_V")


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how one process runs.

    Attributes:
      cpus: CPU numbers, rising; empty: nothing is said, any.
      nice: niceness; None: nothing is said.
      io_threads: of ZeroMQ; 0: the process has no sockets.
      spin: whether it never parks.
    """

    cpus: tuple[int, ...] = ()
    nice: int | None = None
    io_threads: int = IO_THREADS
    spin: bool = False


def process_names(config: Config, node: int) -> tuple[str, ...]:
    """The processes of `node`, its supervisor first."""
    return (SUPERVISOR, *layout_of(config, node))


def has_sockets(actors: Iterable[str]) -> bool:
    return any(kind_of(actor) in WITH_SOCKETS for actor in actors)


def placement_of(config: Config, node: int, process: str) -> Placement:
    """What the configuration says of `process`, one of `process_names` or a spare replicator.

    Raises:
      InvalidRequest: there is no such node.
    """
    own, shared = config.node(node), config.process
    actors = actors_in(layout_of(config, node), process)
    cpus = _find(process, own.cpus, shared.cpus)
    threads = _find(process, own.io_threads, shared.io_threads)
    return Placement(
        cpus=tuple(sorted(set(cpus or ()))),
        nice=_find(process, own.nice, shared.nice),
        io_threads=threads or (IO_THREADS if has_sockets(actors) else 0),
        spin=not {process, kind_of(process)}.isdisjoint(shared.spin),
    )


def _find(process: str, *tables: Mapping[str, _V]) -> _V | None:
    for table in tables:
        for name in (process, kind_of(process)):
            if name in table:
                return table[name]
    return None
