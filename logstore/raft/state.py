"""The mutable state of the consensus core, and the few operations that every part needs.

Owns only data. The modules of this package are functions over `State`; only `RaftCore.step` calls
them from outside. Effects are gathered in `out` in the order in which they were decided.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from logstore.format.configuration_body import Configuration
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL
from logstore.format.peer_messages import BulkAnswer, ControlMessage
from logstore.limits import LOG_AGAIN_NS
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn, NodeId, Role, Term
from logstore.raft.configuration import as_counted_by, counted, founders, present
from logstore.raft.configurations import Configurations
from logstore.raft.effects import (
    Answer,
    Effect,
    LeaderChanged,
    Log,
    MembersChanged,
    SaveLevel,
    Send,
    Settle,
)
from logstore.raft.events import AppendReceived, ChangeRequested
from logstore.raft.faulty import FaultyEntries
from logstore.raft.log_view import EntryLog, LogView, RecoveredLog
from logstore.raft.persist import PersistQueue
from logstore.raft.progress import Progress
from logstore.raft.raft_config import RaftConfig
from logstore.raft.term_and_vote import TermAndVote

NO_LSN = Lsn(0)
NEVER_NS = 1 << 62


@dataclass(slots=True)
class Gen:
    """The newest gen: its number, how many of its props were accepted, whether it is open, and for
    batches, too."""

    number: int = 0
    accepted: int = 0
    is_open: bool = False
    takes_batches: bool = True


@dataclass(slots=True)
class Room:
    """What is left of the open segment of a full disk, and what batches leave of it."""

    size_bytes: int = 0
    entries: int = 0
    kept_bytes: int = 0
    kept_entries: int = 0


@dataclass(slots=True)
class Transfer:
    """A handover under way. `request_id` None: the core began it itself. `target` gets TimeoutNow
    once it has caught up."""

    target: NodeId
    request_id: int | None
    deadline_ns: int
    timeout_sent_ns: int | None = None


@dataclass(slots=True)
class Raise:
    """The log is to be raised to `level`: its entry is appended, and not committed yet.
    `request_id` None: nobody asked, it is a new log."""

    request_id: int | None
    level: int


@dataclass(slots=True)
class Change:
    """The next CONFIG. `request` None: the leader began it by itself, or it ends a change that
    another one began. `index`: of its entry; NO_INDEX: it is not appended yet."""

    request: ChangeRequested | None
    configuration: Configuration
    size_bytes: int  # of its body
    index: Index = NO_INDEX
    offered_gen: int = 0  # in which it was offered to ingress last


@dataclass(slots=True)
class Read:
    """One ReadIndex request; `needed_round` None: no quorum round has begun for it."""

    request_id: int
    lsn: Lsn | None = None
    needed_round: int | None = None


@dataclass(slots=True)
class Leading:
    """State that exists only while this node leads."""

    noop_index: Index
    progress: dict[NodeId, Progress]
    heartbeat_deadline_ns: int
    next_handover_ns: int
    leadership_check_ns: int  # when to check next whether this node should still lead
    round: int = 0
    progressed_ns: int = 0  # when a commit last came nearer, or all was committed
    has_tried_handover: bool = False  # a handover for want of progress
    skew_logged_ns: dict[NodeId, int] = field(default_factory=dict)
    reads: deque[Read] = field(default_factory=deque)
    transfer: Transfer | None = None
    raising: Raise | None = None
    began_ns: int = 0
    change: Change | None = None
    settled: Index | None = NO_INDEX  # the CONFIG, in force, after which nothing is left to do
    has_left: bool = False  # it is no voter any more, and has tried to hand over for that
    leaving: dict[NodeId, int] = field(default_factory=dict)  # until when they get the log, in ns
    is_log_new: bool = False  # it had no payloads or sessions, and is still to be raised (S11)
    held: Index | None = None  # what ingress was last told not to trim beyond (G7)
    flush_awaited: Index = NO_INDEX  # the last entry whose flush ingress waits for (E10)
    flush_reported: Index = NO_INDEX  # how far ingress knows this log to be flushed


@dataclass(slots=True)
class Campaign:
    """The election timer, and the votes of the current campaign."""

    deadline_ns: int = 0
    granted: set[NodeId] = field(default_factory=set)
    awaited_meta_seq: int | None = None
    is_transfer: bool = False
    leader_heard_ns: int | None = None
    given_up_ns: int = NEVER_NS  # when the leader, not heard again, counts as gone (C1)
    quick_rounds: int = 0  # left, that follow each other quickly: the leader may be gone
    vote_wait_ns: int = 0  # until votes of this term are asked for again; 0: they are not
    term_entered_ns: int = 0  # 0: in an earlier incarnation
    quiet_until_ns: int = 0


@dataclass(slots=True)
class Following:
    """What a follower remembers of its leader's stream in this term."""

    stream: int = -1
    is_dead: bool = False
    lacks_space: bool = False  # an entry of the stream was not taken: the disk is full (S9)
    match_reported: Index = NO_INDEX
    stale_rejected: tuple[NodeId, Term, int] | None = None
    refused_level: int = 0  # of the leader's log, too new for this version; 0: none was refused


