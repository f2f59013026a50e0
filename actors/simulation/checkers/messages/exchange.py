"""One request of a client, and how its answer is checked. Must not know links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply

Complain = Callable[[Invariant, str], None]


class Exchange(msgspec.Struct, frozen=True):
    """A request to `node`. `asked_ns` is the world's time; `number` is unique in the world."""

    witness: Witness
    node: int
    number: int
    asked_ns: int
    request: Any

    def tell(self, fact: Fact) -> None:
        self.witness.tell(fact)

    def violated(self, invariant: Invariant, text: str) -> None:
        self.witness.violated(invariant, text)


class Judge(msgspec.Struct, frozen=True):
    """Which answers to one type of request are right.

    Attributes:
      reply: the type of a reply that is no error.
      answered: checks such a reply, and the frame after it.
      refusals: codes after which another replica, or this one later, may answer.
      refused: returns whether any other error is a right answer.
      asked: makes the fact that this was asked; None: there is no such fact.
    """

    reply: type[Any]
    answered: Callable[[Exchange, Any, bytes], None]
    refusals: frozenset[ErrorCode]
    refused: Callable[[Exchange, ErrorReply], bool] | None = None
    asked: Callable[[Exchange], Fact] | None = None
