"""An audit: every source by itself, all against each other, first by buckets and then LSN by LSN.

Owns the course of it. Sources are as long as they are: what only one of them has is looked at, and
compared with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from logstore.client.refusal import TRANSIENT
from logstore.errors import CorruptData, InvalidRequest, LogStoreError
from logstore.spark.audit_compare import (
    Digest,
    Finding,
    Kind,
    add_up,
    compare_lsns,
    differing_buckets,
    find_gaps_and_doubles,
    make_borders,
)
from logstore.spark.audit_digests import (
    Bucket,
    LsnRow,
    PartDigest,
    Range,
    digest_part,
    list_part,
)
from logstore.spark.audit_sources import Part, Source, Survey, survey
from logstore.spark.jobs import StartSpark, run_tasks

# 4,096 buckets of 60 bytes a source; one of 1,000 LSNs or more is listed in a moment.
BUCKETS = 4_096
BUCKET_LSNS_MIN = 1_000
# LSNs that are compared one by one: each is a row of three numbers on the driver, for each source.
LISTED_LSNS_MAX = 500_000

OnTasks = Callable[[int, int], None]


class Verdict(msgspec.Struct, frozen=True):
    """One source. `digest` is comparable where the LSNs are the same."""

    source: str
    first_lsn: int
    last_lsn: int
    payloads: int
    batches: int
    digest: str


class Audit(msgspec.Struct, frozen=True):
    """What an audit has found.

    Attributes:
      findings: what is wrong, by source and LSN.
      unanswered: sources that could not be looked at, and why.
    """

    verdicts: list[Verdict]
    findings: list[Finding]
    unanswered: dict[str, str]

    @property
    def is_damaged(self) -> bool:
        return any(each.kind == Kind.DAMAGED for each in self.findings)


def run_audit(
    spark: StartSpark,
    sources: Sequence[Source],
    *,
    first_lsn: int | None,
    last_lsn: int | None,
    bucket: int | None,
    on_tasks: OnTasks,
) -> Audit:
    """Compare the sources within [first_lsn, last_lsn]; None: as far as each goes.

    Args:
      bucket: LSNs of a bucket; None: as fits the log.
      on_tasks: told how many of how many tasks are done.

    Raises:
      InvalidRequest: fewer than two sources, or none has anything within the range.
    """
    if len(sources) < 2:
        raise InvalidRequest("an audit compares: give replicas, a lake or folders, two at least")
    surveys, findings, unanswered = _survey_all(sources)
    surveys = [_clip(each, first_lsn, last_lsn) for each in surveys]
    ranges = {each.source.name: (each.first_lsn, each.last_lsn) for each in surveys}
    known = list(ranges.values())
    borders = make_borders(known, bucket or _bucket_for(known))
    if not borders and not unanswered:
        raise InvalidRequest("no source has any of these LSNs")
    digests = _digest_all(spark, surveys, borders, on_tasks) if borders else []
    for digest in digests:
        findings += digest.damaged + find_gaps_and_doubles(digest)
    differing = [
        (borders[number], borders[number + 1] - 1) for number in differing_buckets(borders, digests)
    ]
    listed, rest = _bounded(differing)
    findings += [Finding("all", Kind.MORE, first, last) for first, last in rest]
    findings += compare_lsns(_list_all(spark, surveys, listed), ranges) if listed else []
    order = {name: place for place, name in enumerate(ranges)}
    findings.sort(key=lambda each: (order.get(each.source, -1), each.first_lsn, each.kind))
    return Audit([_verdict(each) for each in digests], findings, unanswered)


def _survey_all(
    sources: Sequence[Source],
) -> tuple[list[Survey], list[Finding], dict[str, str]]:
    surveys: list[Survey] = []
    findings: list[Finding] = []
    unanswered: dict[str, str] = {}
    for source in sources:
        try:
            found = survey(source)
        except CorruptData as damage:
            findings.append(Finding(source.name, Kind.DAMAGED, 0, 0, str(damage)))
            continue
        except LogStoreError as error:
            if error.code not in TRANSIENT:
                raise
            unanswered[source.name] = str(error)
            continue
        surveys.append(found)
        findings += [Finding(source.name, Kind.DAMAGED, 0, 0, fault) for fault in found.faults]
    return surveys, findings, unanswered


def _clip(found: Survey, first_lsn: int | None, last_lsn: int | None) -> Survey:
    first = max(found.first_lsn, first_lsn or found.first_lsn)
    last = min(found.last_lsn, last_lsn or found.last_lsn)
    parts = tuple(each for each in found.parts if each.first_lsn <= last and each.last_lsn >= first)
    return msgspec.structs.replace(found, first_lsn=first, last_lsn=last, parts=parts)


def _bucket_for(ranges: Sequence[Range]) -> int:
    total = max((last - first + 1 for first, last in ranges), default=0)
    return max(BUCKET_LSNS_MIN, -(-total // BUCKETS))


def _digest_all(
    spark: StartSpark, surveys: Sequence[Survey], borders: list[int], on_tasks: OnTasks
) -> list[Digest]:
    """In waves, so that somebody may watch."""
    parts = [part for each in surveys for part in each.parts]
    wave = 4 * spark().sparkContext.defaultParallelism if parts else 1
    found: list[PartDigest] = []
    on_tasks(0, len(parts))
    for start in range(0, len(parts), wave):
        tasks = parts[start : start + wave]
        found += run_tasks(spark, partial(digest_part, borders), tasks)
        on_tasks(len(found), len(parts))
    digests: list[Digest] = []
    for each in surveys:
        own, found = found[: len(each.parts)], found[len(each.parts) :]
        digests.append(add_up(each.source.name, each.first_lsn, each.last_lsn, own))
    return digests


def _bounded(ranges: Sequence[Range]) -> tuple[list[Range], list[Range]]:
    """Those that are listed LSN by LSN, and those that are too many for it."""
    left = LISTED_LSNS_MAX
    listed: list[Range] = []
    for place, (first, last) in enumerate(ranges):
        left -= last - first + 1
        if left < 0 and listed:
            return listed, list(ranges[place:])
        listed.append((first, last))
    return listed, []


def _list_all(
    spark: StartSpark, surveys: Sequence[Survey], ranges: list[Range]
) -> dict[str, list[LsnRow]]:
    """What each source has in these ranges."""
    parts: list[Part] = [
        part
        for each in surveys
        for part in each.parts
        if any(part.first_lsn <= last and part.last_lsn >= first for first, last in ranges)
    ]
    rows: dict[str, list[LsnRow]] = {each.source.name: [] for each in surveys}
    found = run_tasks(spark, partial(list_part, ranges), parts)
    for part, listed in zip(parts, found, strict=True):
        rows[part.source.name] += listed
    return rows


def _verdict(digest: Digest) -> Verdict:
    total = Bucket()
    for bucket in digest.buckets.values():
        total = total.plus(bucket)
    return Verdict(
        digest.source,
        digest.first_lsn,
        digest.last_lsn,
        total.payloads,
        total.batches,
        f"{total.digest:032x}",
    )
