"""What many seeds must have met to be worth something: the must-reach list
(FAULTS section 3.3).

Owns the names, how often each was met in a run, and how each is seen: an observer that is told what
cores, recoveries and clients did and never says anything back. Must not know how it is told.
`Reach` says of each name what counts; where that is no effect of a core, which method of
`ReachObserver` hears of it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from logstore.errors import ErrorCode
from logstore.format.entry import takes_lsns
from logstore.format.peer_messages import AppendPersisted, VoteReply
from logstore.model import Role
from logstore.raft.effects import (
    Answer,
    Committed,
    Effect,
    Lead,
    Persist,
    ReadIndexAnswered,
    SaveMeta,
    StopLeading,
    StreamAccepted,
    TransferAnswered,
    Truncate,
)
from logstore.raft.events import DiskFullChanged, EntryRotted, Event, Persisted, Tick
from logstore.raft.log_view import RecoveredLog
from logstore.raft.quorum import majority


class Reach(StrEnum):
    """Each is one schedule or state that has had bugs in it, here or elsewhere."""

    TRUNCATED_BATCHES = "truncation of at least two groups"
    TRUNCATED_ACKNOWLEDGED = "truncation of a group this follower had acknowledged to a leader"
    FIGURE_EIGHT = "truncation of an entry that a majority had flushed in a later term (figure 8)"
    REWRITTEN_IN_FLIGHT = "truncation of an entry whose flush was under way"
    REWRITTEN_ABA = "an entry truncated and later taken again, by one incarnation (A, C, A)"
    DEPOSED_WHILE_FLUSHING = "a leader deposed with a flush under way"
    DEPOSED_WITHOUT_QUORUM = "a leader that stepped down because it heard no majority"
    COMMITTED_BEFORE_OWN_FLUSH = "a commit by the followers before the leader's own flush"
    STREAM_REJECTED = "a stream that did not match the follower's log"
    SPLIT_VOTE = "two candidates in one term"
    ELECTION_WITH_FAULTY_VOTER = "a vote given, or an election won, by a replica with damage"
    FAULTY_FOUND = "a damaged entry found at start or by a reader"
    UNFLUSHED_LOST = "a start that found fewer entries than were handed to the writer"
    DISK_FULL_OVER = "a full disk, and space again within one incarnation"
    TRANSFER_DONE = "a handover of leadership that worked"
    READ_INDEX_ANSWERED = "a linearizable read answered by the leader"
    RING_OVERWRITTEN = "a copy out of the payload ring that came too late"  # ring_overwritten
    ORPHAN_ADOPTED = "a frame without a record adopted at start"  # judged
    TORN_TAIL = "a torn tail discarded at start"  # judged
    META_COPY_BAD = "one of the two META copies damaged at start"  # meta_loaded
    SPARE_ROLLED = "a roll into a segment pair prepared beforehand"  # rolled
    LYING_FLUSH_RECOVERED = "a start after a power cut of a device that lied"  # lied
    SNAPSHOT_USED = "a session table rebuilt from a SESSION entry"  # table_rebuilt
    SNAPSHOT_IN_PARTS = "a session table rebuilt from several SESSION entries"  # table_rebuilt
    SNAPSHOT_WITHOUT_END = "a snapshot whose leader ended amid its parts"  # table_rebuilt
    DEDUP_UNCOMMITTED = "a retry that met its first copy before that was committed"  # retried
    DEDUP_COMMITTED = "a retry answered with the LSNs of its first copy"  # retried
    FENCED = "a producer told of a newer epoch"  # refused
    COMMITTED_LSN_UNKNOWN = "a retry told that its LSNs have left the window"  # refused
    GAP = "a producer told of a sequence it left out"  # refused
    SEQUENCE_REUSED = "other bytes under a used sequence refused"  # refused
    SESSION_EXPIRED = "a session given up for a new one"  # expired
    EXPIRED_CAME_BACK = "a batch refused, because its session had been given up"  # unknown
    IMPORT_MOVED = "an import that went on at another leader"  # import_moved
    # What waits for a feature.
    INSTALL_INTERRUPTED = "a snapshot install interrupted"
    CONFIG_ROLLED_BACK = "a configuration change during a partition, and its rollback"
    REPAIRED_ON_LEADER = "repair of a rotted committed entry on the leader"
    REPAIRED_ON_FOLLOWER = "repair of a rotted committed entry on a follower"
    DISCARDED_BY_MAJORITY = "a faulty entry discarded after a majority did not have it"
    REPLACED_AFTER_LOSS = "a lost disk, and its node back under a new uuid"
    COLLECTED_BELOW_FOLLOWER = "retention while a follower is below the low-water mark"


NOT_BUILT: dict[Reach, str] = {
    Reach.INSTALL_INTERRUPTED: "installing segments on a follower (INSTALL)",
    Reach.CONFIG_ROLLED_BACK: "changes of the configuration (CONFIG)",
    Reach.REPAIRED_ON_LEADER: "repair of damaged entries from peers (REPAIR)",
    Reach.REPAIRED_ON_FOLLOWER: "repair of damaged entries from peers (REPAIR)",
    Reach.DISCARDED_BY_MAJORITY: "repair of damaged entries from peers (REPAIR)",
    Reach.REPLACED_AFTER_LOSS: "changes of the configuration (CONFIG)",
    Reach.COLLECTED_BELOW_FOLLOWER: "retention (TRIM)",
}
MUST_REACH = tuple(each for each in Reach if each not in NOT_BUILT)

_BY_REFUSAL = {
    ErrorCode.FENCED: Reach.FENCED,
    ErrorCode.COMMITTED_LSN_UNKNOWN: Reach.COMMITTED_LSN_UNKNOWN,
    ErrorCode.GAP: Reach.GAP,
    ErrorCode.SEQUENCE_REUSED: Reach.SEQUENCE_REUSED,
}


_WATCHED = frozenset(
    (
        Persist, Truncate, SaveMeta, Answer, Committed, StopLeading, Lead, StreamAccepted,
        TransferAnswered, ReadIndexAnswered,
    )
)  # fmt: skip


class Core(Protocol):
    """What is looked at of a `RaftCore`."""

    @property
    def role(self) -> Role: ...

    @property
    def term(self) -> int: ...

    @property
    def persisted(self) -> int: ...

    @property
    def faulty(self) -> tuple[tuple[int, int], ...]: ...


class Verdicts(Protocol):
    """What is looked at of recovery's `Verdicts`."""

    @property
    def rebuilt(self) -> Sequence[object]: ...

    @property
    def has_torn_tail(self) -> bool: ...


