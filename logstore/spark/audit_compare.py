"""Which sources of an audit differ, and where: in buckets first, then LSN by LSN.

Pure. What most sources have at an LSN is taken for right, and the others are named; where no value
has a majority, all are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from logstore.spark.audit_digests import Bucket, LsnRow, PartDigest, Range


class Kind(StrEnum):
    """What is wrong with a source at some LSNs."""

    DAMAGED = "damaged"
    MISSING = "missing"
    DOUBLED = "doubled"
    PAYLOAD = "payload differs"
    BATCH = "batch differs"
    MORE = "not looked into"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong. Both LSNs 0: with none, or nobody knows of which."""

    source: str
    kind: Kind
    first_lsn: int
    last_lsn: int
    words: str = ""


class Digest(msgspec.Struct, frozen=True):
    """A source, of which all parts are added up: it should have LSNs [first_lsn, last_lsn]."""

    source: str
    first_lsn: int
    last_lsn: int
    buckets: dict[int, Bucket]
    runs: list[Range]
    damaged: list[Finding]


def make_borders(ranges: Sequence[Range], bucket: int) -> list[int]:
    """Where buckets begin, and where the last one ends: every `bucket` LSNs, and wherever the range
    of a source does, so that each bucket is wholly within a source's range or outside of it."""
    known = [each for each in ranges if each[0] <= each[1]]
    if not known:
        return []
    first, end = min(a for a, _ in known), max(b for _, b in known) + 1
    cuts = {cut for a, b in known for cut in (a, b + 1)}
    return sorted(cuts | set(range(-(-first // bucket) * bucket, end, bucket)))


def add_up(source: str, first_lsn: int, last_lsn: int, parts: Iterable[PartDigest]) -> Digest:
    """The digest of a source from those of its parts, in their order."""
    buckets: dict[int, Bucket] = {}
    runs: list[Range] = []
    damaged: list[Finding] = []
    for part in parts:
        for number, bucket in part.buckets.items():
            buckets[number] = buckets.get(number, Bucket()).plus(bucket)
        runs += part.runs
        for each in part.damage:
            has_lsns = each.last_lsn >= each.first_lsn
            first, last = (each.first_lsn, each.last_lsn) if has_lsns else (0, 0)
            damaged.append(Finding(source, Kind.DAMAGED, first, last, each.fault))
    return Digest(source, first_lsn, last_lsn, buckets, runs, damaged)


def find_gaps_and_doubles(digest: Digest) -> list[Finding]:
    """LSNs that a source should have and has not, and those that it has more than once."""
    found: list[Finding] = []
    next_lsn = digest.first_lsn
    for start, end in sorted(digest.runs):
        # A batch that passes the ends of what is looked at is whole in the run.
        first, last = max(start, digest.first_lsn), min(end, digest.last_lsn)
        if first > next_lsn:
            found.append(Finding(digest.source, Kind.MISSING, next_lsn, first - 1))
        elif first < next_lsn:
            found.append(Finding(digest.source, Kind.DOUBLED, first, min(last, next_lsn - 1)))
        next_lsn = max(next_lsn, last + 1)
    if next_lsn <= digest.last_lsn:
        found.append(Finding(digest.source, Kind.MISSING, next_lsn, digest.last_lsn))
    return found


def differing_buckets(borders: Sequence[int], digests: Sequence[Digest]) -> list[int]:
    """The buckets that not all sources whose range they are in have alike."""
    found = []
    for number, (first, end) in enumerate(pairwise(borders)):
        values = {
            digest.buckets.get(number, Bucket())
            for digest in digests
            if digest.first_lsn <= first and end - 1 <= digest.last_lsn
        }
        if len(values) > 1:
            found.append(number)
    return found


def compare_lsns(
    rows: Mapping[str, Sequence[LsnRow]], ranges: Mapping[str, Range]
) -> list[Finding]:
    """Where the payloads of sources differ, or, where all payloads are alike, their batches.

    Args:
      rows: of each source, what it has in the buckets that differ.
      ranges: which LSNs it should have.
    """
    by_lsn: dict[int, dict[str, list[LsnRow]]] = {}
    for source, found in rows.items():
        for row in found:
            by_lsn.setdefault(row.lsn, {}).setdefault(source, []).append(row)
    wrong: dict[tuple[str, Kind], list[int]] = {}
    for lsn in sorted(by_lsn):
        has = {
            source: each
            for source, each in by_lsn[lsn].items()
            if ranges[source][0] <= lsn <= ranges[source][1]
        }
        payloads = {source: {row.payload for row in each} for source, each in has.items()}
        minority = _minority(payloads)
        kind = Kind.PAYLOAD
        if not minority:
            batches = {source: {row.batch for row in each} for source, each in has.items()}
            minority, kind = _minority(batches), Kind.BATCH
        for source in minority:
            wrong.setdefault((source, kind), []).append(lsn)
    return [
        Finding(source, kind, first, last)
        for (source, kind), lsns in wrong.items()
        for first, last in join_lsns(lsns)
    ]


def join_lsns(lsns: Iterable[int]) -> list[Range]:
    """Rising LSNs as ranges."""
    found: list[Range] = []
    for lsn in lsns:
        if found and found[-1][1] + 1 == lsn:
            found[-1] = (found[-1][0], lsn)
        else:
            found.append((lsn, lsn))
    return found


def _minority(values: Mapping[str, set[int]]) -> list[str]:
    """The sources that do not have the value that most have; all, if there is none; a source that
    has several values has the right one if it is among them."""
    counts = Counter(value for each in values.values() for value in each)
    if len(counts) <= 1:
        return []
    value, count = counts.most_common(1)[0]
    if list(counts.values()).count(count) > 1:
        return sorted(values)
    return sorted(source for source, each in values.items() if value not in each)
