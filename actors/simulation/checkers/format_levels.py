"""Format levels: which leader may raise the log's level, which replicas must know it, which must
refuse it, what clients and peers may be told about it, and that nothing is trimmed below level 2
and no compressed batch is stored below level 3 (SAFETY S11; I10, I21).

Owns the version of each replica, what each leader has heard of the others' versions, and the level
of the committed log. A follower's answer speaks for the incarnation that its boot counter names: an
answer of an earlier incarnation than one already heard proves nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field

from actors.simulation.checkers import client_facts, facts
from actors.simulation.checkers.consequences import (
    BatchFound,
    LevelCommitted,
    SessionCommitted,
    TermMoved,
)
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.configuration_body import NO_UUID
from logstore.format.entry import EntryHeader
from logstore.format.level import (
    COMPRESSION_LEVEL,
    CONFIG_LEVEL,
    FIRST_LEVEL,
    NEWEST_LEVEL,
    TRIM_LEVEL,
    level_kind,
    level_of,
)
from logstore.format.peer_messages import HeartbeatReply
from logstore.format.session_entries import OpenEntry
from logstore.model import EntryKind
from logstore.raft.effects import MembersChanged, Persist, SaveLevel, SaveMeta, Visible
from logstore.raft.events import (
    ControlReceived,
    LevelRequested,
    MetaPersisted,
    StreamAnswer,
    Tick,
)


@dataclass(slots=True)
class Version:
    """Of one replica: the newest level that it reads; the level that it believes the log to have;
    the entries of this incarnation that raise it; its commit index; what it has heard of its peers
    in this term: after how many changes of its disk, boot, and the level that this boot reads, 0:
    not known; the uuids of the members, by its log; saves of META that are not answered: number,
    and the level that was ordered before.
    """

    newest: int = FIRST_LEVEL
    level: int = FIRST_LEVEL
    entries: set[int] = field(default_factory=set)
    commit: int = -1
    heard: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    uuids: dict[int, bytes] = field(default_factory=dict)
    saving: deque[tuple[int, int]] = field(default_factory=deque)


class FormatLevels:
    """Of all replicas and of the committed log."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._versions = {node: Version() for node in record.replicas}
        self._level = FIRST_LEVEL  # of the committed log
        self._raised: list[tuple[int, int]] = []  # (index, level) of its entries, both rise
        self._asked: set[int] = set()
        self._opened: dict[tuple[int, int], int] = {}  # by producer and epoch, the level then
        self._durable = dict.fromkeys(record.replicas, FIRST_LEVEL)  # in META, as far as is known
        self._disks = dict.fromkeys(record.replicas, 0)  # changes of the node's disk

    # --- versions ---

    @reads(facts.VersionStarted)
    def on_version(self, started: facts.VersionStarted) -> None:
        self._versions[started.node] = Version(started.newest_level)

    @reads(facts.DiskLost, facts.DiskSwapped)
    def on_disk(self, lost: facts.DiskLost | facts.DiskSwapped) -> None:
        self._versions[lost.node] = Version()
        self._durable[lost.node] = FIRST_LEVEL
        self._disks[lost.node] += 1

    @reads(facts.CoreMade)
    def on_core(self, made: facts.CoreMade) -> None:
        """A version runs on what recovery found."""
        log, version = made.log, self._versions[made.node]
        found = max([log.level, *(level for _, level in log.levels)])
        if found > version.newest:
            text = f"node {made.node} reads levels up to {version.newest}"
            self._report(f"{text}, and runs on a log at level {found}")
        if log.level > self._level:
            text = f"META of node {made.node} has level {log.level}"
            self._report(f"{text}, the committed log {self._level}")
        durable = self._durable[made.node]
        if log.level < durable and not self._record.is_excused(made.node):
            text = f"META of node {made.node} has level {log.level}"
            self._report(f"{text}, a save after level {durable} was answered")
        version.entries = {int(index) for index, _ in log.levels}
        floor = [level for index, level in log.levels if index <= log.commit_floor]
        version.level = max([log.level, *floor])
        damaged = {each for first, last in log.faulty for each in range(first, last + 1)}
        self._check_known(made.node, version, commit=log.commit_floor, damaged=damaged)

    @reads(facts.LevelRefused)
    def on_refused(self, refused: facts.LevelRefused) -> None:
        newest, known = self._versions[refused.node].newest, self._record.entries.newest_level
        if known <= newest:
            text = f"node {refused.node} refuses its log and reads levels up to {newest}"
            self._report(f"{text}; no entry is above {known}")

    # --- META ---

    @reads_after(SaveMeta)
    def on_save(self, replica: Replica, save: SaveMeta, _step: Stepped) -> None:
        version = self._versions[replica.node]
        version.saving.append((save.seq, version.level))

    @reads(MetaPersisted)
    def on_saved(self, replica: Replica, saved: MetaPersisted, _step: Stepped) -> None:
        """META is written in the order of the orders."""
        saving = self._versions[replica.node].saving
        while saving and saving[0][0] <= saved.seq:
            self._durable[replica.node] = saving.popleft()[1]

    # --- what a leader hears ---

    @reads(TermMoved)
    def on_term(self, moved: TermMoved) -> None:
        self._versions[moved.replica.node].heard.clear()

    @reads_after(MembersChanged)
    def on_members(self, replica: Replica, _changed: MembersChanged, _step: Stepped) -> None:
        """Nothing is known of a replica that comes under the number of another one, whose last
        answer may have come late."""
        version, uuids = self._versions[replica.node], self._record.electorate(replica).uuids
        before = version.uuids or self._record.electorates.first.uuids
        for peer in list(version.heard):
            if before.get(peer) not in (uuids.get(peer), NO_UUID):
                del version.heard[peer]
        version.uuids = uuids

    @reads((ControlReceived, HeartbeatReply))
    def on_reply(self, replica: Replica, received: ControlReceived, step: Stepped) -> None:
        message = received.message
        if isinstance(message, HeartbeatReply) and step.leads(message.term):
            self._hear(replica, received.sender, received.boot, max(1, message.newest_level))

    @reads(StreamAnswer)
    def on_answer(self, replica: Replica, answer: StreamAnswer, step: Stepped) -> None:
        if step.leads(answer.message.term):
            self._hear(replica, answer.sender, answer.boot, 0)

    def _hear(self, replica: Replica, peer: int, boot: int, newest: int) -> None:
        """The boots of a replica on another disk are counted from 1 again."""
        heard, disk = self._versions[replica.node].heard, self._disks[peer]
        known_disk, known_boot, known = heard.get(peer, (disk, 0, 0))
        if boot > known_boot or (boot < known_boot and disk != known_disk):
            heard[peer] = (disk, boot, newest)
        elif boot == known_boot:
            heard[peer] = (known_disk, boot, newest or known)

    # --- entries ---

    @reads(Persist)
    def on_entry(self, replica: Replica, persist: Persist, step: Stepped) -> None:
        """Hot: nearly all raise nothing."""
        kind = persist.header.kind
        level = level_of(kind)
        if not level:
            if kind == EntryKind.CONFIG and self._level < CONFIG_LEVEL:
                text = f"node {replica.node} writes CONFIG {persist.header.index}"
                self._report(f"{text}, the committed log is at {self._level}")
            if kind == EntryKind.TRIM and self._level < TRIM_LEVEL:
                text = f"node {replica.node} writes TRIM {persist.header.index}"
                self._report(f"{text}, the committed log is at {self._level}")
            return
        version, node = self._versions[replica.node], replica.node
        version.entries.add(int(persist.header.index))
        if level > version.newest:
            text = f"node {node} reads levels up to {version.newest}"
            self._report(f"{text}, and takes entry {persist.header.index}, which raises to {level}")
        if isinstance(step.event, LevelRequested):
            if level not in self._asked:
                self._report(f"node {node} raises the log to level {level}, no client asked")
            self._check_raise(replica, version, level)
        elif isinstance(step.event, Tick) and self._is_log_new(persist.header):
            self._check_raise(replica, version, level)
        elif step.core.term == persist.header.term and step.leads(step.core.term):
            self._report(f"node {node} raises the log to level {level}, nobody asked it")

    def _check_raise(self, replica: Replica, version: Version, level: int) -> None:
        node = replica.node
        if level > self._level + 1:
            self._report(f"node {node} raises the log from level {self._level} to {level}")
        # A learner that is silent is not asked, and when it was heard last is not known here.
        for peer in sorted(self._record.electorate(replica).numbers):
            _, boot, newest = version.heard.get(peer, (0, 0, 0))
            if peer != node and newest < level:
                text = f"node {node} raises the log to level {level}; all it heard of node {peer} "
                self._report(f"{text}in this term is that its boot {boot} reads {newest}")

    def _is_log_new(self, header: EntryHeader) -> bool:
        """No entry that is older than the leader's term has a body: then it needs no operator."""
        headers = self._record.entries.headers
        first = header
        while first.prev_chain in headers and headers[first.prev_chain].term == header.term:
            first = headers[first.prev_chain]
        return header.kind <= level_kind(NEWEST_LEVEL) and first.cumulative_bytes == 0

    @reads(LevelCommitted)
    def on_committed(self, committed: LevelCommitted) -> None:
        if committed.level < self._level:
            self._report(f"the log falls from level {self._level} to {committed.level}")
        elif committed.level > self._level:
            self._level = committed.level
            self._raised.append((committed.index, committed.level))

    @reads(BatchFound)
    def on_batch(self, found: BatchFound) -> None:
        """It is committed, after all that is below it."""
        batch = found.batch
        if batch.codec and self._level < COMPRESSION_LEVEL and self._record.is_replica_known:
            text = f"the batch at LSN {batch.first_lsn} is compressed, with codec {batch.codec}"
            self._report(f"{text}, the committed log is at level {self._level}")

    @reads(SessionCommitted)
    def on_session(self, committed: SessionCommitted) -> None:
        entry = committed.entry
        if isinstance(entry, OpenEntry):
            self._opened[entry.producer_id, entry.producer_epoch] = self._level

    @reads_after(Visible)
    def on_visible(self, replica: Replica, visible: Visible, _step: Stepped) -> None:
        """Hot: it is committed up to here."""
        version = self._versions[replica.node]
        self._check_known(replica.node, version, commit=visible.index, damaged=replica.faulty)

    def _check_known(
        self, node: int, version: Version, *, commit: int, damaged: Container[int]
    ) -> None:
        """A replica that knows that an entry is committed knows the level that it raised to; if
        damage hides the entry there, it learns it soon."""
        version.commit = commit
        for index, raised in reversed(self._raised):
            if index <= commit:
                if version.level < raised and (index in version.entries or index not in damaged):
                    text = f"node {node} believes in level {version.level} at commit index {commit}"
                    self._report(f"{text}, entry {index} raised the log to {raised}")
                return

    @reads_after(SaveLevel)
    def on_level(self, replica: Replica, save: SaveLevel, _step: Stepped) -> None:
        """A replica believes so from now on, and may write and send forms of this level."""
        version = self._versions[replica.node]
        if save.level > self._level:
            text = f"node {replica.node} goes to level {save.level}"
            self._report(f"{text}, the committed log is at {self._level}")
        if save.level < version.level:
            text = f"node {replica.node} goes from level {version.level} back to {save.level}"
            self._report(text)
        version.level = save.level

    @reads(facts.Converged)
    def on_converged(self, _converged: facts.Converged) -> None:
        for node, version in self._versions.items():
            is_running = self._record.replicas[node].is_running
            raised_at = self._raised[-1][0] if self._raised else 0
            must_know = not self._record.is_excused(node) or version.commit >= raised_at
            if (
                is_running
                and self._record.is_member(node)
                and must_know
                and version.level != self._level
            ):
                text = f"node {node} believes in level {version.level} in the end"
                self._report(f"{text}, the committed log is at {self._level}")

    # --- clients ---

    @reads(client_facts.LevelAsked)
    def on_asked(self, asked: client_facts.LevelAsked) -> None:
        self._asked.add(asked.level)

    @reads(client_facts.LevelTold)
    def on_told(self, told: client_facts.LevelTold) -> None:
        if told.level > self._level and self._record.is_replica_known:
            text = f"level {told.level} is told as raised, the committed log is at {self._level}"
            self._findings.report(Invariant.I10, text)
        if told.level < told.asked:
            self._report(f"level {told.asked} is answered as raised, with level {told.level}")

    @reads(client_facts.CompressionRefused)
    def on_compression_refused(self, refused: client_facts.CompressionRefused) -> None:
        """A replica that knows the session knows what was committed before it."""
        numbers = refused.producer_id, refused.producer_epoch
        before = self._opened.get(numbers, FIRST_LEVEL)
        if refused.level >= COMPRESSION_LEVEL or before >= COMPRESSION_LEVEL:
            text = f"epoch {numbers[1]} of producer {numbers[0]} was opened at level {before}"
            self._report(f"{text}, and refused compression at level {refused.level}")

    def _report(self, text: str) -> None:
        self._findings.report(Invariant.I21, text)
