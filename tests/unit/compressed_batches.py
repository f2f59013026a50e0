"""Compressed batches for tests, honest ones and others: a good CRC over any block."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from crc32c import crc32c

from logstore.format.batch import encode_batch
from logstore.format.codecs import make_compressor
from logstore.model import Codec

TEXT = [
    b"2026-11-26 12:00:%02d INFO node %d: took %d entries" % (n, n % 3, 7 * n) for n in range(60)
]
NAMES = {Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}


def compressed(
    payloads: Sequence[bytes],
    codec: int,
    *,
    producer_id: int = 7,
    epoch: int = 1,
    sequence: int = 0,
) -> bytes:
    """As the library sends it; it must be worth while."""
    batch = encode_batch(
        payloads, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, timestamp_ns=5,
        compressor=make_compressor(NAMES[Codec(codec)]),
    )  # fmt: skip
    assert batch[6] == codec
    return batch


def with_block(
    sizes: Sequence[int],
    block: bytes,
    codec: int,
    *,
    stored_bytes: int | None = None,
    padding: bytes | None = None,
    producer_id: int = 7,
    epoch: int = 1,
    sequence: int = 0,
    timestamp_ns: int = 5,
) -> bytes:
    """A batch whose payloads are said to have these sizes, with this block, whatever it holds."""
    offsets = struct.pack(f"<{len(sizes) + 1}i", *accumulate(sizes, initial=0))
    length = len(block) if stored_bytes is None else stored_bytes
    body = offsets + struct.pack("<I", length) + block
    body += bytes(-len(body) % 8) if padding is None else padding
    head = struct.pack("<4sHHIIQI", b"LBAT", 1, codec, len(body), len(sizes), producer_id, epoch)
    rest = struct.pack("<QQ", sequence, timestamp_ns) + body
    return head + struct.pack("<I", crc32c(rest, crc32c(head))) + rest
