"""The placement that the replica's config file asks for now: it may change while the replica runs.

Owns when the file is read again, and what is taken from it: the placement of this node's processes,
nothing else. A file that cannot be read, asks for what cannot be had, or has another cluster, other
nodes or another layout than the replica was started with, changes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actors.supervisor.placement import (
    Machine,
    layout_on,
    placements_on,
    spare_placement_on,
)
from actors.topology import SPARE_NAMES
from logstore.config import Config, NodeSettings, joined_config, load_config
from logstore.config_placement import Placement
from logstore.errors import ConfigError, LogStoreError
from logstore.model import NodeId

_log = logging.getLogger(__name__)
_Stamp = tuple[int, int, int] | None
_NEVER_SEEN: _Stamp = (-1, -1, -1)
# Of a refusal, which may quote the file, whatever that holds: raft, every status and the report,
# whose reader takes a MiB, carry it.
_REFUSAL_CHARS_MAX = 1_000


class PlacementFile:
    """What `path` says; before its first `look`, what `config` says, which came from there. None:
    there is no file, and nothing changes."""

    def __init__(
        self,
        config: Config,
        node: NodeId,
        machine: Machine,
        path: Path | None = None,
        *,
        others: Sequence[NodeSettings] | None = None,
    ) -> None:
        """`others`: the members of the cluster that this replica joins, which count in place of the
        file's other nodes; None: it was started with the file's nodes.

        Raises:
          ConfigError: a process cannot have on this machine what it is to have.
        """
        self._node = node
        self._others = others
        self._nodes = frozenset(config.node_ids())
        self.machine = machine
        self.path = path
        self._cluster = config.cluster.name
        self._stamp = _NEVER_SEEN
        self.layout = layout_on(machine, config, node)
        self.placements = placements_on(machine, config, node)
        self._of_spares = spare_placement_on(machine, config, node)
        self.refusal = ""

    def look(self) -> bool:
        """Read the file again if it is another one than last time; whether it is, and is taken.
        `refusal` says why what it says now is not taken; empty if it is."""
        if self.path is None:
            return False
        stamp = _stamp_of(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.placements, self._of_spares = self._placements_in(load_config(self.path))
        except LogStoreError as error:
            # A path of any bytes is in it: the log, too, takes text only.
            self.refusal = str(error).encode(errors="backslashreplace").decode()
            self.refusal = self.refusal[:_REFUSAL_CHARS_MAX]
            _log.warning("the placement stays as it is: %s", self.refusal)
            return False
        self.refusal = ""
        return True

    def _placements_in(self, config: Config) -> tuple[dict[str, Placement], Placement]:
        if self._others is not None:
            config = joined_config(config, self._node, self._others)
        else:  # those that were added since have no processes here before the next start
            known = [each for each in config.nodes if each.node in self._nodes]
            config = msgspec.structs.replace(config, nodes=known)
        placements = placements_on(self.machine, config, self._node)
        of_spares = spare_placement_on(self.machine, config, self._node)
        layout = layout_on(self.machine, config, self._node)
        if config.cluster.name != self._cluster or layout != self.layout:
            raise ConfigError(
                f"{self.path} has another cluster, other nodes or another layout than this replica "
                "runs with: restart it to take them"
            )
        return placements, of_spares

    def of(self, process: str) -> Placement:
        """What `process` is to have, one of the layout or a spare replicator."""
        return self._of_spares if process in SPARE_NAMES else self.placements[process]


def _stamp_of(path: Path) -> _Stamp:
    """What tells the file from a later one; None: it cannot be seen."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
