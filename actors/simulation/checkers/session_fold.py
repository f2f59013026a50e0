"""The session table, and the cursors in it, by a plain fold of the log that shares no code with
logstore.session (I17).

Owns the rules of SAFETY E1, E5, E6 and E8 a second time, in slow and simple code. A leader's table,
rebuilt at any gen, must equal the fold of its log from the beginning; so must every SESSION
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actors.simulation.checkers.cursor_history import State, state_after
from actors.simulation.checkers.facts import Stepped, TableRebuilt
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.errors import FormatError
from logstore.format.batch import iterate_batches
from logstore.format.cursor_entries import decode_cursor
from logstore.format.entry import EntryHeader
from logstore.format.session_entries import decode_expire, decode_open
from logstore.format.session_snapshot import KeptName, SessionPart, decode_session_part
from logstore.model import EntryKind, SequenceMode
from logstore.raft.effects import Persist
from logstore.raft.events import Proposed
from logstore.session.session import Session

SEQUENCE_MAX = (1 << 63) - 2
Rows = tuple[tuple[int, int, int, int], ...]  # sequence, first LSN, count, crc
FOLDED = (
    EntryKind.DATA, EntryKind.OPEN, EntryKind.EXPIRE, EntryKind.CURSOR, EntryKind.SESSION
)  # fmt: skip


class PlainSession(msgspec.Struct, frozen=True):
    """One session, as plain values."""

    producer_id: int
    producer_epoch: int
    mode: int
    name: bytes
    window: int
    next_sequence: int
    last_used_ns: int
    rows: Rows


class FoldFault(Exception):
    """An entry contradicts the log before it."""


class PlainFold:
    """Sessions by producer id and cursors by name, after the entries so far. `kept`: the names and
    numbers of monotone sessions that ended after they were idle for `expiry_ns`."""

    def __init__(self, expiry_ns: int) -> None:
        self.expiry_ns = expiry_ns
        self.sessions: dict[int, PlainSession] = {}
        self.kept: dict[int, KeptName] = {}
        self.cursors: State = {}
        self.parts: list[SessionPart] = []  # of a snapshot that has no last part yet

    def copy(self) -> PlainFold:
        other = PlainFold(self.expiry_ns)
        other.sessions = dict(self.sessions)
        other.kept = dict(self.kept)
        other.cursors = self.cursors
        other.parts = list(self.parts)
        return other

    def apply(self, header: EntryHeader, body: bytes) -> None:
        """Fold one entry.

        Raises:
          FoldFault: a leader that keeps the rules writes no such entry there.
        """
        match header.kind:
            case EntryKind.OPEN:
                self._open(header, body)
            case EntryKind.EXPIRE:
                self._expire(header, body)
            case EntryKind.CURSOR:
                self.cursors = state_after(self.cursors, decode_cursor(body))
            case EntryKind.SESSION:
                self._compare(header, decode_session_part(body))
            case EntryKind.DATA:
                self._append(header, body)
            case _:
                pass

    def _expire(self, header: EntryHeader, body: bytes) -> None:
        """A session with a name ends by its age, and the numbers of a monotone one are kept; or an
        operator ends it, with what was kept of it."""
        expired = decode_expire(body)
        kept = None if expired.is_kept else self.kept.pop(expired.producer_id, None)
        old = self.sessions.pop(expired.producer_id, None)
        known = old or kept
        if known is None or known.producer_epoch != expired.producer_epoch:
            raise FoldFault(f"entry {header.index}: {expired} follows {known}")
        if old is None or not expired.is_kept:
            return
        if header.timestamp_ns - old.last_used_ns < self.expiry_ns or not old.name:
            raise FoldFault(f"entry {header.index} of {header.timestamp_ns} ns ends {old}")
        if old.mode == SequenceMode.MONOTONE:
            self.kept[old.producer_id] = KeptName(
                old.producer_id, old.producer_epoch, old.next_sequence, old.name
            )

    def _compare(self, header: EntryHeader, part: SessionPart) -> None:
        """A snapshot is compared once its last part is there; one without a last part is not."""
        head = part.head
        if head.part == 0:
            self.parts = []
        elif [each.head.part for each in self.parts] != list(range(head.part)) or (
            (self.parts[0].head.term, self.parts[0].head.number) != (head.term, head.number)
        ):
            raise FoldFault(f"entry {header.index}: {head} follows {len(self.parts)} parts")
        self.parts.append(part)
        if not head.is_last:
            return
        stored = _sessions_of(self.parts)
        cursors = {each.name: each for part in self.parts for each in part.cursors}
        kept = {each.producer_id: each for part in self.parts for each in part.kept}
        if (stored, cursors, kept) != (self.sessions, self.cursors, self.kept):
            raise FoldFault(f"snapshot {header.index} is not the fold of what precedes it")
        self.parts = []

    def _open(self, header: EntryHeader, body: bytes) -> None:
        entry = decode_open(body)
        old = self.sessions.get(entry.producer_id)
        kept = self.kept.pop(entry.producer_id, None)
        if any(each.name == entry.name for each in self.kept.values()) and entry.name:
            raise FoldFault(f"entry {header.index}: {entry} takes another producer's name")
        last_epoch = 0
        if old is not None or kept is not None:
            last_epoch = (old or kept).producer_epoch  # type: ignore[union-attr]  # one of them is
        if entry.producer_epoch != last_epoch + 1:
            raise FoldFault(f"{entry} follows {old or kept}")
        keeps = entry.mode == SequenceMode.MONOTONE
        next_sequence = 0
        if keeps and old is not None:
            next_sequence = old.next_sequence
        elif kept is not None:
            next_sequence = kept.next_sequence
        self.sessions[entry.producer_id] = PlainSession(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            mode=entry.mode,
            name=entry.name,
            window=entry.window,
            next_sequence=next_sequence,
            last_used_ns=header.timestamp_ns,
            rows=old.rows if old is not None and keeps else (),
        )

    def _append(self, header: EntryHeader, body: bytes) -> None:
        lsn = int(header.first_lsn)
        new_rows: dict[int, list[tuple[int, int, int, int]]] = {}
        next_sequences: dict[int, int] = {}
        for _, batch in iterate_batches(body):
            session = self.sessions.get(batch.producer_id)
            if session is None or session.producer_epoch != batch.producer_epoch:
                raise FoldFault(f"entry {header.index}: {batch} follows {session}")
            expected = next_sequences.get(batch.producer_id, session.next_sequence)
            is_next = batch.sequence == expected
            if batch.sequence > SEQUENCE_MAX:
                raise FoldFault(f"entry {header.index}: {batch}: no snapshot can hold it")
            if not is_next and (session.mode == SequenceMode.DENSE or batch.sequence < expected):
                raise FoldFault(f"entry {header.index}: {batch}, {expected} is next")
            row = (batch.sequence, lsn, batch.count, batch.crc)
            new_rows.setdefault(batch.producer_id, []).append(row)
            next_sequences[batch.producer_id] = batch.sequence + 1
            lsn += batch.count
        for producer_id, rows in new_rows.items():
            session = self.sessions[producer_id]
            self.sessions[producer_id] = msgspec.structs.replace(
                session,
                next_sequence=next_sequences[producer_id],
                last_used_ns=header.timestamp_ns,
                rows=(session.rows + tuple(rows))[-session.window :],
            )


class SessionTables:
    """Compares every rebuilt table with the fold of its log, if all bodies are known."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._findings = record.findings
        self._entries = record.entries
        self._committed = record.committed
        self._base: PlainFold | None = None  # up to _base_index, all of it committed
        self._base_index = 0

    @reads(TableRebuilt)
    def on_rebuilt(self, rebuilt: TableRebuilt) -> None:
        node, gen = rebuilt.node, rebuilt.gen
        admit = self._record.replicas[node].opened_gens.get(gen)
        if admit is None:
            text = f"node {node} has a table for gen {gen}, which raft never opened"
            self._findings.report(Invariant.I17, text)
            return
        try:
            fold = self._fold(*admit)
        except (FoldFault, FormatError) as fault:
            self._findings.report(Invariant.I17, f"the log of node {node}: {fault}")
            return
        if fold is None:
            return
        sessions, cursors, kept = rebuilt.table
        if (found_kept := {each.producer_id: each for each in kept}) != fold.kept:
            text = f"node {node}, gen {gen}: kept names {found_kept} are not the fold of the log"
            self._findings.report(Invariant.I17, f"{text}: {fold.kept}")
        found_cursors = {each.name: each for each in cursors}
        if found_cursors != fold.cursors:
            text = f"node {node}, gen {gen}: cursors {found_cursors} are not the fold of the log"
            self._findings.report(Invariant.I17, f"{text}: {fold.cursors}")
        found = {each.producer_id: plain_session(each) for each in sessions}
        if found != fold.sessions:
            ids = sorted(found.keys() | fold.sessions.keys())
            wrong = [each for each in ids if found.get(each) != fold.sessions.get(each)]
            text = f"node {node}, gen {gen}: sessions {wrong} are not the fold of the log"
            self._findings.report(
                Invariant.I17,
                f"{text}: {_brief(found.get(wrong[0]))}, not {_brief(fold.sessions.get(wrong[0]))}",
            )

    @reads(Persist)
    def on_persist(self, replica: Replica, effect: Persist, step: Stepped) -> None:
        """A leader ends only a session that may end, and that has no batch under way."""
        header = effect.header
        if header.kind != EntryKind.EXPIRE or type(step.event) is not Proposed:
            return
        body = self._entries.bodies.get(effect.chain)
        try:
            fold = self._fold(header.index - 1, header.prev_chain)
            if fold is None or body is None:
                return
            session = fold.sessions.get(decode_expire(body).producer_id)
            fold.copy().apply(header, body)
        except (FoldFault, FormatError) as fault:
            self._findings.report(Invariant.I17, f"node {replica.node}: {fault}")
            return
        shown_lsn = self._committed.end_lsn_at(replica.commit)
        if session is not None and session.rows and session.rows[-1][1] > shown_lsn:
            text = f"node {replica.node} gives up producer {session.producer_id}, whose batch at"
            text = f"{text} LSN {session.rows[-1][1]} is not committed"
            self._findings.report(Invariant.I7, text)

    def _fold(self, last_index: int, chain: int) -> PlainFold | None:
        """The fold of the log that ends with this chain; None: some body of it is not known."""
        committed = self._committed
        if self._base is None or last_index < self._base_index:
            self._base = PlainFold(self._record.session_expiry_ns)
            self._base_index = committed.start_index
        tail: list[int] = []
        index = last_index
        while index > self._base_index:
            tail.append(chain)
            header = self._entries.headers.get(chain)
            if header is None:
                return None
            index, chain = index - 1, header.prev_chain
        fold = self._base
        for place, each in enumerate(reversed(tail), start=self._base_index + 1):
            if fold is self._base and committed.chain_at(place) != each:
                fold = self._base.copy()  # from here on it is not committed
            if not self._apply(fold, each):
                self._base = None
                return None
            if fold is self._base:
                self._base_index = place
        return fold

    def _apply(self, fold: PlainFold, chain: int) -> bool:
        header = self._entries.headers[chain]
        if header.kind in FOLDED:
            body = self._entries.bodies.get(chain)
            if body is None:
                return False
            fold.apply(header, body)
        return True


