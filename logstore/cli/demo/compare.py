"""Was everything that was acknowledged delivered, once, whole and in order? Pure, vectorised.

Owns the comparison of one consumer's stream with what the producers were told. Must not know where
either came from. Payloads are compared by 64-bit digests, so that a run of millions fits into
memory.

What is counted where:

    lost              acknowledged payloads that were not delivered, or not as they were
    duplicated        rows that came twice, and payloads at LSNs that no append was told
    gaps              runs of LSNs, from 1 to the newest, that were not delivered
    torn_batches      acknowledged batches of which a part was delivered rightly, a part not
    order_violations  rows that came after a higher LSN, payloads that stand where another belongs,
                      and appends of a producer that were committed before an earlier one of its own
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
from crc32c import crc32c

Integers = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]


class Acknowledged(msgspec.Struct, frozen=True):
    """What one producer was told, in the order it appended: a row a batch, a digest a payload."""

    first_lsns: Integers
    counts: Integers
    digests: Digests

    def lsns(self) -> Integers:
        """The LSN of each payload."""
        return spread(self.first_lsns, self.counts)


class Delivered(msgspec.Struct, frozen=True):
    """What one consumer was given, in the order it came: an LSN and a digest a payload."""

    lsns: Integers
    digests: Digests


class Findings(msgspec.Struct, frozen=True):
    """Counts of what is wrong; all 0 if nothing is."""

    lost: int = 0
    duplicated: int = 0
    gaps: int = 0
    torn_batches: int = 0
    order_violations: int = 0

    @property
    def is_clean(self) -> bool:
        return not any(msgspec.structs.astuple(self))

    def __add__(self, other: Findings) -> Findings:
        mine, others = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Findings(*(a + b for a, b in zip(mine, others, strict=True)))


def digest(payload: bytes) -> int:
    """64 bits of a payload: two independent CRCs. Damage gets by once in 2**64, an attacker is not
    here.
    """
    return int(crc32c(payload)) << 32 | crc32(payload)


def digests_of(payloads: Sequence[bytes]) -> Digests:
    return np.array([digest(payload) for payload in payloads], dtype=np.uint64)


def spread(first_lsns: Integers, counts: Integers) -> Integers:
    """The LSN of each payload of batches that begin at `first_lsns` and hold `counts`."""
    ends = np.cumsum(counts)
    starts = ends - counts
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(first_lsns - starts, counts) + np.arange(total, dtype=np.int64)


def compare(producers: Sequence[Acknowledged], delivered: Delivered) -> Findings:
    """Compare one stream with what every producer was told."""
    told = [producer.lsns() for producer in producers]
    last_lsn = max((int(each.max()) for each in (*told, delivered.lsns) if len(each)), default=0)
    claims = np.zeros(last_lsn + 1, dtype=np.int64)
    expected = np.zeros(last_lsn + 1, dtype=np.uint64)
    for producer, lsns in zip(producers, told, strict=True):
        claims += np.bincount(lsns, minlength=last_lsn + 1)
        expected[lsns] = producer.digests

    is_delivered = np.zeros(last_lsn + 1, dtype=bool)
    found = np.zeros(last_lsn + 1, dtype=np.uint64)
    lsns, first_rows = np.unique(delivered.lsns, return_index=True)
    is_delivered[lsns] = True
    found[lsns] = delivered.digests[first_rows]

    is_claimed = claims > 0
    is_right = is_claimed & is_delivered & (found == expected)
    is_other = is_claimed & is_delivered & (found != expected)
    misplaced = _common(expected[is_other], found[is_other])
    overclaimed = int(claims[is_claimed].sum() - np.count_nonzero(is_claimed))
    missing = np.count_nonzero(is_claimed & ~is_delivered)
    return Findings(
        lost=int(missing) + int(np.count_nonzero(is_other)) - misplaced + overclaimed,
        duplicated=len(delivered.lsns)
        - len(lsns)
        + int(np.count_nonzero(is_delivered & ~is_claimed)),
        gaps=_runs(~is_delivered[1:]),
        torn_batches=sum(_torn(producer, is_right) for producer in producers),
        order_violations=misplaced
        + _descents(delivered.lsns[np.sort(first_rows)])
        + sum(int(np.count_nonzero(np.diff(each.first_lsns) <= 0)) for each in producers),
    )


def _common(expected: Digests, found: Digests) -> int:
    """How many payloads stand in each other's places: the multisets' intersection."""
    values, counts = np.unique(expected, return_counts=True)
    others, other_counts = np.unique(found, return_counts=True)
    _, mine, theirs = np.intersect1d(values, others, assume_unique=True, return_indices=True)
    return int(np.minimum(counts[mine], other_counts[theirs]).sum())


def _runs(flags: npt.NDArray[np.bool_]) -> int:
    """How many unbroken runs of True there are."""
    padded = np.concatenate(([False], flags))
    return int(np.count_nonzero(padded[1:] & ~padded[:-1]))


def _descents(lsns: Integers) -> int:
    """How many come after a higher one."""
    if not len(lsns):
        return 0
    return int(np.count_nonzero(lsns < np.maximum.accumulate(lsns)))


def _torn(producer: Acknowledged, is_right: npt.NDArray[np.bool_]) -> int:
    if not len(producer.counts):
        return 0
    starts = np.cumsum(producer.counts) - producer.counts
    right = np.add.reduceat(is_right[producer.lsns()].astype(np.int64), starts)
    return int(np.count_nonzero((right > 0) & (right < producer.counts)))
