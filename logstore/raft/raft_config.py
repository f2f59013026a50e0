"""The consensus core's configuration. Owns its relations; knows nothing of TOML or actors."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from logstore.errors import ConfigError
from logstore.format.level import FIRST_LEVEL, NEWEST_LEVEL
from logstore.limits import FULL_DISK_KEPT_BYTES, NODES_MAX, ROWS_DROPPED_AT_ONCE, ROWS_KEPT
from logstore.model import NodeId

StreamMode = Literal["paper", "streaming"]


class RaftConfig(msgspec.Struct, frozen=True):
    """Who votes, and the timeouts in nanoseconds of the monotonic clock.

    An election starts after a silence drawn from [election_timeout_ns, 2 x election_timeout_ns).
    """

    node: NodeId
    # the founders, which count until the log has a CONFIG (C5a); of a replica that joined: none
    voters: tuple[NodeId, ...]
    has_joined: bool = False  # this replica is no founder: the log says what it is (L4)
    replica_uuid: bytes = b""  # empty: whatever a configuration names under `node` is this replica
    replaces_lost: bool = True  # a join may take a lost voter's place without an operator (L5)
    heartbeat_ns: int = 50_000_000
    election_timeout_ns: int = 500_000_000
    stream_mode: StreamMode = "streaming"
    bulk_window_bytes: int = 8 << 20  # a learner that is so near the end has caught up (C8)
    limits_digest: int = 0  # of the limits that all replicas should have in common; 0: not reported
    rows_kept: int = ROWS_KEPT
    rows_dropped_at_once: int = ROWS_DROPPED_AT_ONCE
    full_disk_kept_bytes: int = FULL_DISK_KEPT_BYTES
    newest_level: int = NEWEST_LEVEL  # the newest format level that this version reads (S11)
    new_log_level: int = (
        FIRST_LEVEL  # a new log is raised to it, as soon as all voters read it (S11)
    )

    def __post_init__(self) -> None:
        if (self.node in self.voters) == self.has_joined:
            raise ConfigError(
                f"node {self.node} is one of the voters {self.voters}, it cannot have joined them"
                if self.has_joined
                else f"node {self.node} is none of the voters {self.voters}: add it"
            )
        if len(set(self.voters)) != len(self.voters) or len(self.voters) > NODES_MAX:
            raise ConfigError(f"voters {self.voters}: at most {NODES_MAX}, each once")
        if any(voter < 1 for voter in self.voters):
            raise ConfigError(f"voters {self.voters}: node ids begin at 1")
        if self.heartbeat_ns < 1 or self.election_timeout_ns < 3 * self.heartbeat_ns:
            raise ConfigError(
                f"election timeout {self.election_timeout_ns} ns: at least three heartbeats of "
                f"{self.heartbeat_ns} ns, or one lost heartbeat begins an election"
            )

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """Every voter but this node, in the configured order."""
        return _others(self.node, self.voters)

    @property
    def quick_round_ns(self) -> int:
        """How far apart the pre-votes of followers are that lost the connection to one leader. A
        pre-vote and its answers take some milliseconds (2 cores, three replicas under load:
        2026-11-24), far less than the 50 ms that this is as shipped."""
        return max(1, self.heartbeat_ns // 4)

    @property
    def pause_ns(self) -> int:
        """A gap between ticks that counts as a pause of this process (SAFETY C4)."""
        return 2 * self.heartbeat_ns


@lru_cache(maxsize=64)
def _others(node: NodeId, voters: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Cached, because every message that goes to all peers asks for it."""
    return tuple(voter for voter in voters if voter != node)
