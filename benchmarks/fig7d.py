"""Figure 7d of the log sharing paper: throughput by the number of replicas, at an offered rate.

Owns the numbers of replicas, the two loads, their rounds and the bar. Payloads are appended one at
a time (`append`), and the producer packs them as it does by itself. Two views of a run: the
client's, payloads acknowledged; and the leader's total, what it sends to followers and writes to
its disk. All replicas share the machine and its disk, so that each one more costs what a machine of
its own would pay for.

The total is the sum of two counts between two marks, in bytes of any kind, headers included:

    network   what the followers' kernels acknowledged on the TCP connections of the leader's
              replicators (`tcpi_bytes_acked`)
    disk      what the leader's writer handed to `pwrite` (its counters `disk_bytes_*`)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import click
import msgspec
from matplotlib.figure import Figure

from benchmarks.charts import Axis, Line, line_chart, line_of_runs, plain, size
from benchmarks.measurement import (
    Measured,
    Measurement,
    Site,
    numbers_option,
    option,
    parse_numbers,
)
from benchmarks.medians import at_most, spread
from benchmarks.results import Result
from benchmarks.saturate import (
    Row,
    Sample,
    Settings,
    load_equal_replicas,
    named_samples,
    temporary_cluster,
    thinned,
    try_again,
    warm_up,
)
from logstore.cli.embedded import make_config
from logstore.config import Config
from logstore.errors import LogStoreError
from logstore.limits import NODES_MAX
from logstore.settings import LimitSettings

REPLICAS = (3, 5, 7)
WINDOW_MB = 16.0
LOADS = (
    Settings(payload=1_024, batch=1, window_mb=WINDOW_MB, seconds=0, rate=32_000.0),
    Settings(payload=4_096, batch=1, window_mb=WINDOW_MB, seconds=0, rate=8_000.0),
)
# With six followers the ring that ships has no room for what may be in flight to all of them. The
# same for every number of replicas.
RING = "128MiB"
TARGET = 0.05  # how far from what is offered
SAMPLES_MAX = 2_000  # of one run


class Run(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
      attempts: 1, unless leadership changed while it was measured.
      behind_s: seconds after the load until the last follower had all of it.
    """

    replicas: int
    round: int
    attempts: int
    behind_s: float
    load: Row

    @property
    def over_offered(self) -> float:
        return self.load.payloads_per_s / self.load.rate

    @property
    def leader_total_mb_per_s(self) -> float | None:
        """Network and disk; None: the network's part is unknown."""
        sent = self.load.leader_sent_mb_per_s
        return None if sent is None else round(sent + self.load.leader_disk_mb_per_s, 3)


def measure_fig7d(site: Site, *, replicas: str, seconds: float, rounds: int) -> Measured:
    """Both loads on clusters of each size, `rounds` times, in turn.

    Raises:
      InvalidRequest: `replicas` is no list.
      LogStoreError: no run succeeded.
    """
    counts = parse_numbers(replicas, key="--replicas", most=NODES_MAX)
    runs: list[Run] = []
    failed: list[str] = []
    samples: list[dict[str, object]] = []
    for number in range(1, rounds + 1):
        step = 1 if number % 2 else -1
        for count in counts[::step]:
            loads = [msgspec.structs.replace(load, seconds=seconds) for load in LOADS[::step]]
            try:
                for run, raw in _measure_cluster(site, count, number, loads):
                    runs.append(run)
                    samples += named_samples(_name(run), number, thinned(raw, SAMPLES_MAX))
                    site.say(
                        f"round {number} of {rounds}, {_name(run)}: {run.over_offered:.3f} of it "
                        f"acknowledged, the leader sent and wrote {run.leader_total_mb_per_s} "
                        f"MB/s, all had it {run.behind_s} s later"
                    )
            except LogStoreError as error:
                failed.append(f"round {number}, {count} replicas: {error}")
                site.say(f"FAILED: {failed[-1]}")
    if not runs:
        raise LogStoreError("no run succeeded: see above")
    return Measured(runs, {**summarise(runs), "failed": failed}, samples)


