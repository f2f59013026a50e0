"""Reads one pushed message: the append prefix and a batch (SAFETY E9, E11).

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

from actors.ingress.groups import Route
from logstore.errors import ErrorCode, FormatError, LogStoreError
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
    BATCH_MAGIC,
    BatchHeader,
    BatchSizes,
    read_batch_header,
    verify_batch,
)
from logstore.format.client_messages import APPEND_MAGIC, APPEND_PREFIX, APPEND_VERSION
from logstore.format.conditional_prefix import (
    CONDITIONAL_PREFIX,
    CONDITIONAL_VERSION,
    Expectation,
    read_conditional_prefix,
)
from logstore.limits import POSITION_MAX

PREFIX_SIZE = APPEND_PREFIX.size
# The fields of a batch header that a refusal names; magic and CRC keep their places in every
# version.
_HEADER = struct.Struct("<I8xIQIIQ")  # magic, count, producer id, producer epoch, crc, sequence
_CRC_START, _CRC_END = 28, 32  # in the batch


class Push(msgspec.Struct, frozen=True, gc=False):
    """A whole, undamaged batch and where its answer goes. The batch begins at byte
    `start` of the frame. `expectation` None: it is stored wherever it comes to lie."""

    header: BatchHeader
    route: Route
    sizes: BatchSizes
    start: int = PREFIX_SIZE
    expectation: Expectation | None = None


class BadPush(msgspec.Struct, frozen=True, gc=False):
    """Undamaged, but not to be stored. `batch`: producer id, producer epoch, sequence, count."""

    batch: tuple[int, int, int, int]
    route: Route
    code: ErrorCode


class Unreadable(Enum):
    """Bytes of which nothing is certain, not even the producer: they are not answered."""

    GARBAGE = "no push, or of no producer"
    DAMAGED = "a push whose CRC does not fit"


def read_push(
    frame: bytes | memoryview, batch_max_bytes: int, connection: bytes = b""
) -> Push | BadPush | Unreadable:
    """The push in `frame`, or what is wrong with it. Hot: one call a batch.

    Args:
      connection: the routing id of who is to be answered; empty: the ack feed is, in the round that
        the frame says.
    """
    if len(frame) < PREFIX_SIZE + BATCH_HEADER_SIZE:
        return Unreadable.GARBAGE
    magic, version, round_ = APPEND_PREFIX.unpack_from(frame)
    route: Route = connection or round_
    if magic != APPEND_MAGIC:
        return Unreadable.GARBAGE
    if version == CONDITIONAL_VERSION:
        return _read_conditional(frame, batch_max_bytes, connection)
    if version != APPEND_VERSION:
        return _bad(frame, PREFIX_SIZE, route, ErrorCode.UNSUPPORTED_VERSION)
    return _read_batch(frame, PREFIX_SIZE, route, None, batch_max_bytes)


def _read_conditional(
    frame: bytes | memoryview, batch_max_bytes: int, connection: bytes
) -> Push | BadPush | Unreadable:
    start = CONDITIONAL_PREFIX.size
    if len(frame) < start + BATCH_HEADER_SIZE:
        return Unreadable.GARBAGE
    try:
        expectation = read_conditional_prefix(frame)
    except FormatError:
        return Unreadable.DAMAGED
    route: Route = connection or expectation.round
    if expectation.expected_lsn > POSITION_MAX:
        return _bad(frame, start, route, ErrorCode.INVALID_BATCH)
    return _read_batch(frame, start, route, expectation, batch_max_bytes)


def _read_batch(
    frame: bytes | memoryview,
    start: int,
    route: Route,
    expectation: Expectation | None,
    batch_max_bytes: int,
) -> Push | BadPush | Unreadable:
    try:
        header = read_batch_header(frame, start)
        if len(frame) != start + BATCH_HEADER_SIZE + header.body_size:
            return _bad(frame, start, route, ErrorCode.INVALID_BATCH)
        sizes = verify_batch(frame, start, header, batch_max_bytes=batch_max_bytes)
    except LogStoreError as error:
        return _bad(frame, start, route, error.code)
    return Push(header, route, sizes, start, expectation)


def _bad(
    frame: bytes | memoryview, start: int, route: Route, code: ErrorCode
) -> BadPush | Unreadable:
    magic, count, producer_id, producer_epoch, crc, sequence = _HEADER.unpack_from(frame, start)
    if magic != BATCH_MAGIC:
        return Unreadable.GARBAGE
    batch = memoryview(frame)[start:]
    if crc32c(batch[_CRC_END:], crc32c(batch[:_CRC_START])) != crc:
        return Unreadable.DAMAGED
    if producer_id == 0:
        return Unreadable.GARBAGE
    return BadPush((producer_id, producer_epoch, sequence, count), route, code)
