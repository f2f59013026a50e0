"""All traffic to one peer, in every role, and the stream of entries to it."""

from actors.replicator.actor import ReplicatorActor

__all__ = ["ReplicatorActor"]
