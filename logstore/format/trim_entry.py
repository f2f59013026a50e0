"""The body of a TRIM entry: the log start that every replica moves to once the entry is committed.

Owns its bytes. The leader decides all of it once (SAFETY G4), so a replica that cannot read its own
entry at the log start, or missed earlier TRIMs, needs nothing else. Log start is the entry before
the first one kept, as in META.

  0 magic u32 'LTRM' │ version u16 │ reason u16 (1 age, 2 bytes, 3 payloads, 4 operator)
  8 log start: index u64   16 term u64   24 chain u64   32 next_lsn u64
 40 cumulative_bytes u64 │ 48 timestamp_ns u64 (both of the entry at log start)
 56 format level u32 (of the log, 2 at least) │ 60 crc u32 (of [0, 60))
 64 end
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from logstore.format.entry_body import (
    ENTRY_BODY_VERSION,
    check_body,
    refuse,
    refuse_read,
    seal_body,
)
from logstore.format.fields import Buffer, magic_number
from logstore.format.level import LEVEL_MAX, TRIM_LEVEL
from logstore.format.meta import LogStart
from logstore.limits import POSITION_MAX

TRIM_MAGIC = magic_number("LTRM")
TRIM_BODY_SIZE = 64
_ENTRY = struct.Struct("<IHHQQQQQQII")
_ENTRY_CRC = 60


class TrimReason(IntEnum):
    """Why the leader moved the log start."""

    AGE = 1
    BYTES = 2
    PAYLOADS = 3
    OPERATOR = 4


_REASONS = frozenset(TrimReason)


class TrimEntry(msgspec.Struct, frozen=True, gc=False):
    """A new log start, with all that is known of the entry there. `level`: the log's format level
    (S11), because the entries that raised it may lie below."""

    reason: TrimReason
    start: LogStart
    cumulative_bytes: int
    timestamp_ns: int
    level: int = TRIM_LEVEL


def encode_trim(entry: TrimEntry) -> bytes:
    """The body of a TRIM entry.

    Raises:
      InvalidRequest: an entry that no decoder would accept.
    """
    start = entry.start
    refuse(_fault(entry))
    body = _ENTRY.pack(
        TRIM_MAGIC, ENTRY_BODY_VERSION, entry.reason, start.index, start.term, start.chain,
        start.next_lsn, entry.cumulative_bytes, entry.timestamp_ns, entry.level, 0,
    )  # fmt: skip
    return seal_body(body, _ENTRY_CRC)


def decode_trim(body: Buffer) -> TrimEntry:
    """The log start that a TRIM entry holds.

    Raises:
      UnsupportedVersion: a newer version of the body.
      FormatError: anything else than a whole, undamaged TRIM body.
    """
    check_body(body, TRIM_MAGIC, TRIM_BODY_SIZE, _ENTRY_CRC, "TRIM")
    refuse_read(f"TRIM body of {len(body)} bytes" if len(body) != TRIM_BODY_SIZE else None)
    _, _, reason, index, term, chain, next_lsn, total, timestamp_ns, level, _ = _ENTRY.unpack(body)
    refuse_read(
        f"TRIM for reason {reason}, 1 to {max(TrimReason)} are known"
        if reason not in _REASONS
        else None
    )
    start = LogStart(index, term, chain, next_lsn)
    entry = TrimEntry(TrimReason(reason), start, total, timestamp_ns, level)
    refuse_read(_fault(entry))
    return entry


def _fault(entry: TrimEntry) -> str | None:
    """Why there is no such log start, or None. No log begins before its first entry by a TRIM."""
    start = entry.start
    if not (1 <= start.index <= POSITION_MAX and 1 <= start.term <= POSITION_MAX):
        return f"TRIM to entry {start.index} of term {start.term}"
    if not 1 <= start.next_lsn <= POSITION_MAX:
        return f"TRIM to LSN {start.next_lsn}"
    if entry.cumulative_bytes > POSITION_MAX or entry.timestamp_ns > POSITION_MAX:
        return f"TRIM to byte {entry.cumulative_bytes}, time {entry.timestamp_ns}"
    if not TRIM_LEVEL <= entry.level <= LEVEL_MAX:
        return f"TRIM of a log at format level {entry.level}"
    return None
