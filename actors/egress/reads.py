"""Reading committed payloads from the log files: pieces of whole batches, time lookups,
verification.

Knows the log reader and the batch format; knows no socket. Every function takes the visible index
and LSN as bounds and never reads above them (SAFETY V7). Damage is reported to the caller as
`DamagedEntry` after what could be read before it.
"""

from __future__ import annotations

import msgspec

from logstore.errors import CorruptData, FormatError, InvalidRequest
from logstore.format.batch import BATCH_HEADER_SIZE, iterate_batches, verify_batch
from logstore.format.client_messages import PIECE
from logstore.format.entry import EntryHeader, takes_lsns
from logstore.format.raft_record import RaftRecord
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.model import Index, Lsn
from logstore.storage.log_reader import LogReader

# Entries of one verification slice, and damaged ones, for which the reader looks at META and the
# folder again up to five times each: 1,024 x 40 us and 16 x 5 x 20 ms (the latter with 10,000
# segments, 2026-11-23) keep egress' loop alive (SAFETY M3).
VERIFY_ENTRIES_MAX = 1_024
VERIFY_FAULTS_MAX = 16
_DAMAGED_RUN_MAX = 64
# A batch that does not hold together, in an entry that does, was damaged before it was written.
_DAMAGE = (CorruptData, FormatError, InvalidRequest)


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """What a replica may show: the log start and the visible end, as LSN and index."""

    log_start_lsn: Lsn
    visible_lsn: Lsn
    visible_index: Index


class Pieces(msgspec.Struct):
    """Pieces read so far; `next_lsn` is the first LSN after them."""

    buffers: list[bytes | memoryview]
    count: int
    size_bytes: int
    next_lsn: Lsn


class DamagedEntry(Exception):
    """Raised with the entry that could not be read, and the LSNs it holds."""

    def __init__(self, index: Index, first_lsn: Lsn, last_lsn: Lsn, cause: Exception) -> None:
        super().__init__(str(cause))
        self.index = index
        self.first_lsn = first_lsn
        self.last_lsn = last_lsn


def read_pieces(
    log: LogReader, bounds: Bounds, *, first_lsn: Lsn, last_lsn: Lsn, max_bytes: int
) -> Pieces:
    """Whole batches that hold [first_lsn, last_lsn], about `max_bytes`, at least one batch.

    Raises:
      DamagedEntry: the entry that holds first_lsn is damaged. Damage further on ends the read
      early.
    """
    pieces = Pieces([], 0, 0, first_lsn)
    last_lsn = min(last_lsn, bounds.visible_lsn)
    if last_lsn < first_lsn:
        return pieces  # a reader at the end of the log asks for what is not there yet
    index = log.index_of_lsn(first_lsn, last_index=bounds.visible_index)
    while pieces.next_lsn <= last_lsn and index <= bounds.visible_index:
        entry, index = index, Index(index + 1)
        try:
            record = log.record(entry)
            header = record.header
            if not takes_lsns(header.kind):
                continue
            if pieces.count and pieces.size_bytes + header.body_size > max_bytes:
                break
            body = log.body_of(record)
            left = max_bytes - pieces.size_bytes
            _add_piece(pieces, header, body, last_lsn=last_lsn, max_bytes=left)
            if pieces.next_lsn < header.next_lsn:
                break  # the entry was cut: a smaller one after it might fit, and leave a gap
        except _DAMAGE as damage:
            if pieces.count:
                break
            end = _end_of_damage(log, bounds, entry, pieces.next_lsn)
            raise DamagedEntry(entry, pieces.next_lsn, end, damage) from damage
    return pieces


def whole_group(log: LogReader, record: RaftRecord) -> bytes:
    """All batches of one entry as a piece with its header.

    Raises:
      CorruptData: its frame or its body is damaged.
    """
    header = record.header
    body = log.body_of(record)
    fields = (header.first_lsn, header.index, header.term, header.timestamp_ns, header.count)
    return PIECE.pack(*fields, len(body)) + body


def _end_of_damage(log: LogReader, bounds: Bounds, index: Index, first_lsn: Lsn) -> Lsn:
    """The last LSN of a damaged entry, by its own record or by the next one that is whole: the
    records in between are damaged, too."""
    last = min(bounds.visible_index, index + _DAMAGED_RUN_MAX)
    for place in range(index, last + 1):
        try:
            header = log.row(Index(place)).header
        except CorruptData:
            continue
        end = header.next_lsn if place == index else header.first_lsn
        return Lsn(max(first_lsn, end - 1))
    return bounds.visible_lsn if last == bounds.visible_index else first_lsn


