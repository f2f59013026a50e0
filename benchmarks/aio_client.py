"""The asyncio client beside the one for threads, in turn, on one cluster.

Owns the pairs and what is wanted. Each run is a process of its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec

from benchmarks import aio_load
from benchmarks.load_process import run_load
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_least, at_most, spread
from logstore.cli.embedded import EmbeddedCluster, make_config

REPLICAS = 3
RUN_TIMEOUT_S = 120.0
PAYLOAD_BYTES = 1_024
CLIENTS = ("threads", "asyncio", "uvloop")
ONE_AT_A_TIME = 400
# asyncio's figures over those of threads, of each round
SINGLES_TARGET = 0.6
P50_TARGET = 1.2


class AioRun(msgspec.Struct, frozen=True):
    """One run. `cpu_us_per_payload`: the client's own processor time. `p50_ms` 0: not measured."""

    client: str
    load: str
    round: int
    payloads_per_s: float
    cpu_us_per_payload: float
    p50_ms: float = 0.0


def _measure(site: Site, *, rounds: int, payloads: int) -> Measured:
    runs: list[AioRun] = []
    loads = {"singles": payloads, "flushed": payloads, "one at a time": ONE_AT_A_TIME}
    config = make_config(REPLICAS, Random(os.urandom(8)))
    with (
        tempfile.TemporaryDirectory(prefix="aio-", dir=site.folder) as own,
        EmbeddedCluster(Path(own), config) as cluster,
    ):
        cluster.start_all()
        cluster.wait_for_leader()
        for number in range(rounds):
            turn = number % len(CLIENTS)
            for load, count in loads.items():
                for client in (*CLIENTS[turn:], *CLIENTS[:turn]):
                    runs.append(_run(cluster, client, load, count, number))
            site.say(f"round {number + 1} of {rounds}")
    return Measured(runs, summarise(runs))


def summarise(runs: list[AioRun]) -> dict[str, Any]:
    """Of each client its figures, and of asyncio's over those of threads whether they reach what is
    wanted."""

    def figures(client: str, load: str, figure: str) -> list[float]:
        return [getattr(run, figure) for run in runs if (run.client, run.load) == (client, load)]

    def ratios(client: str, load: str, figure: str) -> list[float]:
        pairs = zip(figures(client, load, figure), figures("threads", load, figure), strict=True)
        return [ours / theirs for ours, theirs in pairs]

    summary: dict[str, Any] = {
        client: {
            "payloads_per_s": spread(figures(client, "singles", "payloads_per_s")),
            "flushed_payloads_per_s": spread(figures(client, "flushed", "payloads_per_s")),
            "cpu_us_per_payload": spread(figures(client, "singles", "cpu_us_per_payload")),
            "p50_ms": spread(figures(client, "one at a time", "p50_ms")),
        }
        for client in CLIENTS
    }
    for client in CLIENTS[1:]:
        summary[f"{client} over threads"] = {
            "singles": at_least(SINGLES_TARGET, ratios(client, "singles", "payloads_per_s")),
            "flushed": at_least(SINGLES_TARGET, ratios(client, "flushed", "payloads_per_s")),
            "p50": at_most(P50_TARGET, ratios(client, "one at a time", "p50_ms")),
        }
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain


def _run(cluster: EmbeddedCluster, client: str, load: str, count: int, number: int) -> AioRun:
    arguments = [client, ",".join(cluster.endpoints), load, str(PAYLOAD_BYTES), str(count)]
    command = ["-m", aio_load.__name__, *arguments]
    figures = run_load(f"{load}, {client}", command, timeout_s=RUN_TIMEOUT_S)
    return AioRun(client, load, number, **figures)


AIO = Measurement(
    name="aio",
    question="How fast is the asyncio client beside the one for threads?",
    minutes=3,
    measure=_measure,
    options=(
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option(
            "--payloads",
            type=click.IntRange(aio_load.GATHERED),
            default=40 * aio_load.GATHERED,
            help="1 KiB singles of a run",
        ),
    ),
    quick={"rounds": 1, "payloads": 4 * aio_load.GATHERED},
)
