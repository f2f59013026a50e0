"""The prefix of a pushed append that expects an LSN: version 2 of the append prefix (SAFETY E11).

     0 magic u16 'LA' │ protocol version u16 = 2 │ round u32
     8 expected_next_lsn u64 (the LSN that the batch is to have, or it is not stored)
    16 attempt u32 (1, 2, … in the round) │ crc u32 (CRC32C of the 20 bytes before)
    24 batch (batch.py)

The batch has a CRC of its own, and its bytes are what is stored; the prefix is stored nowhere. It
needs a CRC, too: a damaged expectation that happens to be where the log ends would let a batch in
that its producer decided for another state of the log.
"""

from __future__ import annotations

import struct

import msgspec
from crc32c import crc32c

from logstore.errors import FormatError
from logstore.format.client_messages import APPEND_MAGIC, APPEND_PREFIX
from logstore.format.fields import Buffer, check_room

CONDITIONAL_VERSION = 2
CONDITIONAL_PREFIX = struct.Struct("<HHIQII")  # magic, version, round, expected LSN, attempt, crc
_CRC = struct.Struct("<I")
_SEALED_BYTES = CONDITIONAL_PREFIX.size - _CRC.size


class Expectation(msgspec.Struct, frozen=True, gc=False):
    """What the prefix says. Round and attempt name one push of a producer epoch."""

    round: int
    expected_lsn: int
    attempt: int


def conditional_prefix(expectation: Expectation) -> bytes:
    """The 24 bytes before a pushed batch that is to be stored only at the expected LSN."""
    each = expectation
    prefix = CONDITIONAL_PREFIX.pack(
        APPEND_MAGIC, CONDITIONAL_VERSION, each.round, each.expected_lsn, each.attempt, 0
    )
    sealed = prefix[:_SEALED_BYTES]
    return sealed + _CRC.pack(crc32c(sealed))


def read_conditional_prefix(frame: Buffer) -> Expectation:
    """What is expected of the batch, which begins at byte CONDITIONAL_PREFIX.size.

    Raises:
      FormatError: there is no such prefix, or its CRC does not fit.
    """
    check_room(frame, 0, CONDITIONAL_PREFIX.size, "append that expects an LSN")
    magic, version, round_, expected_lsn, attempt, crc = CONDITIONAL_PREFIX.unpack_from(frame)
    if (magic, version) != (APPEND_MAGIC, CONDITIONAL_VERSION):
        raise FormatError(f"no append that expects an LSN: {magic:#06x}, version {version}")
    if crc32c(memoryview(frame)[:_SEALED_BYTES]) != crc:
        raise FormatError("the prefix of an append that expects an LSN is damaged")
    return Expectation(round_, expected_lsn, attempt)


def batch_start(frame: Buffer) -> int:
    """At which byte the batch of a pushed message begins, by the version of its prefix.

    Raises:
      FormatError: the frame is shorter than a prefix.
    """
    check_room(frame, 0, APPEND_PREFIX.size, "pushed append")
    version = APPEND_PREFIX.unpack_from(frame)[1]
    return CONDITIONAL_PREFIX.size if version == CONDITIONAL_VERSION else APPEND_PREFIX.size
