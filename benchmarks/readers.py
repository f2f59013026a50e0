"""What readers get, what they cost, and how far they are behind: consumers of the tail while a
producer appends, and fetches of a range.

Owns the rounds, and what is told of them. Each round has a cluster of its own. On it saturated
producers run with and without a consumer; then a producer offers a rate while none, some and many
follow the tail, beginning with another number in each round; then a range is fetched from a
follower, from the page cache and without it. Consumers read followers, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.load import SAMPLE_FIELDS
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_least, spread
from benchmarks.range_fetch import Fetch, fetch_range
from benchmarks.restart import forget_pages
from benchmarks.results import Result
from benchmarks.saturate import (
    REPLICAS,
    WARM_UP_S,
    Row,
    Sample,
    Settings,
    measure_load,
    named_samples,
    temporary_cluster,
    thinned,
    try_again,
    weighted_percentiles,
)
from benchmarks.tail_consumers import Seen, TailConsumers, cpu_between
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.limits import MIB

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = npt.NDArray[np.int64]
PAYLOAD_BYTES = 1_024
FULL = Settings(PAYLOAD_BYTES, 64, 16.0, 0.0)
OFFERED = Settings(PAYLOAD_BYTES, 50, 16.0, 0.0, 10_000.0)
SAMPLES_MAX = 1_000  # kept of a run; its row is made of all of them
WARM_UP_SECONDS = 1.0  # of a load that does not count
SATURATED, AT_RATE = "saturated", "at a rate"
CONSUMERS = (0, 1, 10, 100)
SLOWER = 10  # the largest number follows a tenth of the rate, too
WARM, COLD = "in the page cache", "from the disk"
# What producers keep beside one consumer, and payload bytes a core second of egress and client.
KEPT_TARGET = 0.85
FETCH_TARGET_GB = 0.8
FOLLOWS_MIN = 0.98  # of what is acknowledged


class TailRow(msgspec.Struct, frozen=True):
    """One load with its consumers; rates are payloads a second within the measured seconds.

    Attributes:
      rate: offered; 0: producers were saturated.
      acknowledged_share: of what was offered; 0 if they were saturated.
      delivered_per_s, delivered_least_per_s: to the median consumer, and to the worst one.
      delivered_share: to the median consumer, of what was acknowledged; 0 without consumers.
      lag_p50_ms, lag_p99_ms, lag_most_ms: from when a batch was due to when a consumer had it, over
        the payloads of all consumers. None below FOLLOWS_MIN: consumers that get less than there is
        are later the longer a run is.
      attempts: 1, unless the run was made again.
      egress_cores, consumer_cores: processor seconds a second, of all egress and all consumers.
    """

    producers: str
    consumers: int
    processes: int
    rate: float
    round: int
    acknowledged_per_s: float
    acknowledged_share: float
    delivered_per_s: float
    delivered_least_per_s: float
    delivered_share: float
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_most_ms: float | None
    egress_cores: float
    consumer_cores: float
    attempts: int = 1


class FetchRow(msgspec.Struct, frozen=True):
    """One fetch; GB are 10**9 payload bytes. `gb_per_core_s`: over the processor seconds of egress
    and the client together."""

    files: str
    round: int
    mb: float
    seconds: float
    gb_per_s: float
    gb_per_core_s: float
    client_cpu_s: float
    egress_cpu_s: float


class Found(msgspec.Struct, frozen=True):
    """Everything that was measured. `samples`: what the first consumer of each run saw."""

    tails: list[TailRow]
    fetches: list[FetchRow]
    samples: list[dict[str, Any]]


class Plan(msgspec.Struct, frozen=True):
    """How much to measure. `consumers_most`: numbers of CONSUMERS above it are left out."""

    rounds: int
    seconds: float
    rate: float
    consumers_most: int
    fetch_mib: int

    def offers(self) -> list[tuple[int, float]]:
        """Numbers of consumers and rates, in the order of the first round."""
        numbers = [number for number in CONSUMERS if number <= self.consumers_most]
        offers = [(number, self.rate) for number in numbers]
        return [*offers, (numbers[-1], self.rate / SLOWER)] if numbers[-1] > 1 else offers


def measure_readers(folder: Path, plan: Plan, *, say: Callable[[str], None]) -> Found:
    """All of it, `plan.rounds` times.

    Raises:
      LogStoreError: a load, a consumer or a fetch failed.
    """
    found = Found([], [], [])
    for number in range(1, plan.rounds + 1):
        config = make_config(REPLICAS, Random(os.urandom(8)))
        with temporary_cluster(folder, config) as cluster:
            cluster.start_all()
            cluster.wait_for_leader()
            try_again(partial(_load, cluster, FULL, WARM_UP_SECONDS), say)
            for consumers in (number % 2, 1 - number % 2):
                _add_tail(found, cluster, FULL, plan.seconds, consumers, number, say)
            last_lsn = min(_end_lsn(cluster), plan.fetch_mib * MIB // PAYLOAD_BYTES)
            offers = plan.offers()
            begin = (number - 1) % len(offers)
            for consumers, rate in offers[begin:] + offers[:begin]:
                settings = msgspec.structs.replace(OFFERED, rate=rate)
                _add_tail(found, cluster, settings, plan.seconds, consumers, number, say)
            for row in _fetches(cluster, last_lsn, number):
                found.fetches.append(row)
                say(f"fetch {row.files}, round {number}: {row.gb_per_s} GB/s")
    return found


def _followers(cluster: EmbeddedCluster) -> list[int]:
    leader = cluster.wait_for_leader()
    return [node for node in cluster.nodes if node != leader]


def _end_lsn(cluster: EmbeddedCluster) -> int:
    """The newest LSN, shown by every replica."""
    newest = max(cluster.visible_lsn(node) for node in cluster.nodes)
    for node in cluster.nodes:
        cluster.wait_until_visible(node, newest)
    return newest


def _load(cluster: EmbeddedCluster, settings: Settings, seconds: float) -> tuple[Row, Rows]:
    """A load; its row, and its samples with absolute times, as rows of SAMPLE_FIELDS."""
    path = cluster.folder / "samples"
    spec = msgspec.structs.replace(settings, seconds=seconds)
    row, _ = measure_load(spec, cluster, cluster.wait_for_leader(), path)
    return row, np.fromfile(path, dtype=np.int64).reshape(-1, len(SAMPLE_FIELDS))


# --- consumers of the tail ---


def _add_tail(
    found: Found,
    cluster: EmbeddedCluster,
    settings: Settings,
    seconds: float,
    consumers: int,
    number: int,
    say: Callable[[str], None],
) -> None:
    def run() -> tuple[TailRow, list[Sample]]:
        followers = _followers(cluster)
        before_lsn = _end_lsn(cluster)
        replicas = [followers[at % len(followers)] for at in range(consumers)]
        with TailConsumers(cluster.endpoints, replicas, cluster.folder) as tail:
            load, appended = _load(cluster, settings, seconds)
            seen = tail.stop()
        return make_tail_row(load, appended, seen, before_lsn, consumers=consumers, number=number)

    (row, samples), attempts = try_again(run, say)
    found.tails.append(msgspec.structs.replace(row, attempts=attempts))
    found.samples.extend(named_samples(_name(row), number, thinned(samples, SAMPLES_MAX)))
    say(
        f"{row.producers}, {consumers} consumers, {row.rate:,.0f}/s offered, round {number}: "
        f"{row.acknowledged_per_s:,.0f}/s acknowledged, {row.delivered_per_s:,.0f}/s delivered, "
        f"lag p50 {row.lag_p50_ms} ms"
    )


def make_tail_row(
    load: Row, appended: Rows, seen: Seen, before_lsn: int, *, consumers: int, number: int
) -> tuple[TailRow, list[Sample]]:
    """The figures of a run, and what its first consumer saw.

    Args:
      appended: rows of SAMPLE_FIELDS, of the whole load.
      before_lsn: where the log ended before the load, which nobody else appended beside.
    """
    start_ns = int(appended[0, 1]) + int(WARM_UP_S * 1e9)
    end_ns = start_ns + int(load.seconds * 1e9)
    inside = seen.batches[(seen.batches[:, 1] >= start_ns) & (seen.batches[:, 1] < end_ns)]
    lags_ms = (inside[:, 1] - due_ns(appended, inside[:, 2] - before_lsn, load.rate)) / 1e6
    delivered = np.bincount(inside[:, 0], weights=inside[:, 3], minlength=max(1, consumers))
    delivered_per_s = float(np.median(delivered)) / load.seconds
    share = round(delivered_per_s / load.payloads_per_s, 4) if load.payloads_per_s else 0.0
    lags: list[float | None] = [None] * 3
    if share >= FOLLOWS_MIN:
        lags = [*weighted_percentiles(lags_ms, inside[:, 3], (0.5, 0.99, 1.0))]
    egress_s = sum(used for name, used in load.cpu_s.items() if name.endswith(".egress"))
    consumers_s = sum(cpu_between(cpu, start_ns, end_ns) for cpu in seen.cpu)
    row = TailRow(
        producers=AT_RATE if load.rate else SATURATED,
        consumers=consumers,
        processes=len(seen.cpu),
        rate=load.rate,
        round=number,
        acknowledged_per_s=load.payloads_per_s,
        acknowledged_share=round(load.payloads_per_s / load.rate, 4) if load.rate else 0.0,
        delivered_per_s=round(delivered_per_s, 1),
        delivered_least_per_s=round(float(delivered.min()) / load.seconds, 1),
        delivered_share=share,
        lag_p50_ms=lags[0],
        lag_p99_ms=lags[1],
        lag_most_ms=lags[2],
        egress_cores=round(egress_s / load.seconds, 3),
        consumer_cores=round(consumers_s / load.seconds, 3),
    )
    mine = inside[:, 0] == 0
    samples = [
        Sample(round((at_ns - start_ns) / 1e6, 3), round(lag_ms, 3), payloads)
        for (_, at_ns, _, payloads), lag_ms in zip(
            inside[mine].tolist(), lags_ms[mine].tolist(), strict=True
        )
    ]
    return row, samples


def due_ns(appended: Rows, payloads: Rows, rate: float) -> Rows:
    """When the batches were due that end with these payloads of a load, counted from 1; as in
    `latency`, a batch is due when its last payload is. In a closed loop: when it was appended."""
    ends = np.cumsum(appended[:, 2])
    batches = appended[np.searchsorted(ends, payloads)]
    filling_ns = (batches[:, 2] - 1) / rate * 1e9 if rate else np.zeros(len(batches))
    return batches[:, 1] + filling_ns.astype(np.int64)


# --- fetches ---


def _fetches(cluster: EmbeddedCluster, last_lsn: int, number: int) -> Iterator[FetchRow]:
    node = _followers(cluster)[0]
    _end_lsn(cluster)
    for files in (WARM, COLD):
        if files == WARM:
            fetch_range(cluster, node, 1, last_lsn)  # fills the page cache
        else:
            forget_pages(cluster.node_folder(node))
        yield make_fetch_row(fetch_range(cluster, node, 1, last_lsn), files, number)


def make_fetch_row(fetch: Fetch, files: str, number: int) -> FetchRow:
    return FetchRow(
        files=files,
        round=number,
        mb=round(fetch.payload_bytes / 1e6, 1),
        seconds=fetch.seconds,
        gb_per_s=round(fetch.gb_per_s, 3),
        gb_per_core_s=round(fetch.gb_per_core_s, 3),
        client_cpu_s=fetch.client_cpu_s,
        egress_cpu_s=fetch.egress_cpu_s,
    )


# --- what is told ---


def summarise(found: Found) -> dict[str, Any]:
    """Medians of the rounds, and the figures with a target."""
    tails: dict[str, list[TailRow]] = {}
    for row in sorted(found.tails, key=lambda row: (row.producers, -row.rate, row.consumers)):
        tails.setdefault(_name(row), []).append(row)
    fetches: dict[str, list[FetchRow]] = {}
    for each in found.fetches:
        fetches.setdefault(f"fetch {each.files}", []).append(each)
    return {
        **{name: _medians(rows, _TAIL_FIGURES) for name, rows in tails.items()},
        **{name: _medians(rows, _FETCH_FIGURES) for name, rows in fetches.items()},
        "one consumer, saturated producers keep": at_least(
            KEPT_TARGET, kept(found.tails, SATURATED, 1)
        ),
        "one consumer, producers at a rate keep": at_least(
            KEPT_TARGET, kept(found.tails, AT_RATE, 1)
        ),
        "fetch in the page cache, GB a core second": at_least(
            FETCH_TARGET_GB, [row.gb_per_core_s for row in found.fetches if row.files == WARM]
        ),
    }


def kept(tails: Sequence[TailRow], producers: str, consumers: int) -> list[float]:
    """Acknowledged with so many consumers over the same without any, round by round, where both
    were measured at one rate."""
    mine = [row for row in tails if row.producers == producers]
    without = {(row.round, row.rate): row.acknowledged_per_s for row in mine if not row.consumers}
    return [
        round(row.acknowledged_per_s / without[row.round, row.rate], 4)
        for row in mine
        if row.consumers == consumers and (row.round, row.rate) in without
    ]


def _name(row: TailRow) -> str:
    offered = f"{row.rate:,.0f}/s" if row.rate else SATURATED
    return f"{_count(row.consumers)}, {offered}"


def _count(consumers: int) -> str:
    return {0: "no consumer", 1: "1 consumer"}.get(consumers, f"{consumers} consumers")


_TAIL_FIGURES = (
    "acknowledged_per_s", "acknowledged_share", "delivered_per_s", "delivered_least_per_s",
    "delivered_share", "lag_p50_ms", "lag_p99_ms", "lag_most_ms", "egress_cores", "consumer_cores",
)  # fmt: skip
_FETCH_FIGURES = ("gb_per_s", "gb_per_core_s")


def _medians(rows: Sequence[TailRow | FetchRow], figures: Sequence[str]) -> dict[str, float | None]:
    """None: not every run has it."""
    found: dict[str, float | None] = {}
    for name in figures:
        values = [getattr(row, name) for row in rows]
        found[name] = None if None in values else spread(values).median
    return found


# --- the measurement ---


def _measure(
    site: Site, *, rounds: int, seconds: float, rate: float, consumers_most: int, fetch_mib: int
) -> Measured:
    plan = Plan(rounds, seconds, rate, consumers_most, fetch_mib)
    found = measure_readers(site.folder, plan, say=site.say)
    return Measured([*found.tails, *found.fetches], summarise(found), found.samples)


def draw_reads(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """Lag by the number of consumers, what they take of the processors, and the fetches."""
    from benchmarks.charts import bar_chart, plain

    tails = {name: each for name, each in result.summary.items() if "egress_cores" in each}
    fetches = {name: each for name, each in result.summary.items() if "gb_per_core_s" in each}
    return {
        **_draw_lag([row for row in result.rows if row.get("consumers")]),
        "reads-cores": bar_chart(
            "What following the tail takes",
            "cores, egress and consumers together, medians",
            {name: each["egress_cores"] + each["consumer_cores"] for name, each in tails.items()},
            notes={
                name: f"({plain(each['delivered_per_s'])}/s to each)"
                for name, each in tails.items()
                if each["delivered_per_s"]
            },
        ),
        "reads-fetch": bar_chart(
            "Fetch of a range from a follower",
            "GB/s, medians",
            {name: each["gb_per_s"] for name, each in fetches.items()},
            notes={
                name: f"({plain(each['gb_per_core_s'])} a core of egress and client)"
                for name, each in fetches.items()
            },
        ),
    }


def _draw_lag(rows: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Of the numbers of consumers that followed in every run; nothing if there is none."""
    from benchmarks.charts import Axis, line_chart, line_of_runs, log_ticks

    rate = max(row["rate"] for row in rows)
    numbers: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["rate"] == rate:
            numbers.setdefault(row["consumers"], []).append(row)
    for number, each in [*numbers.items()]:
        if any(row["lag_p50_ms"] is None for row in each):
            del numbers[number]
    if not numbers:
        return {}
    lines = [
        line_of_runs(
            label, {number: [row[figure] for row in each] for number, each in numbers.items()}
        )
        for figure, label in (("lag_p50_ms", "p50"), ("lag_p99_ms", "p99"))
    ]
    ends = [value for line in lines for value in (*line.low, *line.high)]
    figure = line_chart(
        f"Consumers of the tail, {rate:,.0f} x 1 KiB a second",
        Axis("consumers", lines[0].x, is_log=True),
        Axis("ms from due to seen", log_ticks(ends), is_log=True),
        lines,
    )
    return {"reads-lag": figure}


READS = Measurement(
    "reads",
    "What do consumers of the tail and fetches get, how late is it, and what do they cost?",
    10,
    _measure,
    [
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=5.0),
        option("--rate", type=click.FloatRange(1.0), default=OFFERED.rate, help="payloads/s"),
        option("--consumers-most", type=click.IntRange(1), default=CONSUMERS[-1]),
        option("--fetch-mib", type=click.IntRange(1), default=1_024),
    ],
    {"rounds": 1, "seconds": 1.0, "consumers_most": 10, "fetch_mib": 128},
    draw_reads,
)
