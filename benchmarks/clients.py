"""This checkout's client against another checkout's, in turn, on one cluster of this checkout.

Owns the loads and the pairs. Each run is a process of its own, with one of the two on its path.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any

import msgspec

from benchmarks import client_load
from benchmarks.load_process import run_load
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.errors import InvalidRequest, LogStoreError

REPLICAS = 3
RUN_TIMEOUT_S = 120.0
HERE = Path(__file__).resolve().parent.parent


class Load(msgspec.Struct, frozen=True):
    """`count` payloads of `payload_bytes`; `name`: one of `client_load.LOADS`."""

    name: str
    payload_bytes: int
    count: int


# The first one fills what the last one reads.
LOADS = (
    Load("append", 100, 2_000_000),
    Load("append", 1_024, 300_000),
    Load("one at a time", 100, 400),
    Load("read", 100, 2_000_000),
)


class ClientRun(msgspec.Struct, frozen=True):
    """One run. `cpu_s_per_million`: the client's own processor seconds, all its threads."""

    load: str
    pair: int
    is_ours: bool
    payloads_per_s: float
    cpu_s_per_million: float


class ClientComparison(msgspec.Struct, frozen=True):
    """`summary`: for each load the medians of both sides, and of ours over theirs its median and
    quartiles."""

    runs: list[ClientRun]
    summary: dict[str, Any]


def compare_clients(
    other: Path, folder: Path, *, pairs: int, say: Callable[[str], None]
) -> ClientComparison:
    """Run every load with both clients, `pairs` times, who begins in turn.

    Raises:
        InvalidRequest: `other` is no checkout.
        LogStoreError: a run failed.
    """
    if not (other / "logstore" / "__init__.py").is_file():
        raise InvalidRequest(f"{other}: name the folder of another checkout")
    runs: list[ClientRun] = []
    with tempfile.TemporaryDirectory(prefix="clients-", dir=folder) as own:
        config = make_config(REPLICAS, Random(os.urandom(8)))
        with EmbeddedCluster(Path(own), config) as cluster:
            cluster.start_all()
            cluster.wait_for_leader()
            for pair in range(pairs):
                sides = (True, False) if pair % 2 else (False, True)
                for load in LOADS:
                    runs += [
                        _run(load, pair, is_ours, HERE if is_ours else other, cluster)
                        for is_ours in sides
                    ]
                say(f"pair {pair + 1} of {pairs}")
    return ClientComparison(runs, summarise(runs))


def summarise(runs: list[ClientRun]) -> dict[str, Any]:
    """Medians and, of the ratios ours to theirs, quartiles: within them lies the noise."""
    return {
        load: {
            figure: _ratios([run for run in runs if run.load == load], figure)
            for figure in ("payloads_per_s", "cpu_s_per_million")
        }
        for load in dict.fromkeys(run.load for run in runs)
    }


def _ratios(runs: list[ClientRun], figure: str) -> dict[str, float]:
    ours, theirs = (
        [getattr(run, figure) for run in runs if run.is_ours is side] for side in (True, False)
    )
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {
        "ours": median(ours),
        "theirs": median(theirs),
        "ratio": round(middle, 4),
        "ratio_quartile_1": round(low, 4),
        "ratio_quartile_3": round(high, 4),
    }


def _run(
    load: Load, pair: int, is_ours: bool, checkout: Path, cluster: EmbeddedCluster
) -> ClientRun:
    script = client_load.__file__
    arguments = [",".join(cluster.endpoints), load.name, str(load.payload_bytes), str(load.count)]
    # -P: what is on the path is the checkout, not the script's folder
    took = run_load(
        f"{load.name} of {checkout}",
        ["-P", script, *arguments],
        timeout_s=RUN_TIMEOUT_S,
        environment={**os.environ, "PYTHONPATH": str(checkout)},
    )
    if not Path(took["from"]).is_relative_to(checkout.resolve()):
        raise LogStoreError(f"{load.name} ran with {took['from']} instead of {checkout}")
    return ClientRun(
        f"{load.name}, {load.payload_bytes} B",
        pair,
        is_ours,
        round(load.count / took["seconds"], 1),
        round(took["cpu_s"] / load.count * 1e6, 3),
    )
