"""The bytes of PROTOCOL.md, sections 3 to 6, for a client that has nothing of ours.

Each number below stands in that document.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import crc32c

ENVELOPE = struct.Struct("<4sHHII16s16sIIQ")
APPEND_PREFIX = struct.Struct("<2sHI")
BATCH_HEADER = struct.Struct("<4sHHIIQIIQQ")
PIECE = struct.Struct("<QQQQII")
ACK_ROW = struct.Struct("<QQIIQ")


class Refused(Exception):
    """An ErrorReply: code of section 7, leader, bounds and text."""

    def __init__(self, body: bytes) -> None:
        self.code, self.leader, self.first, self.last = struct.unpack_from("<IIQQ", body)
        self.text = body[24:].decode()
        super().__init__(f"code {self.code}: {self.text}")


class Message(NamedTuple):
    """A decoded envelope, its body and the second frame."""

    type: int
    cluster_id: bytes
    correlation: int
    body: bytes
    more: bytes


class Row(NamedTuple):
    """An acknowledgement or refusal of one batch."""

    sequence: int
    first_lsn: int
    count: int
    code: int
    detail: int


def seal(frame: bytes, crc_at: int) -> bytes:
    """The frame with the CRC of everything but the CRC's own four bytes in its place."""
    crc = crc32c.crc32c(frame[crc_at + 4 :], crc32c.crc32c(frame[:crc_at]))
    return frame[:crc_at] + struct.pack("<I", crc) + frame[crc_at + 4 :]


def expecting_prefix(round_: int, lsn: int, attempt: int) -> bytes:
    """Version 2 of the prefix of a pushed batch: it is to get this LSN."""
    prefix = struct.pack("<2sHIQI", b"LA", 2, round_, lsn, attempt)
    return prefix + struct.pack("<I", crc32c.crc32c(prefix))


def encode_message(
    type_: int, body: bytes, *, cluster_id: bytes = bytes(16), correlation: int = 0
) -> bytes:
    head = ENVELOPE.pack(b"LMSG", 1, type_, len(body), 0, cluster_id, bytes(16), 0, 0, correlation)
    return seal(head + body, 12)


def decode_message(frames: list[bytes]) -> Message:
    frame = frames[0]
    magic, version, type_, length, crc, cluster_id, _, _, _, correlation = ENVELOPE.unpack_from(
        frame
    )
    assert magic == b"LMSG"
    assert length == len(frame) - 64
    assert seal(frame, 12)[12:16] == struct.pack("<I", crc)
    assert version == 1
    return Message(type_, cluster_id, correlation, frame[64:], b"".join(frames[1:]))


def encode_batch(
    payloads: list[bytes], *, producer_id: int, producer_epoch: int, sequence: int
) -> bytes:
    """The bytes that are pushed, stored and served."""
    ends = list(accumulate(map(len, payloads), initial=0))
    body = struct.pack(f"<{len(ends)}i", *ends) + b"".join(payloads)
    body += bytes(-len(body) % 8)
    head = BATCH_HEADER.pack(
        b"LBAT", 1, 0, len(body), len(payloads), producer_id, producer_epoch, 0, sequence,
        time.time_ns(),
    )  # fmt: skip
    return seal(head + body, 28)


def decode_batches(batches: bytes, first_lsn: int) -> Iterator[tuple[int, bytes]]:
    """(LSN, payload) of whole batches, each checked."""
    while batches:
        magic, version, flags, body_size, count, _, _, _, _, _ = BATCH_HEADER.unpack_from(batches)
        assert len(batches) >= 48 + body_size, "a batch is cut"
        batch, batches = batches[: 48 + body_size], batches[48 + body_size :]
        assert (magic, version, flags) == (b"LBAT", 1, 0)
        assert seal(batch, 28) == batch, "a batch's CRC does not fit"
        ends = struct.unpack_from(f"<{count + 1}i", batch, 48)
        start = 48 + 4 * (count + 1)
        for number in range(count):
            payload = batch[start + ends[number] : start + ends[number + 1]]
            yield first_lsn + number, payload
        first_lsn += count


def decode_pieces(frame: bytes) -> Iterator[tuple[int, bytes]]:
    """(LSN, payload) of everything in a second frame, checked as section 7 says."""
    next_lsn = 0
    while frame:
        first_lsn, _, _, _, count, size = PIECE.unpack_from(frame)
        assert next_lsn in (0, first_lsn), "a piece does not begin where the one before it ends"
        assert len(frame) >= 40 + size, "a piece is cut"
        payloads = list(decode_batches(frame[40 : 40 + size], first_lsn))
        assert len(payloads) == count
        yield from payloads
        next_lsn = first_lsn + count
        frame = frame[40 + size :]