@dataclass(slots=True)
class Installing:
    """The log is dropped; it begins after the entry `start`, once the writer has answered `seq`."""

    seq: int
    start: Index


@dataclass(slots=True)
class Lost:
    """Entries that this replica had acknowledged in `term` and does not have, says `told_by`.
    `logged_ns`: when this was last logged."""

    acknowledged: Index
    last_index: Index
    term: Term
    logged_ns: int | None
    told_by: NodeId


@dataclass(slots=True)
class Shown:
    """What readers may see (V3, V4)."""

    is_ready: bool = False
    index: Index | None = None
    lsn: Lsn = NO_LSN


class State:
    """All state of the core. `now_ns` and `wall_ns` are the times of the last Tick."""

    __slots__ = (
        "alarmed_ns", "alarmed_text", "campaign", "commit", "config", "configurations", "deferred",
        "dropped", "electors", "faulty", "following", "gen", "handed_over", "installing",
        "is_config_known", "is_disk_full", "lead_count", "leader", "leading", "level", "log",
        "lost", "members", "members_told", "meta", "now_ns", "out", "persists", "random", "role",
        "room", "shown", "stalls", "started", "verified", "voters", "wall_ns",
    )  # fmt: skip

    def __init__(
        self, config: RaftConfig, recovered: RecoveredLog, view: LogView, random: Random
    ) -> None:
        self.config = config
        self.random = random
        self.log = EntryLog(recovered, view)
        # Recovery's `persisted` ends before a faulty entry, but the rest of the log is durable,
        # too. This package sets the cap, and lifts it once the commit index passes the entry (Q1).
        persisted = self.log.last_index if recovered.faulty else recovered.persisted
        self.persists = PersistQueue(min(persisted, self.log.last_index))
        self.faulty = FaultyEntries(recovered.faulty)
        self.meta = TermAndVote(recovered.term, recovered.vote)
        self.commit = max(min(recovered.commit_floor, self.log.last_index), self.log.start.index)
        self.verified = self.commit
        self.configurations = Configurations(
            founders(config.voters),
            hidden=recovered.config_hidden,
            needs_one=recovered.has_config or config.has_joined,
        )
        for index, configuration in recovered.configurations:
            self.configurations.append(index, configuration)
        self.configurations.commit(self.commit)
        self.level = self.log.level_at(self.commit)
        self.out: list[Effect] = []
        self.members_told = (NO_INDEX, True)
        self.is_config_known = recovered.has_config
        self.count_voters()
        self.role = Role.FOLLOWER
        self.leader = NO_NODE
        self.campaign = Campaign()
        self.following = Following()
        self.installing: Installing | None = None
        self.leading: Leading | None = None
        self.handed_over: Transfer | None = None
        self.gen = Gen()
        self.deferred: list[AppendReceived] = []
        self.shown = Shown()
        self.lost: Lost | None = None
        self.lead_count = 0
        self.is_disk_full = False
        self.room = Room()  # while the disk is full
        self.started = False
        self.now_ns = 0
        self.wall_ns = 0
        self.alarmed_ns: int | None = None
        self.alarmed_text: str | None = None
        self.dropped = 0
        self.stalls = 0  # leaderships given up since the last commit
        if self.level > recovered.level:  # a crash came before META was saved
            self.out.append(SaveLevel(self.level))

    @property
    def term(self) -> Term:
        return self.meta.term

    @property
    def persisted(self) -> Index:
        """The highest index to which this replica's log is durable and whole (F4, Q1)."""
        return self.faulty.cap(self.persists.persisted, self.commit)

    @property
    def claimed_match(self) -> Index:
        """match = min(persisted, verified by this leader in this term) (F4)."""
        return min(self.persisted, self.verified)

    @property
    def level_told(self) -> int:
        """The level as peers are told; 0 at the first one, of which older versions say nothing."""
        return self.level if self.level > FIRST_LEVEL else 0

    @property
    def has_uncommitted_fault(self) -> bool:
        return self.faulty.first_above(self.commit) is not None

    @property
    def peers(self) -> dict[NodeId, Progress]:
        """What this node knows of each peer, on a leader; empty elsewhere."""
        return {} if self.leading is None else self.leading.progress

    def emit(self, effect: Effect) -> None:
        self.out.append(effect)

    def send(self, peer: NodeId, message: ControlMessage) -> None:
        """Send on our own pair of sockets, once the term in the message is durable (C1)."""
        self._emit_durable(Send(peer, message))

    def answer(self, peer: NodeId, message: ControlMessage | BulkAnswer, uuid: bytes = b"") -> None:
        """Answer on the peer's pair of sockets, once the term and vote in the
        message are durable (C1)."""
        self._emit_durable(Answer(peer, message, uuid))

    def settle(self, ring_start: int, ring_end: int) -> None:
        """Release a ring range (M4). Empty ranges take no room and are never settled."""
        if ring_end > ring_start:
            self.out.append(Settle(ring_start, ring_end))

    def alarm(self, text: str) -> None:
        """Log something that a peer can cause at will: at most once an election timeout, and the
        same text at most once a minute (C1)."""
        wait_ns = LOG_AGAIN_NS if text == self.alarmed_text else self.config.election_timeout_ns
        if self.alarmed_ns is None or self.now_ns - self.alarmed_ns >= wait_ns:
            self.alarmed_ns, self.alarmed_text = self.now_ns, text
            self.out.append(Log(text))

    def count_voters(self) -> None:
        """Follow the configuration in force (C5): its voters are counted, `electors` are asked for
        their votes, `members` get the log. By number, as peers are heard."""
        in_force, node = self.configurations.in_force, self.config.node
        self.voters = as_counted_by(in_force, node, self.config.replica_uuid)
        self.electors = tuple(each.number for each in counted(in_force) if each.number != node)
        self.members = tuple(each.number for each in present(in_force) if each.number != node)
        self.tell_members()

    def tell_members(self) -> None:
        """Say once which configuration is in force, and once that it is committed. META is to say
        that there is one once the first is committed, as any but the first proves (C12)."""
        index, in_force = self.configurations.newest_index, self.configurations.in_force
        told = (index, index <= self.commit)
        if told == self.members_told:
            return
        self.members_told = told
        self.out.append(MembersChanged(*told, in_force))
        if not self.is_config_known and in_force.id and (told[1] or in_force.id > 1):
            self.is_config_known = True
            self.out.append(SaveLevel(max(self.level, CONFIG_LEVEL), True))

    @property
    def may_campaign(self) -> bool:
        """Whether this replica is a voter, as far as it may know (C8, C9, C12)."""
        return self.configurations.names_voter(self.config.node, self.config.replica_uuid)

    @property
    def may_vote(self) -> bool:
        """Whether this replica votes at all. One that joined does not before its log has a CONFIG:
        a founder whose log has none counts numbers, and would count it for the replica of its
        number that was lost (L1). No other replica counts it by then."""
        return not self.config.has_joined or self._has_config

    def may_vote_for(self, node: NodeId, uuid: bytes) -> bool:
        """Whether this term's vote is free, or that replica's. A vote that was kept as a number is
        spent where replicas come and go: another one may bear the number by now (C5a)."""
        vote = self.meta.vote
        if vote != node:
            return vote == NO_NODE
        return self.meta.vote_uuid == uuid or not self._has_config

    @property
    def _has_config(self) -> bool:
        """The log has a CONFIG, or META says that it had one, which damage hides or a log start
        that was installed is below (C12)."""
        return self.is_config_known or self.configurations.in_force.id > 0

    def set_leader(self, leader: NodeId) -> None:
        if leader != self.leader:
            self.leader = leader
            self.out.append(LeaderChanged(self.term, leader))

    def enter_term(self, term: Term) -> None:
        """Enter a newer term: no vote, no leader, and nothing verified but
        what is committed (V2)."""
        self.meta.enter_term(term)
        self.leader = NO_NODE
        self.verified = self.commit
        self.following = Following()
        self.campaign.quick_rounds, self.campaign.given_up_ns = 0, NEVER_NS
        self.campaign.term_entered_ns = self.now_ns
        self.out.append(LeaderChanged(term, NO_NODE))

    def begin_election_timer(self) -> None:
        """Draw the first wait after a start: a leader, if there is one, is heard within a heartbeat
        of connecting, and a pre-vote that comes too early is refused and changes no term (C1)."""
        self._draw_election_deadline(self.config.heartbeat_ns)

    def reset_election_timer(self) -> None:
        """Draw the next election timeout."""
        self._draw_election_deadline(self.config.election_timeout_ns)

    def _draw_election_deadline(self, least_ns: int) -> None:
        """Between one and two of `least_ns`. A damaged or full replica lets the others campaign
        first (Q3), and so does one that gave up leading (V6)."""
        wait_ns = least_ns + self.random.randrange(least_ns)
        if self.faulty or self.is_disk_full:
            wait_ns += 3 * self.config.election_timeout_ns
        self.campaign.deadline_ns = max(self.now_ns + wait_ns, self.campaign.quiet_until_ns)

    def _emit_durable(self, effect: Effect) -> None:
        if self.meta.is_durable:
            self.out.append(effect)
        else:
            self.meta.withhold(effect)
