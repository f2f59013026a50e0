"""`python -m tests.spark.chaos`: random kills across a stream in and out, from a seed.

Exit status 1 if a row is missing, doubled or elsewhere.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from random import Random

import click
import msgspec
from rich.progress import MofNCompleteColumn, TimeElapsedColumn

from actors.simulation.code_name import code_name
from benchmarks.environment import describe_environment
from benchmarks.results import Result
from logstore.cli.output import Bar, say, write_json
from tests.spark.chaos.plan import draw_kills
from tests.spark.chaos.run import Chaos, Outcome
from tests.spark.standalone import StandaloneSpark

SAY_EACH = 10  # kills, where nobody watches a bar


@click.command()
@click.option("--kills", default=200, show_default=True, type=click.IntRange(0))
@click.option("--rows", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=1, show_default=True)
@click.option("--dir", "parent", type=click.Path(exists=True, file_okay=False), help="on a disk")
@click.option("--json", "json_path", default="-", show_default=True, help="what came of it")
def main(kills: int, rows: int, seed: int, parent: str | None, json_path: str) -> None:
    """Kill drivers, executors and leaders while a stream goes from one cluster to another."""
    planned = draw_kills(kills, rows=rows, random=Random(seed))
    folder = Path(tempfile.mkdtemp(dir=parent, prefix="chaos-"))
    said = 0
    with Bar("rows", rows, (MofNCompleteColumn(), TimeElapsedColumn())) as bar:

        def show(copied: int, done: int) -> None:
            nonlocal said
            bar.set(copied)
            if done >= said + SAY_EACH:
                said = done
                say(f"{done} of {kills} kills, {copied} of {rows} rows")

        say(f"seed {seed}; logs and data in {folder}, removed if nothing is found")
        with StandaloneSpark(folder) as spark:
            run = Chaos(folder, spark, seed=seed, rows=rows, kills=planned, show=show)
            outcome = run.run()
        environment = describe_environment(folder) | {"pyspark": version("pyspark")}
    if not outcome.violations and not outcome.failures:
        shutil.rmtree(folder)
    summary = msgspec.to_builtins(outcome)
    killed = summary.pop("killed")
    kinds = Counter(each.kind for each in outcome.killed)
    summary = {"seed": seed, "kills": dict(kinds)} | summary
    result = Result("chaos-spark", environment, code_name(), killed, summary)
    write_json(result, json_path)
    say(_words(outcome))
    sys.exit(1 if outcome.violations else 0)


def _words(outcome: Outcome) -> str:
    return (
        f"{len(outcome.killed)} kills, {outcome.drivers} drivers, {outcome.replays} "
        f"replays, {outcome.target.rows} rows in {outcome.wall_s} s: "
        f"{len(outcome.violations)} violations"
    )


if __name__ == "__main__":
    main()
