"""`python -m tests.faults.member_soak`: lost disks, replaced nodes and kills under load, from a
seed.

Exit status 1 if an append fails, or a payload is missing, doubled or elsewhere.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import click
import msgspec

from actors.simulation.code_name import code_name
from benchmarks.environment import describe_environment
from benchmarks.results import Result, refuse_bad_target, write_result
from logstore.cli.output import say
from tests.faults.member_soak.soak_course import Course, Event, Outcome, SoakSettings

SECONDS_MIN = 30.0
CHANGES_MIN = 3  # in a run that is shorter than its pace allows


@click.command()
@click.option("--minutes", default=30.0, show_default=True, help="how long payloads are appended")
@click.option("--seconds", type=click.FloatRange(SECONDS_MIN), help="instead of --minutes")
@click.option("--rate", default=2_000.0, show_default=True, help="payloads of 1 KiB a second")
@click.option("--seed", default=1, show_default=True)
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False), help="on a disk")
@click.option("--json", "json_path", default="-", show_default=True, help="what came of it")
def main(
    minutes: float,
    seconds: float | None,
    rate: float,
    seed: int,
    parent: str | None,
    json_path: str,
) -> None:
    """Lose disks, replace nodes and kill replicas while payloads are appended."""
    refuse_bad_target(json_path)
    length_s = minutes * 60 if seconds is None else seconds
    settings = settings_of(length_s, rate=rate, seed=seed)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="member-soak-"))
    say(f"seed {seed}; logs and data in {folder}, removed if nothing is found")
    outcome = Course(folder, settings, _show).run()
    result = result_of(settings, outcome, folder)
    shutil.rmtree(folder)
    write_result(json_path, result, [])
    say(words_of(outcome))


def settings_of(seconds: float, *, rate: float, seed: int) -> SoakSettings:
    """A short run has its changes closer to each other."""
    pace = SoakSettings()
    change_s = min(pace.change_every_s, seconds / CHANGES_MIN)
    kill_s = min(pace.kill_every_s, change_s / 2)
    return SoakSettings(
        seconds=seconds, rate=rate, seed=seed, change_every_s=change_s, kill_every_s=kill_s
    )


def result_of(settings: SoakSettings, outcome: Outcome, folder: Path) -> Result:
    summary = msgspec.to_builtins(outcome)
    events = summary.pop("events")
    counts = Counter(each.kind for each in outcome.events)
    slowest_s = {
        kind: max(each.whole_after_s for each in outcome.events if each.kind == kind)
        for kind in counts
    }
    summary = {
        "settings": msgspec.to_builtins(settings),
        "counts": dict(counts),
        "slowest_whole_after_s": slowest_s,
    } | summary
    return Result("member-soak", describe_environment(folder), code_name(), events, summary)


def words_of(outcome: Outcome) -> str:
    counts = Counter(each.kind for each in outcome.events)
    return (
        f"{outcome.load.payloads} payloads in {outcome.seconds:.0f} s, each there once; the "
        f"slowest append took {outcome.load.slowest_ms / 1e3:.1f} s; "
        f"{', '.join(f'{count} x {kind}' for kind, count in sorted(counts.items()))}; members equal"
    )


def _show(event: Event) -> None:
    say(f"{event.at_s:.0f} s: node {event.node} {event.kind}, whole after {event.whole_after_s} s")


if __name__ == "__main__":
    main()
