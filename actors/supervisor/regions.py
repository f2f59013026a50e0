"""The shared memory and bells of one incarnation: created and owned here, inherited by children.

Regions have no names, so kill -9 of a whole replica leaves nothing (SAFETY M3, M4). Only the
counters may be read from outside, through a link in the data folder to the owner's descriptor; the
link leads nowhere once the owner is gone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from actors import topology
from actors.station import Regions
from actors.trace import row_names
from logstore import limits
from logstore.config import Config
from logstore.config_layout import actor_names, actors_in, layout_of
from logstore.model import NodeId
from transport.command_ring import command_region_bytes, create_command_ring
from transport.counters import create_nameless_counters, open_counters
from transport.doorbell import Doorbell
from transport.errors import RegionUnavailable
from transport.layout import CONTROL_BYTES
from transport.payload_ring import create_payload_ring, payload_region_bytes
from transport.shm import (
    SHARED_MEMORY_FOLDER,
    allocate_region,
    map_region,
    region_size_bytes,
    room_bytes,
)
from transport.stamp_table import create_stamp_table, stamp_region_bytes

COUNTERS_LINK = "counters"
# Of spare replicators: they have memory for their cursors, and for the rest when one is started.
_RESERVED = frozenset(
    ring for spare in topology.SPARE_NAMES for ring in topology.rings_of_spare(spare)
)
_log = logging.getLogger(__name__)
_COUNTERS_BYTES = 64 * limits.KIB  # a few pages, whatever the names


class ReplicaRegions:
    """Descriptors of one incarnation of `node`. `close` frees the memory once
    the children are gone."""

    def __init__(
        self,
        config: Config,
        node: NodeId,
        *,
        incarnation: int,
        folder: str = SHARED_MEMORY_FOLDER,
    ) -> None:
        """
        Raises:
          RegionUnavailable: no room on the tmpfs; says how much is needed and what to do. Nothing
          stays behind.
        """
        self.incarnation = incarnation
        self._nodes = tuple(NodeId(each) for each in config.node_ids())
        _check_room(config, node, folder)
        self._layout = layout_of(config, node)
        with _with_size_in_error(config, node), ExitStack() as undo:
            self.rings: dict[str, int] = {}
            for name in topology.rings(node, self._nodes):
                fd = create_command_ring(
                    limits.COMMAND_RING_BYTES,
                    incarnation=incarnation,
                    folder=folder,
                    is_reserved=name in _RESERVED,
                )
                undo.callback(os.close, fd)
                self.rings[name] = fd
            self.payload = create_payload_ring(
                config.ring_bytes, incarnation=incarnation, folder=folder
            )
            undo.callback(os.close, self.payload)
            self.counters = create_nameless_counters(
                topology.counter_names(self._layout, self._nodes), incarnation, folder
            )
            undo.callback(os.close, self.counters)
            self.stamps = create_stamp_table(
                len(row_names(node, self._nodes)), incarnation=incarnation, folder=folder
            )
            undo.callback(os.close, self.stamps)
            self.bells: dict[str, Doorbell] = {}
            actors = (*actor_names(node, self._nodes), *topology.SPARE_NAMES)
            for actor in (topology.SUPERVISOR, *actors):
                self.bells[actor] = Doorbell.create()
                undo.callback(self.bells[actor].close)
            self._owned = undo.pop_all()

    def rings_of(self, process: str) -> dict[str, int]:
        """The command rings that an actor of `process` has an end of."""
        actors = set(actors_in(self._layout, process))
        return {
            name: fd
            for name, fd in self.rings.items()
            if not actors.isdisjoint(name.partition(".")[0].split(">"))
        }

    def allocate(self, spare: str) -> None:
        """Give memory to the rings of a spare replicator, before it is started.

        Raises:
          RegionUnavailable: there is no room for them now.
        """
        for name in topology.rings_of_spare(spare):
            allocate_region(self.rings[name])

    def descriptors_of(self, process: str) -> tuple[int, ...]:
        """The descriptors that a child inherits: its rings, the payload ring, the counters, the
        stamps, all bells."""
        bells = (bell.fileno() for bell in self.bells.values())
        return (*self.rings_of(process).values(), self.payload, self.counters, self.stamps, *bells)

    def attach(self, process: str) -> Regions:
        """Map what `process` needs, in the calling process."""
        rings = self.rings_of(process)
        return Regions(
            rings={name: map_region(fd, region_size_bytes(fd)) for name, fd in rings.items()},
            payload=map_region(self.payload, region_size_bytes(self.payload)),
            counters=open_counters(self.counters),
            stamps=map_region(self.stamps, region_size_bytes(self.stamps)),
            bells=self.bells,
            incarnation=self.incarnation,
        )

    def publish_counters(self, folder: Path) -> None:
        """Point `folder`/counters at this incarnation's counters, for inspectors."""
        publish_descriptor(folder, COUNTERS_LINK, self.counters)

    def close(self) -> None:
        self._owned.close()


def shared_memory_bytes(config: Config, node: NodeId) -> int:
    """What rings and stamps of one incarnation of `node` take at its start; the counters take a
    page or two more. Each spare replicator takes two command rings more when it is started."""
    nodes = tuple(NodeId(each) for each in config.node_ids())
    used = len(topology.rings(node, nodes)) - len(_RESERVED)
    rings = used * command_region_bytes(limits.COMMAND_RING_BYTES) + len(_RESERVED) * CONTROL_BYTES
    stamps = stamp_region_bytes(len(row_names(node, nodes)))
    return rings + payload_region_bytes(config.ring_bytes) + stamps


def _check_room(config: Config, node: NodeId, folder: str) -> None:
    """Check that all regions fit. Otherwise the first ring without room would
    report only its own size."""
    needed, room = shared_memory_bytes(config, node) + _COUNTERS_BYTES, room_bytes(folder)
    if room is not None and room < needed:
        raise RegionUnavailable(
            f"{folder} has {room / limits.MIB:.1f} MiB of shared memory left, node {node} needs "
            f"{needed / limits.MIB:.1f} MiB: enlarge that tmpfs (mount -o remount,size=...), or "
            "lower `ring` under [limits]"
        )


@contextmanager
def _with_size_in_error(config: Config, node: NodeId) -> Iterator[None]:
    """Put the required size into the error: other replicas may have taken the
    room since the check."""
    try:
        yield
    except RegionUnavailable as error:
        needed_mib = (shared_memory_bytes(config, node) + _COUNTERS_BYTES) / limits.MIB
        raise RegionUnavailable(
            f"node {node} needs {needed_mib:.1f} MiB of shared memory, and there was no more room "
            f"amid that: {error}"
        ) from error


def publish_descriptor(folder: Path, name: str, descriptor: int) -> None:
    """Point `folder`/`name` at our `descriptor`; the folder must be locked by us. Only commands of
    this machine read it, so a replica runs without where the folder has no inode left for it."""
    temporary = folder / f".{name}-{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
        temporary.replace(folder / name)
    except OSError as error:
        _log.warning(
            "%s cannot be linked, commands on this machine do not see it: %s", folder / name, error
        )
