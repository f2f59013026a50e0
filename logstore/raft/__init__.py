"""Pure consensus: events in, effects out. See the README of this package."""

from logstore.raft.bootstrap import Bootstrap
from logstore.raft.core import RaftCore
from logstore.raft.describe import describe, describe_core
from logstore.raft.log_view import LogView, Position, RecoveredLog
from logstore.raft.raft_config import RaftConfig
from logstore.raft.stream import FollowerStream

__all__ = [
    "Bootstrap",
    "FollowerStream",
    "LogView",
    "Position",
    "RaftConfig",
    "RaftCore",
    "RecoveredLog",
    "describe",
    "describe_core",
]
