"""From log entries to a session table and back to a SESSION entry (SAFETY E5, E6).

Owns the fold: the same entries give the same table on every leader (FAULTS I17). It obeys the
entries and decides nothing; an entry that does not follow from the table is a broken invariant of
whoever proposed it.
"""

from __future__ import annotations

from collections import OrderedDict

from logstore.errors import InvariantViolated
from logstore.format import session_entries
from logstore.format.batch import iterate_batches
from logstore.format.cursor_entries import decode_cursor
from logstore.format.fields import Buffer
from logstore.model import EntryKind, Index, Lsn, SequenceMode
from logstore.session.session import Session, WindowRow
from logstore.session.table import SessionTable

FOLDED_KINDS = frozenset(
    (EntryKind.DATA, EntryKind.OPEN, EntryKind.EXPIRE, EntryKind.CURSOR, EntryKind.SESSION)
)


def fold_entry(table: SessionTable, kind: int, index: Index, first_lsn: Lsn, body: Buffer) -> int:
    """Apply one entry to `table`; its body's CRC is verified.

    Returns:
      Batches in the entry, which count towards the next snapshot (E6); a cursor's change counts
      as one, so that a rebuild is bounded by snapshots however often cursors move.

    Raises:
      FormatError: the body does not decode.
      InvariantViolated: the entry does not follow from the table.
    """
    match kind:
        case EntryKind.DATA:
            return _fold_batches(table, index, first_lsn, body)
        case EntryKind.OPEN:
            table.apply_open(session_entries.decode_open(body))
        case EntryKind.EXPIRE:
            table.apply_expire(session_entries.decode_expire(body))
        case EntryKind.CURSOR:
            table.cursors.apply(decode_cursor(body))
            return 1
        case EntryKind.SESSION:
            load_snapshot(table, index, body)
        case _:
            pass
    return 0


def _fold_batches(table: SessionTable, index: Index, first_lsn: Lsn, body: Buffer) -> int:
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
        session.add(WindowRow(sequence, header.count, header.crc, lsn, index))
        lsn = Lsn(lsn + header.count)
        batches += 1
    return batches


def encode_snapshot(table: SessionTable) -> bytes:
    """The body of a SESSION entry that holds the whole table.

    Raises:
      InvariantViolated: a row has no LSN yet; take the snapshot once every proposal is accepted.
    """
    sessions = tuple(_session_row(session) for session in table.sessions())
    snapshot = session_entries.SessionSnapshot(sessions, table.cursors.rows())
    return session_entries.encode_session_snapshot(snapshot)


def _session_row(session: Session) -> session_entries.SessionRow:
    if any(row.first_lsn == 0 for row in session.rows.values()):
        raise InvariantViolated(f"a batch of producer {session.producer_id} has no LSN yet")
    return session_entries.SessionRow(
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        mode=session.mode,
        ack_level=session.ack_level,
        window=session.window_max,
        window_bytes=session.window_bytes,
        next_sequence=session.next_sequence,
        name=session.name,
        rows=tuple(
            session_entries.WindowRow(row.sequence, row.first_lsn, row.count, row.crc)
            for row in session.rows.values()
        ),
    )


def load_snapshot(table: SessionTable, index: Index, body: Buffer) -> None:
    """Replace what `table` holds by the SESSION entry at `index`."""
    table.clear()
    snapshot = session_entries.decode_session_snapshot(body)
    for cursor in snapshot.cursors:
        table.cursors.apply(cursor)
    for stored in snapshot.sessions:
        rows = OrderedDict(
            (row.sequence, WindowRow(row.sequence, row.count, row.crc, row.first_lsn, index))
            for row in stored.rows
        )
        table.put(
            Session(
                producer_id=stored.producer_id,
                producer_epoch=stored.producer_epoch,
                mode=SequenceMode(stored.mode),
                ack_level=stored.ack_level,
                window_max=stored.window,
                window_bytes=stored.window_bytes,
                name=stored.name,
                next_sequence=stored.next_sequence,
                rows=rows,
            )
        )
