"""How a simulated producer compresses: a stand-in for the product's codecs, under their numbers.

Pure. Replicas never decompress, and consumers here ask for no payload, so a block need only be
shorter than what it stands for, and another one for other payloads. So seeds need no codec, and
are the same with any version of one.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random

import msgspec

from logstore.format.codecs import Compressor
from logstore.model import Codec

_KEPT = 4  # a block has a digest, and a part of the payload bytes
_DIGEST_BYTES = 8
_COMPRESSES = 0.4


class StandIn(msgspec.Struct, frozen=True):
    """`compress` is not to be undone."""

    codec: int

    def compress(self, data: bytes) -> bytes:
        digest = blake2b(data, digest_size=_DIGEST_BYTES).digest()
        return digest + data[: len(data) // _KEPT]


def draw_compressor(random: Random) -> Compressor | None:
    """Of a session or an import; None: it does not compress."""
    if random.random() >= _COMPRESSES:
        return None
    return StandIn(random.choice((Codec.LZ4, Codec.ZSTD)))
