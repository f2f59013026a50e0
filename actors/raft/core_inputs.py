"""What the consensus core begins with: its configuration, and what recovery found.

Owns which settings and which part of the writer's report it gets. Decides nothing.
"""

from __future__ import annotations

from actors.messages import LogRecovered
from actors.station import Station
from logstore.config import limits_digest
from logstore.model import ReplicaState
from logstore.raft.log_view import Position, RecoveredLog
from logstore.raft.raft_config import RaftConfig


def raft_config(station: Station, recovered: LogRecovered) -> RaftConfig:
    """The core's configuration. The nodes of the configuration file are no founders for a replica
    that joined (SAFETY L4)."""
    settings = station.config.raft
    has_joined = recovered.state == ReplicaState.LEARNER
    return RaftConfig(
        node=station.node,
        voters=() if has_joined else station.nodes,
        has_joined=has_joined,
        replica_uuid=recovered.replica_uuid,
        replaces_lost=station.config.cluster.replace_lost == "auto",
        heartbeat_ns=settings.heartbeat_ns,
        election_timeout_ns=settings.election_timeout_ns,
        stream_mode=settings.stream_mode,
        bulk_window_bytes=station.config.limits.bulk_window_bytes,
        limits_digest=limits_digest(station.config),
        rows_kept=station.limits.rows_kept,
        rows_dropped_at_once=station.limits.rows_dropped_at_once,
        full_disk_kept_bytes=station.limits.full_disk_kept_bytes,
        newest_level=station.newest_level,
        new_log_level=station.new_log_level,
    )


def recovered_log(recovered: LogRecovered) -> RecoveredLog:
    """What the writer recovered."""
    start = Position(
        recovered.start_index,
        recovered.start_term,
        recovered.start_next_lsn,
        recovered.start_chain,
    )
    return RecoveredLog(
        start=start,
        last=recovered.last_row,
        term_runs=recovered.term_runs,
        commit_floor=recovered.commit_floor,
        persisted=recovered.persisted,
        faulty=tuple((each.first_index, each.last_index) for each in recovered.faulty),
        term=recovered.term,
        vote=recovered.vote,
        trims=recovered.trims,
        level=recovered.level,
        levels=recovered.levels,
        start_bytes=recovered.start_bytes,
        start_timestamp_ns=recovered.start_timestamp_ns,
        configurations=recovered.configurations,
        config_hidden=recovered.config_hidden,
        has_config=recovered.has_config,
    )
