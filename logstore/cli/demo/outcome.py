"""What came of the demo: was everything that was acknowledged delivered, once, whole and in order,
and how fast? Pure, vectorised.

Owns the comparison of what consumers were given with what producers were told, and the arithmetic
of the figures. Must not know where either came from, nor how it is shown. Payloads are compared by
64-bit digests, so that a run of millions fits into memory.

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


class ProducerRecord(msgspec.Struct, frozen=True):
    """What one producer wrote down, the arrays a row a batch."""

    told: Acknowledged
    size_bytes: Integers
    appended_ns: Integers
    acknowledged_ns: Integers

    @property
    def last_lsn(self) -> int:
        told = self.told
        return int((told.first_lsns + told.counts).max()) - 1 if len(told.counts) else 0


class ConsumerRecord(msgspec.Struct, frozen=True):
    """What one consumer wrote down; the first two a row a batch."""

    first_lsns: Integers
    terms: Integers
    delivered: Delivered


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


class Report(msgspec.Struct, frozen=True):
    """What `logstore demo --json` writes. Times in ms; payload bytes in mb_per_s are 10**6.

    The last two say where p99_ms comes from: the share of appends, in percent, that were on their
    way while nobody led, and the 99th percentile of the others.
    """

    replicas: int
    processes: int
    payloads_acknowledged: int
    payloads_consumed: list[int]
    lost: int
    duplicated: int
    gaps: int
    torn_batches: int
    order_violations: int
    chains_equal: bool
    in_flight_at_kill: int
    failover_ms: float | None
    restart_ms: float | None
    payloads_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    disk_bytes_per_payload_byte: float
    appends_over_failover_percent: float
    p99_without_failover_ms: float


class Facts(msgspec.Struct, frozen=True):
    """What the run itself saw. Times are monotonic ns.

    Attributes:
      processes: of the cluster, supervisors included.
      has_input: whether there was any line to append.
      began_ns, ended_ns: between them producers appended.
      killed_ns: when SIGKILL was sent to the leader's replica, whose term was `killed_term`.
      led_again_ns: when another leader was seen.
      restart_ns: how long the killed replica took from its start until it showed what the leader
        had shown then.
      disk_bytes, payload_bytes: written by the first leader, and acknowledged by it, until the
        kill.
    """

    replicas: int
    processes: int
    has_input: bool
    began_ns: int
    ended_ns: int
    killed_ns: int
    killed_term: int
    led_again_ns: int
    restart_ns: int
    in_flight_at_kill: int
    chains_equal: bool
    disk_bytes: int
    payload_bytes: int


def make_report(
    facts: Facts, producers: Sequence[ProducerRecord], consumers: Sequence[ConsumerRecord]
) -> Report:
    """All figures; the comparison is made for each consumer, and what it finds is added up."""
    told = [each.told for each in producers]
    findings = sum((compare(told, each.delivered) for each in consumers), Findings())
    acknowledged_ns = np.concatenate([each.acknowledged_ns for each in producers])
    counts = np.concatenate([each.told.counts for each in producers])
    sizes = np.concatenate([each.size_bytes for each in producers])
    appended_ns = np.concatenate([each.appended_ns for each in producers])
    latencies = acknowledged_ns - appended_ns
    is_timed = (acknowledged_ns >= facts.began_ns) & (acknowledged_ns <= facts.ended_ns)
    seconds = (facts.ended_ns - facts.began_ns) / 1e9
    failover_ns = _failover_ns(facts, producers, consumers)
    led_again_ns = facts.killed_ns + (failover_ns or 0)
    is_over_failover = (appended_ns <= led_again_ns) & (acknowledged_ns > facts.killed_ns)
    return Report(
        replicas=facts.replicas,
        processes=facts.processes,
        payloads_acknowledged=int(counts.sum()),
        payloads_consumed=[len(each.delivered.lsns) for each in consumers],
        lost=findings.lost,
        duplicated=findings.duplicated,
        gaps=findings.gaps,
        torn_batches=findings.torn_batches,
        order_violations=findings.order_violations,
        chains_equal=facts.chains_equal,
        in_flight_at_kill=facts.in_flight_at_kill,
        failover_ms=round(failover_ns / 1e6, 1) if failover_ns else None,
        restart_ms=round(facts.restart_ns / 1e6, 1) if facts.restart_ns else None,
        payloads_per_s=round(int(counts[is_timed].sum()) / seconds, 1),
        mb_per_s=round(int(sizes[is_timed].sum()) / seconds / 1e6, 3),
        p50_ms=_percentile_ms(latencies, 50),
        p99_ms=_percentile_ms(latencies, 99),
        disk_bytes_per_payload_byte=round(facts.disk_bytes / max(1, facts.payload_bytes), 4),
        appends_over_failover_percent=round(
            100 * int(np.count_nonzero(is_over_failover)) / max(1, len(latencies)), 3
        ),
        p99_without_failover_ms=_percentile_ms(latencies[~is_over_failover], 99),
    )


def complaints(report: Report, *, has_input: bool) -> list[str]:
    """What is wrong, in words; empty if nothing is."""
    wrong = [
        f"{name}: {value}"
        for name in Findings.__struct_fields__
        if (value := getattr(report, name))
    ]
    if any(count != report.payloads_acknowledged for count in report.payloads_consumed):
        wrong.append(
            f"consumed {report.payloads_consumed}, acknowledged {report.payloads_acknowledged}"
        )
    if not report.chains_equal:
        wrong.append("the replicas' chains differ, or not all could be read")
    if has_input and not report.in_flight_at_kill:
        wrong.append("no append was in flight when the leader was killed")
    if report.failover_ms is None:
        wrong.append("nothing was acknowledged after the leader was killed")
    if report.restart_ms is None:
        wrong.append("the killed replica did not catch up")
    return wrong


def _failover_ns(
    facts: Facts, producers: Sequence[ProducerRecord], consumers: Sequence[ConsumerRecord]
) -> int:
    """From the kill to the next acknowledged append; 0: there was none.

    "Next" is the first of a later term: acknowledgements of the dead leader may still have been on
    their way. Without input it is the time to the next leader.
    """
    if not facts.has_input:
        return max(0, facts.led_again_ns - facts.killed_ns)
    later = [each.first_lsns[each.terms > facts.killed_term] for each in consumers]
    first_lsn = min((int(lsns.min()) for lsns in later if len(lsns)), default=0)
    if not first_lsn:
        return 0
    answers = [each.acknowledged_ns[each.told.first_lsns >= first_lsn] for each in producers]
    return min((int(times.min()) for times in answers if len(times)), default=0) - facts.killed_ns


def _percentile_ms(values_ns: Integers, percent: int) -> float:
    return round(float(np.percentile(values_ns, percent)) / 1e6, 3) if len(values_ns) else 0.0


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
