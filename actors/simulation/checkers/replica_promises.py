"""What is known of one replica: its present incarnation, and what it has promised in all of them.

Data only; the modules beside it own the rules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from actors.simulation.checkers.shadow import ShadowLog
from logstore.format.entry import chain_start
from logstore.model import FIRST_LSN, NO_INDEX, NO_TERM
from logstore.raft.log_view import Position

NOTHING = Position(NO_INDEX, NO_TERM, FIRST_LSN, chain_start(bytes(16)))

NEVER_NS = 1 << 63


@dataclass(slots=True)
class Ordered:
    """One Persist or Truncate that the writer has not answered; index 0: truncated since."""

    seq: int
    index: int
    chain: int
    ring_start: int
    dead_index: int = 0  # of a Truncate: the first index it ended, and what stood there
    dead_chain: int = 0


@dataclass(slots=True)
class Orphan:
    """A replicator that died, while its raft leads: Ticks since then, the first one's term."""

    ticks: int = 0
    term: int = 0
    since_ns: int = 0


@dataclass(slots=True)
class Replica:
    """Fields up to the blank line outlive an incarnation; `begin` makes the others anew."""

    node: int
    log: ShadowLog = field(default_factory=lambda: ShadowLog(NOTHING))
    promised_term: int = 0  # told to others, so it must never be forgotten
    promised_vote: int = 0  # in promised_term; 0: none was told
    boot: int = 0  # the number of its newest start, by its disk
    claim_index: int = 0  # flushed, by the writer's word
    claim_chain: int = 0
    dead: dict[int, int] = field(default_factory=dict)  # chain -> index, of durable truncations
    once_held: set[int] = field(default_factory=set)  # chains that were flushed here once
    is_lost: bool = False  # its disk: whatever it had promised is forgotten

    incarnation: int = 0
    is_running: bool = False
    term: int = 0
    vote: int = 0
    commit: int = 0
    visible_index: int = -1
    visible_lsn: int = -1
    led_term: int = 0
    durable_term: int = 0  # the disk had it when something was told, or later
    saves: deque[tuple[int, int]] = field(default_factory=deque)  # (seq, term), unanswered
    saved_term: int = 0  # flushed, by the writer's word
    gen: int = -1
    clock_ns: int = 0  # of its last Tick
    handover_ns: int = NEVER_NS  # since when its leader has been handing over, by its own clock
    is_full: bool = False
    office_ns: int = 0  # since when it leads, by its own clock
    heard_ns: dict[int, int] = field(default_factory=dict)  # peer -> when it spoke to this leader
    full_peers: set[int] = field(default_factory=set)  # followers that say so; a leader's
    quorum_deadline_ns: int = NEVER_NS  # by when a leader must hear a majority again
    stall_look_ns: int = NEVER_NS  # when to look again whether its entries get anywhere; a leader's
    stall_seen: tuple[int, int, int] = (0, 0, 0)  # then: commit, flushed, last index
    moved_ns: int = 0  # when something last moved, by its own clock
    places: dict[tuple[int, int], int] = field(default_factory=dict)  # of its followers
    commit_left: int = -1  # where commit was when it last stopped leading
    heeded_term: int = 0  # its term, if it has heard the leader of that
    heeded_ns: int = 0  # when, by its own clock
    admits: dict[int, tuple[int, int]] = field(default_factory=dict)  # gen -> (index, chain)
    ordered: deque[Ordered] = field(default_factory=deque)
    faulty: list[int] = field(default_factory=list)
    ranges: dict[int, int] = field(default_factory=dict)  # unsettled ring ranges, start -> end
    needed_ranges: set[int] = field(default_factory=set)  # starts that the writer still reads
    orphans: dict[int, Orphan] = field(default_factory=dict)  # by peer

    def begin(self, incarnation: int) -> None:
        """Forget what the process knew."""
        self.incarnation = incarnation
        self.is_running = True
        self.term = self.vote = self.commit = self.led_term = self.durable_term = 0
        self.visible_index = self.visible_lsn = self.gen = -1
        self.clock_ns, self.handover_ns, self.is_full = 0, NEVER_NS, False
        self.office_ns, self.heard_ns, self.quorum_deadline_ns = 0, {}, NEVER_NS
        self.full_peers = set()
        self.stall_look_ns, self.stall_seen = NEVER_NS, (0, 0, 0)
        self.moved_ns, self.places, self.commit_left = 0, {}, -1
        self.heeded_term = self.heeded_ns = 0
        self.admits, self.ordered, self.faulty = {}, deque(), []
        self.saves, self.saved_term = deque(), 0
        self.ranges, self.needed_ranges, self.orphans = {}, set(), {}
