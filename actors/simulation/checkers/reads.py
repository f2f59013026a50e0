"""How a checker declares what it reads: whole facts, or the parts of a core's step.

The parts of a step, its event and its effects in their order, are read twice: with `reads` before
the step's changes are recorded (except those to the shadow logs, which follow effect by effect),
and with `reads_after` once all are recorded. A part is named by its class; one that carries a peer
message by both classes: `(Send, Heartbeat)`. `Send` alone is a `Send` of any message, and a base
class stands for all facts that are derived from it.
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


# The method reads facts of these classes, or these parts of a step before its changes are
# recorded; or events and effects of these classes afterwards.
reads, reads_after = _marker("reads"), _marker("reads_after")


class Table(dict[Kind, list[Reader]]):
    """From the class of a fact, or the kind of a part, to the methods that read it, in order."""

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
        """A part that no checker reads, or reads by the first of its two classes only.

        Raises:
          KeyError: no checker reads this fact, so there is no reason to tell it.
        """
        if isinstance(kind, type) and issubclass(kind, Fact):
            raise KeyError(kind)
        found = self[kind] = self.get(kind[0], []) if isinstance(kind, tuple) else []
        return found


def _has(read: Kind, kind: Kind) -> bool:
    """Whether a reader of `read` also reads `kind`: it is the same, or a case of it."""
    if isinstance(kind, tuple) or isinstance(read, tuple):
        return read == kind or (isinstance(kind, tuple) and read == kind[0])
    return issubclass(kind, read)
