"""The demo's figures follow from what the workers wrote down; whatever is wrong is said."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from logstore.cli.demo.demo import _ROWS, explain_p99, render_table, verdict
from logstore.cli.demo.outcome import Facts, Report, complaints, digests_of, make_report
from logstore.cli.demo.workers import read_consumer_record, read_producer_record, result_path

MS = 1_000_000
FACTS = Facts(
    replicas=1,
    processes=5,
    has_input=True,
    began_ns=0,
    ended_ns=2_000 * MS,
    killed_ns=1_000 * MS,
    killed_term=3,
    led_again_ns=1_400 * MS,
    restart_ns=700 * MS,
    in_flight_at_kill=9,
    chains_equal=True,
    disk_bytes=1_050,
    payload_bytes=1_000,
)
PAYLOADS = [b"a", b"b", b"c", b"d"]


def write(folder: Path, name: str, rows: list[tuple[int, ...]], payloads: list[bytes]) -> None:
    result_path(folder, name, "rows").write_bytes(np.array(rows, dtype=np.int64).tobytes())
    result_path(folder, name, "digests").write_bytes(digests_of(payloads).tobytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three batches: one before the kill, one told after it by the dead leader, one of term 4."""
    rows = [
        (1, 2, 20, 100 * MS, 110 * MS),
        (3, 1, 10, 900 * MS, 1_002 * MS),
        (4, 1, 10, 950 * MS, 1_500 * MS),
    ]
    write(tmp_path, "producer-0", rows, PAYLOADS)
    write(tmp_path, "consumer-1", [(1, 2, 3), (3, 1, 3), (4, 1, 4)], PAYLOADS)
    return tmp_path


def report_of(folder: Path, facts: Facts = FACTS) -> Report:
    producers = [read_producer_record(folder, "producer-0")]
    return make_report(facts, producers, [read_consumer_record(folder, "consumer-1")])


def test_figures_follow_from_the_rows(folder: Path) -> None:
    report = report_of(folder)
    assert report.payloads_acknowledged == 4
    assert report.payloads_consumed == [4]
    assert report.payloads_per_s == 2.0
    assert report.p50_ms == 102.0
    assert report.restart_ms == 700.0
    assert report.disk_bytes_per_payload_byte == 1.05
    assert complaints(report, has_input=True) == []


def test_failover_ends_with_an_append_of_a_later_term_not_with_a_late_word_of_the_dead(
    folder: Path,
) -> None:
    assert report_of(folder).failover_ms == 500.0


def test_without_input_failover_ends_with_the_next_leader(tmp_path: Path) -> None:
    write(tmp_path, "producer-0", [], [])
    write(tmp_path, "consumer-1", [], [])
    facts = msgspec.structs.replace(FACTS, has_input=False, in_flight_at_kill=0)
    report = report_of(tmp_path, facts)
    assert report.failover_ms == 400.0
    assert complaints(report, has_input=False) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"lost": 1}, "lost"),
        ({"torn_batches": 2}, "torn_batches"),
        ({"payloads_consumed": [3]}, "consumed"),
        ({"chains_equal": False}, "chains"),
        ({"in_flight_at_kill": 0}, "in flight"),
        ({"failover_ms": None}, "acknowledged after"),
        ({"restart_ms": None}, "catch up"),
    ],
)
def test_whatever_is_wrong_is_said(folder: Path, change: dict[str, object], word: str) -> None:
    report = msgspec.structs.replace(report_of(folder), **change)
    (complaint,) = complaints(report, has_input=True)
    assert word in complaint


def test_a_digest_without_an_outcome_is_no_acknowledgement(folder: Path) -> None:
    write(folder, "producer-0", [(1, 2, 20, 100 * MS, 110 * MS)], PAYLOADS)
    assert len(read_producer_record(folder, "producer-0").told.digests) == 2


def test_the_json_has_the_promised_keys_and_the_table_a_row_for_each(folder: Path) -> None:
    report = report_of(folder)
    keys = list(msgspec.json.decode(msgspec.json.encode(report)))
    assert keys == [
        "replicas", "processes", "payloads_acknowledged", "payloads_consumed", "lost",
        "duplicated", "gaps", "torn_batches", "order_violations", "chains_equal",
        "in_flight_at_kill", "failover_ms", "restart_ms", "payloads_per_s", "mb_per_s", "p50_ms",
        "p99_ms", "disk_bytes_per_payload_byte", "appends_over_failover_percent",
        "p99_without_failover_ms",
    ]  # fmt: skip
    assert set(keys) - set(_ROWS) == {"appends_over_failover_percent"}
    assert render_table(report).row_count == len(_ROWS)


def test_figures_for_people_are_words_with_units(folder: Path) -> None:
    report = msgspec.structs.replace(report_of(folder), failover_ms=1_323.4, restart_ms=None)
    table = render_table(report)
    shown = dict(zip(*(column.cells for column in table.columns), strict=True))
    assert shown["failover"] == "1,323 ms"
    assert shown["restart of the killed replica"] == "did not happen"
    assert shown["acknowledged"] == "4 payloads"
    assert shown["checksums equal on all replicas"] == "yes"
    assert not [words for words in shown if "_" in words]


def test_what_p99_comes_from_is_said(folder: Path) -> None:
    """Two of three appends were on their way while nobody led."""
    report = report_of(folder)
    assert (report.appends_over_failover_percent, report.p99_without_failover_ms) == (66.667, 10.0)
    said = explain_p99(report)
    assert said.startswith("p99 is 541 ms because 66.7 % of the appends were on their way while")
    assert "without them it is 10 ms, because each producer keeps its window full" in said
    rare = msgspec.structs.replace(report, appends_over_failover_percent=0.2)
    slow = msgspec.structs.replace(report, p99_without_failover_ms=560.0)
    for each in (rare, slow):
        said = explain_p99(each)
        assert said.startswith("p99 is 541 ms because each producer keeps its window full")


def test_the_last_line_says_passed_or_failed(folder: Path) -> None:
    report = report_of(folder)
    assert verdict(report, []).startswith("passed: 4 payloads were acknowledged, and every")
    assert verdict(report, ["lost: 1"]) == "failed: 1 of the promises did not hold, see above"
