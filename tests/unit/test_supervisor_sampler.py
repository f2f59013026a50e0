"""What the kernel says of a process, and that a share is of the time between two looks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from actors import topology
from actors.supervisor.sampler import ProcessSampler, usage_of
from tests.unit.actor_stage import ActorStage


def test_usage_is_what_psutil_says_of_the_same_process() -> None:
    before = psutil.Process().cpu_times()
    usage = usage_of(os.getpid())
    after = psutil.Process().cpu_times()
    assert usage is not None
    ticks = os.sysconf("SC_CLK_TCK")
    used_s = usage.cpu_ticks / ticks
    assert before.user + before.system <= used_s + 1 / ticks
    assert used_s <= after.user + after.system + 1 / ticks
    assert 0.5 < usage.rss_bytes / psutil.Process().memory_info().rss < 2


def test_a_process_may_have_any_name_and_may_be_gone() -> None:
    script = "import ctypes, os; ctypes.CDLL(None).prctl(15, b') R 1 (', 0, 0, 0); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        usage = usage_of(process.pid)
        assert usage is not None
        assert usage.rss_bytes > 1 << 20
        process.communicate(b"\n")
    assert usage_of(process.pid) is None


def test_a_share_is_of_the_time_between_two_looks_and_none_is_told_after_one(
    tmp_path: Path,
) -> None:
    stage = ActorStage(tmp_path)
    station = stage.station(topology.RAFT)
    share, rss = (station.slot(f"raft.{name}") for name in ("cpu_permille", "rss_bytes"))
    sampler = ProcessSampler(station)
    pids = {topology.RAFT: os.getpid()}
    sampler.sample(pids, now_ns=1)
    before = usage_of(os.getpid())
    assert station.slots[share] == 0
    assert station.slots[rss] > 1 << 20
    ticks = 0
    while ticks < 3:
        usage = usage_of(os.getpid())
        assert usage is not None
        assert before is not None
        ticks = usage.cpu_ticks - before.cpu_ticks
    sampler.sample(pids, now_ns=1 + 10**9)
    permille = 1_000 * 3 / os.sysconf("SC_CLK_TCK")
    assert permille <= station.slots[share] < 10 * permille
