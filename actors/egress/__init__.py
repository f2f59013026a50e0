"""Reads: tail publication, range fetches, time lookups, verification."""

from actors.egress.actor import EgressActor

__all__ = ["EgressActor"]
