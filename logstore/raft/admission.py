"""Which proposals a leader takes (SAFETY E3): the open gen and the next prop, nothing else.

Owns the gen counter. Must not know indexes, roles or why admission closes. Invariant: what is
accepted of a gen is a prefix of its props.
"""

from __future__ import annotations

from logstore.errors import InvariantViolated


class Admission:
    """Gens opened and closed; `gen` is the newest one, open or not."""

    __slots__ = ("accepted", "gen", "is_open")

    def __init__(self) -> None:
        self.gen = 0
        self.accepted = 0
        self.is_open = False

    def open(self) -> int:
        """Begin a new gen."""
        if self.is_open:
            raise InvariantViolated(f"gen {self.gen} is open already")
        self.gen += 1
        self.accepted = 0
        self.is_open = True
        return self.gen

    def close(self) -> None:
        self.is_open = False

    def try_accept(self, gen: int, prop: int) -> bool:
        """Take the next prop of the open gen; False for one of a closed gen.

        Raises:
          InvariantViolated: a prop was skipped or repeated within the open gen.
        """
        if not self.is_open or gen != self.gen:
            return False
        if prop != self.accepted:
            raise InvariantViolated(f"gen {gen}: prop {prop} came instead of {self.accepted}")
        self.accepted += 1
        return True
