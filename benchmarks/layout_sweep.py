"""Tries placements of three replicas' processes on this machine, in turn, and says which is best.

Owns the course of a round and the measurement `placement`; `layouts` has the candidates and the
choice. Three replicas and the load share this machine, so the best layout is one for such a
cluster: one replica a machine is measured on such machines.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click
import msgspec

from actors.supervisor.placement import look_at_machine
from benchmarks.charts import bar_chart, plain
from benchmarks.layouts import (
    AGAIN,
    DEFAULT,
    LEADER,
    NODES,
    Choice,
    Layout,
    Trial,
    block_of,
    candidates,
    choose,
    placed,
    spreads_of,
)
from benchmarks.measurement import Measured, Measurement, Site, option, without_paths
from benchmarks.results import Result
from benchmarks.saturate import Row, Settings, measure_load
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.client import connect
from logstore.errors import LogStoreError, NoQuorum

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEADER_TIMEOUT_S = 30.0


class Run(msgspec.Struct, frozen=True):
    """One trial with the rows of its two loads; none where it failed."""

    trial: Trial
    singles: Row | None = None
    one_in_flight: Row | None = None


def measure_placement(site: Site, *, rounds: int, seconds: float, most: int) -> Measured:
    """Every candidate once a round, between two runs of the default.

    Raises:
      LogStoreError: the default does not run at all.
    """
    machine = look_at_machine()
    layouts, left_out = candidates(machine.cpus, machine.nice_min)
    layouts, beyond = layouts[: most + 1], layouts[most + 1 :]
    left_out += [f"{each.name}: --most" for each in beyond]
    for words in left_out:
        site.say(f"left out: {words}")
    run_layout(layouts[0], site.folder, seconds)  # does not count: caches and page cache are cold
    runs: list[Run] = []
    for number in range(1, rounds + 1):
        for name, layout in order_of(layouts, number):
            run = _try_layout(name, layout, number, site.folder, seconds)
            runs.append(run)
            site.say(f"round {number} of {rounds}, {name}: {_words(run.trial)}")
    trials = [run.trial for run in runs]
    choice = choose(trials)
    by_name = {layout.name: layout for layout in layouts}
    site.say(f"{choice.advice}\n\n{block_of(by_name[choice.best])}")
    return Measured(runs, summarise(trials, choice, by_name, left_out))


def order_of(layouts: Sequence[Layout], number: int) -> Iterator[tuple[str, Layout]]:
    """Names and layouts of round `number`: the default first and last, so that a machine that gets
    slower does not decide; the others begin with another one each time."""
    default, *others = layouts
    turn = (number - 1) % max(1, len(others))
    yield DEFAULT, default
    yield from ((each.name, each) for each in (*others[turn:], *others[:turn]))
    yield AGAIN, default


def summarise(
    trials: Sequence[Trial],
    choice: Choice,
    layouts: Mapping[str, Layout],
    left_out: Sequence[str],
) -> dict[str, Any]:
    """What was chosen and why, and what each layout gave."""
    failures = {trial.layout: trial.failure for trial in trials if trial.failure}
    rows = {}
    for name in dict.fromkeys(trial.layout for trial in trials):
        spreads = spreads_of(trials, name)
        rows[name] = {
            **(msgspec.to_builtins(spreads) if spreads else {}),
            "gain": msgspec.to_builtins(choice.gains.get(name)),
            "failure": failures.get(name, ""),
        }
    gain = choice.gains.get(choice.best)
    return {
        "best": choice.best,
        "block": block_of(layouts[choice.best]),
        "gain": msgspec.to_builtins(gain["both"]) if gain else None,
        "noise": choice.noise,
        "is_above_noise": choice.is_above_noise,
        "advice": choice.advice,
        "layouts": rows,
        "left_out": list(left_out),
    }


def run_layout(layout: Layout, folder: Path, seconds: float) -> tuple[Row, Row]:
    """Both loads, one after the other, at a new cluster with this layout, led by node `LEADER`.

    Raises:
      LogStoreError: the cluster or a load did not run through.
    """
    with tempfile.TemporaryDirectory(prefix="placement-", dir=folder) as own:
        config = placed(make_config(len(NODES), Random(os.urandom(8))), layout)
        with EmbeddedCluster(Path(own), config) as cluster:
            cluster.start_all()
            _lead(cluster)
            singles, _ = measure_load(
                Settings(1_024, 1, 2.0, seconds), cluster, LEADER, Path(own) / "samples"
            )
            one, _ = measure_load(
                Settings(1_024, 1, 0.001, seconds), cluster, LEADER, Path(own) / "samples"
            )
            return singles, one


def _try_layout(name: str, layout: Layout, number: int, folder: Path, seconds: float) -> Run:
    """A layout under which the cluster does not work has lost, and the others go on."""
    try:
        singles, one = run_layout(layout, folder, seconds)
    except (LogStoreError, OSError) as error:  # a full disk, too, may be of this run only
        return Run(Trial(name, number, failure=without_paths(error, folder)))
    if not singles.payloads_per_s or not one.p50_ms:
        return Run(Trial(name, number, failure="nothing was acknowledged"), singles, one)
    return Run(Trial(name, number, singles.payloads_per_s, one.p50_ms), singles, one)


def _lead(cluster: EmbeddedCluster) -> None:
    """Make node `LEADER` the leader."""
    if cluster.wait_for_leader() == LEADER:
        return
    with connect(cluster.endpoints, timeout=LEADER_TIMEOUT_S) as client:
        client.admin.transfer(LEADER)
    if not poll_until(lambda: cluster.leader() == LEADER, LEADER_TIMEOUT_S):
        raise NoQuorum(f"node {LEADER} does not lead {LEADER_TIMEOUT_S:g} s after a transfer to it")


def _words(trial: Trial) -> str:
    if trial.failure:
        return f"failed: {trial.failure}"
    return f"{trial.payloads_per_s:,.0f} payloads/s; one in flight: p50 {trial.p50_ms:.2f} ms"


def draw_placement(result: Result, _: Sequence[Any]) -> Mapping[str, Figure]:
    """Both figures of each layout, with what it gains over the default."""
    titles = {
        "payloads_per_s": ("Placement: 1 KiB, one at a time", "payloads/s, median of the rounds"),
        "p50_ms": ("Placement: one append in flight", "p50 in ms, median of the rounds"),
    }
    layouts = result.summary["layouts"]
    figures = {}
    for key, (title, label) in titles.items():
        rows = {name: row for name, row in layouts.items() if key in row}
        notes = {name: _note(row, key) for name, row in rows.items()}
        bars = {name: row[key]["median"] for name, row in rows.items()}
        stem = f"placement-{key.partition('_')[0]}"
        figures[stem] = bar_chart(title, label, bars, notes=notes)
    return figures


def _note(row: Mapping[str, Any], key: str) -> str:
    """What a layout gains, median and spread; of the default, the spread of its figure."""
    if not row["gain"]:
        return f"({plain(row[key]['low'])} to {plain(row[key]['high'])})"
    gain = row["gain"]["p50" if key == "p50_ms" else key]
    low, median, high = (f"{100 * (gain[name] - 1):+.0f}" for name in ("low", "median", "high"))
    return f"{median} % ({low} to {high})"


PLACEMENT = Measurement(
    "placement",
    "Which placement of the processes is best on this machine, and what does it gain?",
    20,
    measure_placement,
    [
        option("--rounds", type=click.IntRange(1, 99), default=5),
        option("--seconds", type=click.FloatRange(0.5, 3_600.0), default=5.0),
        option("--most", type=click.IntRange(0), default=12, help="candidates beside the default"),
    ],
    {"rounds": 1, "seconds": 0.5, "most": 1},
    draw_placement,
)
