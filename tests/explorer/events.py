"""The events of one replica in the explored world, as data with a line of text each.

Peers are numbered from the replica's place in the ring of three: 1 is the next replica, 2 the one
after. So a step computed for one replica serves the others, too, unless members change.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logstore.model import NO_NODE, NodeId, Term
from logstore.raft.describe import describe
from logstore.raft.events import ChangeKind


class Delivery(msgspec.Struct, frozen=True, tag=True):
    """A message that `peer` sent in its incarnation `boot`. A replica that gets a vote request has
    lost contact with its leader before, or with its majority if it leads."""

    peer: int
    boot: int
    message: Any


class Flushed(msgspec.Struct, frozen=True, tag=True):
    """The oldest outstanding Persist or Truncate is durable."""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The oldest outstanding SaveMeta is durable."""


class Campaign(msgspec.Struct, frozen=True, tag=True):
    """The election timer expires and the pre-vote is won; a leader lost its majority before."""


class Proposal(msgspec.Struct, frozen=True, tag=True):
    """A client's group reaches the leader."""


class ChangeAsked(msgspec.Struct, frozen=True, tag=True):
    """An operator asks the leader for a change of the members; ingress proposes the CONFIG that the
    leader then wants."""

    kind: ChangeKind
    node: NodeId
    by: NodeId = NO_NODE


class NextProposed(msgspec.Struct, frozen=True, tag=True):
    """Ingress proposes the CONFIG to which a joint one leads."""


class TermSeen(msgspec.Struct, frozen=True, tag=True):
    """A refusal of some peer has a newer term."""

    term: Term


class Crash(msgspec.Struct, frozen=True, tag=True):
    """All volatile state is lost; so many of the oldest outstanding orders reached the disk."""

    writes_kept: int
    saves_kept: int


Local = Flushed | Saved | Campaign | Proposal | ChangeAsked | NextProposed | TermSeen | Crash
Happening = Local | Delivery


def line_of(replica: int, event: Happening) -> str:
    """Replicas are numbered from 1 here."""
    if isinstance(event, Delivery):
        sender = (replica - 1 + event.peer) % 3 + 1
        return f"node {replica} hears node {sender} (boot {event.boot}): {describe(event.message)}"
    fields = " ".join(f"{name}={each}" for name, each in msgspec.structs.asdict(event).items())
    return f"node {replica}: {type(event).__name__} {fields}".rstrip()
