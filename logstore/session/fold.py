"""From log entries to a session table and back to SESSION entries (SAFETY E5, E6).

Owns the fold: the same entries give the same table on every leader (FAULTS I17). It applies entries
and decides nothing. An entry that does not follow from the table is a broken invariant of the
leader that proposed it. The parts of a snapshot replace the table once the last part is there.
Parts of a leader that ended before the last one change nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from logstore.errors import InvariantViolated
from logstore.format import session_entries, session_snapshot
from logstore.format.batch import iterate_batches
from logstore.format.cursor_entries import Cursor, cursor_size, decode_cursor
from logstore.format.fields import Buffer
from logstore.format.session_snapshot import KeptName, PartHead
from logstore.model import NO_TERM, EntryKind, Index, Lsn, SequenceMode
from logstore.session.session import SEQUENCE_MAX, Session, WindowRow
from logstore.session.table import SessionTable

FOLDED_KINDS = frozenset(
    (EntryKind.DATA, EntryKind.OPEN, EntryKind.EXPIRE, EntryKind.CURSOR, EntryKind.SESSION)
)


class Fold:
    """Folds entries into `table`, one after the other. `snapshots`: how many were complete."""

    def __init__(self, table: SessionTable) -> None:
        self.table = table
        self.snapshots = 0
        self._parts: _Parts | None = None

    def apply(
        self, kind: int, index: Index, first_lsn: Lsn, body: Buffer, *, timestamp_ns: int
    ) -> int:
        """Apply one entry; its body's CRC is verified.

        Returns:
          What counts towards the next snapshot (E6), so that snapshots bound every rebuild: the
          number of batches; 1 for an OPEN, an EXPIRE or a change of a cursor.

        Raises:
          FormatError: the body does not decode.
          InvariantViolated: the entry does not follow from the table.
        """
        table = self.table
        match kind:
            case EntryKind.DATA:
                return _fold_batches(table, index, first_lsn, body, timestamp_ns)
            case EntryKind.OPEN:
                table.apply_open(session_entries.decode_open(body), timestamp_ns)
            case EntryKind.EXPIRE:
                table.apply_expire(session_entries.decode_expire(body))
            case EntryKind.CURSOR:
                table.cursors.apply(decode_cursor(body))
            case EntryKind.SESSION:
                self._take_part(index, body, timestamp_ns)
                return 0
            case _:
                return 0
        return 1

    def _take_part(self, index: Index, body: Buffer, timestamp_ns: int) -> None:
        part = session_snapshot.decode_session_part(body)
        if part.head.part == 0:
            self._parts = _Parts(part.head)
        elif self._parts is None or not self._parts.is_followed_by(part.head):
            self._parts = None  # its first parts are not in this log
            return
        self._parts.add(part, index, timestamp_ns)
        if part.head.is_last:
            self._parts.load_into(self.table)
            self._parts = None
            self.snapshots += 1


class _Parts:
    """The parts of one snapshot, up to the newest one read."""

    def __init__(self, first: PartHead) -> None:
        self._next = first
        self._sessions: dict[int, Session] = {}
        self._cursors: list[Cursor] = []
        self._kept: list[KeptName] = []

    def is_followed_by(self, head: PartHead) -> bool:
        expected = self._next
        return (head.term, head.number, head.part) == (
            expected.term,
            expected.number,
            expected.part,
        )

    def add(self, part: session_snapshot.SessionPart, index: Index, timestamp_ns: int) -> None:
        head = part.head
        self._next = PartHead(head.term, head.number, head.part + 1, False)
        for stored in part.sessions:
            session = self._sessions.get(stored.producer_id)
            if session is None:
                session = _session_of(stored)
                if head.term == NO_TERM:  # version 1 has no time of last use
                    session.last_used_ns = timestamp_ns
                self._sessions[stored.producer_id] = session
            for row in stored.rows:
                session.rows[row.sequence] = WindowRow(
                    row.sequence, row.count, row.crc, row.first_lsn, index
                )
        self._cursors.extend(part.cursors)
        self._kept.extend(part.kept)

    def load_into(self, table: SessionTable) -> None:
        """Replace the contents of `table`."""
        table.clear()
        for cursor in self._cursors:
            table.cursors.apply(cursor)
        for kept in self._kept:
            table.keep(kept)
        for session in self._sessions.values():
            table.put(session)


def _session_of(stored: session_snapshot.SessionRow) -> Session:
    return Session(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        mode=SequenceMode(stored.mode),
        ack_level=stored.ack_level,
        window_max=stored.window,
        window_bytes=stored.window_bytes,
        name=stored.name,
        next_sequence=stored.next_sequence,
        rows=OrderedDict(),
        last_used_ns=stored.last_used_ns,
    )


def _fold_batches(
    table: SessionTable, index: Index, first_lsn: Lsn, body: Buffer, timestamp_ns: int
) -> int:
    lsn = first_lsn
    batches = 0
    get = table.get
    for _, header in iterate_batches(body):
        session = get(header.producer_id)
        sequence = header.sequence
        if (
            session is None
            or session.producer_epoch != header.producer_epoch
            or sequence < session.next_sequence
            or (session.is_dense and sequence != session.next_sequence)
        ):
            raise InvariantViolated(
                f"entry {index} holds {header}, which does not follow {session}"
            )
        if sequence <= SEQUENCE_MAX:
            session.add(WindowRow(sequence, header.count, header.crc, lsn, index))
        else:  # a version without this bound wrote it; only a snapshot's encoder refused it
            session.use_up()
        session.last_used_ns = timestamp_ns
        lsn = Lsn(lsn + header.count)
        batches += 1
    return batches


def snapshot_parts(
    table: SessionTable, *, term: int, number: int, part_max_bytes: int
) -> Iterator[bytes]:
    """The bodies of the SESSION entries that hold the whole table, each made when the caller asks
    for it. The table must not change before the last one.

    Raises:
      InvariantViolated: a row has no LSN yet; take the snapshot once every proposal is accepted.
      InvalidRequest: a row that no decoder would accept.
    """
    return session_snapshot.encode_session_parts(
        (_session_row(session) for session in table.sessions()),
        table.cursors.rows(),
        table.kept(),
        term=term,
        number=number,
        part_max_bytes=part_max_bytes,
    )


def snapshot_bound(table: SessionTable, *, part_max_bytes: int) -> tuple[int, int]:
    """How many parts `snapshot_parts` gives at most, and of how many bytes in all. Nothing is
    encoded for it: a full table takes some milliseconds."""
    size = session_snapshot.session_size
    others = [cursor_size(each) for each in table.cursors.rows()]
    others += [session_snapshot.kept_size(each.name) for each in table.kept()]
    sessions = list(table.sessions())
    least = [size(each.name, rows=1) for each in sessions]
    whole = [size(each.name, rows=len(each.rows)) for each in sessions]
    return session_snapshot.parts_bound(
        [*whole, *others], largest=max([*least, *others], default=0), part_max_bytes=part_max_bytes
    )


def _session_row(session: Session) -> session_snapshot.SessionRow:
    if any(row.first_lsn == 0 for row in session.rows.values()):
        raise InvariantViolated(f"a batch of producer {session.producer_id} has no LSN yet")
    return session_snapshot.SessionRow(
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        mode=session.mode,
        ack_level=session.ack_level,
        window=session.window_max,
        window_bytes=session.window_bytes,
        next_sequence=session.next_sequence,
        last_used_ns=session.last_used_ns,
        name=session.name,
        rows=tuple(
            session_snapshot.WindowRow(row.sequence, row.first_lsn, row.count, row.crc)
            for row in session.rows.values()
        ),
    )
