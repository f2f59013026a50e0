"""One request of a client, and how its answer is judged. Knows no links."""

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
    """What may come back for one type of request.

    Attributes:
      reply: the type of a reply that is no error.
      answered: looks at such a reply, and at the frame after it.
      refusals: codes that say that another replica, or this one later, may answer.
      refused: looks at any other error; whether that is a right answer, too.
      asked: the fact that it was asked, if there is one.
    """

    reply: type[Any]
    answered: Callable[[Exchange, Any, bytes], None]
    refusals: frozenset[ErrorCode]
    refused: Callable[[Exchange, ErrorReply], bool] | None = None
    asked: Callable[[Exchange], Fact] | None = None
