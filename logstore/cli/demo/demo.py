"""`logstore demo`: arguments in, progress and a table out.

Owns the words in which the outcome is told.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from logstore.cli.demo.course import DemoSettings, Progress, run_demo
from logstore.cli.demo.input_text import check_files, standard_library
from logstore.cli.demo.outcome import Findings, Report, complaints
from logstore.cli.exit_status import ExitStatus, exit_status_of
from logstore.cli.options import IntegerRange, NumberRange, json_option
from logstore.cli.output import STDOUT, Terminal, say, write_json
from logstore.errors import LogStoreError
from logstore.limits import NODES_MAX

# Below it there is no room for a kill, an election and a restart; above it the digests outgrow
# memory.
SECONDS_MIN, SECONDS_MAX = 2.0, 3_600.0


@click.command("demo")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replicas", type=IntegerRange(1, NODES_MAX), default=3, show_default=True)
@click.option(
    "--seconds", type=NumberRange(SECONDS_MIN, SECONDS_MAX), default=15.0, show_default=True
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


def render_table(report: Report) -> Table:
    """The figures in words, with their units."""
    table = Table(title="logstore demo", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for name, (words, form) in _ROWS.items():
        value = getattr(report, name)
        style = ("red" if value else "green") if name in Findings.__struct_fields__ else None
        table.add_row(words, "did not happen" if value is None else form(value), style=style)
    return table


def explain_p99(report: Report) -> str:
    """Why the slowest hundredth of the appends took as long as it did."""
    over, p99 = report.appends_over_failover_percent, _ms(report.p99_ms)
    window = (
        "each producer keeps its window full, so that an append waits for those before it, while "
        "all replicas, producers and consumers share the processors of this machine"
    )
    # Where the window's own delay is as long, the failover is not what made them slow.
    if over < 1 or report.p99_without_failover_ms >= report.p99_ms:
        return f"p99 is {p99} because {window}"
    return (
        f"p99 is {p99} because {over:.1f} % of the appends were on their way while nobody led; "
        f"without them it is {_ms(report.p99_without_failover_ms)}, because {window}"
    )


def verdict(report: Report, wrong: Sequence[str]) -> str:
    """The last line: passed or failed, and what that means."""
    if wrong:
        return f"failed: {len(wrong)} of the promises did not hold, see above"
    return (
        f"passed: {report.payloads_acknowledged:,} payloads were acknowledged, and every consumer "
        "got each of them once, in order, across the death of the leader"
    )


def _number(value: int) -> str:
    return f"{value:,}"


def _numbers(values: Sequence[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


# Each figure that people are shown, its words, and how its value is written.
_ROWS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "replicas": ("replicas", _number),
    "processes": ("processes of the replicas", _number),
    "payloads_acknowledged": ("acknowledged", lambda value: f"{value:,} payloads"),
    "payloads_consumed": ("consumed, from each replica", _numbers),
    "lost": ("lost", _number),
    "duplicated": ("duplicated", _number),
    "gaps": ("gaps", _number),
    "torn_batches": ("torn batches", _number),
    "order_violations": ("order violations", _number),
    "chains_equal": ("checksums equal on all replicas", lambda value: "yes" if value else "no"),
    "in_flight_at_kill": ("in flight when the leader died", lambda value: f"{value:,} payloads"),
    "failover_ms": ("failover", _ms),
    "restart_ms": ("restart of the killed replica", _ms),
    "payloads_per_s": ("throughput", lambda value: f"{value:,.0f} payloads/s"),
    "mb_per_s": ("throughput", lambda value: f"{value:,.1f} MB/s"),
    "p50_ms": ("append to acknowledgement, median", _ms),
    "p99_ms": ("append to acknowledgement, p99", _ms),
    "p99_without_failover_ms": ("p99 without the failover", _ms),
    "disk_bytes_per_payload_byte": ("written to disk per payload byte", lambda x: f"{x:.2f} bytes"),
}


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that the folder and the replicas go."""
    raise SystemExit(128 + number)
