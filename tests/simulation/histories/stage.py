"""A stage for histories by hand: replicas as lists, their disks, rings and cores as plain facts.

Every act tells the ledger what a real run would tell it, in the same order. Nothing here decides:
a story says what each replica does, right or wrong. Without `boot` no replica is known and only
clients and final logs are told of.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from crc32c import crc32c

from actors.simulation.checkers import client_facts, facts
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.world_view import Held
from actors.simulation.oracle.ledger import Ledger
from actors.simulation.world.rings import OwedBells
from logstore.format.batch import encode_batch
from logstore.format.entry import EntryHeader, Row, chain_start
from logstore.format.level import level_of
from logstore.format.meta import LogStart
from logstore.format.peer_messages import (
    Append,
    AppendPersisted,
    Heartbeat,
    PreVoteReply,
    VoteReply,
    VoteRequest,
)
from logstore.model import NO_INDEX, NO_TERM, EntryKind, Index, Lsn, NodeId, Role, Term
from logstore.raft.effects import (
    Accepted,
    Admit,
    Answer,
    ApplyTrim,
    Committed,
    Persist,
    SaveLevel,
    SaveMeta,
    Send,
    Settle,
    Truncate,
    Visible,
)
from logstore.raft.events import AppendReceived, ControlReceived, Persisted, Proposed, Tick
from logstore.raft.log_view import Position, RecoveredLog
from tests.simulation.histories.node import Core, Node

Giver = tuple[int, str]  # a node, and a process of it

START = Position(NO_INDEX, NO_TERM, Lsn(1), chain_start(bytes(range(16))))
STEP_NS = 1_000
STAMP_NS = 10  # from the time of an entry to that of the next
ELECTION_NS = 50_000_000
PRODUCER = 7
RING_BYTES = 1 << 16


def header_after(
    rows: Sequence[Row], *, term: int, kind: int, count: int, body: bytes, skip_lsns: int = 0
) -> EntryHeader:
    """The header of the entry that follows `rows`."""
    last = Position.after(rows[-1]) if rows else START
    total = rows[-1].header.cumulative_bytes if rows else 0
    return EntryHeader(
        kind=kind,
        count=count,
        term=Term(term),
        index=Index(last.index + 1),
        prev_term=last.term,
        first_lsn=Lsn(last.next_lsn + skip_lsns),
        timestamp_ns=STAMP_NS * (last.index + 1),
        cumulative_bytes=total + len(body),
        prev_chain=last.chain,
        body_size=len(body),
        body_crc=crc32c(body) if body else 0,
    )


def batch_of(sequence: int, *payloads: bytes, producer: int = PRODUCER, epoch: int = 1) -> bytes:
    """A client batch; one payload that names it, unless others are given."""
    return encode_batch(
        payloads or (b"%d/%d/%d" % (producer, epoch, sequence),),
        producer_id=producer,
        producer_epoch=epoch,
        sequence=sequence,
        timestamp_ns=5,
    )


SAVE_NS = 100 * ELECTION_NS  # no history is so long by itself


class Stage:
    """Nodes 1 to 3."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.nodes = {node: Node(node) for node in (1, 2, 3)}
        self.bodies: dict[int, bytes] = {}  # by chain
        self.record = Record(
            tuple(self.nodes),
            lambda: self.now_ns,
            durability=self,
            read_ring=self.read_ring,
            read_clocks=lambda: {
                node: self.now_ns + each
                for node, each in zip(self.nodes, self.clocks, strict=False)
            },
            read_clock_gaps=lambda: dict(zip(self.nodes, self.clocks, strict=False)),
            election_timeout_ns=ELECTION_NS,
            ring_bytes=RING_BYTES,
            save_within_ns=SAVE_NS,
            session_expiry_ns=1_000,
        )
        self.ledger = Ledger(self.record)
        self.clocks: list[int] = []  # of the nodes, against the time that it is
        self.operations = 0
        self.unaware: set[int] = set()  # nodes on which no LEVEL or TRIM acts
        self.owed: dict[Giver, OwedBells] = {}

    def tell(self, fact: facts.Fact) -> None:
        """A moment later."""
        self.tick()
        self.ledger.tell(fact)

    def tick(self) -> int:
        self.now_ns += STEP_NS
        return self.now_ns

    # --- the ledger's ports ---

    def has_entry(self, node: int, index: int, chain: int) -> bool:
        each = self.nodes[node]
        if index <= each.start.index:
            return True
        is_there = len(each.disk) >= index and each.disk[index - 1].chain == chain
        return is_there and chain not in each.lost

    def is_written(self, node: int, index: int, chain: int) -> bool:
        return chain not in self.nodes[node].unwritten

    def has_dropped(self, node: int, index: int, chain: int) -> bool:
        return not self.has_entry(node, index, chain)

    def meta(self, node: int) -> tuple[int, int]:
        each = self.nodes[node]
        return (0, 0) if each.is_meta_cached else each.meta

    def boot_of(self, node: int) -> int:
        return self.nodes[node].boots

    def log_start(self, node: int) -> LogStart:
        return self.nodes[node].start

    def is_installing(self, node: int) -> bool:
        return self.nodes[node].is_installing

    def highest_in(self, node: int, segment: int) -> int:
        return self.nodes[node].segments.get(segment, 0)

    def pairs_below(self, node: int, _start_index: int) -> list[int]:
        return self.nodes[node].kept_below

    def meta_copy(self, node: int, copy: int) -> tuple[int, int] | None:
        return self.nodes[node].copies.get(copy, self.meta(node))

    def is_excused(self, node: int) -> bool:
        return self.nodes[node].is_excused

    def held_at_start(self, node: int) -> list[Held]:
        return self.nodes[node].held

    def held_now(self, node: int, indexes: Container[int]) -> list[Held]:
        return [each for each in self.nodes[node].held if each.index in indexes]

    def segments_with_one_header(self, node: int) -> list[int]:
        return self.nodes[node].segments_with_one_header

    def rot(self, node: int, *lacking: str, is_sealed: bool = False) -> None:
        """The medium of `node` changes what it has of its newest entries, the oldest of them first:
        "record", "frame", "both" or "nothing"."""
        each = self.nodes[node]
        each.is_excused = True
        whole = [""] * (len(each.disk) - len(lacking))
        each.held = [
            Held(
                row.header.index,
                row.chain,
                what not in ("record", "both"),
                what not in ("frame", "both"),
                not is_sealed,
            )
            for row, what in zip(each.disk, [*whole, *lacking], strict=True)
        ]

    def read_ring(self, node: int, ring_start: int, ring_end: int) -> bytes | None:
        return self.nodes[node].ring.get(ring_start)

    # --- lives ---

    def boot(self, *nodes: int) -> None:
        """A new incarnation over what the disk holds."""
        for node in nodes or tuple(self.nodes):
            each = self.nodes[node]
            each.incarnation += 1
            each.boots += 1
            each.rows, each.unflushed, each.ring = list(each.disk), [], {}
            each.seq = each.ring_end = each.acted = 0
            each.core = Core(term=each.meta[0])
            self.tell(facts.Started(node, each.incarnation))
            self.tell(facts.CoreMade(node, self.recovered(each), each.uuid))

    def recovered(self, each: Node) -> RecoveredLog:
        last = each.disk[-1] if each.disk else None
        start = each.start
        position = Position(start.index, start.term, start.next_lsn, start.chain)
        return RecoveredLog(
            start=position if start.index else START,
            last=last,
            term_runs=(),
            commit_floor=NO_INDEX,
            persisted=Index(len(each.disk)),
            faulty=each.faulty,
            term=Term(each.meta[0]),
            vote=NodeId(each.meta[1]),
            levels=tuple(
                (row.header.index, level)
                for row in each.disk
                if (level := level_of(row.header.kind))
            ),
        )

    def step(self, node: int, event: Any, *effects: Any) -> None:
        each = self.nodes[node]
        self.tell(facts.Stepped(node, each.incarnation, each.core, event, effects))

    def idle(self, node: int, *effects: Any) -> None:
        """A step whose event does not matter."""
        self.step(node, Tick(self.now_ns), *effects)

    # --- bells ---

    def offer(self, giver: Giver, receiver: str) -> None:
        """`giver` puts something into a ring that `receiver` reads."""
        self.owed.setdefault(giver, OwedBells()).mark_owed(receiver)()

    def ring(self, giver: Giver, receiver: str) -> None:
        self.owed.setdefault(giver, OwedBells()).mark_rung(receiver)()

    def end_work(self, giver: Giver) -> None:
        """A do_work of it is over."""
        if owed := self.owed.pop(giver, None):
            self.tell(facts.BellsNotRung(*giver, tuple(owed)))

    # --- elections ---

    def save_meta(self, node: int, term: int, vote: int, *, is_durable: bool = True) -> None:
        each = self.nodes[node]
        each.core.term, each.core.role = term, Role.FOLLOWER
        self.idle(node, SaveMeta(1, Term(term), NodeId(vote)))
        if is_durable:
            each.meta = (term, vote)

    def tell_vote(self, node: int, candidate: int, term: int) -> None:
        self.idle(node, Answer(NodeId(candidate), VoteReply(Term(term), True)))

    def tell_pre_votes(self, candidate: int, term: int) -> None:
        granted = PreVoteReply(Term(term), True)
        for peer in self.nodes:
            if peer != candidate:
                self.idle(peer, Answer(NodeId(candidate), granted))

    def campaign(self, node: int, term: int, voters: Iterable[int]) -> None:
        """Win a pre-vote, ask for votes and get these; leading is another act."""
        self.tell_pre_votes(node, term)
        self.save_meta(node, term, node)
        last = Position.after(self.nodes[node].rows[-1]) if self.nodes[node].rows else START
        request = VoteRequest(Term(term), last.index, last.term, False)
        self.idle(node, *(Send(NodeId(peer), request) for peer in self.nodes if peer != node))
        for voter in voters:
            self.save_meta(voter, term, node)
            self.tell_vote(voter, node, term)

    def lead(self, node: int) -> Row:
        """Begin the term with its no-op."""
        self.nodes[node].core.role = Role.LEADER
        return self.propose(node, EntryKind.NOOP, b"")

    def elect(self, node: int, term: int, voters: Iterable[int] = ()) -> Row:
        self.campaign(node, term, voters or [peer for peer in self.nodes if peer != node])
        return self.lead(node)

    def elect_first(self) -> None:
        """All nodes are up, node 1 leads term 1, its no-op is committed on all."""
        self.boot()
        noop = self.elect(1, 1)
        self.spread(1, noop)

    # --- entries ---

    def reserve(self, each: Node, body: bytes) -> tuple[int, int]:
        start, each.ring_end = each.ring_end, each.ring_end + len(body)
        if body:
            each.ring[start] = body
        return start, each.ring_end

    def persist(self, each: Node, row: Row, start: int, end: int) -> Persist:
        each.rows.append(row)
        each.seq += 1
        each.unflushed.append((each.seq, start, end))
        return Persist(each.seq, row.header, row.chain, start, end, Index(each.core.commit))

    def propose(
        self, node: int, kind: int, body: bytes, *, count: int = 0, skip_lsns: int = 0
    ) -> Row:
        """A leader takes an entry in; nothing of it is flushed yet."""
        each = self.nodes[node]
        term = each.core.term
        header = header_after(
            each.rows, term=term, kind=kind, count=count, body=body, skip_lsns=skip_lsns
        )
        row = Row.of(header)
        self.bodies[row.chain] = body
        start, end = self.reserve(each, body)
        effects: list[Any] = [self.persist(each, row, start, end)]
        if body:
            effects.append(Accepted(Term(term), 1, 0, header.index, header.first_lsn))
        self.step(node, Proposed(Term(term), 1, 0, kind, count, 0, start, end, 0), *effects)
        return row

    def data(self, node: int, *batches: bytes) -> Row:
        """A DATA entry of these batches of one payload each."""
        return self.propose(node, EntryKind.DATA, b"".join(batches), count=len(batches))

    def replicate(self, row: Row, sender: int, *nodes: int, body: bytes | None = None) -> None:
        """Followers take an entry in, after truncating what conflicts with it."""
        for node in nodes:
            each = self.nodes[node]
            header = row.header
            start, end = self.reserve(each, self.bodies[row.chain] if body is None else body)
            effects: list[Any] = []
            if len(each.rows) >= header.index:
                effects.append(self.truncate(each, header.index))
            effects.append(self.persist(each, row, start, end))
            append = Append(header.term, 1, Index(0), header)
            self.step(node, AppendReceived(NodeId(sender), 1, append, start, end), *effects)

    def truncate(self, each: Node, first_index: int) -> Truncate:
        del each.rows[first_index - 1 :]
        each.seq += 1
        each.unflushed.append((each.seq, 0, 0))
        return Truncate(each.seq, Index(first_index))

    def flush(self, *nodes: int) -> None:
        """All orders are durable, and raft gets the answer."""
        for node in nodes or tuple(self.nodes):
            each = self.nodes[node]
            each.disk = list(each.rows)
            self.tell_flushed(node)

    def tell_flushed(self, node: int) -> None:
        each = self.nodes[node]
        settles = [Settle(start, end) for _, start, end in each.unflushed if end > start]
        each.unflushed = []
        self.step(node, Persisted(each.seq), *settles)

    def beat(self, node: int, leader: int, prev_index: int, *effects: Any) -> None:
        """A heartbeat that names entry `prev_index` arrives."""
        term = Term(self.nodes[leader].core.term)
        message = Heartbeat(term, Index(0), 1, Index(prev_index), NO_TERM, Lsn(1), 0)
        self.step(node, ControlReceived(NodeId(leader), 1, message), *effects)

    def claim(self, node: int, leader: int, index: int) -> None:
        self.claim_in(self.nodes[leader].core.term, node, leader, index)

    def claim_in(self, term: int, node: int, leader: int, index: int) -> None:
        """`leader` was that of `term`."""
        self.idle(node, Answer(NodeId(leader), AppendPersisted(Term(term), Index(index))))

    def commit(self, node: int, index: int) -> None:
        """A leader commits by counting, tells ingress and advances visibility."""
        core = self.nodes[node].core
        core.commit = index
        committed = Committed(Term(core.term), Index(index))
        effects = (*self.learned(node, index), self.shown(node, index), *self.acting(node, index))
        self.idle(node, committed, *effects)

    def follow(self, index: int, *nodes: int) -> None:
        """Followers hear of the commit index, and show."""
        for node in nodes:
            self.nodes[node].core.commit = index
            visible, learned = self.shown(node, index), self.learned(node, index)
            self.idle(node, *learned, visible, *self.acting(node, index))

    def learned(self, node: int, index: int) -> list[SaveLevel]:
        """It knows of the commit index, and so of the log's format level."""
        each = self.nodes[node]
        level = max(level_of(row.header.kind) for row in each.rows[:index])
        if level <= each.level or node in self.unaware:
            return []
        each.level = level
        return [SaveLevel(level)]

    def acting(self, node: int, index: int) -> list[ApplyTrim]:
        """The TRIM entries that act as it shows `index`."""
        each = self.nodes[node]
        rows = [] if node in self.unaware else each.rows[each.acted : index]
        each.acted = max(each.acted, index)
        return [ApplyTrim(row.header.index) for row in rows if row.header.kind == EntryKind.TRIM]

    def shown(self, node: int, index: int) -> Visible:
        row = self.nodes[node].rows[index - 1]
        return Visible(Lsn(row.header.next_lsn - 1), Index(index))

    def spread(self, leader: int, row: Row) -> None:
        """An entry goes everywhere, is flushed, committed and shown."""
        followers = [node for node in self.nodes if node != leader]
        index = int(row.header.index)
        self.replicate(row, leader, *followers)
        self.flush()
        for node in followers:
            self.claim(node, leader, index)
        self.commit(leader, index)
        self.follow(index, *followers)

    def admit(self, node: int, gen: int) -> None:
        rows = self.nodes[node].rows
        term = Term(self.nodes[node].core.term)
        self.idle(node, Admit(term, gen, Index(len(rows)), 0))

    # --- clients ---

    def invoke(
        self,
        sequence: int,
        *payloads: bytes,
        producer: int = PRODUCER,
        epoch: int = 1,
        batch: bytes = b"",
    ) -> int:
        """An append begins; its number. `batch`: its bytes, if it is compressed."""
        self.operations += 1
        texts = payloads or (b"%d/%d/%d" % (producer, epoch, sequence),)
        numbers = producer, epoch, sequence
        self.tell(client_facts.AppendInvoked(self.operations, *numbers, texts, batch=batch))
        return self.operations

    def acknowledge(self, operation: int, first_lsn: int, count: int = 1) -> None:
        self.tell(client_facts.AppendAcknowledged(operation, first_lsn, count))

    def write(self, leader: int, *sequences: int, producer: int = PRODUCER, epoch: int = 1) -> Row:
        """Appends of one payload each, in one entry, to the good end."""
        numbers = {
            sequence: self.invoke(sequence, producer=producer, epoch=epoch)
            for sequence in sequences
        }
        batches = [batch_of(each, producer=producer, epoch=epoch) for each in sequences]
        row = self.data(leader, *batches)
        self.spread(leader, row)
        for place, number in enumerate(numbers.values()):
            self.acknowledge(number, row.header.first_lsn + place)
        return row

    def deliver(self, consumer: str, first_lsn: int, batch: bytes, node: int = 2) -> None:
        self.tell(client_facts.Delivered(consumer, node, first_lsn, batch))

    # --- the end ---

    def entries(self, node: int) -> list[tuple[EntryHeader, bytes]]:
        each = self.nodes[node]
        return [(row.header, self.bodies[row.chain]) for row in each.rows[: each.core.commit]]

    def end(self, **logs: Sequence[tuple[EntryHeader, bytes]]) -> None:
        """Final logs of all replicas that ever started, or those given as node1, node2, …"""
        self.tell(facts.Converged())
        for node, each in self.nodes.items():
            if f"node{node}" in logs or each.incarnation:
                entries = logs.get(f"node{node}", self.entries(node))
                self.tell(facts.LogRead(node, entries))
        self.tell(facts.Finished())


def log_of(
    *entries: tuple[int, bytes], term: int = 1, skip_lsns: tuple[int, ...] = ()
) -> list[tuple[EntryHeader, bytes]]:
    """A log of DATA entries given as (count, body); before those in `skip_lsns` an LSN is left
    out."""
    rows: list[Row] = []
    log = []
    for place, (count, body) in enumerate(entries):
        header = header_after(
            rows, term=term, kind=EntryKind.DATA, count=count, body=body,
            skip_lsns=int(place in skip_lsns),
        )  # fmt: skip
        rows.append(Row.of(header))
        log.append((header, body))
    return log
