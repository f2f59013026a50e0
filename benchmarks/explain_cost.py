"""What stamps and counters cost that `logstore explain` reads: less than 1 % of throughput?

Owns two answers. The first adds up: a stamp, an entry that is passed over, a wake-up that is
counted and a publication are timed in this process, with warm caches and with cold ones, and
multiplied by how many of each a cluster of three makes a second under load; the sum is held against
the processor time of its replicas. It resolves what is far below the noise of a load. The second,
with `--against CHECKOUT`, is the noise: the same loads with this checkout's replicas and with those
of one from before (or of any other), in turn.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import monotonic_ns, process_time_ns
from timeit import repeat
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from actors.loop_usage import PUBLISH_EVERY_NS, USAGE, LoopUsage
from actors.real_clock import RealClock
from actors.trace import Stamper
from benchmarks.clients import HERE
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.results import Result
from benchmarks.saturate import WARM_UP_S, Settings, measure_load
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.cli.explain.readings import Reading, Readings, gather
from logstore.cli.explain.utilisation import process_uses
from logstore.client.client import connect
from logstore.errors import InvalidRequest, LogStoreError
from logstore.model import Index
from transport.stamp_table import (
    STAMPED_EVERY,
    StampTable,
    format_stamp_table,
    stamp_region_bytes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPLICAS = 3
CPU_SHARE_MAX = 0.01
THROUGHPUT_MIN = 0.99
RUN_TIMEOUT_S = 300.0
RUNS_MAX = 2
# Larger than the last cache of most processors; reading it leaves nothing else there.
COLD_BYTES = 64 << 20
TIMED, COLD_TIMED = 100_000, 60
# For every entry, sampled or not, at most: how often it is asked whether it is (6 times on the
# leader, 2 for each follower there, 5 on a follower), and how often a clock is read (twice by the
# leader's ingress, four times by each writer for a flush).
ASKED_AN_ENTRY = 6 + (2 + 5) * (REPLICAS - 1)
CLOCKS_AN_ENTRY = 2 + 4 * REPLICAS
STAMP, PASSED, CLOCK, WAKE, PUBLICATION = "stamp", "passed", "clock", "wake", "publication"


class Load(msgspec.Struct, frozen=True):
    """`of`: the figure of a row that is compared."""

    name: str
    settings: Settings


def loads_of(seconds: float) -> tuple[Load, ...]:
    """The wake-ups of an append that is alone cost most; saturation has the most entries."""
    return (
        Load("1 KiB, one at a time", Settings(1_024, 1, 2.0, seconds)),
        Load("one append in flight", Settings(1_024, 1, 0.001, seconds)),
    )


class Unit(msgspec.Struct, frozen=True):
    """What one of them takes, in ns: with warm caches, and right after a park, at worst."""

    what: str
    warm_ns: float
    cold_ns: float


class Share(msgspec.Struct, frozen=True):
    """One load. `rates`: of each unit, of all replicas, a second; shares are of the processor time
    that all their processes took."""

    load: str
    payloads_per_s: float
    cores: float
    rates: dict[str, float]
    warm_share: float
    cold_share: float


class CostRun(msgspec.Struct, frozen=True):
    """One run of one checkout. `cpu_ms_per_payload`: of all processes of all replicas."""

    load: str
    round: int
    is_ours: bool
    payloads_per_s: float
    p50_ms: float
    cpu_ms_per_payload: float


def measure_explain_cost(
    site: Site, *, other: Path | None, rounds: int, seconds: float
) -> Measured:
    """
    Raises:
      InvalidRequest: `other` is no checkout.
      LogStoreError: a run failed.
    """
    if other is not None and not (other / "benchmarks" / "saturate.py").is_file():
        raise InvalidRequest(f"{other}: name the folder of another checkout")
    units = time_units()
    shares = [_share_of(load, units, site.folder) for load in loads_of(seconds)]
    for each in shares:
        site.say(f"{each.load}: {each.cold_share:.3%} of the replicas' processor time at worst")
    runs: list[CostRun] = []
    for number in range(1, rounds + 1) if other is not None else ():
        for load in loads_of(seconds):
            sides = (True, False) if number % 2 else (False, True)
            runs += [_run(load, number, is_ours, other, site.folder) for is_ours in sides]
        site.say(f"round {number} of {rounds}")
    return Measured([*units, *shares, *runs], summarise(shares, runs))


def summarise(shares: Sequence[Share], runs: Sequence[CostRun]) -> dict[str, Any]:
    """Of each load the share of processor time at worst and, if it was compared, the ratios ours to
    theirs with their quartiles."""
    summary: dict[str, Any] = {
        f"{share.load}, share of processor time": {
            "measured": share.cold_share,
            "warm": share.warm_share,
            "target": CPU_SHARE_MAX,
            "is_reached": share.cold_share <= CPU_SHARE_MAX,
        }
        for share in shares
    }
    for load in dict.fromkeys(run.load for run in runs):
        mine = [run for run in runs if run.load == load]
        throughput = ratios(mine, "payloads_per_s")
        summary[f"{load}, throughput over the other's"] = throughput | {
            "target": THROUGHPUT_MIN,
            "is_reached": throughput["measured"] >= THROUGHPUT_MIN,
        }
        name = f"{load}, processor time of a payload over the other's"
        summary[name] = ratios(mine, "cpu_ms_per_payload")
    return summary


def ratios(runs: Sequence[CostRun], figure: str) -> dict[str, float]:
    """Ours over theirs, round by round: median and quartiles."""
    ours, theirs = (
        [getattr(run, figure) for run in runs if run.is_ours is side] for side in (True, False)
    )
    found = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, middle, high = quantiles(found if len(found) > 1 else found * 2, n=4, method="inclusive")
    return {
        "measured": round(middle, 4),
        "quartile_1": round(low, 4),
        "quartile_3": round(high, 4),
        "ours": median(ours),
        "theirs": median(theirs),
    }


# --- what one of each takes ---


def time_units() -> list[Unit]:
    """In the units' own code, on a table and counters of this process."""
    table = mmap.mmap(-1, stamp_region_bytes(1))
    format_stamp_table(table, incarnation=1)
    stamper = Stamper(StampTable(table, incarnation=1).row(0), RealClock())
    slots = memoryview(bytearray(8 * len(USAGE))).cast("Q")
    usage = LoopUsage(slots, lambda name: USAGE.index(name.partition(".")[2]), "raft")
    sampled, passed = Index(STAMPED_EVERY), Index(STAMPED_EVERY + 1)

    def count_wake() -> None:
        """What a loop does for a park."""
        usage.idle_ns += 1
        usage.bell_wakes += 1
        usage.empty_wakes += 1

    acts: dict[str, Callable[[], object]] = {
        STAMP: lambda: stamper.stamp(sampled),
        PASSED: lambda: stamper.stamp(passed),
        CLOCK: monotonic_ns,
        WAKE: count_wake,
        PUBLICATION: lambda: usage.publish(0, process_time_ns()),
    }
    everything = np.ones(COLD_BYTES // 8)
    nothing = _cold_ns(lambda: None, everything)
    return [
        Unit(
            what,
            round(min(repeat(act, number=TIMED, repeat=3)) / TIMED * 1e9, 1),
            round(max(0.0, _cold_ns(act, everything) - nothing), 1),
        )
        for what, act in acts.items()
    ]


def _cold_ns(act: Callable[[], object], everything: np.ndarray[Any, Any]) -> float:
    spent = []
    for _ in range(COLD_TIMED):
        everything.sum()
        begun_ns = monotonic_ns()
        act()
        spent.append(monotonic_ns() - begun_ns)
    return median(spent)


# --- how many a cluster makes ---


def _share_of(load: Load, units: Sequence[Unit], folder: Path) -> Share:
    """Run the load once on a cluster of its own, and ask it meanwhile."""
    with tempfile.TemporaryDirectory(prefix="explain-cost-", dir=folder) as own:
        config = make_config(REPLICAS, Random(os.urandom(8)))
        with EmbeddedCluster(Path(own), config) as cluster:
            cluster.start_all()
            leader = cluster.wait_for_leader()
            seconds = WARM_UP_S + load.settings.seconds
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(_ask, cluster.endpoints, seconds)
                row, _ = measure_load(load.settings, cluster, leader, Path(own) / "samples")
                found = asked.result()
            return share_of(load.name, row.payloads_per_s, units, found)


def _ask(endpoints: Sequence[str], seconds: float) -> Readings:
    with connect(endpoints) as client:
        return gather(client, seconds)


def share_of(name: str, payloads_per_s: float, units: Sequence[Unit], found: Readings) -> Share:
    """What the readings of a load say."""
    stamps = sum(map(_stamps_per_s, found.replicas.values()))
    leader = found.replicas[found.leader]
    uses = [use for node, reading in found.replicas.items() for use in process_uses(node, reading)]
    cores = sum(use.cpu for use in uses)
    entries = leader.grown("groups_committed") / leader.seconds
    rates = {
        STAMP: stamps,
        PASSED: entries * ASKED_AN_ENTRY,
        CLOCK: entries * CLOCKS_AN_ENTRY,
        WAKE: sum(use.wakes for use in uses),
        PUBLICATION: len(uses) * 1e9 / PUBLISH_EVERY_NS,
    }
    return Share(
        name,
        payloads_per_s,
        round(cores, 4),
        {what: round(rate, 1) for what, rate in rates.items()},
        warm_share=round(sum(rates[each.what] * each.warm_ns for each in units) / 1e9 / cores, 6),
        cold_share=round(sum(rates[each.what] * each.cold_ns for each in units) / 1e9 / cores, 6),
    )


def _stamps_per_s(reading: Reading) -> float:
    stamped = sum(
        time_ns >= reading.first.now_ns
        for row in reading.stamps.values()
        for time_ns in row.values()
    )
    return stamped / reading.seconds


# --- beside another checkout ---


def _run(load: Load, number: int, is_ours: bool, other: Path | None, folder: Path) -> CostRun:
    """One run of `benchmarks saturate`, with one of the two checkouts on the path. One that fails,
    as when leadership changes meanwhile, is made again once."""
    checkout = HERE if is_ours or other is None else other
    settings = load.settings
    # -P: what is on the path is the checkout, not this folder
    command = [sys.executable, "-P", "-m", "benchmarks", "saturate", "--json", "-"]
    command += ["--dir", str(folder), "--payload", str(settings.payload)]
    command += ["--batch", str(settings.batch), "--window-mb", str(settings.window_mb)]
    command += ["--seconds", str(settings.seconds)]
    for _ in range(RUNS_MAX):
        found = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
            cwd=folder,
            capture_output=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        if found.returncode == 0:
            (row,) = json.loads(found.stdout)["rows"]
            return cost_run(load.name, number, is_ours, row)
    raise LogStoreError(f"{load.name} of {checkout}: {found.stderr.decode()[-500:]}")


def cost_run(load: str, number: int, is_ours: bool, row: Mapping[str, Any]) -> CostRun:
    """What counts of a row of `benchmarks saturate`."""
    cpu_s = sum(spent for name, spent in row["cpu_s"].items() if name != "client")
    payloads = max(1.0, row["payloads_per_s"] * row["seconds"])
    cpu_ms = round(cpu_s / payloads * 1e3, 6)
    return CostRun(load, number, is_ours, row["payloads_per_s"], row["p50_ms"], cpu_ms)


def draw_explain_cost(result: Result, _: Sequence[Any]) -> Mapping[str, Figure]:
    """The shares of processor time, warm and at worst, beside what they may be."""
    from benchmarks.charts import bar_chart

    bars = {
        f"{row['load']}, {kind}": 100 * row[f"{kind}_share"]
        for row in result.rows
        if "cold_share" in row
        for kind in ("warm", "cold")
    }
    label = "% of the replicas' processor time"
    most = {"at most": 100 * CPU_SHARE_MAX}
    figure = bar_chart("What stamps and counters take", label, bars, references=most)
    return {"explain-cost": figure}


EXPLAIN_COST = Measurement(
    "explain_cost",
    "What do the stamps and counters cost that `logstore explain` reads?",
    10,
    measure_explain_cost,
    [
        option(
            "--against",
            "other",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="CHECKOUT",
            help="compare throughput with this checkout's replicas, too",
        ),
        option("--rounds", type=click.IntRange(1, 99), default=9),
        option("--seconds", type=click.FloatRange(1.0, 3_600.0), default=5.0),
    ],
    {"rounds": 1, "seconds": 1.0},
    draw_explain_cost,
)
