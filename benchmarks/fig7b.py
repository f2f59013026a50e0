"""Figure 7b of the log sharing paper: throughput by the size of atomic batches, at an offered rate.

Owns the sizes, their rounds and the bar: what is acknowledged is what is offered, whatever the size
of the batches. A batch of one payload is a batch of its own here (`append_batch`), which costs the
cluster more than payloads that a producer packs. A round is a fresh cluster, a load that does not
count, and a run of each size, in rising and falling order in turn. Each run begins when all
replicas have everything before it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from random import Random
from statistics import median
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
from benchmarks.medians import at_least, at_most, spread
from benchmarks.results import Result
from benchmarks.saturate import (
    REPLICAS,
    Row,
    Settings,
    load_equal_replicas,
    named_samples,
    temporary_cluster,
    thinned,
    try_again,
    warm_up,
)
from logstore.cli.embedded import make_config
from logstore.errors import LogStoreError
from logstore.limits import BATCH_MAX_BYTES

BATCHES = (1, 4, 16, 64, 256, 1_024)
WINDOW_MB = 16.0
# "Constant": of each size, acknowledged over offered; and the sizes' medians among each other.
ACKNOWLEDGED_TARGET = 0.97
CONSTANT_TARGET = 0.03
# Of one run; batches of one would be ten thousand a second.
SAMPLES_MAX = 2_000


class Run(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
      attempts: 1, unless leadership changed while it was measured.
      behind_s: seconds after the load until the last follower had all of it.
      load: its `batch` is the size of the batches.
    """

    round: int
    attempts: int
    behind_s: float
    load: Row

    @property
    def over_offered(self) -> float:
        return self.load.payloads_per_s / self.load.rate


def measure_fig7b(
    site: Site,
    *,
    batches: str,
    payload: int,
    rate: float,
    seconds: float,
    rounds: int,
) -> Measured:
    """Every size of batches, `rounds` times, in turn.

    Raises:
      InvalidRequest: `batches` is no list, or a batch has too many bytes.
      LogStoreError: no run succeeded.
    """
    sizes = parse_numbers(batches, key="--batches", most=BATCH_MAX_BYTES // 2 // payload)
    runs: list[Run] = []
    failed: list[str] = []
    samples: list[dict[str, object]] = []
    for number in range(1, rounds + 1):
        with temporary_cluster(
            site.folder, make_config(REPLICAS, Random(os.urandom(8)))
        ) as cluster:
            cluster.start_all()
            warm_up(cluster, site.say)
            for each in sizes if number % 2 else sizes[::-1]:
                settings = Settings(payload, each, WINDOW_MB, seconds, rate, may_pack=False)
                once = partial(load_equal_replicas, settings, cluster)
                try:
                    (row, raw, behind_s), attempts = try_again(once, site.say)
                except LogStoreError as error:
                    failed.append(f"round {number}, batches of {each}: {error}")
                    site.say(f"FAILED: {failed[-1]}")
                    continue
                runs.append(Run(number, attempts, behind_s, row))
                samples += named_samples(f"batches of {each}", number, thinned(raw, SAMPLES_MAX))
                site.say(
                    f"round {number} of {rounds}, batches of {each}: {row.payloads_per_s:,.0f} "
                    f"payloads/s, p50 {row.p50_ms} ms, p99 {row.p99_ms} ms"
                )
    if not runs:
        raise LogStoreError("no run succeeded: see above")
    return Measured(runs, {**summarise(runs), "failed": failed}, samples)


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """How far the sizes lie apart in each round, as (most - least) / median; for each size the
    acknowledged rate over the offered one, and latency."""
    by_batch = _by_batch(runs)
    return {
        "paper": "constant",
        "between_sizes": at_most(CONSTANT_TARGET, [_apart(mine) for mine in _by_round(runs)]),
        **{
            f"batches of {batch}": {
                **msgspec.to_builtins(
                    at_least(ACKNOWLEDGED_TARGET, [run.over_offered for run in mine])
                ),
                "behind_s": spread([run.behind_s for run in mine]),
                "p50_ms": spread([run.load.p50_ms for run in mine]),
                "p99_ms": spread([run.load.p99_ms for run in mine]),
            }
            for batch, mine in by_batch.items()
        },
    }


def _by_round(runs: Sequence[Run]) -> list[list[Run]]:
    numbers = dict.fromkeys(run.round for run in runs)
    return [[run for run in runs if run.round == number] for number in numbers]


def _apart(runs: Sequence[Run]) -> float:
    """(Most - least) / median of the rates; 1 if next to nothing was acknowledged."""
    rates = [run.load.payloads_per_s for run in runs]
    middle = median(rates)
    return (max(rates) - min(rates)) / middle if middle else 1.0


def _by_batch(runs: Sequence[Run]) -> dict[int, list[Run]]:
    sizes = sorted({run.load.batch for run in runs})
    return {each: [run for run in runs if run.load.batch == each] for each in sizes}


# --- plots ---


def draw_fig7b(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """Rate and latency by the size of batches."""
    by_batch = _by_batch(msgspec.convert(result.rows, list[Run]))
    load = next(iter(by_batch.values()))[0].load
    x = Axis("payloads in a batch", ticks=list(by_batch), is_log=True)
    offered = f"{plain(load.rate)} x {size(load.payload)}/s offered"

    def line(name: str, field: str) -> Line:
        values = {each: [getattr(run.load, field) for run in by_batch[each]] for each in by_batch}
        return line_of_runs(name, values)

    return {
        "fig7b-rate": line_chart(
            f"Atomic batches: {offered}",
            x,
            Axis("payloads/s acknowledged", most=1.25 * load.rate),
            [line("ours", "payloads_per_s")],
            references={"offered (paper: constant)": load.rate},
        ),
        "fig7b-latency": line_chart(
            f"Atomic batches, latency: {offered}",
            x,
            Axis("ms from when the batch's first payload was due", is_log=True),
            [line("p50", "p50_ms"), line("p99", "p99_ms")],
            dashed=[
                Line(
                    "until a batch is full", list(by_batch), [_filled_ms(load, b) for b in by_batch]
                )
            ],
        ),
    }


def _filled_ms(load: Row, batch: int) -> float:
    """How long after a batch's first payload its last one is due."""
    return batch / load.rate * 1_000


FIG7B = Measurement(
    "fig7b",
    "Is throughput the same whatever the size of atomic batches (figure 7b of the log sharing "
    "paper)?",
    9,
    measure_fig7b,
    [
        numbers_option("--batches", BATCHES, "sizes of batches in payloads"),
        option(
            "--payload", type=click.IntRange(1, BATCH_MAX_BYTES // 4), default=1_024, help="bytes"
        ),
        option(
            "--rate", type=click.FloatRange(1.0), default=10_000.0, help="payloads offered a second"
        ),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=20.0),
        option("--rounds", type=click.IntRange(1, 99), default=3),
    ],
    {"seconds": 3.0, "rounds": 1},
    draw_fig7b,
)
