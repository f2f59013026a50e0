"""The log's format level, and raising it (SAFETY S11).

Owns no state. The leader decides whether a level can be raised; what replicas say of themselves
shows an operator who is in the way.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.leader import LeaderRequest
from logstore.client.core.operating import Cluster, status
from logstore.client.core.steps import Steps
from logstore.client.status import UNREACHABLE
from logstore.format.client_messages import DoneReply, RaiseLevelRequest
from logstore.format.level import FIRST_LEVEL


class FormatLevels(msgspec.Struct, frozen=True):
    """The log's format level, and the newest one that each node's version reads; 0: the node does
    not answer. A learner that does not is not waited for: it counts in no majority."""

    level: int
    newest_levels: dict[int, int]
    learners: tuple[int, ...] = ()

    @property
    def common(self) -> int:
        """The highest level that every node is known to read, and the log's at least."""
        asked = [level for node, level in self.newest_levels.items() if self._is_asked(node, level)]
        return max(self.level, min(asked, default=0))

    @property
    def newest(self) -> int:
        """The newest level that any node reads, and the log's at least."""
        return max(self.level, *self.newest_levels.values())

    @property
    def silent(self) -> list[int]:
        """The nodes that do not answer."""
        return [node for node, level in self.newest_levels.items() if not level]

    @property
    def in_the_way(self) -> list[int]:
        """The nodes that need a newer version, and, if the log could be raised, those that do not
        answer."""
        return [
            node
            for node, level in self.newest_levels.items()
            if level < self.newest and (level or self.level < self.newest)
            if self._is_asked(node, level)
        ]

    def _is_asked(self, node: int, level: int) -> bool:
        return level > 0 or node not in self.learners


def format_levels(cluster: Cluster) -> Steps[FormatLevels]:
    """As `Admin.format_levels`."""
    found = yield from status(cluster)
    rows = found["nodes"]
    return FormatLevels(
        max(int(row.get("level", FIRST_LEVEL)) for row in rows),
        {
            int(row["node"]): 0
            if row["role"] == UNREACHABLE
            else int(row.get("newest_level", FIRST_LEVEL))
            for row in rows
        },
        tuple(int(row["node"]) for row in rows if row.get("member") == "learner"),
    )


def raise_level(cluster: Cluster, level: int) -> Steps[int]:
    """As `Admin.raise_level`."""
    request = LeaderRequest(cluster.host, cluster.routing, timeout_s=cluster.timeout_s)
    reply = yield from request.ask(RaiseLevelRequest(level), DoneReply)
    return reply.value
