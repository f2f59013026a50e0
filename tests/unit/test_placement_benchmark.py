"""`benchmarks placement`: the candidates, their order, the best of them, and what is only noise."""

from __future__ import annotations

import errno
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from benchmarks import layout_sweep
from benchmarks.layout_sweep import PLACEMENT, Run, measure_placement, order_of
from benchmarks.layouts import (
    AGAIN,
    DEFAULT,
    LEADER,
    NO_ROUND,
    NODES,
    Layout,
    Trial,
    block_of,
    candidates,
    choose,
    placed,
)
from benchmarks.measurement import Site
from benchmarks.results import Result, as_read
from benchmarks.saturate import Row
from logstore.config import parse_config
from logstore.config_layout import choose_mode
from logstore.config_placement import placement_of, process_names
from logstore.errors import Unreachable
from tests.unit.load_rows import product

NODES_TEXT = '[cluster]\nname = "three"\n' + "".join(
    f"[[nodes]]\nnode = {node}\nport = {7_000 + 10 * node}\n" for node in NODES
)
THREE = parse_config(NODES_TEXT)


def names_of(cpus: tuple[int, ...], nice_min: int) -> set[str]:
    return {layout.name for layout in candidates(cpus, nice_min)[0]}


# --- candidates ---


@pytest.mark.parametrize("cpus", [(0,), (0, 1), (2, 5, 7), (0, 1, 2, 3), tuple(range(16))])
@pytest.mark.parametrize("nice_min", [-20, 0])
def test_every_candidate_is_a_possible_configuration_of_these_cpus(
    cpus: tuple[int, ...], nice_min: int
) -> None:
    layouts, _ = candidates(cpus, nice_min)
    assert layouts[0] == Layout(DEFAULT)
    assert len({layout.name for layout in layouts}) == len(layouts) <= 14
    for layout in layouts:
        for node in NODES:
            config = choose_mode(placed(THREE, layout), node, len(cpus))
            for process in process_names(config, node):
                placement = placement_of(config, node, process)
                assert set(placement.cpus) <= set(cpus)
                assert placement.nice is None or placement.nice >= nice_min


def test_what_a_machine_cannot_do_is_left_out_and_said() -> None:
    assert names_of((0,), 0) == {DEFAULT, "two IO threads", "processes", "shared", "single"}
    _, left_out = candidates((0,), 0)
    assert ["one CPU" in left_out[0], "0 is the lowest" in left_out[1]] == [True, True]
    assert "writer nice -5" in names_of((0,), -5)
    assert "raft spins" in names_of((0, 1), 0)
    assert "a core for each" not in names_of((0, 1, 2), 0)
    assert "a core for each" in names_of((0, 1, 2, 3), 0)


def test_who_has_a_core_alone_shares_it_with_nobody() -> None:
    by_name = {layout.name: layout for layout in candidates((0, 1, 2), 0)[0]}
    for name, process, node in (("writer alone", "writer", 2), ("raft spins", "raft", 3)):
        config = placed(THREE, by_name[name])
        own = placement_of(config, node, process).cpus
        assert len(own) == 1
        for other in ("ingress", "egress", "replicator-1", "supervisor"):
            assert set(own).isdisjoint(placement_of(config, node, other).cpus)
    config = placed(THREE, by_name["raft spins"])
    assert {placement_of(config, node, "raft").cpus for node in NODES} == {(0,)}
    config = placed(THREE, by_name["leader's writer alone"])
    own = placement_of(config, LEADER, "writer").cpus
    assert set(own).isdisjoint(placement_of(config, 2, "writer").cpus)


def test_spinning_rafts_have_a_cpu_each_where_there_are_enough() -> None:
    """On one CPU they would take it from each other, which says nothing of spinning."""
    by_name = {layout.name: layout for layout in candidates((4, 5, 6, 7), 0)[0]}
    config = placed(THREE, by_name["raft spins"])
    assert [placement_of(config, node, "raft").cpus for node in NODES] == [(4,), (5,), (6,)]
    assert {placement_of(config, node, "writer").cpus for node in NODES} == {(7,)}


def test_a_block_is_what_the_configuration_takes() -> None:
    """Pasted as it is, with its comments put where they say."""
    for layout in candidates((0, 1, 2, 3), -20)[0]:
        block = block_of(layout)
        assert tomllib.loads(block) == {"process": layout.process}
        text = f"{NODES_TEXT}\n{block}"
        for node, line in re.findall(r"table of node (\d)[^\n]*:\n# ([^\n]*)", block):
            text = text.replace(f"node = {node}\n", f"node = {node}\n{line}\n", 1)
        for node in NODES:
            merged = choose_mode(parse_config(text), node, 4)
            meant = choose_mode(placed(THREE, layout), node, 4)
            for process in process_names(meant, node):
                found = placement_of(merged, node, process)
                assert found == placement_of(meant, node, process)


# --- rounds ---


def test_the_default_stands_at_both_ends_of_a_round_and_the_others_take_turns() -> None:
    layouts = [Layout(DEFAULT), Layout("a"), Layout("b"), Layout("c")]
    orders = [[name for name, _ in order_of(layouts, number)] for number in (1, 2, 3, 4)]
    assert all((order[0], order[-1]) == (DEFAULT, AGAIN) for order in orders)
    assert [order[1] for order in orders] == ["a", "b", "c", "a"]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert [name for name, _ in order_of(layouts[:1], 2)] == [DEFAULT, AGAIN]


