"""The must-reach list: situations that many seeds must meet (FAULTS section 3.3).

Owns their names, how often each was met in a run, and which facts show each. Must not know who
tells those. A comment beside a name has the fact where it is no event or effect of a core.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from enum import StrEnum

from actors.observer import FolderRecovered, PairsRemoved, RetryKnown, SpareUsed
from actors.simulation.checkers import client_facts, consequences, facts
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.oracle.replica_log import ReplicaLog, forget_from, term_at
from logstore.errors import ErrorCode
from logstore.format.entry import takes_lsns
from logstore.format.level import level_of
from logstore.format.peer_messages import (
    AppendPersisted,
    Heartbeat,
    PreVoteReply,
    PreVoteRequest,
    VoteReply,
)
from logstore.format.session_entries import ExpireEntry
from logstore.format.trim_entry import TrimReason
from logstore.model import EntryKind, Role
from logstore.raft.effects import (
    Answer,
    ApplyTrim,
    Committed,
    InstallLog,
    Lead,
    MembersChanged,
    MoveLogStart,
    Persist,
    ReadIndexAnswered,
    SaveMeta,
    StopLeading,
    StreamAccepted,
    TransferAnswered,
    Truncate,
)
from logstore.raft.events import (
    AppendReceived,
    ConnectionLost,
    ControlReceived,
    DiskFullChanged,
    EntryRotted,
    LogStartMoved,
    Persisted,
    Tick,
)
from logstore.raft.quorum import majority


class Reach(StrEnum):
    """Each is a schedule or state in which there were bugs, here or elsewhere."""

    TRUNCATED_BATCHES = "truncation of at least two groups"
    TRUNCATED_ACKNOWLEDGED = "truncation of a group this follower had acknowledged to a leader"
    FIGURE_EIGHT = "truncation of an entry that a majority had flushed in a later term (figure 8)"
    REWRITTEN_IN_FLIGHT = "truncation of an entry whose flush was under way"
    REWRITTEN_ABA = "an entry truncated and later taken again, by one incarnation (A, C, A)"
    DEPOSED_WHILE_FLUSHING = "a leader deposed with a flush under way"
    DEPOSED_WITHOUT_QUORUM = "a leader that stepped down because it heard no majority"
    COMMITTED_BEFORE_OWN_FLUSH = "a commit by the followers before the leader's own flush"
    STREAM_REJECTED = "a stream that did not match the follower's log"
    LOST_LEADER_REPLACED = "a new leader that had lost its connection to the one before"
    LOST_LEADER_HEARD = "a lost connection to a leader that is heard again in the same term"
    SPLIT_VOTE = "two candidates in one term"
    ELECTION_WITH_FAULTY_VOTER = "a vote given, or an election won, by a replica with damage"
    DAMAGED_TAIL_DECIDES = "a log that lacks only what is damaged in a voter's asked it for a vote"
    FAULTY_FOUND = "a damaged entry found at start or by a reader"
    UNFLUSHED_LOST = "a start that found fewer entries than were handed to the writer"
    DISK_FULL_OVER = "a full disk, and space again within one incarnation"
    TRANSFER_DONE = "a handover of leadership that worked"
    READ_INDEX_ANSWERED = "a linearizable read answered by the leader"
    RING_OVERWRITTEN = "a copy out of the payload ring that came too late"  # RingOverwritten
    ORPHAN_ADOPTED = "a frame without a record adopted at start"  # FolderRecovered
    TORN_TAIL = "a torn tail discarded at start"  # FolderRecovered
    META_COPY_BAD = "one of the two META copies damaged at start"  # FolderRecovered
    SPARE_ROLLED = "a roll into a segment pair prepared beforehand"  # SpareUsed
    LYING_FLUSH_RECOVERED = "a start after a power cut of a device that lied"  # PowerCutAfterLie
    SNAPSHOT_USED = "a session table rebuilt from a SESSION entry"  # TableRebuilt
    SNAPSHOT_IN_PARTS = "a session table rebuilt from several SESSION entries"  # TableRebuilt
    SNAPSHOT_WITHOUT_END = "a snapshot whose leader ended amid its parts"  # TableRebuilt
    DEDUP_UNCOMMITTED = "a retry that met its first copy before that was committed"  # RetryKnown
    DEDUP_COMMITTED = "a retry answered with the LSNs of its first copy"  # RetryKnown
    FENCED = "a producer told of a newer epoch"  # BatchRefused
    COMMITTED_LSN_UNKNOWN = "a retry told that its LSNs have left the window"  # BatchRefused
    GAP = "a producer told of a sequence it left out"  # BatchRefused
    SEQUENCE_REUSED = "other bytes under a used sequence refused"  # BatchRefused
    NEXT_LSN_IS = "an append refused, because the log did not end where it expected"  # BatchRefused
    SESSION_EXPIRED = "a session given up for a new one"  # SessionOrdered
    EXPIRED_CAME_BACK = "a batch refused, because its session had been given up"  # SessionDenied
    COMPRESSION_REFUSED = "a compressed batch refused at a level too low"  # BatchRefused
    ANSWERED_THERE = "batches answered over the connection that they came over"  # AnsweredThere
    AWAITED_THERE = "a batch under way told to a newer connection, once committed"  # AnsweredThere
    IMPORT_MOVED = "an import that went on at another leader"  # ImportMoved
    LEVEL_RAISED = "the log's format level raised"  # LevelCommitted
    LEVEL_NOT_TAKEN = "an entry of a format level that this follower's version does not read"
    LEVEL_REFUSED = "a start of a version that does not read the log's format level"  # LevelRefused
    TRIM_REFUSED = "a trim of a log whose format level is too low for it"  # TrimRefused
    LOG_START_INSIDE = "a log start that moved inside a segment pair"  # PairsRemoved
    PAIRS_REMOVED = "segment pairs removed below a log start"  # PairsRemoved
    TRIMMED_STARTED = "a start of a log that was trimmed"
    TRIM_INTERRUPTED = "a start after a TRIM that was carried out in META only, or in part"
    TRIM_CARRIED_OUT_LATER = "a TRIM found in the log at a start, and carried out after it"
    READ_OF_WHAT_IS_GONE = "a client told that what it asks for was trimmed"  # RangeGone
    GIVEN_UP_BY_LEADER = "a TRIM that a leader decided by itself, committed"  # TrimRead
    COLLECTED_BELOW_FOLLOWER = "a follower that ended below its leader's log start"
    INSTALL_INTERRUPTED = "a start after a log was ordered dropped, and nothing was answered"
    LOG_INSTALLED = "a log start installed on a follower"
    START_TAKEN_WHILE_FULL = "a full follower that begins where its leader says, and keeps the rest"
    CONFIG_ROLLED_BACK = "a configuration change during a partition, and its rollback"
    REPLACED_AFTER_LOSS = "a lost disk, and its node back under a new uuid"
    REPLACED_BY_OPERATOR = "a lost disk's place given to another replica by an operator"
    # Their features are not built.
    REPAIRED_ON_LEADER = "repair of a rotted committed entry on the leader"
    REPAIRED_ON_FOLLOWER = "repair of a rotted committed entry on a follower"
    DISCARDED_BY_MAJORITY = "a faulty entry discarded after a majority did not have it"


NOT_BUILT: dict[Reach, str] = {
    Reach.REPAIRED_ON_LEADER: "repair of damaged entries from peers (REPAIR)",
    Reach.REPAIRED_ON_FOLLOWER: "repair of damaged entries from peers (REPAIR)",
    Reach.DISCARDED_BY_MAJORITY: "repair of damaged entries from peers (REPAIR)",
}
MUST_REACH = tuple(each for each in Reach if each not in NOT_BUILT)

_OF_ONE_NAME = ("FENCED", "COMMITTED_LSN_UNKNOWN", "GAP", "SEQUENCE_REUSED", "NEXT_LSN_IS")
_BY_REFUSAL = {ErrorCode[name]: Reach[name] for name in _OF_ONE_NAME}
_BY_REFUSAL[ErrorCode.LEVEL_REFUSED] = Reach.COMPRESSION_REFUSED


def missing(reached: dict[str, int]) -> list[Reach]:
    """What must be reached and was not."""
    return [each for each in MUST_REACH if not reached.get(each.name)]


class ReachObserver:
    """Reads facts as a checker does and counts what was met. `nodes`: all machines, so many of
    them founders; 0: all."""

    def __init__(self, nodes: Sequence[int], *, founders: int = 0) -> None:
        self._counts: Counter[Reach] = Counter()
        self._replicas = {node: ReplicaLog(node) for node in nodes}
        self._majority = majority(founders or len(nodes))
        self._committed = 0
        self._late_majority: dict[int, int] = {}  # index → term, flushed by a majority in a later
        self._candidates: dict[int, int] = {}  # term → the first candidate
        self._expired: set[int] = set()  # producer ids
        self._on_other_disk: set[int] = set()  # nodes that are no voters yet as what they are now
        self._lost: dict[int, int] = {}  # nodes that lost their leader → its term

    def counts(self) -> dict[str, int]:
        """How often each was met so far, by name, in the order of `Reach`."""
        return {each.name: self._counts[each] for each in Reach if self._counts[each]}

    def _add(self, reach: Reach) -> None:
        self._counts[reach] += 1

    # --- disks and starts ---

    @reads(facts.CoreMade)
    def on_core(self, made: facts.CoreMade) -> None:
        replica, log = self._replicas[made.node], made.log
        last_index = log.start.index if log.last is None else log.last.header.index
        if last_index < replica.last_index:
            self._add(Reach.UNFLUSHED_LOST)
        forget_from(replica, last_index + 1)
        replica.last_index = replica.found_index = last_index
        replica.newest_trim = 0
        if replica.installing_seq:
            self._add(Reach.INSTALL_INTERRUPTED)
            replica.installing_seq = 0
        if log.start.index:
            self._add(Reach.TRIMMED_STARTED)
        if log.start.index > replica.start_index:
            self._add(Reach.TRIM_INTERRUPTED)
        replica.start_index = log.start.index
        self._flushed(replica, log.persisted, log.term)
        replica.in_flight.clear()
        replica.dropped.clear()
        replica.is_full = False
        if log.faulty:
            self._add(Reach.FAULTY_FOUND)
        if replica.has_lied:
            replica.has_lied = False
            self._add(Reach.LYING_FLUSH_RECOVERED)

    @reads(facts.DiskLost, facts.DiskSwapped)
    def on_disk(self, lost: facts.DiskLost | facts.DiskSwapped) -> None:
        """Another replica."""
        self._replicas[lost.node] = ReplicaLog(lost.node)
        self._on_other_disk.add(lost.node)

    @reads(MembersChanged)
    def on_members(self, node: Replica, changed: MembersChanged, _step: facts.Stepped) -> None:
        """A replica on a new disk knows that it is a voter."""
        if changed.is_committed and node.node in self._on_other_disk:
            places = {(each.number, each.uuid) for each in changed.configuration.voters}
            if (node.node, node.uuid) in places:
                self._on_other_disk.discard(node.node)
                self._add(Reach.REPLACED_AFTER_LOSS)

    @reads(facts.PlaceGiven)
    def on_place_given(self, _given: facts.PlaceGiven) -> None:
        self._add(Reach.REPLACED_BY_OPERATOR)

    @reads(facts.PowerCutAfterLie)
    def on_lie(self, lie: facts.PowerCutAfterLie) -> None:
        self._replicas[lie.node].has_lied = True

    @reads(facts.RingOverwritten)
    def on_overwritten(self, _overwritten: facts.RingOverwritten) -> None:
        self._add(Reach.RING_OVERWRITTEN)

    @reads(FolderRecovered)
    def on_folder(self, folder: FolderRecovered) -> None:
        if folder.records_rebuilt:
            self._add(Reach.ORPHAN_ADOPTED)
        if folder.has_torn_tail:
            self._add(Reach.TORN_TAIL)
        if folder.meta_copies_whole == 1:
            self._add(Reach.META_COPY_BAD)

    @reads(SpareUsed)
    def on_spare(self, _spare: SpareUsed) -> None:
        self._add(Reach.SPARE_ROLLED)

    @reads(PairsRemoved)
    def on_removed(self, removed: PairsRemoved) -> None:
        self._add(Reach.PAIRS_REMOVED if removed.pairs else Reach.LOG_START_INSIDE)

    @reads(ApplyTrim)
    def on_trim(self, node: Replica, trim: ApplyTrim, _step: facts.Stepped) -> None:
        self._replicas[node.node].newest_trim = trim.index

    @reads(MoveLogStart)
    def on_start_taken(self, node: Replica, move: MoveLogStart, _step: facts.Stepped) -> None:
        replica = self._replicas[node.node]
        replica.start_sent = move.start.position.index
        if replica.is_full:
            self._add(Reach.START_TAKEN_WHILE_FULL)

    @reads(LogStartMoved)
    def on_moved(self, node: Replica, moved: LogStartMoved, _step: facts.Stepped) -> None:
        replica = self._replicas[node.node]
        replica.start_index = moved.start.position.index
        if replica.start_index != replica.start_sent and replica.newest_trim <= replica.found_index:
            self._add(Reach.TRIM_CARRIED_OUT_LATER)

    @reads(client_facts.TrimRefused)
    def on_trim_refused(self, _refused: client_facts.TrimRefused) -> None:
        self._add(Reach.TRIM_REFUSED)

    @reads(consequences.TrimRead)
    def on_trim_read(self, trim: consequences.TrimRead) -> None:
        if trim.entry.reason is not TrimReason.OPERATOR:
            self._add(Reach.GIVEN_UP_BY_LEADER)

    @reads(InstallLog)
    def on_install(self, node: Replica, install: InstallLog, _step: facts.Stepped) -> None:
        replica, index = self._replicas[node.node], install.start.position.index
        if replica.last_index < index:
            self._add(Reach.COLLECTED_BELOW_FOLLOWER)
        forget_from(replica, 1)
        replica.installing_seq = install.seq
        replica.last_index = replica.start_index = index

    @reads(Persisted)
    def on_installed(self, node: Replica, persisted: Persisted, _step: facts.Stepped) -> None:
        replica = self._replicas[node.node]
        if 0 < replica.installing_seq <= persisted.seq:
            replica.installing_seq = 0
            self._add(Reach.LOG_INSTALLED)

    @reads(client_facts.RangeGone)
    def on_gone(self, _gone: client_facts.RangeGone) -> None:
        self._add(Reach.READ_OF_WHAT_IS_GONE)

    @reads(DiskFullChanged)
    def on_disk_full(self, node: Replica, disk: DiskFullChanged, _step: facts.Stepped) -> None:
        replica = self._replicas[node.node]
        if replica.is_full and not disk.is_full:
            self._add(Reach.DISK_FULL_OVER)
        replica.is_full = disk.is_full

    @reads(EntryRotted)
    def on_rotted(self, _node: Replica, _rot: EntryRotted, _step: facts.Stepped) -> None:
        self._add(Reach.FAULTY_FOUND)

    # --- sessions and clients ---

    @reads(facts.TableRebuilt)
    def on_table(self, table: facts.TableRebuilt) -> None:
        if table.snapshot_parts:
            self._add(Reach.SNAPSHOT_USED)
        if table.snapshot_parts > 1:
            self._add(Reach.SNAPSHOT_IN_PARTS)
        if table.passed_over:
            self._add(Reach.SNAPSHOT_WITHOUT_END)

    @reads(RetryKnown)
    def on_retry(self, retry: RetryKnown) -> None:
        self._add(Reach.DEDUP_COMMITTED if retry.is_committed else Reach.DEDUP_UNCOMMITTED)

    @reads(consequences.SessionOrdered)
    def on_session(self, ordered: consequences.SessionOrdered) -> None:
        producer_id = ordered.entry.producer_id
        if isinstance(ordered.entry, ExpireEntry) and producer_id not in self._expired:
            self._expired.add(producer_id)
            self._add(Reach.SESSION_EXPIRED)

    @reads(facts.SessionDenied)
    def on_denied(self, denied: facts.SessionDenied) -> None:
        if denied.producer_id in self._expired:
            self._add(Reach.EXPIRED_CAME_BACK)

    @reads(client_facts.BatchRefused)
    def on_refused(self, refused: client_facts.BatchRefused) -> None:
        reach = _BY_REFUSAL.get(ErrorCode(refused.code))
        if reach is not None:
            self._add(reach)

    @reads(client_facts.AnsweredThere)
    def on_answered_there(self, answered: client_facts.AnsweredThere) -> None:
        self._add(Reach.AWAITED_THERE if answered.is_awaited else Reach.ANSWERED_THERE)

    @reads(client_facts.ImportMoved)
    def on_import_moved(self, _moved: client_facts.ImportMoved) -> None:
        self._add(Reach.IMPORT_MOVED)

    # --- format levels ---

    @reads(facts.VersionStarted)
    def on_version(self, started: facts.VersionStarted) -> None:
        self._replicas[started.node].newest_level = started.newest_level

    @reads(consequences.LevelCommitted)
    def on_level(self, _committed: consequences.LevelCommitted) -> None:
        self._add(Reach.LEVEL_RAISED)

    @reads(AppendReceived)
    def on_append(self, node: Replica, received: AppendReceived, _step: facts.Stepped) -> None:
        """Hot."""
        if level_of(received.append.header.kind) > self._replicas[node.node].newest_level:
            self._add(Reach.LEVEL_NOT_TAKEN)

    @reads(facts.LevelRefused)
    def on_level_refused(self, _refused: facts.LevelRefused) -> None:
        self._add(Reach.LEVEL_REFUSED)

    # --- what cores do ---

    @reads(Persisted)
    def on_persisted(self, node: Replica, persisted: Persisted, step: facts.Stepped) -> None:
        replica = self._replicas[node.node]
        in_flight = replica.in_flight
        while in_flight and in_flight[0][0] <= persisted.seq:
            in_flight.popleft()
        self._flushed(replica, step.core.persisted, step.core.term)

    def _flushed(self, replica: ReplicaLog, durable: int, now_term: int) -> None:
        before, replica.durable = replica.durable, durable
        for index in range(before + 1, durable + 1):
            term = term_at(replica, index)
            is_late = 0 < term < now_term and index > self._committed
            if is_late and self._is_on_majority(index, term):
                self._late_majority[index] = term

    @reads((Answer, AppendPersisted))
    def on_match_told(self, node: Replica, answer: Answer, _step: facts.Stepped) -> None:
        if isinstance(answer.message, AppendPersisted):
            replica = self._replicas[node.node]
            replica.acknowledged = max(replica.acknowledged, answer.message.index)

    @reads((Answer, VoteReply))
    def on_vote(self, _node: Replica, answer: Answer, step: facts.Stepped) -> None:
        if isinstance(answer.message, VoteReply) and answer.message.is_granted:
            self._count_damaged_voter(step)

    @reads((Answer, PreVoteReply))
    def on_pre_vote(self, node: Replica, _answer: Answer, step: facts.Stepped) -> None:
        """Without its damaged tail, the voter would have no reason to refuse (SAFETY Q2)."""
        event, voter = step.event, self._replicas[node.node]
        request = event.message if isinstance(event, ControlReceived) else None
        if (
            step.core.faulty
            and isinstance(request, PreVoteRequest)
            and request.last_term == term_at(voter, voter.last_index)
            and step.core.persisted <= request.last_index < voter.last_index
        ):
            self._add(Reach.DAMAGED_TAIL_DECIDES)

    @reads(ConnectionLost)
    def on_lost(self, node: Replica, lost: ConnectionLost, step: facts.Stepped) -> None:
        if lost.peer == node.heard_node:
            self._lost[node.node] = step.core.term

    @reads((ControlReceived, Heartbeat))
    def on_heartbeat(self, node: Replica, event: ControlReceived, _step: facts.Stepped) -> None:
        if self._lost and self._lost.pop(node.node, 0) == event.message.term:
            self._add(Reach.LOST_LEADER_HEARD)

    @reads(Lead)
    def on_lead(self, node: Replica, lead: Lead, step: facts.Stepped) -> None:
        self._count_damaged_voter(step)
        if self._lost.pop(node.node, -1) == lead.term - 1:
            self._add(Reach.LOST_LEADER_REPLACED)

    def _count_damaged_voter(self, step: facts.Stepped) -> None:
        if step.core.faulty:
            self._add(Reach.ELECTION_WITH_FAULTY_VOTER)

    @reads(Committed)
    def on_committed(self, _node: Replica, committed: Committed, step: facts.Stepped) -> None:
        self._committed = max(self._committed, committed.index)
        if step.core.persisted < committed.index:
            self._add(Reach.COMMITTED_BEFORE_OWN_FLUSH)

    @reads(StopLeading)
    def on_stop(self, node: Replica, stop: StopLeading, step: facts.Stepped) -> None:
        if self._replicas[node.node].in_flight:
            self._add(Reach.DEPOSED_WHILE_FLUSHING)
        if type(step.event) is Tick and step.core.term == stop.term:
            self._add(Reach.DEPOSED_WITHOUT_QUORUM)

    @reads(SaveMeta)
    def on_save(self, node: Replica, save: SaveMeta, step: facts.Stepped) -> None:
        if save.vote == node.node and step.core.role is Role.CANDIDATE:
            if self._candidates.setdefault(save.term, node.node) != node.node:
                self._add(Reach.SPLIT_VOTE)

    @reads(StreamAccepted)
    def on_stream(self, _node: Replica, stream: StreamAccepted, _step: facts.Stepped) -> None:
        if stream.is_dead:
            self._add(Reach.STREAM_REJECTED)

    @reads(TransferAnswered)
    def on_transfer(self, _node: Replica, transfer: TransferAnswered, _step: facts.Stepped) -> None:
        if transfer.is_done:
            self._add(Reach.TRANSFER_DONE)

    @reads(ReadIndexAnswered)
    def on_read_index(self, _node: Replica, read: ReadIndexAnswered, _step: facts.Stepped) -> None:
        if read.is_leader:
            self._add(Reach.READ_INDEX_ANSWERED)

    @reads(Persist)
    def on_persist(self, node: Replica, effect: Persist, _step: facts.Stepped) -> None:
        replica, header = self._replicas[node.node], effect.header
        if (header.index, header.term) in replica.dropped:
            self._add(Reach.REWRITTEN_ABA)
        replica.rows[header.index] = (header.term, takes_lsns(header.kind))
        replica.last_index = header.index
        if header.kind == EntryKind.CONFIG:
            replica.configs.add(header.index)
        replica.in_flight.append((effect.seq, header.index))

    @reads(Truncate)
    def on_truncate(self, node: Replica, effect: Truncate, _step: facts.Stepped) -> None:
        replica, first_index = self._replicas[node.node], effect.first_index
        if any(index >= first_index for index in replica.configs):
            self._add(Reach.CONFIG_ROLLED_BACK)
            replica.configs = {index for index in replica.configs if index < first_index}
        if any(index >= first_index for _, index in replica.in_flight):
            self._add(Reach.REWRITTEN_IN_FLIGHT)
        acknowledged = replica.acknowledged
        rows = forget_from(replica, first_index)
        groups = [index for index, (_, is_data) in rows.items() if is_data]
        if len(groups) >= 2:
            self._add(Reach.TRUNCATED_BATCHES)
        if any(index <= acknowledged for index in groups):
            self._add(Reach.TRUNCATED_ACKNOWLEDGED)
        if any(self._late_majority.get(index) == term for index, (term, _) in rows.items()):
            self._add(Reach.FIGURE_EIGHT)
        replica.dropped.update((index, term) for index, (term, _) in rows.items())
        kept = first_index - 1
        replica.durable = min(replica.durable, kept)
        replica.in_flight = deque((seq, min(index, kept)) for seq, index in replica.in_flight)

    def _is_on_majority(self, index: int, term: int) -> bool:
        logs = self._replicas.values()
        holders = sum(each.durable >= index and term_at(each, index) == term for each in logs)
        return holders >= self._majority
