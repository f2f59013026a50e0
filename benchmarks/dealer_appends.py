"""Appends with answers, over one DEALER, beside PUSH and the ack feed, in turn, on one cluster.

Owns the pairs and what is wanted. Each run is a process of its own, and the same code but for the
sockets.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from benchmarks import dealer_load
from benchmarks.load_process import run_load
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_least, at_most, spread
from logstore.cli.embedded import EmbeddedCluster, make_config

REPLICAS = 3
RUN_TIMEOUT_S = 120.0
PAYLOAD_BYTES = 1_024
WAYS = ("push", "dealer")
ONE_AT_A_TIME = 400
# a DEALER's figures over those of PUSH, of each round
PACKED_TARGET = 0.7
P50_TARGET = 1.1


class DealerRun(msgspec.Struct, frozen=True):
    """One run of one way. 0: not measured."""

    way: str
    round: int
    payloads_per_s: float = 0.0
    p50_ms: float = 0.0


def _measure(site: Site, *, rounds: int, batches: int) -> Measured:
    runs: list[DealerRun] = []
    counts = {"packed": batches, "one at a time": ONE_AT_A_TIME}
    config = make_config(REPLICAS, Random(os.urandom(8)))
    with (
        tempfile.TemporaryDirectory(prefix="dealer-", dir=site.folder) as own,
        EmbeddedCluster(Path(own), config) as cluster,
    ):
        cluster.start_all()
        for number in range(rounds):
            for way in WAYS if number % 2 else reversed(WAYS):
                figures: dict[str, float] = {}
                for load, count in counts.items():
                    figures |= _run(cluster, way, load, count)
                runs.append(DealerRun(way, number, **figures))
            site.say(f"round {number + 1} of {rounds}")
    return Measured(runs, summarise(runs))


def summarise(runs: list[DealerRun]) -> dict[str, Any]:
    """The figures of each way, and of the DEALER's over those of PUSH whether they reach what is
    wanted."""

    def figures(way: str, figure: str) -> list[float]:
        return [getattr(run, figure) for run in runs if run.way == way]

    def ratios(figure: str) -> list[float]:
        by_round = {(run.way, run.round): getattr(run, figure) for run in runs}
        rounds = sorted({run.round for run in runs})
        return [by_round["dealer", each] / by_round["push", each] for each in rounds]

    summary: dict[str, Any] = {
        way: {name: spread(figures(way, name)) for name in ("payloads_per_s", "p50_ms")}
        for way in WAYS
    }
    summary["dealer over push"] = {
        "packed": at_least(PACKED_TARGET, ratios("payloads_per_s")),
        "p50": at_most(P50_TARGET, ratios("p50_ms")),
    }
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain


def _run(cluster: EmbeddedCluster, way: str, load: str, count: int) -> dict[str, float]:
    leader = cluster.wait_for_leader()
    arguments = [way, cluster.endpoint(leader), load, str(PAYLOAD_BYTES), str(count)]
    command = ["-m", dealer_load.__name__, *arguments]
    figures: dict[str, float] = run_load(f"{load}, {way}", command, timeout_s=RUN_TIMEOUT_S)
    return figures


DEALER = Measurement(
    name="dealer",
    question="How fast are appends that are answered on their connection, beside PUSH?",
    minutes=2,
    measure=_measure,
    options=(
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option(
            "--batches",
            type=click.IntRange(1, 1 << 20),
            default=4_000,
            help=f"of {dealer_load.PAYLOADS_PACKED} payloads of 1 KiB, of a run",
        ),
    ),
    quick={"rounds": 1, "batches": 400},
)
