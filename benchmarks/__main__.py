"""`python -m benchmarks NAME`: a measurement in, a result file out. `list` says which there are,
`figures` makes a table and plots of raw samples."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.figures import gather_runs, percents, table_of
from benchmarks.measurement import say
from benchmarks.registry import MEASUREMENTS
from logstore.cli.output import write_json
from logstore.errors import InvalidRequest, LogStoreError

EXIT_FAILED = 1
EXIT_USAGE = 2
TABLE = "figures.md"
NUMBERS = "figures.json"


@click.group()
def benchmarks() -> None:
    """Measurements of clusters on this machine, both flushes on."""


for _measurement in MEASUREMENTS:
    benchmarks.add_command(_measurement.command())


@benchmarks.command("list")
def list_() -> None:
    """What is measured, and how long it takes."""
    table = Table("name", "what it answers", "minutes", show_lines=False)
    for measurement in MEASUREMENTS:
        table.add_row(measurement.name, measurement.question, f"{measurement.minutes:g}")
    Console().print(table)


@benchmarks.command("report")
def report() -> None:
    """Write the page of all results that are kept, and README's table and pictures."""
    from benchmarks.charts import svg_of
    from benchmarks.headlines import PICTURES, README, pictures_of, readme_with_figures
    from benchmarks.report import PAGE, page_of

    root = Path()
    PAGE.write_text(page_of(MEASUREMENTS, root), encoding="utf-8")
    README.write_text(
        readme_with_figures(README.read_text(encoding="utf-8"), root), encoding="utf-8"
    )
    PICTURES.mkdir(parents=True, exist_ok=True)
    pictures = pictures_of(root)
    for stem, figure in pictures.items():
        with open(PICTURES / f"{stem}.svg", "wb") as file:
            svg_of(figure, file)
    say(f"wrote {PAGE}, the table in {README}, and {len(pictures)} pictures in {PICTURES}")


@benchmarks.command("figures")
@click.argument(
    "samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    nargs=-1,
    required=True,
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help=f"where {TABLE}, {NUMBERS} and the plots go; those of an earlier call are written anew",
)
def figures(samples: tuple[Path, ...], output: Path) -> None:
    """Make a table and plots of SAMPLES, the .jsonl files that measurements leave."""
    from benchmarks.plots import write_plots

    runs = gather_runs(samples)
    table = table_of(runs)
    output.mkdir(parents=True, exist_ok=True)
    (output / TABLE).write_text(table, encoding="utf-8")
    document = {"percents": percents(), "runs": msgspec.to_builtins(runs)}
    write_json(document, str(output / NUMBERS))
    paths = write_plots(runs, str(output))
    click.echo(table, nl=False)
    say(f"{output} has {TABLE}, {NUMBERS} and {len(paths)} plots")


def main() -> None:
    # So that a benchmark that is terminated removes its data, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        benchmarks(prog_name="python -m benchmarks")
    except InvalidRequest as error:
        say(str(error))
        sys.exit(EXIT_USAGE)
    except LogStoreError as error:
        say(str(error))
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
