"""Ingress: the process that receives from clients and peers; see README.md of this package."""

from actors.ingress.actor import IngressActor

__all__ = ["IngressActor"]
