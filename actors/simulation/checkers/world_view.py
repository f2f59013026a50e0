"""What the checkers ask of the world: its disks, its rings, and five facts of a core.

Protocols only. An answer must be the truth, not what some actor believes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol

import msgspec

from logstore.model import Index, Role


class Held(msgspec.Struct, frozen=True, gc=False):
    """An entry that a replica had flushed, as its medium has it. `is_read_at_start`: its segment is
    the newest, whose frames a start reads; those of older ones are read when somebody asks."""

    index: int
    chain: int
    is_record_whole: bool
    is_frame_whole: bool
    is_read_at_start: bool

    @property
    def is_whole(self) -> bool:
        return self.is_record_whole and self.is_frame_whole


class Durability(Protocol):
    """What the disks of all replicas hold now, should the power fail: also of those that are down.

    A device that lies about a flush counts as having done it.
    """

    def has_entry(self, node: int, index: int, chain: int) -> bool:
        """The entry at `index` is live, whole and flushed on `node`'s disk, with this chain."""
        ...

    def is_written(self, node: int, index: int, chain: int) -> bool:
        """Whoever reads `node`'s files now finds the entry, durable or not."""
        ...

    def has_dropped(self, node: int, index: int, chain: int) -> bool:
        """No recovery of `node` would find this entry now; what was found out before is not
        believed."""
        ...

    def meta(self, node: int) -> tuple[int, int]:
        """(term, vote) as a recovery of `node` would read them now."""
        ...

    def boot_of(self, node: int) -> int:
        """The boot counter that goes with it: the number of this start, in everything it says."""
        ...

    def meta_copy(self, node: int, copy: int) -> tuple[int, int] | None:
        """(term, vote) of one of the two copies of META; None: damaged, or it may be afterwards."""
        ...

    def is_excused(self, node: int) -> bool:
        """Its medium lied or rotted: what it said in good faith may be gone."""
        ...

    def held_at_start(self, node: int) -> Iterable[Held]:
        """What an excused node had flushed and not truncated, rising, as its medium was when the
        present incarnation began; nothing if it changed meanwhile, or lies."""
        ...

    def held_now(self, node: int, indexes: Container[int]) -> Iterable[Held]:
        """The same, of these indexes, as its medium is now."""
        ...

    def segments_with_one_header(self, node: int) -> Iterable[int]:
        """Segments with a header in one file of their pair only, on a medium that has not changed
        since the start."""
        ...


# The bytes [ring_start, ring_end) of a node's payload ring; None: not known to the harness.
ReadRing = Callable[[int, int, int], bytes | None]


class Core(Protocol):
    """What is looked at of a `RaftCore` after a step."""

    @property
    def role(self) -> Role: ...

    @property
    def term(self) -> int: ...

    @property
    def commit(self) -> int: ...

    @property
    def persisted(self) -> int: ...

    @property
    def faulty(self) -> tuple[tuple[Index, Index], ...]: ...
