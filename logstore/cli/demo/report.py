"""The demo's outcome: from what the workers wrote down to one object and a table.

Owns the arithmetic of the figures. Pure but for reading the workers' files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    """What `logstore demo --json` writes. Times in ms; payload bytes in mb_per_s are 10**6."""

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
    latencies = acknowledged_ns - np.concatenate([each.appended_ns for each in producers])
    is_timed = (acknowledged_ns >= facts.began_ns) & (acknowledged_ns <= facts.ended_ns)
    seconds = (facts.ended_ns - facts.began_ns) / 1e9
    failover_ns = _failover_ns(facts, producers, consumers)
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
    table = Table(title="logstore demo", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, value in msgspec.structs.asdict(report).items():
        shown = f"{value:,}" if isinstance(value, int | float) else str(value)
        is_finding = name in Findings.__struct_fields__
        style = ("red" if value else "green") if is_finding else None
        table.add_row(
            name.replace("_", " "), str(value) if isinstance(value, bool) else shown, style=style
        )
    return table


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
