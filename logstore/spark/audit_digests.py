"""What a task of an audit reports of its part: digests by bucket, LSNs, damage; or LSN by LSN.

Owns the digests. A bucket is a range of LSNs; a batch belongs to the one of its first LSN. A
bucket's digest is a sum of hashes, one a batch, so parts of a bucket add up wherever a source is
cut. It is not made against forgers, who would write their own lake.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from logstore.errors import InvalidBatch
from logstore.format.batch import BatchHeader, batch_payloads, read_batch_header
from logstore.spark.audit_sources import Part, Place, read_part

_PLACE = struct.Struct("<QII")
_IDENTITY = struct.Struct("<QIQIQQ")
_BYTES = 16
_MODULUS = 1 << (8 * _BYTES)

# Both ends included.
Range = tuple[int, int]


class Bucket(msgspec.Struct, frozen=True):
    """What a source, or a part of it, has of a bucket."""

    payloads: int = 0
    batches: int = 0
    digest: int = 0

    def plus(self, other: Bucket) -> Bucket:
        return Bucket(
            self.payloads + other.payloads,
            self.batches + other.batches,
            (self.digest + other.digest) % _MODULUS,
        )


class Damage(msgspec.Struct, frozen=True):
    """Bytes that are not what was written. No LSNs (last below first): of none, or unknown."""

    first_lsn: int
    last_lsn: int
    fault: str


class PartDigest(msgspec.Struct, frozen=True):
    """What a part has.

    Attributes:
      buckets: by number, those that it has something of.
      runs: LSNs in the order they come in; a new run where they do not follow each other.
    """

    buckets: dict[int, Bucket]
    runs: list[Range]
    damage: list[Damage]


class LsnRow(msgspec.Struct, frozen=True, gc=False):
    """A payload by hash, and the identity of its batch: all of its header but the CRC."""

    lsn: int
    payload: int
    batch: int


def digest_part(borders: Sequence[int], part: Part) -> PartDigest:
    """A task: bucket k is the LSNs [borders[k], borders[k + 1]); nothing outside is looked at."""
    sums: dict[int, list[int]] = {}
    runs: list[list[int]] = []
    damage: list[Damage] = []
    first, end = borders[0], borders[-1]
    for place in read_part(part):
        if place.first_lsn >= end or max(place.first_lsn, place.last_lsn) < first:
            continue
        if place.fault:
            damage.append(Damage(place.first_lsn, place.last_lsn, place.fault))
        if not place.count:
            continue
        if runs and runs[-1][1] + 1 == place.first_lsn:
            runs[-1][1] = place.last_lsn
        else:
            runs.append([place.first_lsn, place.last_lsn])
        if place.data:
            number = max(0, bisect_right(borders, place.first_lsn) - 1)
            found = sums.setdefault(number, [0, 0, 0])
            found[0] += place.count
            found[1] += 1
            found[2] += _batch_hash(place)
    buckets = {
        number: Bucket(payloads, batches, total % _MODULUS)
        for number, (payloads, batches, total) in sums.items()
    }
    return PartDigest(buckets, [(a, b) for a, b in runs], damage)


def list_part(ranges: Sequence[Range], part: Part) -> list[LsnRow]:
    """A task: every payload of the batches that have some within `ranges`."""
    rows: list[LsnRow] = []
    for place in read_part(part):
        is_asked = any(place.first_lsn <= b and place.last_lsn >= a for a, b in ranges)
        if not place.data or not is_asked:
            continue
        header = read_batch_header(place.data)
        identity = _IDENTITY.pack(
            place.first_lsn, header.count, header.producer_id, header.producer_epoch,
            header.sequence, header.timestamp_ns,
        )  # fmt: skip
        batch = _small_hash(identity)
        payloads = _payloads(place, header)
        rows += [
            LsnRow(lsn, _small_hash(payload), batch)
            for lsn, payload in enumerate(payloads, place.first_lsn)
        ]
    return rows


def _payloads(place: Place, header: BatchHeader) -> list[bytes]:
    """Of a batch that no reader can decompress: its bytes, for each of them. A missing codec is an
    error, or two executors would tell two things of one batch."""
    try:
        return batch_payloads(place.data, 0, header)
    except InvalidBatch:
        return [bytes(place.data)] * header.count


def _batch_hash(place: Place) -> int:
    found = blake2b(_PLACE.pack(place.first_lsn, place.count, len(place.data)), digest_size=_BYTES)
    found.update(place.data)
    return int.from_bytes(found.digest(), "little")


def _small_hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
