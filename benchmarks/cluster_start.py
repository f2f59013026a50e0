"""How long three replicas take from nothing to the first acknowledged append.

Owns the rounds. Configuration and folders are there before; a client asks for a leader from the
moment the first process is started, as an application does that is started together with its log.
Meanwhile the replicas' counters are looked at, which say when all processes of each are up; when
each has a term, that is, has voted or follows; when one leads; and when each shows the log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec

import logstore
from actors.topology import SPARE_NAMES
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import spread_s
from benchmarks.results import Result
from benchmarks.saturate import REPLICAS, temporary_cluster
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.errors import LogStoreError, Unreachable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMEOUT_S = 120.0
LOOK_MS = 5
RUNS, VOTES, LEADS, SHOWS = "runs", "votes", "leads", "shows"


class StartRow(msgspec.Struct, frozen=True):
    """One start, in seconds from before the first process was started.

    Attributes:
      runs_s: by node, when each of its processes had begun its loop.
      votes_s: by node, when it had a term.
      leads_s: when a replica said that it leads.
      shows_s: by node, when it showed the log.
    """

    round: int
    first_acknowledged_s: float
    runs_s: dict[str, float]
    votes_s: dict[str, float]
    leads_s: float
    shows_s: dict[str, float]


def measure_starts(folder: Path, *, rounds: int, say: Callable[[str], None]) -> list[StartRow]:
    """Start a new cluster `rounds` times.

    Raises:
      LogStoreError: an append was not acknowledged in time.
    """
    rows = []
    for number in range(1, rounds + 1):
        rows.append(_start(folder, number))
        say(f"round {number} of {rounds}: {rows[-1].first_acknowledged_s:.2f} s")
    return rows


def summarise(rows: Sequence[StartRow]) -> dict[str, dict[str, float]]:
    """Of each moment the median of the rounds, with the lowest and the highest; where each replica
    has one, of the first and of the last to have it in each round."""
    moments = {
        "processes run": [row.runs_s for row in rows],
        "votes": [row.votes_s for row in rows],
        "leads": [{"": row.leads_s} for row in rows],
        "shows the log": [row.shows_s for row in rows],
    }
    values = {}
    for name, by_node in moments.items():
        values[f"first replica: {name}"] = [min(each.values()) for each in by_node]
        if name != "leads":
            values[f"last replica: {name}"] = [max(each.values()) for each in by_node]
    values["first append acknowledged"] = [row.first_acknowledged_s for row in rows]
    return {name: spread_s(each) for name, each in values.items()}


# --- one start ---


class _FirstAppend:
    """A client that appends once, on a thread of its own."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints
        self._acknowledged_ns = 0
        self._error: LogStoreError | None = None
        self._thread = threading.Thread(target=self._run, name="first-append", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with logstore.connect(self._endpoints, timeout=TIMEOUT_S) as log:
                log.producer().append(b"first").result(TIMEOUT_S)
                self._acknowledged_ns = monotonic_ns()
        except LogStoreError as error:
            self._error = error

    def acknowledged_ns(self) -> int:
        """When the append was acknowledged, monotonic; waits for it.

        Raises:
          LogStoreError: it was not.
        """
        self._thread.join(TIMEOUT_S)
        if self._error is not None:
            raise self._error
        if not self._acknowledged_ns:
            raise Unreachable(f"no append was acknowledged within {TIMEOUT_S} s")
        return self._acknowledged_ns


def _start(folder: Path, number: int) -> StartRow:
    with temporary_cluster(folder, make_config(REPLICAS, Random(os.urandom(8)))) as cluster:
        for node in cluster.nodes:
            cluster.node_folder(node).mkdir()
        began_ns = monotonic_ns()
        cluster.start_all()
        first = _FirstAppend(cluster.endpoints)
        seen: dict[tuple[str, int], int] = {}
        if not poll_until(lambda: _look(cluster, seen), TIMEOUT_S, look_ms=LOOK_MS):
            raise Unreachable(f"after {TIMEOUT_S} s only this had happened: {sorted(seen)}")
        acknowledged_ns = first.acknowledged_ns()
    return make_row(number, began_ns, acknowledged_ns, seen)


def make_row(
    number: int, began_ns: int, acknowledged_ns: int, seen: Mapping[tuple[str, int], int]
) -> StartRow:
    """Of `seen`, the monotonic times by mark and node.

    Raises:
      Unreachable: no replica was seen to lead, as the one that did stopped before the next look.
    """

    def seconds(at_ns: int) -> float:
        return round((at_ns - began_ns) / 1e9, 3)

    def by_node(mark: str) -> dict[str, float]:
        return {str(node): seconds(at) for (each, node), at in seen.items() if each == mark}

    leads_s = by_node(LEADS).values()
    if not leads_s:
        raise Unreachable("an append was acknowledged, and no replica was seen to lead")
    return StartRow(
        round=number,
        first_acknowledged_s=seconds(acknowledged_ns),
        runs_s=by_node(RUNS),
        votes_s=by_node(VOTES),
        leads_s=min(leads_s),
        shows_s=by_node(SHOWS),
    )


def _look(cluster: EmbeddedCluster, seen: dict[tuple[str, int], int]) -> bool:
    """Note what has happened since the last look; whether all is done."""
    for node in cluster.nodes:
        counters = cluster.counters(node)
        loops = [
            value
            for name, value in counters.items()
            if name.endswith(".loops") and name.removesuffix(".loops") not in SPARE_NAMES
        ]
        facts = {
            RUNS: loops and all(loops),
            VOTES: counters.get("term"),
            LEADS: counters.get("is_leader"),
            SHOWS: counters.get("visible"),
        }
        for mark, is_true in facts.items():
            if is_true:
                seen.setdefault((mark, node), monotonic_ns())
    return all((mark, node) in seen for mark in (RUNS, VOTES, SHOWS) for node in cluster.nodes)


# --- the measurement ---


def _measure(site: Site, *, rounds: int) -> Measured:
    rows = measure_starts(site.folder, rounds=rounds, say=site.say)
    return Measured(rows, summarise(rows))


def draw_start(result: Result, _: Sequence[Any]) -> dict[str, Figure]:
    """A bar a moment, in the order of the summary."""
    from benchmarks.charts import bar_chart, plain

    return {
        "start": bar_chart(
            "Three replicas from nothing",
            "seconds since the first process was started, medians",
            {name: each["median_s"] for name, each in result.summary.items()},
            notes={
                name: f"({plain(each['low_s'])} to {plain(each['high_s'])})"
                for name, each in result.summary.items()
            },
        )
    }


START = Measurement(
    "start",
    "How long do three replicas take from nothing to the first acknowledged append?",
    2,
    _measure,
    [option("--rounds", type=click.IntRange(1, 99), default=10)],
    {"rounds": 2},
    draw_start,
)
