"""One core under a microscope: logs made of terms, and a node whose disk answers when told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from msgspec.structs import replace

from logstore.format.configuration_body import Configuration
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import FIRST_LEVEL, NEWEST_LEVEL, level_kind
from logstore.format.peer_messages import (
    Append,
    AppendPersisted,
    Heartbeat,
    HeartbeatReply,
    Install,
    PreVoteReply,
    VoteReply,
)
from logstore.model import EntryKind, Index, NodeId, Role, Term
from logstore.raft.core import RaftCore
from logstore.raft.effects import (
    Answer,
    Effect,
    InstallLog,
    Lead,
    Persist,
    SaveMeta,
    Send,
    Settle,
    Truncate,
)
from logstore.raft.events import (
    AppendReceived,
    ControlReceived,
    InstallReceived,
    LogStartMoved,
    MetaPersisted,
    Persisted,
    Proposed,
    StreamAnswer,
    Tick,
)
from logstore.raft.log_view import Position
from logstore.raft.raft_config import RaftConfig
from tests.paper.virtual_node import MS, START, Files, recovered, whole_start

BODY = 10
_E = TypeVar("_E")


def rows_of(
    terms: Sequence[int],
    *,
    noops: Sequence[int] = (),
    trims: Sequence[int] = (),
    changes: Sequence[int] = (),
    raises: Mapping[Index, int] | None = None,
    size: int = BODY,
) -> list[Row]:
    """A log whose entry i has `terms[i - 1]` and one payload; the indexes in `noops` are no-ops,
    those in `trims` TRIM entries, those in `changes` CURSOR entries, those in `raises` raise the
    log to a level."""
    levels = raises or {}
    rows: list[Row] = []
    last, total = START, 0
    for at, term in enumerate(terms, 1):
        level = levels.get(Index(at), 0)
        is_empty = level > 0 or at in noops
        total += 0 if is_empty else size
        header = EntryHeader(
            kind=level_kind(level) if level else _kind(at, noops, trims, changes),
            count=0 if is_empty or at in (*trims, *changes) else 1,
            term=Term(term),
            index=Index(at),
            prev_term=last.term,
            first_lsn=last.next_lsn,
            timestamp_ns=at,
            cumulative_bytes=total,
            prev_chain=last.chain,
            body_size=0 if is_empty else size,
            body_crc=0 if is_empty else at,
        )
        rows.append(Row.of(header))
        last = Position.after(rows[-1])
    return rows


def _kind(
    index: int, noops: Sequence[int], trims: Sequence[int], changes: Sequence[int]
) -> EntryKind:
    if index in trims:
        return EntryKind.TRIM
    if index in changes:
        return EntryKind.CURSOR
    return EntryKind.NOOP if index in noops else EntryKind.DATA


def of_type(effects: Sequence[Any], kind: type[_E]) -> list[_E]:
    return [effect for effect in effects if isinstance(effect, kind)]


class OneNode:
    """Node `node` of `voters` over a recovered log; steps it and keeps its disk's backlog."""

    def __init__(
        self,
        *,
        node: int = 1,
        voters: Sequence[int] = (1, 2, 3),
        rows: Sequence[Row] = (),
        seed: int = 0,
        limits_digest: int = 0,
        newest_level: int = NEWEST_LEVEL,
        new_log_level: int = FIRST_LEVEL,
        trimmed_to: int = 0,
        **state: Any,
    ) -> None:
        """`rows` begin at entry 1, also where the log starts after the entry `trimmed_to`."""
        self.node = NodeId(node)
        self.files = Files()
        self.files.rows = list(rows)
        if trimmed_to:
            self.files.start = Index(trimmed_to)
            whole = whole_start(rows[trimmed_to - 1])
            state["start"] = whole.position
            state["start_bytes"] = whole.cumulative_bytes
            state["start_timestamp_ns"] = whole.timestamp_ns
        self.config = RaftConfig(
            node=self.node,
            voters=tuple(NodeId(each) for each in voters),
            limits_digest=limits_digest,
            newest_level=newest_level,
            new_log_level=new_log_level,
        )
        self.core = RaftCore(self.config, recovered(list(rows), **state), self.files, Random(seed))
        self.now_ns = 0
        self.persist_seq = 0
        self.meta_seq = 0
        self.ring = 0
        self.unsettled: dict[int, int] = {}
        self.started = self.tick(1_000)

    def step(self, event: Any) -> list[Effect]:
        """One event; the disk's backlog and the ring account follow the effects."""
        effects = self.core.step(event)
        for effect in effects:
            match effect:
                case Persist() | Truncate() | InstallLog():
                    self.persist_seq = effect.seq
                case SaveMeta():
                    self.meta_seq = effect.seq
                case Settle():
                    assert self.unsettled.pop(effect.ring_start) == effect.ring_end
                case _:
                    pass
        return effects

    def tick(self, milliseconds: int = 10) -> list[Effect]:
        self.now_ns += milliseconds * MS
        return self.step(Tick(self.now_ns))

    def time_out(self) -> list[Effect]:
        """Let the next deadline pass."""
        self.now_ns = max(self.now_ns, self.core.deadline_ns)
        return self.step(Tick(self.now_ns))

    def flush(self, seq: int | None = None) -> list[Effect]:
        return self.step(Persisted(self.persist_seq if seq is None else seq))

    def flush_meta(self) -> list[Effect]:
        return self.step(MetaPersisted(self.meta_seq))

    def reserve(self, size: int) -> tuple[int, int]:
        start = self.ring
        self.ring += size
        if size:
            self.unsettled[start] = self.ring
        return start, self.ring

    def move_start(self, start: int, *, level: int = FIRST_LEVEL) -> list[Effect]:
        """The writer has carried out a TRIM to this entry."""
        self.files.start = Index(start)
        whole = whole_start(self.files.rows[start - 1])
        return self.step(LogStartMoved(replace(whole, level=level)))

    # --- what others say ---

    def hear(self, sender: int, message: Any, *, boot: int = 1) -> list[Effect]:
        return self.step(ControlReceived(NodeId(sender), boot, message))

    def hear_answer(self, sender: int, message: Any, *, boot: int = 1) -> list[Effect]:
        return self.step(StreamAnswer(NodeId(sender), boot, message))

    def hear_match(self, sender: int, index: int) -> list[Effect]:
        return self.hear_answer(sender, AppendPersisted(self.core.term, Index(index)))

    def hear_append(
        self,
        sender: int,
        row: Row,
        *,
        term: int | None = None,
        stream: int = 1 << 32,
        commit: int = 0,
        configuration: Configuration | None = None,
    ) -> list[Effect]:
        """An append of `row`, by the leader of `term` (the core's own, unless said)."""
        start, end = self.reserve(row.header.body_size)
        spoken = self.core.term if term is None else Term(term)
        append = Append(spoken, stream, Index(commit), row.header)
        return self.step(AppendReceived(NodeId(sender), 1, append, start, end, configuration))

    def hear_install(
        self, sender: int, row: Row, *, term: int, stream: int = 1 << 32, level: int = FIRST_LEVEL
    ) -> list[Effect]:
        """The log of the leader of `term` begins after the entry `row`."""
        at, header = Position.after(row), row.header
        fields = (at.index, at.term, at.next_lsn, at.chain)
        amounts = (header.cumulative_bytes, header.timestamp_ns, level)
        install = Install(Term(term), stream, *fields, *amounts)
        return self.step(InstallReceived(NodeId(sender), 1, install))

    def hear_heartbeat(
        self,
        sender: int,
        *,
        term: int,
        commit: int = 0,
        round: int = 1,
        prev: Row | None = None,
        level: int = 0,
    ) -> list[Effect]:
        at = START if prev is None else Position.after(prev)
        place = (at.index, at.term, at.next_lsn, at.chain)
        beat = Heartbeat(Term(term), Index(commit), round, *place, level)
        return self.hear(sender, beat)

    def hear_reply(self, sender: int, round: int, *, faulty: int = 0) -> list[Effect]:
        at = Index(faulty)
        fields = (self.core.term, round, self.core.last_index, at, at)
        return self.hear(sender, HeartbeatReply(*fields, newest_level=self.config.newest_level))

    # --- short cuts ---

    def follow(self, sender: int, term: int) -> None:
        """Hear a leader, its term durable."""
        self.hear_heartbeat(sender, term=term)
        self.flush_meta()

    def campaign(self) -> list[Effect]:
        """Time out and win the pre-vote: a candidate whose vote is not durable yet."""
        self.time_out()
        effects: list[Effect] = []
        for peer in self.config.peers:
            if self.core.role == Role.PRE_CANDIDATE:
                effects = self.hear(peer, PreVoteReply(Term(self.core.term + 1), True))
        return effects

    def lead(self) -> list[Effect]:
        """Win an election; the effects of taking over."""
        self.campaign()
        effects = self.flush_meta()
        for peer in self.config.peers:
            if self.core.role == Role.CANDIDATE:
                effects = self.hear(peer, VoteReply(self.core.term, True))
        assert self.core.role == Role.LEADER
        return effects

    def lead_and_commit(self) -> None:
        """Win, and commit the term's no-op."""
        self.lead()
        self.flush()
        for peer in self.config.peers:
            self.hear_match(peer, self.core.last_index)
        assert self.core.commit == self.core.last_index

    def propose(
        self,
        prop: int,
        *,
        gen: int | None = None,
        count: int = 1,
        wall_ns: int = 0,
        size: int = 10,
        waits_for_flush: bool = False,
    ) -> list[Effect]:
        start, end = self.reserve(size)
        wanted = (self.core.open_gen or 0) if gen is None else gen
        entry = EntryKind.DATA, count, 7, start, end, wall_ns
        return self.step(Proposed(self.core.term, wanted, prop, *entry, waits_for_flush))


def sent(effects: Sequence[Any], kind: type[_E]) -> list[tuple[int, _E]]:
    """(peer, message) of every message of `kind` that leaves."""
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, Send | Answer) and isinstance(effect.message, kind)
    ]


def streams(effects: Sequence[Any]) -> dict[int, Lead]:
    return {effect.peer: effect for effect in effects if isinstance(effect, Lead)}
