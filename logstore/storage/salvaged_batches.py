"""The batches of an entry's body, damage included.

Pure. Batches before the damage are found from the front. Batches after it are found from
the back, since the entry's count of payloads is known. What is between has LSNs, and
payloads if they can be read.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logstore.errors import FormatError, InvalidRequest
from logstore.format.batch import BATCH_MAGIC, BatchHeader, read_batch_header, verify_batch
from logstore.format.fields import ALIGNMENT
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.model import Codec
from logstore.storage.salvage import SalvagedEntry

_MAGIC = BATCH_MAGIC.to_bytes(4, "little")


class SalvagedBatch(msgspec.Struct, frozen=True):
    """A batch, or where one was.

    `data`: its bytes as they are, with readable payloads even where `fault` says that they are not
    those that were written; b"": only the LSNs are known.
    """

    first_lsn: int
    count: int
    data: bytes
    fault: str


def salvage_batches(entry: SalvagedEntry) -> Iterator[SalvagedBatch]:
    """The batches, by LSN, of an entry whose LSNs are known. They cover each of its LSNs once,
    unless an undamaged entry and its batches disagree: then the batches count."""
    front = list(_whole_batches(entry.body, 0))
    offset, lsn = 0, entry.first_lsn
    for offset_after, header in front:
        yield SalvagedBatch(lsn, header.count, entry.body[offset:offset_after], "")
        offset, lsn = offset_after, lsn + header.count
    if offset == len(entry.body) and (entry.body or not entry.count):
        if lsn != entry.next_lsn and not entry.fault:
            yield from _disagreement(entry, lsn)
        return
    back_offset, back = _after_damage(entry.body, offset)
    back_lsn = entry.next_lsn - sum(header.count for _, header in back)
    yield from _damaged(entry, offset, back_offset, lsn, back_lsn)
    for end, header in back:
        yield SalvagedBatch(back_lsn, header.count, entry.body[back_offset:end], "")
        back_offset, back_lsn = end, back_lsn + header.count


def _whole_batches(body: bytes, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """End and header of each batch from `offset` on, up to the first damaged one."""
    while offset < len(body):
        try:
            header = read_batch_header(body, offset)
            verify_batch(body, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        except (FormatError, InvalidRequest):
            return
        offset += header.size
        yield offset, header


def _after_damage(body: bytes, offset: int) -> tuple[int, list[tuple[int, BatchHeader]]]:
    """The whole batches after `offset` that reach to the end of the body, and where they begin."""
    place = body.find(_MAGIC, offset + 1)
    while place >= 0:
        if place % ALIGNMENT == 0:
            found = list(_whole_batches(body, place))
            if found and found[-1][0] == len(body):
                return place, found
        place = body.find(_MAGIC, place + 1)
    return len(body), []


def _damaged(
    entry: SalvagedEntry, offset: int, end: int, first_lsn: int, next_lsn: int
) -> Iterator[SalvagedBatch]:
    """The bytes between whole batches: a batch whose payloads can be read, or only LSNs."""
    count = next_lsn - first_lsn
    if count <= 0:
        return
    fault = entry.fault or f"entry {entry.index}: a batch in it is damaged"
    data = entry.body[offset:end]
    try:
        header = read_batch_header(data)
        # Of a block that is damaged nothing can be read.
        is_whole = header.count == count and header.size == len(data)
        is_readable = is_whole and header.codec == Codec.NONE
    except (FormatError, InvalidRequest):
        is_readable = False
    yield SalvagedBatch(first_lsn, count, data if is_readable else b"", fault)


def _disagreement(entry: SalvagedEntry, lsn: int) -> Iterator[SalvagedBatch]:
    """The batches of an undamaged entry hold another number of payloads than the entry says."""
    fault = (
        f"entry {entry.index} says LSNs {entry.first_lsn} to {entry.next_lsn - 1}, its batches "
        f"hold {lsn - entry.first_lsn} payloads"
    )
    yield SalvagedBatch(lsn, max(0, entry.next_lsn - lsn), b"", fault)