class Counts:
    """How often each was met, by its name (`Reach.name`)."""

    def __init__(self) -> None:
        self._counts: Counter[Reach] = Counter()

    def add(self, reach: Reach) -> None:
        self._counts[reach] += 1

    def by_name(self) -> dict[str, int]:
        """In the order of `Reach`; those that were not met are left out."""
        return {each.name: self._counts[each] for each in Reach if self._counts[each]}


def missing(reached: dict[str, int]) -> list[Reach]:
    """Whatever must be reached and was not."""
    return [each for each in MUST_REACH if not reached.get(each.name)]


class _Replica:
    """What is known of one replica's log, crashes included."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.rows: dict[int, tuple[int, bool]] = {}  # index → (term, whether it has LSNs)
        self.last_index = 0
        self.durable = 0
        self.acknowledged = 0  # to whichever leader, of what is in the log now
        self.in_flight: deque[tuple[int, int]] = deque()  # (seq, index), unanswered
        self.dropped: set[tuple[int, int]] = set()  # (index, term) truncated since the start
        self.is_full = False
        self.has_lied = False


class ReachObserver:
    """Tell it what happens; `counts` says what was met. `nodes`: the voters."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._counts = Counts()
        self._replicas = {node: _Replica(node) for node in nodes}
        self._majority = majority(len(self._replicas))
        self._committed = 0
        self._late_majority: dict[int, int] = {}  # index → term, flushed by a majority too late
        self._candidates: dict[int, int] = {}  # term → the first candidate
        self._expired: set[int] = set()  # producer ids

    def counts(self) -> dict[str, int]:
        """How often each was met so far, by name."""
        return self._counts.by_name()

    # --- replicas ---

    def recovered(self, node: int, incarnation: int, log: RecoveredLog) -> None:  # noqa: ARG002
        """A new incarnation's core is about to be made of `log`."""
        replica = self._replicas[node]
        last_index = log.start.index if log.last is None else log.last.header.index
        if last_index < replica.last_index:
            self._counts.add(Reach.UNFLUSHED_LOST)
        _forget_from(replica, last_index + 1)
        replica.last_index = last_index
        self._flushed(replica, log.persisted, log.term)
        replica.in_flight.clear()
        replica.dropped.clear()
        replica.is_full = False
        if log.faulty:
            self._counts.add(Reach.FAULTY_FOUND)
        if replica.has_lied:
            replica.has_lied = False
            self._counts.add(Reach.LYING_FLUSH_RECOVERED)

    def stepped(
        self,
        node: int,
        incarnation: int,  # noqa: ARG002 - the ledger's signature
        core: Core,
        event: Event,
        effects: Sequence[Effect],
    ) -> None:
        """`core.step(event)` gave `effects`. Hot."""
        replica = self._replicas[node]
        kind = type(event)
        if kind is Persisted:
            self._on_persisted(replica, core, event.seq)  # type: ignore[union-attr]
        elif kind is DiskFullChanged:
            if replica.is_full and not event.is_full:  # type: ignore[union-attr]
                self._counts.add(Reach.DISK_FULL_OVER)
            replica.is_full = event.is_full  # type: ignore[union-attr]
        elif kind is EntryRotted:
            self._counts.add(Reach.FAULTY_FOUND)
        for effect in effects:
            if type(effect) in _WATCHED:
                self._see(replica, core, event, effect)

    def ring_overwritten(self) -> None:
        """A replicator counted RING_OVERWRITTEN."""
        self._counts.add(Reach.RING_OVERWRITTEN)

    def judged(self, verdicts: Verdicts) -> None:
        """What `logstore.storage.verdict.judge` returned at a start."""
        if verdicts.rebuilt:
            self._counts.add(Reach.ORPHAN_ADOPTED)
        if verdicts.has_torn_tail:
            self._counts.add(Reach.TORN_TAIL)

    def meta_loaded(self, *, whole_copies: int) -> None:
        """How many copies of META were whole at a start."""
        if whole_copies == 1:
            self._counts.add(Reach.META_COPY_BAD)

    def rolled(self, *, had_spare: bool) -> None:
        """`LogWriter.roll` or `truncate` opened a segment; whether `needs_spare` was false
        before."""
        if had_spare:
            self._counts.add(Reach.SPARE_ROLLED)

    def lied(self, node: int) -> None:
        """The power of `node` went while its device had lied about a flush."""
        self._replicas[node].has_lied = True

    # --- sessions and clients ---

    def table_rebuilt(self, *, parts: int, passed_over: int) -> None:
        """Admission opened. `parts` of the snapshot that the walk began at; `passed_over`: newer
        ones without an end."""
        if parts:
            self._counts.add(Reach.SNAPSHOT_USED)
        if parts > 1:
            self._counts.add(Reach.SNAPSHOT_IN_PARTS)
        if passed_over:
            self._counts.add(Reach.SNAPSHOT_WITHOUT_END)

    def retried(self, *, is_committed: bool) -> None:
        """`SessionTable.offer` knew the batch; whether its row was committed."""
        self._counts.add(Reach.DEDUP_COMMITTED if is_committed else Reach.DEDUP_UNCOMMITTED)

    def expired(self, producer_id: int) -> None:
        """`SessionTable.apply_expire` gave the session up, or its fold did."""
        if producer_id not in self._expired:
            self._expired.add(producer_id)
            self._counts.add(Reach.SESSION_EXPIRED)

    def unknown(self, producer_id: int) -> None:
        """`SessionTable.offer` knew no session of this producer."""
        if producer_id in self._expired:
            self._counts.add(Reach.EXPIRED_CAME_BACK)

    def refused(self, code: int) -> None:
        """A client got this ErrorCode for an append."""
        reach = _BY_REFUSAL.get(ErrorCode(code))
        if reach is not None:
            self._counts.add(reach)

    def import_moved(self) -> None:
        """An importer pushed to more than one leader."""
        self._counts.add(Reach.IMPORT_MOVED)

    # --- events and effects ---

    def _on_persisted(self, replica: _Replica, core: Core, seq: int) -> None:
        in_flight = replica.in_flight
        while in_flight and in_flight[0][0] <= seq:
            in_flight.popleft()
        self._flushed(replica, core.persisted, core.term)

    def _flushed(self, replica: _Replica, durable: int, now_term: int) -> None:
        before, replica.durable = replica.durable, durable
        for index in range(before + 1, durable + 1):
            term = _term_at(replica, index)
            is_late = 0 < term < now_term and index > self._committed
            if is_late and self._is_on_majority(index, term):
                self._late_majority[index] = term

    def _see(self, replica: _Replica, core: Core, event: Event, effect: Effect) -> None:
        """One effect of a class in `_WATCHED`."""
        counts = self._counts
        match effect:
            case Persist():
                self._on_persist(replica, effect)
            case Truncate():
                self._on_truncate(replica, effect.first_index)
            case Answer(message=AppendPersisted(index=index)):
                replica.acknowledged = max(replica.acknowledged, index)
            case Answer(message=VoteReply(is_granted=True)) | Lead() if core.faulty:
                counts.add(Reach.ELECTION_WITH_FAULTY_VOTER)
            case Committed():
                self._committed = max(self._committed, effect.index)
                if core.persisted < effect.index:
                    counts.add(Reach.COMMITTED_BEFORE_OWN_FLUSH)
            case StopLeading():
                if replica.in_flight:
                    counts.add(Reach.DEPOSED_WHILE_FLUSHING)
                if type(event) is Tick and core.term == effect.term:
                    counts.add(Reach.DEPOSED_WITHOUT_QUORUM)
            case SaveMeta(vote=replica.node) if core.role is Role.CANDIDATE:
                if self._candidates.setdefault(effect.term, replica.node) != replica.node:
                    counts.add(Reach.SPLIT_VOTE)
            case StreamAccepted(is_dead=True):
                counts.add(Reach.STREAM_REJECTED)
            case TransferAnswered(is_done=True):
                counts.add(Reach.TRANSFER_DONE)
            case ReadIndexAnswered(is_leader=True):
                counts.add(Reach.READ_INDEX_ANSWERED)
            case _:
                pass

    def _on_persist(self, replica: _Replica, effect: Persist) -> None:
        header = effect.header
        if (header.index, header.term) in replica.dropped:
            self._counts.add(Reach.REWRITTEN_ABA)
        replica.rows[header.index] = (header.term, takes_lsns(header.kind))
        replica.last_index = header.index
        replica.in_flight.append((effect.seq, header.index))

    def _on_truncate(self, replica: _Replica, first_index: int) -> None:
        counts = self._counts
        if any(index >= first_index for _, index in replica.in_flight):
            counts.add(Reach.REWRITTEN_IN_FLIGHT)
        acknowledged = replica.acknowledged
        rows = _forget_from(replica, first_index)
        groups = [index for index, (_, is_data) in rows.items() if is_data]
        if len(groups) >= 2:
            counts.add(Reach.TRUNCATED_BATCHES)
        if any(index <= acknowledged for index in groups):
            counts.add(Reach.TRUNCATED_ACKNOWLEDGED)
        if any(self._late_majority.get(index) == term for index, (term, _) in rows.items()):
            counts.add(Reach.FIGURE_EIGHT)
        replica.dropped.update((index, term) for index, (term, _) in rows.items())
        kept = first_index - 1
        replica.durable = min(replica.durable, kept)
        replica.in_flight = deque((seq, min(index, kept)) for seq, index in replica.in_flight)

    def _is_on_majority(self, index: int, term: int) -> bool:
        holders = sum(
            each.durable >= index and _term_at(each, index) == term
            for each in self._replicas.values()
        )
        return holders >= self._majority


def _term_at(replica: _Replica, index: int) -> int:
    """0 where the observer was not told."""
    row = replica.rows.get(index)
    return 0 if row is None else row[0]


def _forget_from(replica: _Replica, first_index: int) -> dict[int, tuple[int, bool]]:
    """The entries from `first_index` on are gone; returns them."""
    gone = {}
    for index in range(first_index, replica.last_index + 1):
        row = replica.rows.pop(index, None)
        if row is not None:
            gone[index] = row
    replica.last_index = min(replica.last_index, first_index - 1)
    replica.acknowledged = min(replica.acknowledged, first_index - 1)
    return gone