def _add_piece(
    pieces: Pieces, header: EntryHeader, body: bytes, *, last_lsn: Lsn, max_bytes: int
) -> None:
    """Add the batches of one group that overlap [pieces.next_lsn, last_lsn]."""
    start, end, lsn = 0, len(body), int(header.first_lsn)
    whole = pieces.next_lsn <= header.first_lsn and header.next_lsn <= last_lsn + 1
    if not (whole and len(body) <= max_bytes):
        start, end, lsn, next_lsn = _cut(
            body, header, first_lsn=pieces.next_lsn, last_lsn=last_lsn, max_bytes=max_bytes
        )
    else:
        next_lsn = int(header.next_lsn)
    pieces.buffers.append(
        PIECE.pack(lsn, header.index, header.term, header.timestamp_ns, next_lsn - lsn, end - start)
    )
    pieces.buffers.append(memoryview(body)[start:end])
    pieces.count += 1
    pieces.size_bytes += end - start
    pieces.next_lsn = Lsn(next_lsn)


def _cut(
    body: bytes, header: EntryHeader, *, first_lsn: Lsn, last_lsn: Lsn, max_bytes: int
) -> tuple[int, int, int, int]:
    """Byte range, first LSN and next LSN of the batches of a group to send."""
    lsn = int(header.first_lsn)
    start: int | None = None
    end, piece_lsn = 0, lsn
    for offset, batch in iterate_batches(body):
        size = BATCH_HEADER_SIZE + batch.body_size
        if lsn > last_lsn or (start is not None and offset + size - start > max_bytes):
            break
        if start is None and lsn + batch.count > first_lsn:
            start, piece_lsn = offset, lsn
        lsn += batch.count
        end = offset + size
    return start or 0, end, piece_lsn, lsn


class Verified(msgspec.Struct):
    """What a verification slice found; `chain` is 0 where damage hides it."""

    last_index: int
    chain: int
    payloads: int
    size_bytes: int
    last_lsn: Lsn
    faulty: list[dict[str, int | str]]


def verify_slice(log: LogReader, bounds: Bounds, *, first_index: Index, max_bytes: int) -> Verified:
    """Recompute the chain over [first_index, …] from every frame and every batch's own CRC.

    A slice ends after `max_bytes`, VERIFY_ENTRIES_MAX entries or VERIFY_FAULTS_MAX faults. The
    chain after a damaged record is the prev_chain of the next record.
    """
    first = max(first_index, Index(log.start.index + 1))
    last = min(bounds.visible_index, first + VERIFY_ENTRIES_MAX - 1)
    found = Verified(first - 1, _chain_before(log, first), 0, 0, Lsn(bounds.log_start_lsn - 1), [])
    for index in range(first, last + 1):
        if found.size_bytes >= max_bytes or len(found.faulty) >= VERIFY_FAULTS_MAX:
            break
        try:
            header = log.row(Index(index)).header
        except CorruptData as damage:
            _add_fault(found, index, Lsn(found.last_lsn + 1), found.last_lsn, damage)
            found.chain = 0
        else:
            _verify_entry(log, header, found)
            found.chain = header.chain()
            found.last_lsn = Lsn(header.next_lsn - 1)
        found.last_index = index
    return found


def _chain_before(log: LogReader, index: Index) -> int:
    if index == log.start.index + 1:
        return log.start.chain
    try:
        return log.row(Index(index - 1)).chain
    except CorruptData:
        return 0


def _add_fault(
    found: Verified, index: int, first_lsn: Lsn, last_lsn: Lsn, damage: Exception
) -> None:
    found.faulty.append(
        {
            "first_index": index,
            "last_index": index,
            "first_lsn": first_lsn,
            "last_lsn": last_lsn,
            "reason": str(damage),
        }
    )


def _verify_entry(log: LogReader, header: EntryHeader, found: Verified) -> None:
    try:
        _check_entry(log, header, found)
        if found.chain not in (0, header.prev_chain):
            raise FormatError(f"prev_chain {header.prev_chain} is not the chain {found.chain}")
    except _DAMAGE as damage:
        _add_fault(found, header.index, header.first_lsn, Lsn(header.next_lsn - 1), damage)


def _check_entry(log: LogReader, header: EntryHeader, found: Verified) -> None:
    body = log.read_body(header.index)
    found.size_bytes += len(body) + 128
    if not takes_lsns(header.kind):
        return
    count = 0
    for offset, batch in iterate_batches(body):
        # Not today's `batch_max`: the batch was within the limit of the day it was appended.
        verify_batch(body, offset, batch, batch_max_bytes=MESSAGE_MAX_BYTES)
        count += batch.count
    if count != header.count:
        raise FormatError(f"entry {header.index} says {header.count} payloads, has {count}")
    found.payloads += count
