"""One replica of the virtual cluster: a core, its streams, a disk that forgets, a ring account.

The disk executes Persist, Truncate and SaveMeta in order; a crash keeps a prefix of what was
ordered and not yet flushed. Every ring range handed to the core must be settled exactly once
(SAFETY M4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from logstore.errors import CorruptData
from logstore.format.configuration_body import Configuration
from logstore.format.entry import EntryHeader, Row, chain_start
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL, level_of
from logstore.format.peer_messages import Append, Install
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, EntryKind, Index, Lsn, NodeId, Role, Term
from logstore.raft.configuration import present
from logstore.raft.core import RaftCore
from logstore.raft.effects import (
    Accepted,
    AdmissionClosed,
    Admit,
    Answer,
    ApplyTrim,
    ChangeAnswered,
    Committed,
    Describe,
    InstallLog,
    Lead,
    MembersChanged,
    MoveLogStart,
    Persist,
    ProposeConfiguration,
    Rewind,
    SaveLevel,
    SaveMeta,
    Send,
    Settle,
    StopLeading,
    StreamAccepted,
    TermEnded,
    Truncate,
    Visible,
)
from logstore.raft.events import LogStartMoved, MetaPersisted, Persisted, Proposed, Tick
from logstore.raft.log_view import Position, RecoveredLog, WholeLogStart
from logstore.raft.raft_config import RaftConfig
from logstore.raft.stream import FollowerStream, SendFromFile, SendFromRing, SendInstall

CLUSTER = bytes(range(16))
START = Position(NO_INDEX, NO_TERM, Lsn(1), chain_start(CLUSTER))
MS = 1_000_000
INSTALLED = EntryHeader(
    kind=EntryKind.NOOP, count=0, term=Term(0), index=Index(0), prev_term=Term(0),
    first_lsn=Lsn(0), timestamp_ns=0, cumulative_bytes=0, prev_chain=0, body_size=0, body_crc=0,
)  # fmt: skip


def recovered(
    rows: list[Row], *, term: int = 0, vote: int = 0, commit_floor: int = 0, **changes: Any
) -> RecoveredLog:
    """What recovery would hand over for a log of `rows`, whole unless `changes` say otherwise."""
    start: Position = changes.get("start", START)
    runs: list[tuple[Index, Term]] = []
    for row in rows[start.index :]:
        if not runs or runs[-1][1] != row.header.term:
            runs.append((row.header.index, row.header.term))
    values: dict[str, Any] = {
        "start": START,
        "last": rows[-1] if len(rows) > start.index else None,
        "term_runs": tuple(runs),
        "commit_floor": Index(commit_floor),
        "persisted": Index(len(rows)),
        "faulty": (),
        "term": Term(term),
        "vote": NodeId(vote),
        "trims": tuple(
            row.header.index for row in rows[start.index :] if row.header.kind == EntryKind.TRIM
        ),
        "levels": tuple(
            (row.header.index, level) for row in rows if (level := level_of(row.header.kind))
        ),
    }
    return RecoveredLog(**(values | changes))


def whole_start(row: Row) -> WholeLogStart:
    """The log start after the entry `row`."""
    header = row.header
    return WholeLogStart(
        Position.after(row), header.cumulative_bytes, header.timestamp_ns, FIRST_LEVEL
    )


def rows_below(start: WholeLogStart) -> list[Row]:
    """Rows that stand for the entries at or below a log start that was installed."""
    return [Row(INSTALLED, 0)] * start.position.index


class Leaving(NamedTuple):
    """A message to `peer`; `to`: an answer, which reaches no other replica; None: it goes to the
    address."""

    peer: NodeId
    message: Any
    to: bytes | None


class Files:
    """The Raft log as its files show it: what was written, flushed or not. `rows` has entries at
    or below the log start `start`, too, which the files do not."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.unreadable: set[int] = set()
        self.start = NO_INDEX

    def row(self, index: Index) -> Row:
        if index <= self.start:
            raise LookupError(index)
        if index in self.unreadable:
            raise CorruptData("1.raft", 0, expected="a record", got="damage")
        return self.rows[index - 1]


