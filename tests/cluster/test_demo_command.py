"""`logstore demo` from end to end: real processes, a real kill, nothing lost."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import msgspec
import pytest

from logstore.cli.embedded import make_config
from logstore.cli.exit_status import ExitStatus
from tests.cluster.one_cluster import processes_of, run_cli

pytestmark = pytest.mark.slow
ZERO = ("lost", "duplicated", "gaps", "torn_batches", "order_violations")


@pytest.mark.long
def test_the_demo_kills_the_leader_under_load_and_finds_everything(tmp_path: Path) -> None:
    figures = tmp_path / "demo.json"
    done = run_cli(None, "demo", "--seconds", "6", "--json", str(figures))
    assert done.returncode == ExitStatus.DONE, done.stderr.decode()
    report = msgspec.json.decode(figures.read_bytes())
    assert {name: report[name] for name in ZERO} == dict.fromkeys(ZERO, 0)
    assert report["chains_equal"] is True
    assert report["replicas"] == 3
    config = make_config(3, Random())
    assert report["processes"] == sum(processes_of(config, node) for node in (1, 2, 3))
    assert report["payloads_acknowledged"] > 0
    assert report["payloads_consumed"] == [report["payloads_acknowledged"]] * 3
    assert report["in_flight_at_kill"] > 0
    assert 0 < report["failover_ms"] < 30_000
    assert report["restart_ms"] > 0
    assert report["payloads_per_s"] > 0
    assert re.search(r"failover +│ +[\d,.]+ ms", done.stdout.decode())
    *_, why, last = done.stdout.decode().strip().splitlines()
    assert why.startswith("p99 is ")
    assert last.startswith("passed: ")


@pytest.mark.long
def test_odd_bytes_a_long_line_and_an_empty_file_go_through_the_demo(tmp_path: Path) -> None:
    odd, empty = tmp_path / "odd", tmp_path / "empty"
    odd.write_bytes(b"\r\n\n\xff\xfe\x00\r\n" + b"x" * (3 << 20) + b"\nlast")
    empty.write_bytes(b"")
    done = run_cli(None, "demo", str(odd), str(empty), "--seconds", "4", "--json", "-")
    assert done.returncode == ExitStatus.DONE, done.stderr.decode()
    report = msgspec.json.decode(done.stdout)
    assert report["payloads_consumed"] == [report["payloads_acknowledged"]] * 3
    assert report["payloads_acknowledged"] > 0


def test_a_line_that_no_batch_can_hold_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (5 << 20))
    done = run_cli(None, "demo", str(path))
    assert done.returncode == ExitStatus.REFUSED
    assert b"line 1" in done.stderr
