"""Hunting mutants: what counts as found, and what the report says of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.simulation.faults.draw import draw_classes
from actors.simulation.faults.script import FaultClass
from logstore.format.session_entries import ExpireEntry
from logstore.session.grants import SessionLimits
from logstore.session.table import SessionTable
from tests.mutants import hunt as hunt_module
from tests.mutants.catalogue import CATALOGUE, mutant_named
from tests.mutants.hunt import Hunt, complaint_of, hunt
from tests.mutants.report import Report, markdown, report_of, row_of


class Quiet:
    """What `run_seed` gives; it complains from seed `first` on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.seeds: list[int] = []
        self.classes: list[set[FaultClass]] = []

    def __call__(self, seed: int, *, classes: Collection[FaultClass]) -> Any:
        self.seeds.append(seed)
        self.classes.append(set(classes))
        self.first_complaint = "I1: lost" if seed >= self.first else ""
        return self


def test_a_hunt_ends_at_the_first_seed_that_complains(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Quiet(first=3)
    monkeypatch.setattr(hunt_module, "run_seed", world)
    found = hunt("data-not-flushed", cpu_seconds_max=1e9)
    assert (found.seeds, found.caught, found.is_over) == (3, "I1: lost", True)
    assert world.seeds == [1, 2, 3]


def test_a_hunt_ends_when_its_seeds_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunt_module, "run_seed", Quiet(first=100))
    found = hunt("data-not-flushed", cpu_seconds_max=1e9, seeds_max=5)
    assert (found.seeds, found.caught, found.is_over) == (5, "", True)


def test_a_hunt_ends_when_its_time_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunt_module, "run_seed", Quiet(first=100))
    found = hunt("data-not-flushed", cpu_seconds_max=0.0)
    assert (found.seeds, found.caught, found.is_over) == (1, "", True)


def test_faults_that_a_mutant_needs_are_on_in_every_seed_and_the_others_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = [set(draw_classes(seed)) for seed in (1, 2, 3, 4)]
    assert not all(FaultClass.MEMBERS in each for each in drawn)
    for name, more in (
        ("data-not-flushed", set()),
        ("members-never-lost", {FaultClass.MEMBERS}),
    ):
        world = Quiet(first=4)
        monkeypatch.setattr(hunt_module, "run_seed", world)
        hunt(name, cpu_seconds_max=1e9)
        assert world.classes == [each | more for each in drawn]


def test_the_product_itself_runs_seeds_as_each_hunt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Quiet(first=100)
    monkeypatch.setattr(hunt_module, "run_seed", world)
    hunt(hunt_module.PRODUCT_ITSELF, cpu_seconds_max=1e9, seeds_max=2)
    assert world.seeds == [1, 1, 2, 2]
    for seed in (1, 2):
        drawn = set(draw_classes(seed))
        assert drawn in world.classes
        assert drawn | {FaultClass.MEMBERS} in world.classes


def test_an_exception_of_the_product_counts_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_seed(seed: int, **_: object) -> Any:
        SessionTable(SessionLimits()).apply_expire(ExpireEntry(7, 1))

    monkeypatch.setattr(hunt_module, "run_seed", run_seed)
    assert complaint_of(1) == (
        "logstore.errors.InvariantViolated: ExpireEntry(producer_id=7, producer_epoch=1,"
        " is_kept=False) does not follow None"
    )


def test_an_exception_of_the_simulator_alone_is_its_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run_seed(seed: int, **_: object) -> Any:
        raise ValueError("nobody of the product was there")

    monkeypatch.setattr(hunt_module, "run_seed", run_seed)
    with pytest.raises(ValueError, match="nobody of the product"):
        complaint_of(1)


def report(caught: str, product: str = "", failure: str = "") -> Report:
    mutant = mutant_named("data-not-flushed")
    return report_of(
        [row_of(mutant, Hunt(2, 1.5, caught, True), failure)],
        row_of(mutant, Hunt(2, 1.0, product, True)),
        [each for each in CATALOGUE if each.unreachable][:1],
        commit="abc",
        cpu_seconds_max=60.0,
    )


def test_a_report_counts_what_was_found() -> None:
    found = report("I10: not flushed")
    assert (found.killed, found.total, found.cpu_s_median, found.cpu_s_max) == (1, 1, 1.5, 1.5)
    assert found.is_good


def test_a_survivor_makes_a_bad_report_and_says_so() -> None:
    found = report("", failure="seed 2 ended with status -24")
    assert (found.killed, found.is_good) == (0, False)
    assert "| 2 | 1.5 | **not found** seed 2 ended with status -24 |" in markdown(found)


def test_kills_prove_nothing_if_the_product_itself_complains() -> None:
    found = report("I10: not flushed", product="I1: lost")
    assert not found.is_good
    assert "The same seeds without a mutant, 1 to 2, complained: I1: lost." in markdown(found)


def test_the_table_lists_what_no_seed_can_show_with_its_argument() -> None:
    found = report("I10: a|b\nc")
    assert found.skipped[0].unreachable in markdown(found).replace("\\|", "|")
    assert "| I10: a\\|b c |" in markdown(found)


@pytest.mark.long
def test_mutants_are_hunted_by_command(tmp_path: Path) -> None:
    target = tmp_path / "mutants.json"
    command = [sys.executable, "-m", "tests.mutants", "--only", "data-not-flushed"]
    done = subprocess.run(
        [*command, "--seconds-max", "30", "--json", str(target)], capture_output=True, text=True
    )
    found = msgspec.json.decode(target.read_bytes(), type=Report)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.name for row in found.rows if row.caught] == ["data-not-flushed"]
    assert "data-not-flushed" in target.with_suffix(".md").read_text()