def rounds_of(*gains: float, noise: float = 0.02, name: str = "pinned") -> list[Trial]:
    """A round for each gain of `name`, on both loads, over defaults that differ by `noise`."""
    trials = []
    for number, gain in enumerate(gains, 1):
        rate, p50 = 100_000.0, 2.0
        trials += [
            Trial(DEFAULT, number, rate * (1 + noise), p50),
            Trial(name, number, rate * (1 + noise / 2) * gain, p50 / gain),
            Trial(AGAIN, number, rate, p50),
        ]
    return trials


def test_the_best_has_the_highest_median_gain_over_the_mean_of_both_defaults() -> None:
    trials = rounds_of(1.1, 1.2, 1.3) + [
        trial for trial in rounds_of(1.4, 1.1, 1.1, name="other") if trial.layout == "other"
    ]
    choice = choose(trials)
    assert (choice.best, choice.is_above_noise) == ("pinned", True)
    both = choice.gains["pinned"]["both"]
    assert (both.median, both.low, both.high) == (1.2, 1.1, 1.3)
    assert choice.gains["pinned"]["p50"].median == 1.2
    assert (
        choice.advice == "pinned: +20.0 % (+10.0 % to +30.0 %) is above the noise of 2.0 %: take it"
    )


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        (rounds_of(1.05, 1.05, 1.05, noise=0.1), "is within the noise of 10.0 %: keep the default"),
        (rounds_of(1.2, 0.99, 1.2), "is no gain in every round: keep the default"),
        (rounds_of(1.2, 1.2), "rounds: 2. It takes 3 or more to say something"),
        (rounds_of(0.9, 1.0, 0.9), "no layout gains: keep the default"),
    ],
)
def test_what_is_no_more_than_noise_is_not_taken(trials: list[Trial], words: str) -> None:
    choice = choose(trials)
    assert not choice.is_above_noise
    assert choice.advice.endswith(words)


def test_noise_is_of_the_load_that_differs_more_and_does_not_cancel() -> None:
    """One run of the default has more payloads and the worse latency: the mean hides both."""
    trials = rounds_of(1.1, 1.1, 1.1, noise=0.0)
    trials = [
        msgspec.structs.replace(trial, payloads_per_s=150_000.0, p50_ms=3.0)
        if trial.layout == AGAIN
        else trial
        for trial in trials
    ]
    assert choose(trials).noise == 0.5


def test_a_layout_that_ever_failed_is_never_the_best() -> None:
    trials = rounds_of(1.5, 1.5, 1.5)
    failed = [msgspec.structs.replace(trials[1], failure="leadership changed"), *trials[2:]]
    choice = choose([trials[0], *failed])
    assert (choice.best, choice.gains) == (DEFAULT, {})


def test_rounds_without_both_defaults_do_not_count() -> None:
    trials = rounds_of(1.2, 1.2, 1.2, 9.0)
    trials[-1] = msgspec.structs.replace(trials[-1], failure="did not start")
    assert choose(trials).gains["pinned"]["both"].high == 1.2
    assert choose([Trial(DEFAULT, 1, failure="no")]).advice == NO_ROUND


# --- the measurement, with runs that are made up ---


def row(rate: float, p50_ms: float) -> Row:
    return product(payloads_per_s=rate, p50_ms=p50_ms)


def test_a_sweep_prints_the_best_block_and_what_it_gains_and_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(layout: Layout, _folder: Path, _seconds: float) -> tuple[Row, Row]:
        if layout.process.get("spin"):
            raise Unreachable("leadership changed")
        if layout.name == "writer apart":
            raise OSError(errno.ENOSPC, "No space left on device", f"{tmp_path}/placement-x/log")
        faster = 2.0 if layout.name == "writer alone" else 1.0
        return row(100_000.0 * faster, 0.0), row(0.0, 2.0 / faster)

    monkeypatch.setattr(layout_sweep, "run_layout", run)
    monkeypatch.setattr(layout_sweep, "candidates", lambda *_: candidates((0, 1), 0))
    said: list[str] = []
    measured = measure_placement(Site(tmp_path, said.append), rounds=3, seconds=1.0, most=4)
    best = next(each for each in candidates((0, 1), 0)[0] if each.name == "writer alone")
    assert block_of(best) in said[-1]
    assert "+100.0 % (+100.0 % to +100.0 %) is above the noise of 0.0 %: take it" in said[-1]
    summary = measured.summary
    assert (summary["best"], summary["is_above_noise"]) == ("writer alone", True)
    assert summary["gain"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    assert summary["layouts"]["raft spins"]["failure"] == "leadership changed"
    assert summary["layouts"]["writer apart"]["failure"] == (
        "[Errno 28] No space left on device: 'DATA/placement-x/log'"
    )
    assert "two IO threads: --most" in summary["left_out"]
    assert len(measured.rows) == 3 * 6
    assert isinstance(measured.rows[0], Run)

    result = as_read(Result("placement", {}, "", list(measured.rows), dict(summary)))
    assert PLACEMENT.draw is not None
    figures = PLACEMENT.draw(result, [])
    assert set(figures) == {"placement-payloads", "placement-p50"}
    bars = {label.get_text() for label in figures["placement-p50"].axes[0].get_yticklabels()}
    assert bars == {DEFAULT, AGAIN, "writer alone", "leader's writer alone"}
    notes = [text.get_text() for text in figures["placement-payloads"].axes[0].texts]
    assert "200,000  +100 % (+100 to +100)" in notes
