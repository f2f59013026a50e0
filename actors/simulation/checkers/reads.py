"""How a checker says what it reads: whole facts, or the parts of a core's step.

A step is read twice. Its event and its effects, in their order, are told as it goes, and whoever
keeps the shadow logs brings them along; once it is done, and all follows the core, they are told
again. A part is known by its class, and a message from or to a peer by both classes; `Send` alone
is a `Send` of any message, and `Told` whatever is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from actors.simulation.checkers.facts import Fact
from logstore.raft.effects import Answer, Send
from logstore.raft.events import ControlReceived, StreamAnswer

Kind = type | tuple[type, type]
Reader = Callable[..., None]  # of a fact, or of a replica, a part and the step
R = TypeVar("R", bound=Reader)

WITH_MESSAGE = frozenset((Answer, ControlReceived, Send, StreamAnswer))


def _marker(when: str) -> Callable[..., Callable[[R], R]]:
    def reads(*kinds: Kind) -> Callable[[R], R]:
        def mark(method: R) -> R:
            vars(method)[when] = kinds
            return method

        return mark

    return reads


# The method reads facts of these classes, or these parts of a step as it goes; or events and
# effects of these classes once the step is done.
reads, reads_after = _marker("reads"), _marker("reads_after")


class Table(dict[Kind, list[Reader]]):
    """From the class of a fact, or the kind of a part, to those who read it, in their order."""

    def __init__(self, readers: Iterable[object], when: str) -> None:
        rows = [
            (kind, getattr(reader, name))
            for reader in readers
            for name, method in vars(type(reader)).items()
            for kind in getattr(method, when, ())
        ]
        super().__init__(
            {kind: [read for each, read in rows if _has(each, kind)] for kind, _ in rows}
        )

    def __missing__(self, kind: Kind) -> list[Reader]:
        """A message that nobody reads by both classes, or a part that nobody reads.

        Raises:
          KeyError: nobody reads this fact, so nobody need tell it.
        """
        if isinstance(kind, type) and issubclass(kind, Fact):
            raise KeyError(kind)
        found = self[kind] = self.get(kind[0], []) if isinstance(kind, tuple) else []
        return found


def _has(read: Kind, kind: Kind) -> bool:
    """Whoever reads the first reads the second: it is the same, or a case of it."""
    if isinstance(kind, tuple) or isinstance(read, tuple):
        return read == kind or (isinstance(kind, tuple) and read == kind[0])
    return issubclass(kind, read)
