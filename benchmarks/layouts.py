"""Which placements of a cluster's processes are tried on a machine, and which of them is the best.

Pure. Owns the candidates, their form as a configuration, and what counts as a gain. Must not know
how a layout is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, median
from typing import Any

import msgspec
import tomlkit

from logstore.config import Config, parse_config, render_config
from logstore.settings import PROCESS_NAMES

NODES = (1, 2, 3)
# The node that leads while a layout is measured, so that one that depends on it can be written.
LEADER = 1
DEFAULT = "default"
AGAIN = "default again"
NICE = -5
# With fewer rounds a difference cannot be told from chance.
ROUNDS_MIN = 3
NO_ROUND = (
    "the default ran twice in no round, so there is nothing to compare with: see why it failed"
)


class Layout(msgspec.Struct, frozen=True):
    """One candidate: keys of `[process]`, and by node keys of its `[[nodes]]` beside them."""

    name: str
    process: dict[str, Any] = {}
    nodes: dict[int, dict[str, Any]] = {}


class Trial(msgspec.Struct, frozen=True):
    """What one run of a layout gave. `failure`: why it gave nothing; empty if it did.

    Attributes:
      payloads_per_s: of 1 KiB, one at a time, in a window of 2 MB.
      p50_ms: of one append in flight.
    """

    layout: str
    round: int
    payloads_per_s: float = 0.0
    p50_ms: float = 0.0
    failure: str = ""


class Spread(msgspec.Struct, frozen=True):
    """Median, lowest and highest of the rounds."""

    median: float
    low: float
    high: float


class Choice(msgspec.Struct, frozen=True):
    """What the rounds say.

    Attributes:
      best: the layout with the highest gain that never failed; `default` if none has one.
      is_above_noise: whether the gain is more than the noise, and a gain in every round.
      noise: how much the two runs of the default in a round differ, in the load where they differ
        more, median of the rounds; 0.02 is 2 %.
      gains: by layout and load, over the mean of the round's two runs of the default: 1.1 is 10 %
        more payloads a second, or a p50 that is lower by as much; `both` is their geometric mean.
      advice: what to do, in a sentence.
    """

    best: str
    is_above_noise: bool
    noise: float
    gains: dict[str, dict[str, Spread]]
    advice: str


def candidates(cpus: Sequence[int], nice_min: int) -> tuple[list[Layout], list[str]]:
    """The layouts that are possible here, the default first, and for the others why not.

    Args:
      cpus: that the replicas may use.
      nice_min: the lowest niceness that they may have.
    """
    found, left_out = [Layout(DEFAULT)], []
    first, *rest = cpus
    if not rest:
        left_out.append("nothing is pinned and nothing spins: there is one CPU only")
    else:
        others = [cpu for cpu in cpus if cpu != rest[-1]]
        two = {"ingress": [first], "raft": [first], "writer": [rest[0]]}
        found += [
            Layout("writer apart", _processes(cpus=two)),
            Layout("writer alone", _processes(cpus=_all_on(others) | {"writer": [rest[-1]]})),
            Layout(
                "leader's writer alone",
                _processes(cpus=_all_on(others)),
                {LEADER: {"cpus": {"writer": [rest[-1]]}}},
            ),
            _spinning(cpus),
        ]
    if len(cpus) > 3:
        four = {"ingress": [cpus[0]], "raft": [cpus[1]], "writer": [cpus[2]]}
        found.append(Layout("a core for each", _processes(cpus=_all_on(cpus[3:]) | four)))
    if nice_min <= NICE:
        names = (("writer",), ("raft",), ("writer", "raft"))
        found += [
            Layout(f"{' and '.join(each)} nice {NICE}", _processes(nice=dict.fromkeys(each, NICE)))
            for each in names
        ]
    else:
        left_out.append(f"niceness stays: {nice_min} is the lowest here, {NICE} is asked for")
    threads = dict.fromkeys(("ingress", "egress", "replicator"), 2)
    found.append(Layout("two IO threads", _processes(io_threads=threads)))
    found += [Layout(mode, {"mode": mode}) for mode in ("processes", "shared", "single")]
    if rest:
        apart = {"shared": list(cpus[:-1]), "writer": [rest[-1]]}
        found.append(Layout("shared, writer apart", {"mode": "shared", "cpus": apart}))
    return found, left_out


def _spinning(cpus: Sequence[int]) -> Layout:
    """The rafts of all replicas spin, each on a CPU of its own if there are as many; on one, only
    one of them runs at a time."""
    if len(cpus) <= len(NODES):
        placed_cpus = _all_on(cpus[1:]) | {"raft": [cpus[0]]}
        return Layout("raft spins", _processes(cpus=placed_cpus, spin=["raft"]))
    own = {node: {"cpus": {"raft": [cpu]}} for node, cpu in zip(NODES, cpus, strict=False)}
    process = _processes(cpus=_all_on(cpus[len(NODES) :]), spin=["raft"])
    return Layout("raft spins", process, own)


def _processes(**keys: Any) -> dict[str, Any]:
    """A placement of processes by the names of their actors: each actor has one."""
    return {"mode": "processes", **keys}


def placed(config: Config, layout: Layout) -> Config:
    """`config` with the layout.

    Raises:
      ConfigError: it is no possible one.
    """
    process = msgspec.structs.replace(config.process, **layout.process)
    nodes = [
        msgspec.structs.replace(node, **layout.nodes.get(node.node, {})) for node in config.nodes
    ]
    changed = msgspec.structs.replace(config, process=process, nodes=nodes)
    return parse_config(render_config(changed))  # with all checks


def block_of(layout: Layout) -> str:
    """What to write into the configuration. What goes into the tables of its nodes is a comment:
    they have ports and hosts, and are there already."""
    lines = ["[process]", *_lines(layout.process)]
    if not layout.process:
        lines.append("# nothing: this is the default")
    for node, keys in layout.nodes.items():
        which = ", which leads" if node == LEADER else ""
        lines.append(f"# and into the [[nodes]] table of node {node}{which}:")
        lines += [f"# {line}" for line in _lines(keys)]
    return "\n".join(lines) + "\n"


def choose(trials: Sequence[Trial]) -> Choice:
    """The best layout of these rounds, and whether it is more than noise. Rounds in which the
    default failed, and layouts that ever failed, do not count."""
    rounds = _rounds(trials)
    if not rounds:
        return Choice(DEFAULT, False, 0.0, {}, NO_ROUND)
    noise = median(_difference(each[DEFAULT], each[AGAIN]) for each in rounds)
    failed = {trial.layout for trial in trials if trial.failure}
    names = dict.fromkeys(trial.layout for trial in trials)
    gains = {
        name: _gains([(each[name], _baseline(each)) for each in rounds if name in each])
        for name in names
        if name not in failed | {DEFAULT, AGAIN} and any(name in each for each in rounds)
    }
    best = max(gains, key=lambda name: gains[name]["both"].median, default=DEFAULT)
    if best not in gains or gains[best]["both"].median <= 1:
        return Choice(DEFAULT, False, round(noise, 4), gains, "no layout gains: keep the default")
    gain = gains[best]["both"]
    is_above = len(rounds) >= ROUNDS_MIN and gain.median - 1 > noise and gain.low > 1
    return Choice(best, is_above, round(noise, 4), gains, _advice(best, gain, noise, len(rounds)))


def _advice(best: str, gain: Spread, noise: float, rounds: int) -> str:
    words = f"{best}: {_percent(gain.median)} ({_percent(gain.low)} to {_percent(gain.high)})"
    if rounds < ROUNDS_MIN:
        return f"{words}, rounds: {rounds}. It takes {ROUNDS_MIN} or more to say something"
    if gain.median - 1 <= noise:
        return f"{words} is within the noise of {100 * noise:.1f} %: keep the default"
    if gain.low <= 1:
        return f"{words} is no gain in every round: keep the default"
    return f"{words} is above the noise of {100 * noise:.1f} %: take it"


def _percent(gain: float) -> str:
    return f"{100 * (gain - 1):+.1f} %"


def _rounds(trials: Sequence[Trial]) -> list[dict[str, Trial]]:
    """By round the trials that gave something, of rounds that have the default twice."""
    rounds: dict[int, dict[str, Trial]] = {}
    for trial in trials:
        if not trial.failure:
            rounds.setdefault(trial.round, {})[trial.layout] = trial
    return [each for each in rounds.values() if DEFAULT in each and AGAIN in each]


def _difference(first: Trial, again: Trial) -> float:
    """How far two runs of one layout are from each other, in the load where they differ more."""
    ratios = (first.payloads_per_s / again.payloads_per_s, first.p50_ms / again.p50_ms)
    return max(max(ratio, 1 / ratio) for ratio in ratios) - 1


def _baseline(trials: Mapping[str, Trial]) -> Trial:
    """The mean of the two runs of the default, which stand around all others of their round."""
    both = (trials[DEFAULT], trials[AGAIN])
    rate, p50 = mean(each.payloads_per_s for each in both), mean(each.p50_ms for each in both)
    return Trial(DEFAULT, both[0].round, rate, p50)


def _gains(pairs: Sequence[tuple[Trial, Trial]]) -> dict[str, Spread]:
    return {
        "payloads_per_s": _spread(
            [one.payloads_per_s / base.payloads_per_s for one, base in pairs]
        ),
        "p50": _spread([base.p50_ms / one.p50_ms for one, base in pairs]),
        "both": _spread([_gain(*pair) for pair in pairs]),
    }


def _gain(trial: Trial, base: Trial) -> float:
    """How much better on both loads together: the geometric mean."""
    return sqrt(trial.payloads_per_s / base.payloads_per_s * (base.p50_ms / trial.p50_ms))


def _spread(values: Sequence[float]) -> Spread:
    return Spread(round(median(values), 4), round(min(values), 4), round(max(values), 4))


def spreads_of(trials: Sequence[Trial], layout: str) -> dict[str, Spread] | None:
    """Both figures of a layout over its rounds; None: each of its runs failed."""
    good = [trial for trial in trials if trial.layout == layout and not trial.failure]
    if not good:
        return None
    return {
        "payloads_per_s": _spread([trial.payloads_per_s for trial in good]),
        "p50_ms": _spread([trial.p50_ms for trial in good]),
    }


def _all_on(cpus: Sequence[int]) -> dict[str, list[int]]:
    return {name: list(cpus) for name in PROCESS_NAMES}


def _lines(keys: Mapping[str, Any]) -> list[str]:
    lines = []
    for key, value in keys.items():
        item = value
        if isinstance(value, dict):
            item = tomlkit.inline_table()
            item.update(value)
        lines.append(f"{key} = {tomlkit.item(item).as_string()}")
    return lines
