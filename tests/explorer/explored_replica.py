"""One replica of the explored world: the real core, its two real follower streams, and a disk that
is a list of rows.

Owns how events reach the core and where effects go. Some delays are left out, because others have
the same effect: raft's orders reach the replicators at once; replicators send at once (a message
may be delivered late); the writer writes at once (its flush is an event); a leader sends heartbeats
after every step, so that the newest one is always in flight. Every group has one payload of eight
bytes, which are not stored.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from logstore.errors import InvariantViolated
from logstore.format.configuration_body import Configuration
from logstore.format.entry import Row, chain_start
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL
from logstore.format.peer_messages import (
    Append,
    BulkAnswer,
    PreVoteReply,
    VoteReply,
    VoteRequest,
)
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, EntryKind, Index, Lsn, NodeId, Role, Term
from logstore.raft.core import RaftCore
from logstore.raft.effects import (
    Answer,
    Describe,
    Effect,
    Lead,
    Persist,
    Rewind,
    SaveMeta,
    Send,
    StopLeading,
    Truncate,
)
from logstore.raft.events import (
    AppendReceived,
    ChangeRequested,
    ControlReceived,
    Event,
    MetaPersisted,
    Persisted,
    Proposed,
    StreamAnswer,
    Tick,
)
from logstore.raft.log_view import Position, RecoveredLog
from logstore.raft.raft_config import RaftConfig
from logstore.raft.stream import FollowerStream, SendFromRing, SendInstall
from tests.explorer import explored_changes
from tests.explorer.bound import REPLICAS, Bound
from tests.explorer.events import (
    Campaign,
    ChangeAsked,
    Crash,
    Delivery,
    Flushed,
    Happening,
    NextProposed,
    Proposal,
    Saved,
    TermSeen,
)
from tests.explorer.freezing import FileRows, Frozen, freeze, thaw
from tests.explorer.normal_form import (
    NOW_NS,
    message_in_flight,
    normalise_state,
    normalise_stream,
)

SELF = NodeId(1)
VOTERS = (NodeId(1), NodeId(2), NodeId(3))
NO_VOTE = (NO_TERM, 0)
BODY_BYTES = 8
WRITTEN_SEQ = 1 << 60
START = Position(NO_INDEX, NO_TERM, Lsn(1), chain_start(bytes(16)))


class Sent(NamedTuple):
    """A message that this replica sends to `peer`."""

    peer: int
    boot: int
    message: Any


class PromiseBroken(Exception):
    """A replica broke a promise by itself."""


class ZeroRandom(Random):
    """Timeouts are events here, so their random part does not matter."""

    def randrange(self, *_: Any) -> int:
        return 0


class Disk(NamedTuple):
    """What a crash leaves (`rows`, `floor`, `meta`), and the orders that are not flushed, oldest
    first, which it may lose."""

    rows: tuple[Row, ...] = ()
    floor: Index = NO_INDEX
    meta: tuple[Term, NodeId] = (NO_TERM, NO_NODE)
    writes: tuple[Persist | Truncate, ...] = ()
    saves: tuple[tuple[Term, NodeId], ...] = ()

    def flushed(self) -> Disk:
        """The oldest write reaches the disk."""
        order = self.writes[0]
        if isinstance(order, Truncate):
            return self._replace(rows=self.rows[: order.first_index - 1], writes=self.writes[1:])
        row = Row(order.header, order.chain)
        return self._replace(rows=(*self.rows, row), floor=order.commit, writes=self.writes[1:])

    def saved(self) -> Disk:
        """The oldest save reaches the disk."""
        if self.saves[0] < self.meta or (self.saves[0][0] == self.meta[0] and self.meta[1]):
            raise PromiseBroken(f"the disk holds (term, vote) {self.meta}, then {self.saves[0]}")
        return self._replace(meta=self.saves[0], saves=self.saves[1:])


class Replica:
    """A live replica during one event. `vote_sent`: the newest vote that it sent. `place`: in the
    ring, 0 to 2, where members change and therefore have numbers; else 0."""

    def __init__(
        self, bound: Bound, disk: Disk, boot: int, vote_sent: tuple[Term, int], place: int
    ) -> None:
        self._may_crash = boot <= bound.crashes
        self.config = config_of(bound, place)
        self.place = place
        self.others = tuple(each for each in VOTERS if each != self.config.node)
        self.disk = disk
        self.boot = boot
        self.vote_sent = vote_sent
        self.sent: list[Sent] = []
        self.files = FileRows(written_rows(disk))

    @classmethod
    def started(
        cls,
        bound: Bound,
        disk: Disk,
        *,
        boot: int,
        vote_sent: tuple[Term, int] = NO_VOTE,
        place: int = 0,
    ) -> Replica:
        """A new incarnation on this disk."""
        made = cls(bound, disk, boot, vote_sent, place)
        made.core = RaftCore(made.config, _recovered(disk), made.files, ZeroRandom())
        made.streams = {peer: made.new_stream(peer) for peer in made.others}
        made._step(Tick(NOW_NS))
        return made

    @classmethod
    def thawed(cls, bound: Bound, frozen: Frozen) -> Replica:
        """The replica that `frozen` was made of."""
        core, streams, disk, boot, vote_sent, place = frozen
        made = cls(bound, disk, boot, vote_sent, place)
        made.core = thaw(core)
        state = made.state
        state.config, state.random = made.config, ZeroRandom()
        state.log._view = made.files
        made.streams = thaw(streams)
        return made

    core: RaftCore
    streams: dict[NodeId, FollowerStream]

    @property
    def state(self) -> Any:
        return self.core._state

    def frozen(self) -> Frozen:
        """This replica as a value, in its normal form."""
        normalise_state(self.state, has_restarted=self.boot > 1)
        self.streams = {
            peer: normalise_stream(stream, self.new_stream(peer))
            for peer, stream in self.streams.items()
        }
        if self.disk.meta == self.vote_sent or self.disk.meta[0] > self.vote_sent[0]:
            self.vote_sent = NO_VOTE  # the disk has it, or a newer term
        writes = tuple(_without_seq(order) for order in self.disk.writes)
        disk = self.disk._replace(writes=writes)
        if not self._may_crash:
            disk = _without_floors(disk)
        core, streams = freeze(self.core), freeze(self.streams)
        return (core, streams, disk, self.boot, self.vote_sent, self.place)

    def new_stream(self, peer: NodeId) -> FollowerStream:
        return FollowerStream(
            peer,
            mode=self.config.stream_mode,
            window_bytes=1 << 20,
            window_entries=64,
            resend_timeout_ns=self.config.election_timeout_ns,
        )

    # --- events ---

    def apply(self, event: Happening) -> list[Sent]:
        """Apply `event` with all its effects; returns the messages sent.

        Raises:
          InvariantViolated, PromiseBroken: the replica breaks a promise.
        """
        match event:
            case Delivery():
                sender = NodeId((self.place + event.peer) % REPLICAS + 1)
                self._on_delivery(sender, event.boot, event.message)
            case Flushed():
                self.disk = self.disk.flushed()
                self._step(Persisted(1))
            case Saved():
                self.disk = self.disk.saved()
                self._step(MetaPersisted(1))
            case Campaign():
                self._lose_contact()
                if self.core.role != Role.PRE_CANDIDATE:
                    self._step(Tick(self.core.deadline_ns))
                granted = PreVoteReply(Term(self.core.term + 1), True)
                for peer in self.others:
                    self._step(ControlReceived(peer, 1, granted))
            case Proposal():
                gen = self.state.gen
                self._step(
                    Proposed(
                        self.core.term, gen.number, gen.accepted, EntryKind.DATA, 1, 7,
                        0, BODY_BYTES, 0,
                    )
                )  # fmt: skip
            case ChangeAsked():
                self._ask(event)
            case NextProposed():
                self._propose(self.state.leading.change.configuration)
            case TermSeen():
                self._step(ControlReceived(self.others[0], 1, VoteReply(event.term, False)))
            case Crash():
                raise InvariantViolated("a crash makes a new replica, see `after_crash`")
        while self.disk.saves and not self._may_crash:
            self.disk = self.disk.saved()
            self._step(MetaPersisted(1))
            normalise_state(self.state, has_restarted=True)
        if self.core.role == Role.LEADER:
            self._step(Tick(self.core.deadline_ns))
        return self.sent

    def after_crash(self, bound: Bound, crash: Crash) -> Replica:
        """The next incarnation, on what the crash leaves."""
        disk = self.disk
        for _ in range(crash.writes_kept):
            disk = disk.flushed()
        for _ in range(crash.saves_kept):
            disk = disk.saved()
        disk = disk._replace(writes=(), saves=())
        return Replica.started(
            bound, disk, boot=self.boot + 1, vote_sent=self.vote_sent, place=self.place
        )

    def _ask(self, asked: ChangeAsked) -> None:
        """Every peer was heard just now, and has said that it reads the log's level, and all rows
        are in memory: nothing but what a learner has acknowledged says whether it has caught up."""
        for progress in self.state.leading.progress.values():
            progress.has_replied, progress.newest_level = True, CONFIG_LEVEL
        self.state.log._rows, self.state.log._rows_first = list(self.files.rows), 1
        self._step(ChangeRequested(1, asked.kind, asked.node, asked.by))
        change = self.state.leading.change
        if change is not None and not change.index:
            self._propose(change.configuration)

    def _propose(self, configuration: Configuration) -> None:
        """Ingress proposes the CONFIG in the open gen."""
        gen = self.state.gen
        body_crc, size = explored_changes.body_of(configuration)
        at = (self.core.term, gen.number, gen.accepted)
        self._step(
            Proposed(
                *at, EntryKind.CONFIG, 0, body_crc, 0, size, 0, configuration=configuration
            )
        )  # fmt: skip

    def _lose_contact(self) -> None:
        """Nothing is received for an election timeout: a leader steps down, a follower forgets its
        leader."""
        if self.core.role == Role.LEADER:
            self._step(Tick(NOW_NS + self.config.election_timeout_ns + 1))
        elif self.core.leader != NO_NODE:
            self._step(Tick(self.core.deadline_ns))

    def _on_delivery(self, peer: NodeId, boot: int, message: Any) -> None:
        """A stale message changes nothing; `TermSeen` has the effect of its refusal."""
        withheld = self.state.meta._withheld
        is_stale, waiting = message.term < self.core.term, len(withheld)
        if isinstance(message, Append):
            size = message.header.body_size
            content = explored_changes.content_of(message.header)
            self._step(AppendReceived(peer, boot, message, 0, size, content))
        elif isinstance(message, BulkAnswer):
            for fact in self.streams[peer].on_answer(boot, message, NOW_NS):
                self._step(StreamAnswer(peer, boot, fact))
            self._send_appends()
        else:
            if isinstance(message, VoteRequest) and self._may_vote(message.term):
                self._lose_contact()
            self._step(ControlReceived(peer, boot, message))
        if is_stale:
            self.sent.clear()
            while len(withheld) > waiting:
                withheld.pop()

    def _may_vote(self, term: Term) -> bool:
        return term > self.core.term or (term == self.core.term and self.core.vote == NO_NODE)

    # --- effects ---

    def _step(self, event: Event) -> None:
        for effect in self.core.step(event):
            self._carry_out(effect)
        self._send_appends()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist():
                self.files.rows.append(Row(effect.header, effect.chain))
                self.disk = self.disk._replace(writes=(*self.disk.writes, effect))
            case Truncate():
                del self.files.rows[effect.first_index - 1 :]
                self.disk = self.disk._replace(writes=(*self.disk.writes, effect))
            case SaveMeta():
                save = (effect.term, effect.vote)
                self.disk = self.disk._replace(saves=(*self.disk.saves, save))
            case Send() | Answer():
                self._send(effect.peer, effect.message)
            case Lead():
                self._lead(effect)
            case Rewind():
                self.streams[effect.peer].on_rewind(effect)
            case Describe():
                for stream in self.streams.values():
                    stream.on_describe(effect)
            case StopLeading():
                for peer, stream in self.streams.items():
                    if effect.peer in (NO_NODE, peer):
                        stream.on_stop(effect)
            case _:
                pass  # for ingress, egress and the operator; events say when a CONFIG is proposed

    def _lead(self, lead: Lead) -> None:
        """Number streams 1, 2, … for each peer and term, since only their order matters."""
        stream = self.streams[lead.peer]
        number = 1 if lead.term > stream.term else stream.stream + 1
        stream.on_lead(
            Lead(
                lead.peer, lead.term, number, lead.next_index, lead.last_index, 0, lead.commit
            )
        )  # fmt: skip

    def _send_appends(self) -> None:
        for peer, stream in self.streams.items():
            while (step := stream.next_send(WRITTEN_SEQ, NOW_NS)) is not None:
                if isinstance(step, SendInstall):
                    raise AssertionError("no log start moves in the explored clusters")
                if isinstance(step, SendFromRing):
                    header = step.header
                else:
                    header = self.files.row(step.index).header
                    stream.on_size_known(step, header.body_size)
                self._send(peer, Append(step.term, step.stream, step.commit, header))

    def _send(self, peer: NodeId, message: Any) -> None:
        kept = message_in_flight(message)
        if kept is None:
            return
        if isinstance(kept, VoteReply):
            self._check_vote_sent(kept.term, peer)
        elif isinstance(kept, VoteRequest):
            self._check_vote_sent(kept.term, self.config.node)
        self.sent.append(Sent((peer - self.config.node) % REPLICAS, self.boot, kept))

    def _check_vote_sent(self, term: Term, candidate: NodeId) -> None:
        """I9: one vote per term, and terms never fall, across crashes too."""
        last = max(self.vote_sent, self.disk.meta)
        if term < last[0] or (term == last[0] and last[1] not in (0, candidate)):
            raise PromiseBroken(f"told of a vote {last}, then of {(term, candidate)}")
        self.vote_sent = (term, candidate)


def config_of(bound: Bound, place: int) -> RaftConfig:
    """Where members do not change, a replica numbers itself 1 and its peers from there."""
    if bound.changes:
        return explored_changes.raft_config(bound, VOTERS[place])
    return RaftConfig(node=SELF, voters=VOTERS, stream_mode=bound.stream_mode)


def first_disk(bound: Bound) -> Disk:
    """What is on every disk before anything happens."""
    rows = explored_changes.first_rows(bound, START)
    return Disk(rows, Index(len(rows)))


def written_rows(disk: Disk) -> list[Row]:
    """The log as the files have it: durable rows and unflushed writes."""
    rows = list(disk.rows)
    for order in disk.writes:
        if isinstance(order, Truncate):
            del rows[order.first_index - 1 :]
        else:
            rows.append(Row(order.header, order.chain))
    return rows


def _without_seq(order: Persist | Truncate) -> Persist | Truncate:
    if isinstance(order, Truncate):
        return Truncate(0, order.first_index)
    return Persist(0, order.header, order.chain, 0, 0, order.commit)


def _without_floors(disk: Disk) -> Disk:
    """No recovery will read this disk, so the commit index it has does not matter."""
    writes = tuple(
        each if isinstance(each, Truncate) else Persist(0, each.header, each.chain, 0, 0, NO_INDEX)
        for each in disk.writes
    )
    return disk._replace(floor=NO_INDEX, writes=writes)


def _recovered(disk: Disk) -> RecoveredLog:
    """The result of a recovery (SAFETY section 4)."""
    runs: list[tuple[Index, Term]] = []
    for row in disk.rows:
        if not runs or runs[-1][1] != row.header.term:
            runs.append((row.header.index, row.header.term))
    term, vote = disk.meta
    last = disk.rows[-1] if disk.rows else None
    if last is not None and last.header.term > term:
        term, vote = last.header.term, NO_NODE
    configurations = explored_changes.configurations_of(disk.rows)
    return RecoveredLog(
        START,
        last,
        tuple(runs),
        disk.floor,
        Index(len(disk.rows)),
        (),
        term,
        vote,
        level=CONFIG_LEVEL if configurations else FIRST_LEVEL,
        configurations=configurations,
        has_config=bool(configurations),
    )
