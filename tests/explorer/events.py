"""What can happen to one replica in the explored world, as data with one line of text each.

Peers are named from the replica's own side: 1 is the next replica of the ring of three, 2 the one
after; so what one replica does need not be worked out again for the others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from logstore.model import Term
from logstore.raft.describe import describe


class Heard(msgspec.Struct, frozen=True, tag=True):
    """A message of `peer`, sent in its incarnation `boot`. Who asks for a vote finds a replica that
    has given its leader up, or its own leadership for want of a majority."""

    peer: int
    boot: int
    message: Any


class Flushed(msgspec.Struct, frozen=True, tag=True):
    """The oldest outstanding Persist or Truncate is durable."""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The oldest outstanding SaveMeta is durable."""


class Campaign(msgspec.Struct, frozen=True, tag=True):
    """The election timer ends and the pre-vote is won; a leader has lost its majority before."""


class Proposal(msgspec.Struct, frozen=True, tag=True):
    """A client's group reaches the leader."""


class TermSeen(msgspec.Struct, frozen=True, tag=True):
    """A refusal of some peer tells of a newer term."""

    term: Term


class Crash(msgspec.Struct, frozen=True, tag=True):
    """Everything volatile is gone; of what was ordered, the oldest few had reached the disk."""

    writes_kept: int
    saves_kept: int


Local = Flushed | Saved | Campaign | Proposal | TermSeen | Crash
Happening = Local | Heard


def line_of(replica: int, event: Happening) -> str:
    """`replica` counts from 1, as do the peers in the text."""
    if isinstance(event, Heard):
        sender = (replica - 1 + event.peer) % 3 + 1
        return f"node {replica} hears node {sender} (boot {event.boot}): {describe(event.message)}"
    fields = " ".join(f"{name}={each}" for name, each in msgspec.structs.asdict(event).items())
    return f"node {replica}: {type(event).__name__} {fields}".rstrip()
