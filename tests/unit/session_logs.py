"""Session tables and the entries they are made of, for tests: folds of single entries, snapshots of
one part, and bodies as earlier versions wrote them."""

from __future__ import annotations

import struct
from typing import Any

from logstore.format.cursor_entries import encode_cursors
from logstore.format.entry_body import padded_name, seal_body
from logstore.format.session_snapshot import SessionPart, encode_session_parts
from logstore.limits import MIB
from logstore.model import Index, Lsn
from logstore.session.fold import Fold, snapshot_parts
from logstore.session.table import SessionTable


def fold_entry(
    table: SessionTable, kind: int, index: int, first_lsn: int, body: bytes, timestamp_ns: int = 0
) -> int:
    """One entry, whose snapshots have one part."""
    return Fold(table).apply(kind, Index(index), Lsn(first_lsn), body, timestamp_ns=timestamp_ns)


def encode_snapshot(table: SessionTable) -> bytes:
    """A small table, in one part."""
    (body,) = snapshot_parts(table, term=1, number=1, part_max_bytes=4 * MIB)
    return body


def encode_part(part: SessionPart) -> bytes:
    """The body of version 2 that decodes to `part`; of version 1 where it has no term."""
    if not part.head.term:
        return encode_version_1(part)
    head = part.head
    (body,) = encode_session_parts(
        part.sessions,
        part.cursors,
        part.kept,
        term=head.term,
        number=head.number,
        part_max_bytes=4 * MIB,
    )
    place = struct.pack("<II", head.number, head.part) + body[40:44] + bytes((head.is_last,))
    return seal_body(body[:32] + place + body[45:], 20)


def encode_version_1(part: SessionPart) -> bytes:
    """A whole table as it was written until 2026-11-22."""
    pieces: list[Any] = []
    for session in part.sessions:
        pieces.append(
            struct.pack(
                "<QIBBHIIQQ", session.producer_id, session.producer_epoch, session.mode,
                session.ack_level, len(session.name), session.window, len(session.rows),
                session.next_sequence, session.window_bytes,
            )
        )  # fmt: skip
        pieces.append(padded_name(session.name))
        pieces += [
            struct.pack("<QQII", row.sequence, row.first_lsn, row.count, row.crc)
            for row in session.rows
        ]
    table = b"".join((*pieces, encode_cursors(part.cursors)))
    rows = sum(len(session.rows) for session in part.sessions)
    head = struct.pack(
        "<4sHHIIII", b"LSES", 1, len(part.cursors), 24 + len(table), len(part.sessions), rows, 0
    )
    return seal_body(head + table, 20)
