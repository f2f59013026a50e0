"""How much the bounded collections of a replica's processes hold, and how much they may (I14).

Owns which of them there are and where their bounds are defined. Reads private state of actors and
changes none. Rings check their own bound (`world.rings`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from actors.egress import actor as egress
from actors.egress import fetch_port as fetches
from actors.egress.actor import EgressActor
from actors.ingress.actor import IngressActor
from actors.raft import RaftActor, routes
from actors.writer.actor import WriterActor
from logstore import limits

# What is held: its name, how many, how many at most.
Holding = tuple[str, int, int]


def holdings(actor: Any) -> Iterator[Holding]:
    """Of every bounded collection of this actor."""
    match actor:
        case RaftActor():
            yield from _of_raft(actor)
        case WriterActor():
            if actor._folder.has_log:
                groups = actor._folder.log.groups_unfinished
                yield "groups in flight", groups, limits.GROUPS_IN_FLIGHT_MAX
        case IngressActor():
            pending = len(actor._requests._pending)
            proposals = actor.admission.proposals
            pending_groups = chain(proposals._formed, proposals._proposed, proposals._accepted)
            yield "readers of groups", sum(len(each.readers) for each in pending_groups), pending
            yield "requests", pending, limits.REQUESTS_PENDING_MAX
            yield "held answers", len(actor._reads._held), limits.HELD_ANSWERS_MAX
            lend_max_bytes = actor._station.config.limits.client_memory_bytes
            yield "bytes lent", proposals.lent_bytes, lend_max_bytes
        case EgressActor():
            yield "requests", len(actor._requests._waiting), fetches.WAITING_MAX
            yield "damaged entries", len(actor._rotted), egress.ROT_REMEMBERED_MAX


def _of_raft(actor: RaftActor) -> Iterator[Holding]:
    yield "coalesced messages", len(actor._routes.ingress._coalesced), routes.COALESCED_MAX
    if actor._core is None:
        return
    state = actor._core._state
    yield "deferred appends", len(state.deferred), limits.DEFERRED_EVENTS_MAX
    yield "withheld answers", len(state.meta._withheld), limits.DEFERRED_EVENTS_MAX
    if state.leading is not None:
        yield "reads", len(state.leading.reads), limits.READS_WAITING_MAX
