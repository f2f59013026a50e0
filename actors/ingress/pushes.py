"""Reads one pushed message: the append prefix and a batch (SAFETY E9).

Pure. No field of a batch is used before its CRC fits, its producer id included: a refusal that
damaged bytes cause could hit a sound batch of another producer. A damaged message, and one that is
no push at all, is dropped and counted (SAFETY W6); for its producer it is like any lost message,
which the ack timeout resolves.
"""

from __future__ import annotations

import struct
from enum import Enum

import msgspec
from crc32c import crc32c

from logstore.errors import ErrorCode, LogStoreError
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BatchHeader,
    read_batch_header,
    verify_batch,
)
from logstore.format.client_messages import APPEND_MAGIC, APPEND_PREFIX, APPEND_VERSION

PREFIX_SIZE = APPEND_PREFIX.size
# The fields of a batch header that a refusal names; magic and CRC keep their places in every
# version.
_HEADER = struct.Struct("<I8xIQIIQ")  # magic, count, producer id, producer epoch, crc, sequence
_CRC_START, _CRC_END = PREFIX_SIZE + 28, PREFIX_SIZE + 32
_OFFSET = struct.Struct("<i")


class Push(msgspec.Struct, frozen=True, gc=False):
    """A whole, undamaged batch and its round. `payload_bytes` without offsets and padding."""

    header: BatchHeader
    round: int
    payload_bytes: int


class BadPush(msgspec.Struct, frozen=True, gc=False):
    """Undamaged, but not to be stored. `batch`: producer id, producer epoch, sequence, count."""

    batch: tuple[int, int, int, int]
    round: int
    code: ErrorCode


class Unreadable(Enum):
    """Bytes of which nothing is certain, not even the producer: they are not answered."""

    GARBAGE = "no push, or of no producer"
    DAMAGED = "a push whose CRC does not fit"


def read_push(frame: bytes | memoryview, batch_max_bytes: int) -> Push | BadPush | Unreadable:
    """The push in `frame`, or what is wrong with it. Hot: one call a batch."""
    if len(frame) < PREFIX_SIZE + BATCH_HEADER_SIZE:
        return Unreadable.GARBAGE
    magic, version, round_ = APPEND_PREFIX.unpack_from(frame)
    if magic != APPEND_MAGIC:
        return Unreadable.GARBAGE
    if version != APPEND_VERSION:
        return _bad(frame, round_, ErrorCode.UNSUPPORTED_VERSION)
    try:
        header = read_batch_header(frame, PREFIX_SIZE)
        if len(frame) != PREFIX_SIZE + BATCH_HEADER_SIZE + header.body_size:
            return _bad(frame, round_, ErrorCode.INVALID_BATCH)
        verify_batch(frame, PREFIX_SIZE, header, batch_max_bytes=batch_max_bytes)
    except LogStoreError as error:
        return _bad(frame, round_, error.code)
    (payload_bytes,) = _OFFSET.unpack_from(
        frame, PREFIX_SIZE + BATCH_HEADER_SIZE + 4 * header.count
    )
    return Push(header, round_, payload_bytes)


def _bad(frame: bytes | memoryview, round_: int, code: ErrorCode) -> BadPush | Unreadable:
    magic, count, producer_id, producer_epoch, crc, sequence = _HEADER.unpack_from(
        frame, PREFIX_SIZE
    )
    if magic != BATCH_MAGIC:
        return Unreadable.GARBAGE
    view = memoryview(frame)
    if crc32c(view[_CRC_END:], crc32c(view[PREFIX_SIZE:_CRC_START])) != crc:
        return Unreadable.DAMAGED
    if producer_id == 0:
        return Unreadable.GARBAGE
    return BadPush((producer_id, producer_epoch, sequence, count), round_, code)
