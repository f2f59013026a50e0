"""Rows of loads that nobody measured."""

from __future__ import annotations

from benchmarks.saturate import Row


def product(**values: float) -> Row:
    facts = {"payload": 1_024, "batch": 1, "window_mb": 2.0, "seconds": 5.0, "rate": 0.0}
    rates = {"payloads_per_s": 1.0, "mb_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0}
    rest = {"payloads_per_group": 1.0, "disk_bytes_per_payload_byte": 1.0}
    leader = {"leader_sent_mb_per_s": 2.0, "leader_disk_mb_per_s": 1.0}
    kept = {"may_pack": True, "cpu_s": {}, "rss_mb": {}}
    return Row(**{**facts, **rates, **rest, **leader, **kept, **values})
