"""What a start needs to know of a closed pair: its records as one checksum, and their landmarks.

Owns one 512-byte sector. It follows the segment header in the Raft file of the *next* pair, and is
written and flushed with that header. It is no evidence of its own: a pair without one, or with one
that does not fit, is walked record by record. Versions before this one read the header's sector
only, so they write pairs without summaries and pass over those that they find.

      0 magic u32 'LSUM' │ version u16 │ marks u16 (how many, 1 to 28)
      8 uuid of the closed segment, 16 bytes
     24 first index u64           32 end index u64 (the first one that the next pair holds)
     40 commit index known u64 (the highest of its records)
     48 CRC-32 u32 of its records [first, end), as they are in the file │ reserved u32 = 0
     56 marks, 16 bytes each, by what and then by slot; unused ones are zero:
          what u16 (1 a term begins, 2 TRIM, 3 LEVEL, 4 CONFIG) │ reserved u16 = 0
          slot u32 (index - first index) │ value u64 (the term, 0, the level, 0)
    504 reserved u32 = 0
    508 crc u32: CRC32C of [0, 508), seeded with CRC32C(uuid of the segment that holds the summary)

The records' checksum is zlib's CRC-32 and not CRC32C. Each record ends with its own CRC32C, and the
CRC32C of a row of those is the same for all whole records: one in the wrong place would not show.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from itertools import pairwise

import msgspec

from logstore.errors import FormatError, InvariantViolated
from logstore.format.fields import (
    Buffer,
    check_ids,
    check_positions,
    check_room,
    check_sealed,
    magic_number,
    seal,
)
from logstore.format.level import FIRST_LEVEL, LEVEL_MAX
from logstore.limits import SECTOR_BYTES
from logstore.model import NO_TERM, Index, Term

SUMMARY_MAGIC = magic_number("LSUM")
SUMMARY_VERSION = 1
SUMMARY_SIZE = SECTOR_BYTES
# More than a pair has in use: a new term, a TRIM, a LEVEL or a CONFIG is an event of minutes. A
# pair of more is walked.
MARKS_MAX = 28
_HEAD = struct.Struct("<IHH16sQQQII")
_MARK = struct.Struct("<HHIQ")
_BODY_SIZE = SUMMARY_SIZE - 4


class _Mark(IntEnum):
    TERM = 1
    TRIM = 2
    LEVEL = 3
    CONFIG = 4


class PairSummary(msgspec.Struct, frozen=True, gc=False):
    """The closed pair `segment_uuid`, whose live indexes are [first_index, end_index).
    `term_starts`: (index, term) of the first record and wherever the term changes; `trims`: indexes
    of TRIM entries; `levels`: (index, level) of the entries that raise the format level; `configs`:
    indexes of CONFIG entries."""

    segment_uuid: bytes
    first_index: Index
    end_index: Index
    commit_known: Index
    records_crc: int
    term_starts: tuple[tuple[Index, Term], ...]
    trims: tuple[Index, ...]
    levels: tuple[tuple[Index, int], ...]
    configs: tuple[Index, ...] = ()

    def pack(self, holder_uuid: bytes) -> bytes:
        """The 512-byte image, for the Raft file of the segment with this uuid."""
        check_ids("pair summary", self.segment_uuid, holder_uuid)
        marks = [
            *((_Mark.TERM, index, int(term)) for index, term in self.term_starts),
            *((_Mark.TRIM, index, 0) for index in self.trims),
            *((_Mark.LEVEL, index, level) for index, level in self.levels),
            *((_Mark.CONFIG, index, 0) for index in self.configs),
        ]
        if not 1 <= len(marks) <= MARKS_MAX:
            raise InvariantViolated(f"a pair summary of {len(marks)} marks")
        head = _HEAD.pack(
            SUMMARY_MAGIC, SUMMARY_VERSION, len(marks), self.segment_uuid, self.first_index,
            self.end_index, self.commit_known, self.records_crc, 0,
        )  # fmt: skip
        body = b"".join(
            _MARK.pack(what, 0, index - self.first_index, value) for what, index, value in marks
        )
        return seal((head + body).ljust(_BODY_SIZE, b"\0"), holder_uuid)


def unpack_pair_summary(buffer: Buffer, offset: int = 0, *, holder_uuid: bytes) -> PairSummary:
    """The summary at `offset`, in the Raft file of the segment with this uuid.

    Raises:
      UnsupportedVersion: a newer version of the summary.
      FormatError: anything but a whole, undamaged summary.
    """
    check_room(buffer, offset, SUMMARY_SIZE, "pair summary")
    block = memoryview(buffer)[offset : offset + SUMMARY_SIZE]
    check_sealed(
        block, holder_uuid, magic=SUMMARY_MAGIC, version=SUMMARY_VERSION, what="pair summary"
    )
    _, _, count, uuid, first, end, commit_known, records_crc, reserved = _HEAD.unpack_from(block)
    check_positions("pair summary", end_index=end, commit_known=commit_known)
    if not 1 <= first < end or not 1 <= count <= MARKS_MAX or reserved != 0:
        raise FormatError(f"pair summary of [{first}, {end}) with {count} marks")
    stop = _HEAD.size + count * _MARK.size
    if any(block[stop:-4]):
        raise FormatError("pair summary: reserved bytes are not zero")
    marks = [_MARK.unpack_from(block, at) for at in range(_HEAD.size, stop, _MARK.size)]
    _check_marks(marks, slots=end - first)
    found: dict[int, list[tuple[Index, int]]] = {what: [] for what in _Mark}
    for what, _, slot, value in marks:
        found[what].append((Index(first + slot), value))
    return PairSummary(
        uuid,
        Index(first),
        Index(end),
        Index(commit_known),
        records_crc,
        tuple((index, Term(term)) for index, term in found[_Mark.TERM]),
        tuple(index for index, _ in found[_Mark.TRIM]),
        tuple(found[_Mark.LEVEL]),
        tuple(index for index, _ in found[_Mark.CONFIG]),
    )


def _check_marks(marks: list[tuple[int, int, int, int]], *, slots: int) -> None:
    """In order, within the pair, each with a value that it may have; the first record has a term
    and terms rise."""
    is_ordered = all(before[0::2] < after[0::2] for before, after in pairwise(marks))
    if not is_ordered or marks[0][0] != _Mark.TERM or marks[0][2] != 0:
        raise FormatError("pair summary: its marks are not in order")
    last_term = int(NO_TERM)
    for what, reserved, slot, value in marks:
        check_positions("pair summary", value=value)
        match what:
            case _Mark.TERM:
                is_possible, last_term = value > last_term, value
            case _Mark.TRIM | _Mark.CONFIG:
                is_possible = value == 0
            case _Mark.LEVEL:
                is_possible = FIRST_LEVEL < value <= LEVEL_MAX
            case _:
                is_possible = False
        if not is_possible or reserved != 0 or slot >= slots:
            raise FormatError(f"pair summary: a mark {what} at slot {slot} of {slots}: {value}")
