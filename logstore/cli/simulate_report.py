"""What `logstore simulate` says: its tables, the line that replays a seed.

Pure. Must not know how seeds are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from actors.simulation.faults.script import Script
from actors.simulation.many import RunOptions
from actors.simulation.oracle.reach import MUST_REACH, NOT_BUILT, Reach, missing
from actors.simulation.result import SeedResult, Totals

# From here on every situation of the must-reach list must have been met.
MUST_REACH_SEEDS = 10_000
SHRUNK_MAX = 3
_TEXT_MAX = 200


def replay_line(
    run_options: RunOptions, result: SeedResult, script_path: Path | None = None
) -> str:
    """One line that runs the seed again; what was wrong follows as a comment."""
    words = ["logstore simulate"]
    if script_path is not None:
        words.append(f"--script {script_path}")
    else:
        words.append(f"--replay {result.seed}")
        if run_options.replicas is not None:
            words.append(f"--replicas {run_options.replicas}")
        if run_options.classes is not None:
            words.append(f"--faults {','.join(run_options.classes)}")
    return f"{' '.join(words)}  # {result.first_complaint[:_TEXT_MAX]}"


def failure_kind(result: SeedResult) -> str:
    """What makes two failures alike: the rule that was broken, or the class of the exception."""
    return result.first_complaint.partition(":")[0] + _exception(result)


def _exception(result: SeedResult) -> str:
    """The class in "error: package.Class: text"; "" where a rule was broken."""
    return "" if result.violations else result.first_complaint.split(":")[1]


def is_same_failure(wanted: SeedResult, result: SeedResult) -> bool:
    return result.has_failed and failure_kind(result) == failure_kind(wanted)


def first_of_each_kind(
    failed: Sequence[tuple[SeedResult, Script | None]],
) -> list[tuple[SeedResult, Script | None]]:
    """The lowest failed seed of each kind of failure, some of them: they are worth a minute."""
    kinds: dict[str, tuple[SeedResult, Script | None]] = {}
    for each in sorted(failed, key=lambda pair: pair[0].seed):
        kinds.setdefault(failure_kind(each[0]), each)
    return list(kinds.values())[:SHRUNK_MAX]


def must_reach_missing(totals: Totals, *, is_limited: bool) -> list[Reach]:
    """What so many seeds should have met and did not; nothing is asked of few seeds, nor of chosen
    faults."""
    if totals.seeds < MUST_REACH_SEEDS or is_limited:
        return []
    return missing(totals.reached)


def print_tables(console: Console, totals: Totals, *, jobs: int) -> None:
    console.print(_numbers(totals, jobs))
    if totals.faults_injected:
        console.print(_counts("faults injected", totals.faults_injected))
    console.print(_reached(totals.reached))


def _numbers(totals: Totals, jobs: int) -> Table:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    speed = totals.simulated_s / (totals.wall_s / 60) / jobs if totals.wall_s else 0.0
    failed = {each.seed for each in totals.violations}
    rows = (
        ("seeds", f"{totals.seeds:,}"),
        ("simulated s", f"{totals.simulated_s:,.0f}"),
        ("of them excused: a device lied", f"{totals.excused_s:,.0f}"),
        ("wall s", f"{totals.wall_s:,.1f}"),
        ("simulated s a minute and job", f"{speed:,.0f}"),
        ("events", f"{totals.events:,}"),
        ("appends acknowledged", f"{totals.appends_acknowledged:,}"),
        ("violations", f"{len(totals.violations):,}"),
        ("seeds that failed", f"{len(failed):,}"),
        ("commit", totals.commit),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _counts(title: str, counts: dict[str, int]) -> Table:
    table = Table(title, "times")
    table.columns[1].justify = "right"
    for name, number in counts.items():
        table.add_row(name, f"{number:,}")
    return table


def _reached(reached: dict[str, int]) -> Table:
    """Every situation that must be met, then those that wait for a feature."""
    table = Table("met", "times")
    table.columns[1].justify = "right"
    for each in MUST_REACH:
        table.add_row(each.value, f"{reached.get(each.name, 0):,}")
    for each, feature in NOT_BUILT.items():
        table.add_row(f"{each.value} (waits for {feature})", "–", style="dim")
    return table
