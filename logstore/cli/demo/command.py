"""`logstore demo`: arguments in, progress and a table out."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from logstore.cli.demo.report import (
    Report,
    complaints,
    explain_p99,
    render_table,
    verdict,
)
from logstore.cli.demo.run import DemoSettings, Progress, run_demo
from logstore.cli.demo.source import check_files, standard_library
from logstore.cli.exit_status import ExitStatus, exit_status_of
from logstore.cli.options import json_option
from logstore.cli.output import STDOUT, Terminal, say, write_json
from logstore.errors import LogStoreError
from logstore.limits import NODES_MAX

# Below it there is no room for a kill, an election and a restart; above it the digests outgrow
# memory.
SECONDS_MIN, SECONDS_MAX = 2.0, 3_600.0


@click.command("demo")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=click.IntRange(1, NODES_MAX), default=3, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(SECONDS_MIN, SECONDS_MAX), default=15.0, show_default=True
)
@json_option
def demo(files: tuple[Path, ...], replicas: int, seconds: float, json_path: str | None) -> None:
    """Put real text through a log of replicas, kill the leader half way, and compare.

    Each line of FILES (the source text of Python's standard library if none are named) is a
    payload. Two producers append them, a consumer follows each replica. Half way every process of
    the leader's replica is killed; later it is started again. At the end every payload that was
    acknowledged is looked for in what each consumer was given.
    """
    signal.signal(signal.SIGTERM, _exit_on_signal)
    chosen = [path.resolve() for path in files] or standard_library()
    has_lines = check_files(chosen)
    settings = DemoSettings(files=chosen, has_lines=has_lines, replicas=replicas, seconds=seconds)
    console = Terminal(stderr=True)
    if not has_lines:
        console.print("There is no line in the input: the cluster runs, nothing is appended.")
    try:
        with tempfile.TemporaryDirectory(prefix="logstore-demo-") as folder:
            report = _run_with_progress(settings, Path(folder), console)
    except LogStoreError as error:
        say(f"error: {error}")
        say("failed: the demo did not come to its end")
        sys.exit(exit_status_of(error))
    wrong = complaints(report, has_input=has_lines)
    _print(report, json_path)
    for complaint in wrong:
        console.print(f"wrong: {complaint}", style="red", markup=False)
    tell = say if json_path == STDOUT else click.echo
    if has_lines:
        tell(explain_p99(report))
    tell(verdict(report, wrong))
    if wrong:
        sys.exit(ExitStatus.NO)


def _run_with_progress(settings: DemoSettings, folder: Path, console: Terminal) -> Report:
    bar = ProgressBar(
        TextColumn("{task.description:<34}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[acknowledged]:>12,} acknowledged"),
        TextColumn("consumed {task.fields[consumed]}"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=1.0, acknowledged=0, consumed="")
        stages: set[str] = set()

        def show(progress: Progress) -> None:
            if not console.is_terminal and progress.stage not in stages:
                stages.add(progress.stage)
                console.print(f"{progress.stage}: {progress.acknowledged:,} acknowledged")
            _show(bar, task, progress)

        return run_demo(settings, folder, show)


def _show(bar: ProgressBar, task: TaskID, progress: Progress) -> None:
    bar.update(
        task,
        description=progress.stage,
        completed=progress.done,
        acknowledged=progress.acknowledged,
        consumed=" ".join(f"{count:,}" for count in progress.consumed),
    )


def _print(report: Report, json_path: str | None) -> None:
    """The object where it is asked for, the table on a stdout that does not hold the object."""
    if json_path is not None:
        write_json(report, json_path)
    if json_path != STDOUT:
        Terminal().print(render_table(report))


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that the folder and the replicas go."""
    raise SystemExit(128 + number)