class VirtualNode:
    """What survives a crash is `durable_rows`, `durable_meta` and `boot`; all else is made anew."""

    def __init__(
        self,
        node: NodeId,
        config: RaftConfig,
        random: Random,
        *,
        others: Sequence[NodeId],
        contents: dict[int, Configuration],
    ) -> None:
        """`others`: to which it has replicators. `contents`: of CONFIG entries, by `body_crc`."""
        self.node = node
        self.config = config
        self.others = tuple(others)
        self.contents = contents
        self.random = random
        self.boot = 0
        self.durable_rows: list[Row] = []
        self.durable_floor = Index(0)
        self.durable_meta = (Term(0), NO_NODE)
        self.durable_start = WholeLogStart(START, 0, 0, FIRST_LEVEL)
        self.has_config = False  # says META
        self.installs = 0
        self.starts_taken = 0  # log starts that a leader sent, with what follows kept
        self.truncations = 0
        self.acknowledged: list[tuple[Term, Index]] = []
        self.start()

    def start(self) -> None:
        """A new incarnation over what the disk holds."""
        self.boot += 1
        self.files = Files()
        self.files.rows = list(self.durable_rows)
        self.files.start = self.durable_start.position.index
        term, vote = self.durable_meta
        at_start = self.durable_start.position
        has_rows = len(self.durable_rows) > at_start.index
        last_term = self.durable_rows[-1].header.term if has_rows else at_start.term
        if last_term > term:
            term, vote = last_term, NO_NODE
        state = recovered(
            self.durable_rows, term=term, vote=vote, commit_floor=self.durable_floor,
            start=self.durable_start.position, start_bytes=self.durable_start.cumulative_bytes,
            start_timestamp_ns=self.durable_start.timestamp_ns, level=self.durable_start.level,
            configurations=tuple(
                (row.header.index, self.contents[row.header.body_crc])
                for row in self.durable_rows if row.header.kind == EntryKind.CONFIG
            ),
            has_config=self.has_config,
        )  # fmt: skip
        self.core = RaftCore(self.config, state, self.files, Random(self.random.random()))
        self.streams = {peer: self._stream_to(peer) for peer in self.others}
        self.heard: dict[NodeId, tuple[bytes, int]] = {}  # by number: the newest uuid, and when
        self.bound: dict[NodeId, bytes] = {}  # by number: whose answers its replicator takes
        self.lanes: dict[NodeId, deque[Any]] = {peer: deque() for peer in self.others}
        self.unoffered: dict[NodeId, Describe] = {}
        self.to_write: deque[Any] = deque()
        self.to_flush: deque[Any] = deque()
        self.to_save: deque[SaveMeta] = deque()
        self.to_trim: deque[Index | WholeLogStart] = deque()
        self.written_seq = 0
        self.ring_position = 0
        self.unsettled: dict[int, int] = {}
        self.is_disk_full = False
        self.gen = 0
        self.prop = 0
        self.admitted_term = Term(0)
        self.is_admitting = False
        self.takes_batches = True
        self.proposals: deque[Proposed] = deque()
        self.visible = (-1, -1)
        self.accepted: dict[int, tuple[Term, Index]] = {}
        self.dead_stream: tuple[Term, int] | None = None
        self.changes_answered: dict[int, ChangeAnswered] = {}

    def _stream_to(self, peer: NodeId) -> FollowerStream:
        return FollowerStream(
            peer,
            mode=self.config.stream_mode,
            window_bytes=2_000,
            window_entries=8,
            resend_timeout_ns=300 * MS,
        )

    def takes(self, sender: NodeId, uuid: bytes, now_ns: int, *, is_answer: bool) -> bool:
        """Whether a message gets past the edges: an answer from whom it was asked for; a request
        from whom the configuration in force names, or while that one is silent."""
        named = self.bound.get(sender)
        if is_answer or named == uuid:
            is_taken = named in (None, uuid)
        else:
            known, heard_ns = self.heard.get(sender, (uuid, 0))
            is_taken = known == uuid or now_ns - heard_ns >= self.config.election_timeout_ns
        if is_taken and not is_answer:
            self.heard[sender] = (uuid, now_ns)
        return is_taken

    def crash(self) -> None:
        """Some prefix of what was ordered reaches the disk, then everything volatile is gone."""
        for _ in range(self.random.randrange(len(self.to_flush) + len(self.to_write) + 1)):
            if self.to_write:
                self.write_one()
            self.flush(1)
        for _ in range(self.random.randrange(len(self.to_save) + 1)):
            save = self.to_save.popleft()
            self.durable_meta = (save.term, save.vote)
        for _ in range(self.random.randrange(len(self.to_trim) + 1) if self.to_trim else 0):
            self.trim_event()
        self.start()

    # --- ring ---

    def reserve(self, size: int) -> tuple[int, int]:
        start = self.ring_position
        self.ring_position += size
        if size:
            self.unsettled[start] = self.ring_position
        return start, self.ring_position

    # --- disk ---

    def write_one(self) -> None:
        command = self.to_write.popleft()
        if isinstance(command, Truncate):
            self.truncations += 1
            while self.to_flush:  # F6: every earlier flush has ended
                self.flush(1)
            del self.files.rows[command.first_index - 1 :]
        elif isinstance(command, InstallLog):
            while self.to_flush:
                self.flush(1)
            self.installs += 1
            self.to_trim.clear()
            self.files.rows = rows_below(command.start)
            self.files.start = command.start.position.index
        else:
            assert command.header.index == len(self.files.rows) + 1
            self.files.rows.append(Row(command.header, command.chain))
        self.to_flush.append(command)
        self.written_seq = command.seq

    def flush(self, commands: int) -> int:
        """Make the oldest written commands durable; the sequence they reach."""
        seq = 0
        for _ in range(min(commands, len(self.to_flush))):
            command = self.to_flush.popleft()
            seq = command.seq
            if isinstance(command, Truncate):
                del self.durable_rows[command.first_index - 1 :]
            elif isinstance(command, InstallLog):
                self.durable_rows = rows_below(command.start)
                self.durable_start = command.start
                self.durable_floor = command.start.position.index
                self.has_config = self.has_config or command.start.level >= CONFIG_LEVEL
            else:
                self.durable_rows.append(Row(command.header, command.chain))
                self.durable_floor = command.commit
        return seq

    def flush_event(self) -> Persisted | None:
        seq = self.flush(self.random.randint(1, 4))
        return Persisted(seq) if seq else None

    def save_event(self) -> MetaPersisted | None:
        if not self.to_save:
            return None
        save = self.to_save.popleft()
        self.durable_meta = (save.term, save.vote)
        return MetaPersisted(save.seq)

    def trim_event(self) -> LogStartMoved | None:
        """The writer carries out the oldest TRIM, or log start of the leader's."""
        if not self.to_trim:
            return None
        order = self.to_trim.popleft()
        is_sent = isinstance(order, WholeLogStart)
        whole = order if is_sent else self._start_of_trim(order)
        at = whole.position
        if at.index <= self.durable_start.position.index:
            return None
        assert self.durable_rows[at.index - 1].chain == at.chain, "it is not flushed here"
        self.starts_taken += is_sent
        self.durable_start, self.files.start = whole, at.index
        return LogStartMoved(whole)

    def _start_of_trim(self, index: Index) -> WholeLogStart:
        """The body of a TRIM is the index in `body_crc`."""
        trim = self.files.rows[index - 1].header
        assert trim.kind == EntryKind.TRIM
        return replace(whole_start(self.files.rows[trim.body_crc - 1]), level=self.core.level)

    # --- ingress ---

    def propose_trim(self, target: int) -> None:
        """Ingress offers a TRIM to the entry `target`, which is committed."""
        start, end = self.reserve(64)
        gen = (self.admitted_term, self.gen, self.prop)
        self.proposals.append(Proposed(*gen, EntryKind.TRIM, 0, target, start, end, 0))
        self.prop += 1

    def _propose_configuration(self, effect: ProposeConfiguration) -> None:
        """Ingress writes the body; its `body_crc` is the key of what it holds."""
        wanted = effect.configuration
        known = (each for each, content in self.contents.items() if content == wanted)
        key = next(known, len(self.contents) + 1)
        self.contents[key] = wanted
        start, end = self.reserve(64)
        gen = (effect.term, effect.gen, self.prop)
        proposed = Proposed(*gen, EntryKind.CONFIG, 0, key, start, end, 0, configuration=wanted)
        self.proposals.append(proposed)
        self.prop += 1

    def propose(self, wall_ns: int) -> None:
        """Ingress offers one group in the gen it believes open; it may learn late that it
        closed."""
        size = self.random.randint(1, 900)
        start, end = self.reserve(size)
        self.proposals.append(
            Proposed(
                self.admitted_term, self.gen, self.prop, 2, self.random.randint(1, 5), 7,
                start, end, wall_ns,
            )
        )  # fmt: skip
        self.prop += 1

    # --- core ---

    def step(self, event: Any) -> list[Leaving]:
        """One event; the messages that leave this replica."""
        leaving: list[Leaving] = []
        for effect in self.core.step(event):
            match effect:
                case Persist() | Truncate() | InstallLog():
                    self.to_write.append(effect)
                case SaveMeta():
                    self.to_save.append(effect)
                case Send():
                    leaving.append(Leaving(effect.peer, effect.message, None))
                case Answer():
                    asked_by = self.heard.get(effect.peer, (b"", 0))[0]
                    if effect.uuid in (b"", asked_by):
                        leaving.append(Leaving(effect.peer, effect.message, asked_by))
                case ApplyTrim():
                    self.to_trim.append(effect.index)
                case MoveLogStart():
                    self.to_trim.append(effect.start)
                case MembersChanged():
                    self._bind(effect.configuration)
                case SaveLevel():
                    self.has_config = self.has_config or effect.has_config
                case Lead() | Rewind():
                    self.lanes[effect.peer].append(effect)
                case StopLeading():
                    for peer, lane in self.lanes.items():
                        if effect.peer in (NO_NODE, peer):
                            lane.append(effect)
                case Describe():
                    self._describe(effect)
                case _:
                    self._take_local(effect)
        return leaving

    def _bind(self, configuration: Configuration) -> None:
        """A replicator talks to the replica that bears a number now, and knows nothing of another
        one's stream."""
        for member in present(configuration):
            if member.number == self.node:
                continue
            if self.bound.get(member.number, member.uuid) != member.uuid:
                self.lanes[member.number].clear()
                self.streams[member.number] = self._stream_to(member.number)
            self.bound[member.number] = member.uuid

    def _describe(self, effect: Describe) -> None:
        """A full ring loses some descriptors; the newest one is kept and offered again."""
        for peer, lane in self.lanes.items():
            if self.random.random() < 0.05:
                self.unoffered[peer] = effect
            else:
                self.unoffered.pop(peer, None)
                lane.append(effect)

    def _take_local(self, effect: Any) -> None:
        match effect:
            case Settle():
                assert self.unsettled.pop(effect.ring_start) == effect.ring_end, effect
            case Admit():
                assert self.core.role == Role.LEADER or self.core.open_gen is None
                self.gen, self.prop, self.admitted_term = effect.gen, 0, effect.term
                self.is_admitting, self.takes_batches = True, effect.takes_batches
            case AdmissionClosed():
                assert effect.gen == self.gen
                self.is_admitting = False
            case Accepted():
                assert effect.gen == self.gen
                self.accepted[effect.index] = (effect.term, effect.index)
            case Committed():
                assert effect.term == self.core.term
                self.acknowledged.append((effect.term, effect.index))
            case TermEnded():
                self.accepted.clear()
            case Visible():
                assert (effect.lsn, effect.index) > self.visible
                assert effect.lsn >= self.visible[0]
                self.visible = (effect.lsn, effect.index)
            case ProposeConfiguration():
                assert effect.gen == self.gen
                self._propose_configuration(effect)
            case ChangeAnswered():
                self.changes_answered[effect.request_id] = effect
            case StreamAccepted():
                self.dead_stream = (effect.term, effect.stream) if effect.is_dead else None

    # --- replicators ---

    def run_lane(self, peer: NodeId) -> None:
        """The replicator to `peer` takes one order of raft."""
        if not self.lanes[peer]:
            newest = self.unoffered.pop(peer, None)
            if newest is not None:
                self.streams[peer].on_describe(newest)
            return
        stream, order = self.streams[peer], self.lanes[peer].popleft()
        match order:
            case Lead():
                stream.on_lead(order)
            case Rewind():
                stream.on_rewind(order)
            case Describe():
                stream.on_describe(order)
            case StopLeading():
                stream.on_stop(order)

    def next_append(self, peer: NodeId, now_ns: int) -> Append | Install | None:
        """What the replicator to `peer` sends next, its header from descriptor or files."""
        stream = self.streams[peer]
        stream.on_tick(now_ns)
        step = stream.next_send(self.written_seq, now_ns)
        match step:
            case None:
                return None
            case SendFromRing():
                return Append(step.term, step.stream, step.commit, step.header)
            case SendInstall():
                return step.install
            case SendFromFile():
                if step.index <= self.files.start:
                    stream.unsend(step)  # raft begins a new stream after log start
                    return None
                header = self.files.row(step.index).header
                stream.on_size_known(step, header.body_size)
                return Append(step.term, step.stream, step.commit, header)

    def tick(self, now_ns: int) -> list[Leaving]:
        return self.step(Tick(now_ns))
