"""README's table and pictures, of made-up results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.headlines import BEGIN, END, pictures_of, readme_with_figures
from benchmarks.peers.failover import Failover
from benchmarks.peers.loads import (
    CACHED_ON_MAJORITY,
    FLUSHED_IN_SYNC,
    FLUSHED_ON_MAJORITY,
    ONE_IN_FLIGHT,
    SINGLES,
    Load,
)
from benchmarks.peers.ratios import summarise
from benchmarks.peers.rounds import Row, Start
from benchmarks.peers.timed_run import Run
from benchmarks.results import RESULTS, Result, write_result
from logstore.errors import InvalidRequest

README = f"before\n{BEGIN}\nold\n{END}\nafter\n"
ZEROS = dict.fromkeys(Run.__struct_fields__, 0)


def run(system: str, contender: str, load: Load, figure: float, durability: str) -> Run:
    facts = {"system": system, "contender": contender, "load": load.name, "error": ""}
    facts |= {"durability": durability, "window_bytes": load.window_bytes, "kind": "run"}
    facts |= {"payload_bytes": load.payload_bytes}
    figures = {"payloads_per_s": figure, "p50_ms": figure}
    return msgspec.convert({**ZEROS, **facts, **figures}, Run)


PEERS: list[Row] = [
    run("logstore", "logstore", SINGLES, 120_000.0, FLUSHED_ON_MAJORITY),
    run("kafka", "Kafka flush, 64 KiB", SINGLES, 17_000.0, FLUSHED_IN_SYNC),
    run("kafka", "Kafka flush, 1 MiB", SINGLES, 40_000.0, FLUSHED_IN_SYNC),
    run("nats", "NATS", SINGLES, 90_000.0, CACHED_ON_MAJORITY),
    run("logstore", "logstore", ONE_IN_FLIGHT, 3.0, FLUSHED_ON_MAJORITY),
    run("etcd", "etcd", ONE_IN_FLIGHT, 1.5, FLUSHED_ON_MAJORITY),
    run("nats-always", "NATS sync always", ONE_IN_FLIGHT, 1.3, FLUSHED_ON_MAJORITY),
    Start(1, "logstore", FLUSHED_ON_MAJORITY, 5.0, 400.0),
    Start(1, "etcd", FLUSHED_ON_MAJORITY, 1.0, 100.0),
    Failover("logstore", FLUSHED_ON_MAJORITY, 1, 2, 1.5),
]


def keep(root: Path, name: str, summary: dict[str, Any], rows: list[Row]) -> None:
    write_result(str(root / RESULTS / f"{name}.json"), Result(name, {}, "c", rows, summary), [])


def table(root: Path) -> list[str]:
    lines = readme_with_figures(README, root).splitlines()
    assert (lines[0], lines[1], lines[-2], lines[-1]) == ("before", BEGIN, END, "after")
    return [line for line in lines if line.startswith("|")][2:]


def test_peers_stand_beside_this_log_each_in_its_best_setting(tmp_path: Path) -> None:
    keep(tmp_path, "peers", summarise(PEERS, {}, ours="logstore"), PEERS)
    assert table(tmp_path) == [
        "| 1 KiB singles, payloads/s | 120,000 | flushed: Kafka 40,000; in page caches: NATS "
        "JetStream 90,000 |",
        "| one append of 1 KiB in flight, p50 | 3 ms | flushed: NATS JetStream 1.3, etcd 1.5 |",
        "| three nodes from nothing to the first acknowledgement | 5 s | etcd 1 |",
        "| the leader killed: until appends go on | 1.5 s |  |",
    ]


def test_figures_of_the_paper_stand_beside_the_paper(tmp_path: Path) -> None:
    line = {"measured": 0.5, "low": 0.5, "high": 0.5, "target": 0.51, "is_reached": True}
    keep(tmp_path, "fig7a", {"paper": 0.5, "1 KiB, written": line, "1 KiB, space": line}, [])
    keep(tmp_path, "fig7b", {"paper": "constant", "between_sizes": line | {"measured": 0.004}}, [])
    keep(tmp_path, "fig7d", {"3 replicas, 1 KiB": {"acknowledged_over_offered": 0.998}}, [])
    assert [row.split("|")[2].strip() for row in table(tmp_path)] == [
        "0.500 to 0.500", "0.4 %", "99.8 %"
    ]  # fmt: skip


def test_what_is_not_kept_has_no_line_and_no_picture(tmp_path: Path) -> None:
    assert table(tmp_path) == []
    assert pictures_of(tmp_path) == {}


@pytest.mark.slow
def test_pictures_are_shown_below_the_table(tmp_path: Path) -> None:
    keep(tmp_path, "peers", summarise(PEERS, {}, ours="logstore"), PEERS)
    assert set(pictures_of(tmp_path)) == {"peers-1-kib-singles"}
    assert "\n\n![1 KiB singles](docs/pictures/peers-1-kib-singles.svg)\n" in readme_with_figures(
        README, tmp_path
    )


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", README + README])
def test_a_readme_without_its_marks_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="once each"):
        readme_with_figures(text, tmp_path)
