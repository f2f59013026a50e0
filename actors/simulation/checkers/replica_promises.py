"""What is known of one replica: its present incarnation, and what it has promised in all of them.

Data only; the modules beside it own the rules.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from actors.simulation.checkers.shadow import ShadowLog
from logstore.format.entry import chain_start
from logstore.model import FIRST_LSN, NO_INDEX, NO_TERM
from logstore.raft.log_view import NOWHERE, Position

NOTHING = Position(NO_INDEX, NO_TERM, FIRST_LSN, chain_start(bytes(16)))

NEVER_NS = 1 << 63


@dataclass(slots=True)
class Order:
    """One order that the writer has not answered: a Persist, a Truncate, or an InstallLog, whose
    index is the log start. Index 0: truncated or dropped since."""

    seq: int
    index: int
    chain: int
    ring_start: int
    truncated_index: int = 0  # the first index that it ended, and what stood there
    truncated_chain: int = 0


@dataclass(slots=True)
class DeadReplicator:
    """A replicator that died, while its raft leads: Ticks since then, the first one's term."""

    ticks: int = 0
    term: int = 0
    since_ns: int = 0


@dataclass(slots=True)
class Replica:
    """Fields up to the blank line outlive an incarnation; `begin` makes the others anew."""

    node: int
    disk: int = 0  # how many disks of its node had been in before it came
    put_in_ns: int = 0  # when its disk was put into the machine, by the world's time
    is_gone: bool = False  # with its disk, its votes and terms
    uuid: bytes = b""  # by its META; empty: it has no log yet
    log: ShadowLog = field(default_factory=lambda: ShadowLog(NOTHING))
    promised_term: int = 0  # sent to others, so it must survive every crash
    promised_vote: int = 0  # in promised_term; 0: none was sent
    boot: int = 0  # the number of its newest start, by its disk
    flushed_index: int = 0  # flushed, as its writer reported
    flushed_chain: int = 0
    truncated: dict[int, int] = field(default_factory=dict)  # durably: chain -> index
    flushed_once: set[int] = field(default_factory=set)  # chains that were flushed here once
    start: Position = NOWHERE  # of its log, as its raft knows it

    incarnation: int = 0
    is_running: bool = False
    term: int = 0
    vote: int = 0
    commit: int = 0
    visible_index: int = -1
    visible_lsn: int = -1
    led_term: int = 0
    durable_term: int = 0  # on its disk when a message was sent, or later
    saves: deque[tuple[int, int]] = field(default_factory=deque)  # (seq, term), unanswered
    saved_term: int = 0  # flushed, as its writer reported
    gen: int = -1
    clock_ns: int = 0  # of its last Tick
    handover_began_ns: int = NEVER_NS  # by its own clock, while it hands over
    is_full: bool = False
    leading_since_ns: int = 0  # since when it leads, by its own clock
    counted_since_ns: int = 0  # since when its voters are those that they are, by its own clock
    peers_heard_ns: dict[int, int] = field(default_factory=dict)  # by peer; a leader's
    full_peers: set[int] = field(default_factory=set)  # followers that say so; a leader's
    quorum_deadline_ns: int = NEVER_NS  # by when a leader must hear a majority again
    stall_check_ns: int = NEVER_NS  # when a leader's progress is checked again
    stall_checked: tuple[int, int, int] = (0, 0, 0)  # then: commit, flushed, last index
    progressed_ns: int = 0  # when its followers or commit last advanced, by its own clock
    positions: dict[tuple[int, int], int] = field(default_factory=dict)  # of its followers
    commit_at_stop: int = -1  # where commit was when it last stopped leading
    heard_term: int = 0  # its term, if it has heard that term's leader
    heard_ns: int = 0  # when, by its own clock
    heard_node: int = 0  # which leader that is
    opened_gens: dict[int, tuple[int, int]] = field(default_factory=dict)  # gen -> (index, chain)
    # the number of an InstallLog, and where the log starts over
    installing: tuple[int, Position] | None = None
    unanswered: deque[Order] = field(default_factory=deque)
    faulty: list[int] = field(default_factory=list)
    ranges: dict[int, int] = field(default_factory=dict)  # unsettled ring ranges, start -> end
    needed_ranges: set[int] = field(default_factory=set)  # starts that the writer still reads
    dead_replicators: dict[int, DeadReplicator] = field(default_factory=dict)  # by peer

    @property
    def key(self) -> tuple[int, int]:
        """What no other replica has: one with an empty disk is another one (SAFETY C6)."""
        return self.node, self.disk

    def begin(self, incarnation: int) -> None:
        """Forget what the process knew."""
        self.incarnation = incarnation
        self.is_running = True
        self.term = self.vote = self.commit = self.led_term = self.durable_term = 0
        self.visible_index = self.visible_lsn = self.gen = -1
        self.clock_ns, self.handover_began_ns, self.is_full = 0, NEVER_NS, False
        self.counted_since_ns = 0
        self.leading_since_ns, self.peers_heard_ns, self.quorum_deadline_ns = 0, {}, NEVER_NS
        self.full_peers = set()
        self.stall_check_ns, self.stall_checked = NEVER_NS, (0, 0, 0)
        self.progressed_ns, self.positions, self.commit_at_stop = 0, {}, -1
        self.heard_term = self.heard_ns = self.heard_node = 0
        self.opened_gens, self.unanswered, self.faulty = {}, deque(), []
        self.installing = None
        self.saves, self.saved_term = deque(), 0
        self.ranges, self.needed_ranges, self.dead_replicators = {}, set(), {}
