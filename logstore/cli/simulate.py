"""`logstore simulate`: seeds of the simulator in, a table of what they met and broke out.

Owns the arguments, what is said while seeds run, and what follows from a seed that failed. Must not
know how a seed is run (`actors.simulation.run`) nor how many are (`actors.simulation.many`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from actors.simulation.code_name import code_name
from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import FaultClass, Script
from actors.simulation.many import RUNNER, RunOptions, code_loaded, run_many, run_one
from actors.simulation.result import SeedResult, Totals
from actors.simulation.shrink import shrink
from logstore.cli.exit_status import ExitStatus
from logstore.cli.interrupts import Interrupts
from logstore.cli.options import IntegerRange, NumberRange, json_option
from logstore.cli.output import STDOUT, Terminal, say, write_json
from logstore.cli.simulate_report import (
    first_of_each_kind,
    is_same_failure,
    must_reach_missing,
    print_tables,
    replay_line,
)
from logstore.cli.stdout_reader import before_exit_status
from logstore.errors import InvalidRequest

SEEDS_DEFAULT = 100
JOBS_MAX = 256
SHRINK_S = 60.0
# Without a terminal, a line now and then shows progress.
SAY_EVERY_S = 60.0


def _fault_classes(
    context: click.Context,
    option: click.Parameter,
    value: str | None,
) -> tuple[FaultClass, ...] | None:
    """Classes of faults, joined by commas."""
    if value is None:
        return None
    words = [word.strip() for word in value.split(",") if word.strip()]
    known = [each.value for each in FaultClass]
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        wrong = ", ".join(unknown) or "nothing"
        raise click.BadParameter(f"{wrong}: write some of {', '.join(known)}", context, option)
    return tuple(each for each in FaultClass if each.value in words)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


@click.command("simulate")
@click.option("--first-seed", type=IntegerRange(0), default=1, show_default=True)
@click.option("--seeds", type=IntegerRange(1), help=f"how many; {SEEDS_DEFAULT} if not said")
@click.option("--minutes", type=NumberRange(0, min_open=True), help="as many as this takes")
@click.option(
    "--jobs",
    type=IntegerRange(1, JOBS_MAX),
    default=_processors,
    show_default="processors",
    help="processes",
)
@click.option("--replicas", type=click.Choice(["3", "5"]), help="drawn by the seed if not said")
@click.option(
    "--faults",
    "classes",
    metavar="CLASS,…",
    callback=_fault_classes,
    help=f"all of these; drawn by the seed if not said; classes: {', '.join(FaultClass)}",
)
@click.option("--replay", type=IntegerRange(0), metavar="SEED", help="run this one only, here")
@click.option(
    "--script",
    "script_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="replay the script in this file",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="write every event of the replay there, as text",
)
@click.option(
    "--shrink/--no-shrink",
    "is_shrinking",
    default=None,
    help="look up to a minute for the smallest script that fails alike; on without --replay",
)
@json_option
def simulate(
    first_seed: int,
    seeds: int | None,
    minutes: float | None,
    jobs: int,
    replicas: str | None,
    classes: tuple[FaultClass, ...] | None,
    replay: int | None,
    script_path: Path | None,
    trace_path: Path | None,
    is_shrinking: bool | None,
    json_path: str | None,
) -> None:
    """Run clusters in a simulated world and check every promise.

    Each seed is a cluster with clients and up to a minute of faults, all drawn from the seed: the
    same seed is the same run. Exit status 1 if a promise was broken, or if 10,000 seeds or more
    never met one of the situations that they must meet.
    """
    run_options = RunOptions(None if replicas is None else int(replicas), classes, RUNNER)
    is_replay = replay is not None or script_path is not None
    _check_usage(is_replay=is_replay, seeds=seeds, minutes=minutes, trace_path=trace_path)
    totals = Totals(commit=code_name())
    failed: list[tuple[SeedResult, Script | None]] = []
    started_s = time.monotonic()
    try:
        if is_replay:
            _replay(run_options, replay, script_path, trace_path, totals, failed)
        else:
            if seeds is None and minutes is None:
                seeds = SEEDS_DEFAULT
            seconds = None if minutes is None else minutes * 60
            watcher = _Watcher(run_options, totals, failed, seeds=seeds, seconds=seconds)
            # A signal that struck inside the pool or the bar would leave their locks half taken.
            with watcher, Interrupts() as interrupts:
                run_many(
                    run_options, first_seed, seeds=seeds, seconds=seconds, jobs=jobs,
                    on_result=watcher.take, look=interrupts.look,
                )  # fmt: skip
    finally:
        totals.wall_s = time.monotonic() - started_s
        if totals.seeds or not is_replay:  # a script or a trace file that is refused runs nothing
            _print(totals, json_path, jobs=1 if is_replay else jobs)
    if is_shrinking or (is_shrinking is None and not is_replay):
        for result, script in first_of_each_kind(failed):
            _shrink(run_options, result, script, trace_path)
    missing = must_reach_missing(totals, is_limited=classes is not None)
    for each in missing:
        say(f"wrong: never met: {each.name}, {each.value}")
    if failed or missing:
        sys.exit(ExitStatus.NO)


def _check_usage(
    *, is_replay: bool, seeds: int | None, minutes: float | None, trace_path: Path | None
) -> None:
    if seeds is not None and minutes is not None:
        raise click.UsageError("--seeds or --minutes, not both")
    if is_replay and (seeds is not None or minutes is not None):
        raise click.UsageError("a replay is one seed: leave --seeds and --minutes out")
    if trace_path is not None and not is_replay:
        raise click.UsageError("--trace goes with --replay SEED or --script FILE")


class _Watcher:
    """Adds results up, and says how far it is: a bar on a terminal, else a line a minute."""

    def __init__(
        self,
        run_options: RunOptions,
        totals: Totals,
        failed: list[tuple[SeedResult, Script | None]],
        *,
        seeds: int | None,
        seconds: float | None,
    ) -> None:
        self._run_options = run_options
        self._totals = totals
        self._failed = failed
        self._seconds = seconds
        self._started_s = self._said_s = time.monotonic()
        self._console = Terminal(stderr=True)
        self._bar = Progress(
            TextColumn("{task.fields[words]:<60}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=seeds or seconds, words="loading")

    def __enter__(self) -> _Watcher:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def take(self, result: SeedResult) -> None:
        totals = self._totals
        totals.add(result)
        if result.has_failed:
            self._failed.append((result, None))
            line = replay_line(self._run_options, result)
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        words = (
            f"{totals.seeds:,} seeds, {totals.simulated_s:,.0f} simulated s, "
            f"{len(self._failed):,} failed"
        )
        now_s = time.monotonic()
        done = now_s - self._started_s if self._seconds is not None else totals.seeds
        self._bar.update(self._task, completed=done, words=words)
        if not self._console.is_terminal and now_s - self._said_s >= SAY_EVERY_S:
            self._said_s = now_s
            say(words)


def _replay(
    run_options: RunOptions,
    seed: int | None,
    script_path: Path | None,
    trace_path: Path | None,
    totals: Totals,
    failed: list[tuple[SeedResult, Script | None]],
) -> None:
    """One seed, or one script, in this process, with its trace."""
    script = None if script_path is None else _read_script(script_path)
    if script is not None:
        seed = script.seed if seed is None else seed
    with ExitStack() as stack:
        trace: Callable[[str], None] | None = None
        if trace_path is not None:
            file = stack.enter_context(trace_path.open("w", encoding="utf-8"))
            trace = _line_writer(file.write)
        result = run_one(run_options, seed or 0, script=script, trace=trace)
    totals.add(result)
    say(f"seed {result.seed}: event hash {result.event_hash or 'none'}")
    for violation in result.violations:
        say(f"{violation.at_ns / 1e9:.6f} s {violation.invariant}: {violation.text}")
    if result.error:
        say(result.error)
    if result.has_failed:
        failed.append((result, script))
        say(replay_line(run_options, result, script_path))


def _line_writer(write: Callable[[str], int]) -> Callable[[str], None]:
    def write_line(text: str) -> None:
        write(text + "\n")

    return write_line


def _read_script(path: Path) -> Script:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Script)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{path} holds no script: {error}") from error


def _shrink(
    run_options: RunOptions, result: SeedResult, script: Script | None, trace_path: Path | None
) -> None:
    """Look for the smallest script that fails in the same way, and write it to a file."""
    seed = result.seed
    if script is None:
        script = draw_script(seed, replicas=run_options.replicas, classes=run_options.classes)
    say(f"seed {seed}: shrinking {len(script.faults)} faults, up to {SHRINK_S:.0f} s")
    end_s = time.monotonic() + SHRINK_S

    def fails(candidate: Script) -> bool:
        return is_same_failure(result, run_one(run_options, seed, script=candidate))

    with code_loaded(run_options):
        smallest = shrink(script, fails, deadline=lambda: time.monotonic() >= end_s)
    path = Path(f"simulate-{seed}.script.json")
    if trace_path is not None:
        path = trace_path.with_name(f"{trace_path.name}.script.json")
    write_json(smallest, str(path))
    say(f"seed {seed}: {len(smallest.faults)} faults: logstore simulate --script {path}")


def _print(totals: Totals, json_path: str | None, *, jobs: int) -> None:
    """The object where it is asked for, the tables on a stdout that does not hold the object."""
    totals = totals.in_order()
    if json_path is not None:
        write_json(totals, json_path)
    if json_path != STDOUT:
        with before_exit_status():
            print_tables(Terminal(), totals, jobs=jobs)
