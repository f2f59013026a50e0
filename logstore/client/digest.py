"""A digest of a range of the log: which batches are at which LSNs, byte for byte.

It leaves out what differs between copies of a log: indexes, terms, times of groups, other entries.
So two clusters, or a cluster and an archive of it, have equal digests over equal LSNs if and only
if they hold the same batches there (except for hash collisions).

BLAKE2b, 32 bytes, over each whole batch in the order of LSNs: first LSN u64, count u32, size u32,
little-endian, then its bytes.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

_PLACE = struct.Struct("<QII")
DIGEST_SIZE = 32


class BatchDigest:
    """Fed with batches in the order of their LSNs, none left out.

    `first_lsn` and `last_lsn` are of the whole batches taken in: (0, 0) before the first.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=DIGEST_SIZE)
        self.first_lsn: int = 0
        self.last_lsn: int = 0
        self.batches: int = 0
        self.payloads: int = 0
        self.size_bytes: int = 0

    def add(self, first_lsn: int, count: int, data: bytes | memoryview) -> None:
        """The next batch, of `count` payloads; `data` is the whole of it, header included.

        Raises:
          ValueError: it does not begin where the one before ends.
        """
        if self.batches and first_lsn != self.last_lsn + 1:
            raise ValueError(f"a batch at LSN {first_lsn} after LSN {self.last_lsn}")
        if not self.batches:
            self.first_lsn = first_lsn
        self.last_lsn = first_lsn + count - 1
        self.batches += 1
        self.payloads += count
        self.size_bytes += len(data)
        self._hash.update(_PLACE.pack(first_lsn, count, len(data)))
        self._hash.update(data)

    def hexdigest(self) -> str:
        """The digest of what was added until now, 64 characters."""
        return self._hash.hexdigest()
