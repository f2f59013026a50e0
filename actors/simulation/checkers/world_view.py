"""What checkers may read of the world: its disks, its rings, and five properties of a core.

Protocols only. An answer must be the true state of the world, not what some actor has read of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol

import msgspec

from logstore.format.meta import LogStart
from logstore.model import Index, Role


class Held(msgspec.Struct, frozen=True, gc=False):
    """An entry that a replica had flushed, as its medium has it. `is_read_at_start`: its segment is
    the newest, whose frames a start reads; frames of older segments are read on request."""

    index: int
    chain: int
    is_record_whole: bool
    is_frame_whole: bool
    is_read_at_start: bool

    @property
    def is_whole(self) -> bool:
        return self.is_record_whole and self.is_frame_whole


class Kept(msgspec.Struct, frozen=True):
    """What the configuration of all nodes keeps at least; 0: that gives up nothing."""

    age_ns: int
    size_bytes: int
    payloads: int


class Durability(Protocol):
    """What the disks of all replicas would hold after a power cut now, also of replicas that are
    down.

    A device that lies about a flush counts as having done it.
    """

    def has_entry(self, node: int, index: int, chain: int) -> bool:
        """The entry at `index` is live, whole and flushed on `node`'s disk, with this chain."""
        ...

    def is_written(self, node: int, index: int, chain: int) -> bool:
        """A reader of `node`'s files finds the entry now, durable or not."""
        ...

    def has_dropped(self, node: int, index: int, chain: int) -> bool:
        """No recovery of `node` would find this entry now. Reads the disk again: earlier results
        are not kept."""
        ...

    def meta(self, node: int) -> tuple[int, int]:
        """(term, vote) as a recovery of `node` would read them now."""
        ...

    def boot_of(self, node: int) -> int:
        """The boot counter in its META: the number of this start, which its messages carry."""
        ...

    def log_start(self, node: int) -> LogStart:
        """Where a recovery of `node` would begin its log now."""
        ...

    def is_installing(self, node: int) -> bool:
        """A recovery of `node` would drop whatever segments there are now."""
        ...

    def highest_in(self, node: int, segment: int) -> int:
        """The highest entry that `node` had flushed into this segment and has not truncated; 0:
        there is none above its log start."""
        ...

    def pairs_below(self, node: int, start_index: int) -> Iterable[int]:
        """Segments in `node`'s folder that hold nothing of a log that starts after this entry."""
        ...

    def meta_copy(self, node: int, copy: int) -> tuple[int, int] | None:
        """(term, vote) of one of the two copies of META; None: it is damaged, or a power cut now
        may damage it."""
        ...

    def is_excused(self, node: int) -> bool:
        """Its medium lied or rotted, so that what it reported as flushed may be lost."""
        ...

    def held_at_start(self, node: int) -> Iterable[Held]:
        """What an excused node had flushed and not truncated, in rising order, as its medium was
        when the present incarnation began; nothing if the medium changed meanwhile, or lies."""
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
    """What checkers read of a `RaftCore` after a step."""

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
