"""The demo's outcome: from what the workers wrote down to one object and a table.

Owns the arithmetic of the figures. Pure but for reading the workers' files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.table import Table

from logstore.cli.demo import consumer, producer
from logstore.cli.demo.board import result_path
from logstore.cli.demo.compare import (
    Acknowledged,
    Delivered,
    Findings,
    Integers,
    compare,
    spread,
)


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


class ProducerRecord:
    """What one producer wrote down."""

    def __init__(self, folder: Path, name: str) -> None:
        rows = _read_rows(folder, name, len(producer.ROW_FIELDS))
        first_lsn, count, self.size_bytes, self.appended_ns, self.acknowledged_ns = rows
        self.told = Acknowledged(first_lsn, count, _read_digests(folder, name)[: count.sum()])

    @property
    def last_lsn(self) -> int:
        told = self.told
        return int((told.first_lsns + told.counts).max()) - 1 if len(told.counts) else 0


class ConsumerRecord:
    """What one consumer wrote down."""

    def __init__(self, folder: Path, name: str) -> None:
        self.first_lsns, self.counts, self.terms = _read_rows(
            folder, name, len(consumer.ROW_FIELDS)
        )
        self.delivered = Delivered(
            spread(self.first_lsns, self.counts), _read_digests(folder, name)
        )


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


def render_table(report: Report) -> Table:
    """The figures in words, with their units."""
    table = Table(title="logstore demo", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, (words, form) in _ROWS.items():
        value = getattr(report, name)
        style = ("red" if value else "green") if name in Findings.__struct_fields__ else None
        table.add_row(words, "did not happen" if value is None else form(value), style=style)
    return table


def explain_p99(report: Report) -> str:
    """Why the slowest hundredth of the appends took as long as it did."""
    over, p99 = report.appends_over_failover_percent, _ms(report.p99_ms)
    window = (
        "each producer keeps its window full, so that an append waits for those before it, while "
        "all replicas, producers and consumers share the processors of this machine"
    )
    if over < 1:
        return f"p99 is {p99} because {window}"
    return (
        f"p99 is {p99} because {over:.1f} % of the appends were on their way while nobody led; "
        f"without them it is {_ms(report.p99_without_failover_ms)}, because {window}"
    )


def verdict(report: Report, wrong: Sequence[str]) -> str:
    """The last line: passed or failed, and what that means."""
    if wrong:
        return f"failed: {len(wrong)} of the promises did not hold, see above"
    return (
        f"passed: {report.payloads_acknowledged:,} payloads were acknowledged, and every consumer "
        "got each of them once, in order, across the death of the leader"
    )


def _number(value: int) -> str:
    return f"{value:,}"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


# Each figure that people are shown, its words, and how its value is written.
_ROWS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "replicas": ("replicas", _number),
    "processes": ("processes of the replicas", _number),
    "payloads_acknowledged": ("acknowledged", lambda value: f"{value:,} payloads"),
    "payloads_consumed": ("consumed, from each replica", _numbers),
    "lost": ("lost", _number),
    "duplicated": ("duplicated", _number),
    "gaps": ("gaps", _number),
    "torn_batches": ("torn batches", _number),
    "order_violations": ("order violations", _number),
    "chains_equal": ("checksums equal on all replicas", lambda value: "yes" if value else "no"),
    "in_flight_at_kill": ("in flight when the leader died", lambda value: f"{value:,} payloads"),
    "failover_ms": ("failover", _ms),
    "restart_ms": ("restart of the killed replica", _ms),
    "payloads_per_s": ("throughput", lambda value: f"{value:,.0f} payloads/s"),
    "mb_per_s": ("throughput", lambda value: f"{value:,.1f} MB/s"),
    "p50_ms": ("append to acknowledgement, median", _ms),
    "p99_ms": ("append to acknowledgement, p99", _ms),
    "p99_without_failover_ms": ("p99 without the failover", _ms),
    "disk_bytes_per_payload_byte": ("written to disk per payload byte", lambda x: f"{x:.2f} bytes"),
}


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


def _read_rows(folder: Path, name: str, fields: int) -> list[Integers]:
    rows = np.fromfile(result_path(folder, name, "rows"), dtype=np.int64).reshape(-1, fields)
    return list(rows.T)


def _read_digests(folder: Path, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.fromfile(result_path(folder, name, "digests"), dtype=np.uint64)
