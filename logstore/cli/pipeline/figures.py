"""`logstore pipeline figures`: the benchmarks' raw samples as tables and plots."""

from __future__ import annotations

import os

import click
import msgspec

from logstore.cli.output import say, write_json
from logstore.cli.pipeline.session import spark_options, spark_session
from logstore.spark.figures import check_names, gather_runs, percents, table_of
from logstore.spark.plots import write_plots

TABLE = "figures.md"
NUMBERS = "figures.json"


@click.command()
@click.argument(
    "samples",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    nargs=-1,
    required=True,
)
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    required=True,
    metavar="FOLDER",
    help=f"where {TABLE}, {NUMBERS} and the plots go; those of an earlier call are written anew",
)
@spark_options
def figures(samples: tuple[str, ...], output: str, master: str, conf: tuple[str, ...]) -> None:
    """Make a table and plots of SAMPLES, the .jsonl files that the benchmarks leave."""
    check_names(samples)
    with spark_session("figures", master, conf) as spark:
        runs = gather_runs(spark(), samples)
    os.makedirs(output, exist_ok=True)
    table = table_of(runs)
    with open(os.path.join(output, TABLE), "w", encoding="utf-8") as file:
        file.write(table)
    document = {"percents": percents(), "runs": msgspec.to_builtins(runs)}
    write_json(document, os.path.join(output, NUMBERS))
    paths = write_plots(runs, output)
    click.echo(table, nl=False)
    say(f"{output} has {TABLE}, {NUMBERS} and {len(paths)} plots")
