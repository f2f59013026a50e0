"""The replicated header of a Raft entry and the chain hash over it.

Every process uses `EntryHeader`: raft creates it, the writer frames it, replicators send it,
followers verify it, readers check records and frames against it. It never holds anything local to
one replica.

    0 kind u16 (an EntryKind, or 64 + N: level.py) │ reserved u16 = 0 │ count u32
    8 term u64
   16 index u64
   24 prev_term u64
   32 first_lsn u64        (the next LSN, for kinds without LSNs, whose count is 0)
   40 timestamp_ns u64
   48 cumulative_bytes u64 (body bytes of all entries up to and with this one)
   56 prev_chain u64
   64 body_size u32 │ body_crc u32 (CRC32C of the body; 0 for an empty body)
   72 end
"""

from __future__ import annotations

import struct
from hashlib import blake2b

import msgspec

from logstore.errors import FormatError, InvariantViolated
from logstore.format.fields import ALIGNMENT, Buffer, check_room
from logstore.format.level import LEVEL_KINDS, level_of
from logstore.limits import POSITION_MAX
from logstore.model import EntryKind, Index, Lsn, Term

ENTRY_HEADER_SIZE = 72
ENTRY_HEADER_STRUCT = struct.Struct("<HHIQQQQQQQII")
# A batch is at most this large by its i32 offsets; a group above GROUP_MAX_BYTES is one batch.
BODY_SIZE_MAX = (1 << 31) - ALIGNMENT
_KINDS = (frozenset(EntryKind) - {EntryKind.INSTALL, EntryKind.REPAIR}) | frozenset(LEVEL_KINDS)
_CHAIN_STRUCT = struct.Struct("<QHHIQQQQI")
_WITHOUT_BODY = frozenset((int(EntryKind.NOOP), *LEVEL_KINDS))  # plain integers: looked up often
_WITH_LSNS = frozenset((int(EntryKind.DATA), int(EntryKind.IMPORT)))


class EntryHeader(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The replicated fields of one entry. Sizes in bytes, times in ns since the Unix epoch."""

    kind: int
    count: int
    term: Term
    index: Index
    prev_term: Term
    first_lsn: Lsn
    timestamp_ns: int
    cumulative_bytes: int
    prev_chain: int
    body_size: int
    body_crc: int

    @property
    def next_lsn(self) -> Lsn:
        """The first LSN after this entry; for kinds without LSNs the same as `first_lsn`."""
        return Lsn(self.first_lsn + self.count)

    def chain(self) -> int:
        """chain_i (SAFETY S3): equal chains at an index mean equal logs up to it."""
        packed = _CHAIN_STRUCT.pack(
            self.prev_chain, self.kind, 0, self.count, self.term, self.index, self.first_lsn,
            self.timestamp_ns, self.body_crc,
        )  # fmt: skip
        return int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")

    def pack(self) -> bytes:
        """The header's 72 bytes.

        Raises:
          InvariantViolated: a header that `unpack_entry_header` would refuse.
        """
        fault = header_fault(self)
        if fault:
            raise InvariantViolated(f"entry header: {fault}")
        return ENTRY_HEADER_STRUCT.pack(
            self.kind, 0, self.count, self.term, self.index, self.prev_term, self.first_lsn,
            self.timestamp_ns, self.cumulative_bytes, self.prev_chain, self.body_size,
            self.body_crc,
        )  # fmt: skip


def unpack_entry_header(buffer: Buffer, offset: int = 0) -> EntryHeader:
    """The header at `offset`; the caller has verified a CRC over it.

    Raises:
      FormatError: too few bytes, or fields that no entry can have.
    """
    check_room(buffer, offset, ENTRY_HEADER_SIZE, "entry header")
    kind, reserved, *rest = ENTRY_HEADER_STRUCT.unpack_from(buffer, offset)
    if reserved != 0:
        raise FormatError(f"entry header: reserved field is {reserved}")
    header = EntryHeader(kind, *rest)
    fault = header_fault(header)
    if fault:
        raise FormatError(f"entry header: {fault}")
    return header


def header_fault(header: EntryHeader) -> str | None:
    """Why this header is impossible, or None. The log before it is not considered. Hot."""
    kind, count, term = header.kind, header.count, header.term
    if kind not in _KINDS:
        return f"kind {kind} is unknown or reserved"
    if (kind in _WITH_LSNS) != (count > 0):
        return f"kind {kind} with {count} LSNs"
    if not (1 <= term <= POSITION_MAX and header.prev_term <= term):
        return f"term {term} after term {header.prev_term}"
    if not 1 <= header.index <= POSITION_MAX:
        return f"index {header.index}"
    if not 1 <= header.first_lsn <= POSITION_MAX - count:
        return f"LSN {header.first_lsn}"
    if header.timestamp_ns > POSITION_MAX:
        return f"time {header.timestamp_ns}"
    return _body_fault(header, kind, header.body_size)


def _body_fault(header: EntryHeader, kind: int, size: int) -> str | None:
    if size > BODY_SIZE_MAX or size % ALIGNMENT:
        return f"body size {size}"
    if not size <= header.cumulative_bytes <= POSITION_MAX:
        return f"cumulative bytes {header.cumulative_bytes} with a body of {size}"
    if size == 0 and (header.body_crc != 0 or kind in _WITH_LSNS):
        return f"an empty body with CRC {header.body_crc} and {header.count} LSNs"
    if size != 0 and kind in _WITHOUT_BODY:
        return f"a {kind_name(kind)} with a body of {size} bytes"
    return None


def chain_start(cluster_id: bytes) -> int:
    """chain_0 = blake2b-8(cluster id), the chain before the first entry."""
    return int.from_bytes(blake2b(cluster_id, digest_size=8).digest(), "little")


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry in the log: its header and its chain, which is computed once."""

    header: EntryHeader
    chain: int

    @classmethod
    def of(cls, header: EntryHeader) -> Row:
        return cls(header, header.chain())


def kind_name(kind: int) -> str:
    """The kind as people read it: "DATA", or "LEVEL 2" for an entry that raises the log to it."""
    level = level_of(kind)
    return f"LEVEL {level}" if level else EntryKind(kind).name


def takes_lsns(kind: int) -> bool:
    """Whether entries of this kind hold client batches, whose payloads have LSNs."""
    return kind in _WITH_LSNS