def plain_session(session: Session) -> PlainSession:
    """The values of a session of the product."""
    return PlainSession(
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        mode=int(session.mode),
        name=session.name,
        window=session.window_max,
        next_sequence=session.next_sequence,
        last_used_ns=session.last_used_ns,
        rows=tuple(
            (row.sequence, int(row.first_lsn), row.count, row.crc) for row in session.rows.values()
        ),
    )


def _sessions_of(parts: Iterable[SessionPart]) -> dict[int, PlainSession]:
    """Sessions by producer; the window of one session may be spread over several parts."""
    found: dict[int, PlainSession] = {}
    for part in parts:
        for row in part.sessions:
            before = found.get(row.producer_id)
            rows = tuple((each.sequence, each.first_lsn, each.count, each.crc) for each in row.rows)
            found[row.producer_id] = PlainSession(
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                mode=row.mode,
                name=row.name,
                window=row.window,
                next_sequence=row.next_sequence,
                last_used_ns=row.last_used_ns,
                rows=rows if before is None else before.rows + rows,
            )
    return found


def _brief(session: PlainSession | None) -> str:
    if session is None:
        return "none"
    last = session.rows[-1] if session.rows else None
    return (
        f"epoch {session.producer_epoch}, next {session.next_sequence}, "
        f"{len(session.rows)} rows up to {last}"
    )