def _measure_cluster(
    site: Site, count: int, number: int, loads: Sequence[Settings]
) -> Iterator[tuple[Run, list[Sample]]]:
    """The loads, one after the other, on a new cluster of `count` replicas."""
    with temporary_cluster(site.folder, config_of(count)) as cluster:
        cluster.start_all()
        warm_up(cluster, site.say)
        for settings in loads:
            once = partial(load_equal_replicas, settings, cluster)
            (row, raw, behind_s), attempts = try_again(once, site.say)
            yield Run(count, number, attempts, behind_s, row), raw


def config_of(replicas: int) -> Config:
    """As it ships, but for the ring."""
    config = make_config(replicas, Random(os.urandom(8)))
    return msgspec.structs.replace(config, limits=LimitSettings(ring=RING))


def _name(run: Run) -> str:
    return f"{run.replicas} replicas, {_load_name(run.load)}"


def _load_name(load: Row) -> str:
    return f"{plain(load.rate)} x {size(load.payload)}/s"


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """For each number of replicas and load: acknowledged over offered, and, as `measured`, how far
    from 1 that is; medians of what the client sees; the leader's total with its parts."""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(_name(run) for run in sorted(runs, key=lambda run: run.replicas)):
        mine = [run for run in runs if _name(run) == name]
        summary[name] = {
            "acknowledged_over_offered": spread([run.over_offered for run in mine]).median,
            **msgspec.to_builtins(at_most(TARGET, [abs(run.over_offered - 1) for run in mine])),
            "payloads_per_s": spread([run.load.payloads_per_s for run in mine]),
            "mb_per_s": spread([run.load.mb_per_s for run in mine]).median,
            "p50_ms": spread([run.load.p50_ms for run in mine]),
            "p99_ms": spread([run.load.p99_ms for run in mine]),
            "behind_s": spread([run.behind_s for run in mine]),
            "leader_total_mb_per_s": _known([run.leader_total_mb_per_s for run in mine]),
            "leader_sent_mb_per_s": _known([run.load.leader_sent_mb_per_s for run in mine]),
            "leader_disk_mb_per_s": _known([run.load.leader_disk_mb_per_s for run in mine]),
        }
    return summary


def _known(values: Sequence[float | None]) -> Any:
    """The spread of those that are known."""
    found = [each for each in values if each is not None]
    return spread(found) if found else "unknown"


# --- plots ---


def draw_fig7d(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """The client's view and the leader's total, by the number of replicas."""
    runs = msgspec.convert(result.rows, list[Run])
    counts = sorted({run.replicas for run in runs})
    x = Axis("replicas", ticks=counts)
    offered = max(run.load.rate * run.load.payload / 1e6 for run in runs)
    return {
        "fig7d-client": line_chart(
            "Replicas: what the client sees",
            x,
            Axis("MB/s of payloads acknowledged"),
            _lines(runs, lambda run: run.load.mb_per_s),
            references={f"offered: {plain(offered)} MB/s": offered},
        ),
        "fig7d-leader": line_chart(
            "Replicas: what the leader sends and writes",
            x,
            Axis("MB/s to followers and to its disk"),
            _lines(runs, lambda run: run.leader_total_mb_per_s),
            dashed=[Line("offered x replicas", counts, [offered * each for each in counts])],
        ),
    }


def _lines(runs: Sequence[Run], of: Callable[[Run], float | None]) -> list[Line]:
    """A line for each load whose values are known."""
    found = []
    for name in dict.fromkeys(_load_name(run.load) for run in runs):
        values: dict[int, list[float]] = {}
        for run in runs:
            if _load_name(run.load) == name and (value := of(run)) is not None:
                values.setdefault(run.replicas, []).append(value)
        if values:
            found.append(line_of_runs(name, values))
    return found


FIG7D = Measurement(
    "fig7d",
    "What do 3, 5 and 7 replicas acknowledge of what is offered, and what does their leader send "
    "and write (figure 7d of the log sharing paper)?",
    9,
    measure_fig7d,
    [
        numbers_option("--replicas", REPLICAS, "how many"),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=15.0),
        option("--rounds", type=click.IntRange(1, 99), default=3),
    ],
    {"replicas": "3,7", "seconds": 1.0, "rounds": 1},
    draw_fig7d,
)
