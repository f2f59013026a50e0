"""The consensus core's driver: terms, votes, indexes, LSNs, commit."""

from actors.raft.actor import RaftActor

__all__ = ["RaftActor"]
