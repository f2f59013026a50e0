"""Batches as the checkers compare them: the producer's numbers, the LSNs, a digest of the body.

The bytes of a batch after its header depend on the payloads alone, so the digest of the payloads
that a client appends equals the digest of the bytes that a log has. Of a compressed batch they
depend on the codec, too: its client tells the body that it sent, once for all retries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate

import msgspec
from crc32c import crc32c

from logstore.format.batch import BATCH_HEADER_SIZE, iterate_batches, read_batch_header

_CRC = slice(28, 32)
_ALIGNMENT = 8
# Every replica and every consumer has the same bytes, which are parsed once.
_REMEMBERED = 1_024


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch in a log. `codec`: 0, or how it is compressed."""

    first_lsn: int
    count: int
    producer_id: int
    producer_epoch: int
    sequence: int
    digest: bytes
    codec: int = 0

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


def digest_of(payloads: Sequence[bytes]) -> bytes:
    """The digest of a batch of these payloads without compression."""
    offsets = list(accumulate(map(len, payloads), initial=0))
    body = b"".join((struct.pack(f"<{len(offsets)}i", *offsets), *payloads))
    return _digest(body + bytes(-len(body) % _ALIGNMENT))


def digest_of_body(batch: bytes) -> bytes:
    """The digest of a batch with these bytes."""
    return _digest(batch[BATCH_HEADER_SIZE:])


@lru_cache(maxsize=_REMEMBERED)
def parse_body(first_lsn: int, body: bytes) -> tuple[StoredBatch, ...]:
    """The batches of a DATA entry.

    Raises:
      FormatError: the body is not made of whole batches.
    """
    batches = []
    lsn = first_lsn
    for offset, header in iterate_batches(body):
        end = offset + header.size
        digest = _digest(body[offset + BATCH_HEADER_SIZE : end])
        batches.append(
            StoredBatch(
                lsn, header.count, header.producer_id, header.producer_epoch, header.sequence,
                digest, header.codec,
            )
        )  # fmt: skip
        lsn += header.count
    return tuple(batches)


@lru_cache(maxsize=_REMEMBERED)
def parse_batch(first_lsn: int, batch: bytes) -> StoredBatch | None:
    """One batch as a consumer got it; None: its bytes are damaged.

    Raises:
      FormatError: this is no batch.
    """
    header = read_batch_header(batch)
    crc = crc32c(batch[_CRC.stop : header.size], crc32c(batch[: _CRC.start]))
    if crc != header.crc or len(batch) != header.size:
        return None
    return StoredBatch(
        first_lsn, header.count, header.producer_id, header.producer_epoch, header.sequence,
        digest_of_body(batch), header.codec,
    )  # fmt: skip


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
