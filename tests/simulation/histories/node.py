"""One replica of a story: what its disk, its core and its ring hold, as plain facts."""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.simulation.checkers.world_view import Held
from logstore.format.entry import Row
from logstore.format.level import FIRST_LEVEL
from logstore.format.meta import NO_START, LogStart
from logstore.model import Index, Role


@dataclass
class Core:
    """What is read of a core."""

    role: Role = Role.FOLLOWER
    term: int = 0
    commit: int = 0
    persisted: int = 0
    faulty: tuple[tuple[Index, Index], ...] = ()


@dataclass
class Node:
    """One replica; `disk` and `meta` survive it."""

    node: int
    incarnation: int = 0
    level: int = FIRST_LEVEL
    disk: list[Row] = field(default_factory=list)
    meta: tuple[int, int] = (0, 0)
    boots: int = 0  # what its META counts
    start: LogStart = NO_START  # in META
    segments: dict[int, int] = field(default_factory=dict)  # number → the highest entry in it
    is_installing: bool = False  # META has the mark
    kept_below: list[int] = field(default_factory=list)  # segments that should be gone
    is_meta_cached: bool = False  # it was never flushed
    # of META, where they differ from it
    copies: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    faulty: tuple[tuple[Index, Index], ...] = ()
    lost: set[int] = field(default_factory=set)  # chains that the disk does not give back
    unwritten: set[int] = field(default_factory=set)  # chains that its files do not show yet
    is_excused: bool = False
    held: list[Held] = field(default_factory=list)  # as its medium is at the next start
    segments_with_one_header: list[int] = field(default_factory=list)  # segments, at the next start
    core: Core = field(default_factory=Core)
    rows: list[Row] = field(default_factory=list)
    unflushed: list[tuple[int, int, int]] = field(default_factory=list)  # seq, ring range
    seq: int = 0
    ring: dict[int, bytes] = field(default_factory=dict)
    ring_end: int = 0
    acted: int = 0  # up to this entry TRIMs have acted
    uuid: bytes = b""

    def __post_init__(self) -> None:
        self.uuid = bytes([self.node] * 16)
