"""`make mutants`: hunts every mutant that a seed can show, two at a time; publishes the table."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from actors.simulation.code_name import code_name
from tests.mutants.catalogue import CATALOGUE, mutant_named
from tests.mutants.hunt import MODULE, PRODUCT_ITSELF, Hunt
from tests.mutants.mutant import Mutant
from tests.mutants.report import Report, Row, markdown, report_of, row_of
from tests.tidy import promises

SIDE_BY_SIDE = 2
# At 1.4 CPU s a seed: as many seeds as 60 s bought before the real client was in the simulator.
SECONDS_MAX = 110.0
MINUTES_MAX = 600.0
RESULT = "benchmarks/results/mutants.json"
_PRODUCT = Mutant(PRODUCT_ITSELF, "", "the product as it is", ())


def main() -> int:
    """Exit status 0: every mutant was found, and the product itself did not fail."""
    arguments = _arguments()
    names = arguments.only.split(",") if arguments.only else []
    wanted = [mutant_named(name) for name in names]
    skipped = [] if names else [each for each in CATALOGUE if each.unreachable]
    wanted = wanted or [each for each in CATALOGUE if not each.unreachable]
    first = arguments.first.split(",")
    wanted.sort(key=lambda each: first.index(each.name) if each.name in first else len(first))
    rows = _hunt_all(wanted, arguments.seconds_max, arguments.minutes_max)
    places = {each.name: place for place, each in enumerate(CATALOGUE)}
    rows.sort(key=lambda row: places[row.name])
    seeds = max((row.seeds for row in rows), default=1)
    product = hunt_apart(_PRODUCT, seconds_max=arguments.seconds_max, seeds_max=seeds)
    report = report_of(
        rows, product, skipped, commit=code_name(), cpu_seconds_max=arguments.seconds_max
    )
    if arguments.json or not names:
        _publish(report, Path(arguments.json or RESULT))
    print(
        f"{report.killed} of {report.total} found, median {report.cpu_s_median} s, "
        f"most {report.cpu_s_max} s; without a mutant: {product.caught or 'silent'}"
    )
    return 0 if report.is_good else 1


def hunt_apart(mutant: Mutant, *, seconds_max: float, seeds_max: int | None = None) -> Row:
    """Hunt in a process of its own."""
    command = [sys.executable, "-m", MODULE, mutant.name, str(seconds_max)]
    if seeds_max is not None:
        command.append(str(seeds_max))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    found = msgspec.json.decode(lines[-1], type=Hunt) if lines else Hunt(0, 0.0)
    failure = ""
    if not found.is_over:
        last_words = done.stderr.strip().splitlines()[-1:] or ["no word"]
        failure = f"seed {found.seeds} ended with status {done.returncode}: {last_words[0]}"
    return row_of(mutant, found, failure)


def _hunt_in_time(mutant: Mutant, *, seconds_max: float, end_s: float) -> Row:
    """After `end_s` no hunt begins: its row says so."""
    if time.monotonic() >= end_s:
        return row_of(mutant, Hunt(0, 0.0), "no time was left to hunt it")
    return hunt_apart(mutant, seconds_max=seconds_max)


def _hunt_all(wanted: Sequence[Mutant], seconds_max: float, minutes_max: float) -> list[Row]:
    rows = []
    end_s = time.monotonic() + 60 * minutes_max
    hunt = partial(_hunt_in_time, seconds_max=seconds_max, end_s=end_s)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for row in pool.map(hunt, wanted):
            verdict = row.caught or f"NOT FOUND {row.failure}"
            print(f"{row.name:48} {row.seeds:4} {row.cpu_s:6.1f}  {verdict[:110]}", flush=True)
            rows.append(row)
    return rows


def _publish(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    path.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
    if path == Path(RESULT):
        promises.write()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutants by name, joined by commas")
    parser.add_argument(
        "--seconds-max", type=float, default=SECONDS_MAX, help="CPU seconds a mutant may take"
    )
    parser.add_argument("--first", default="", help="names to begin with, joined by commas")
    parser.add_argument(
        "--minutes-max", type=float, default=MINUTES_MAX, help="begin no hunt after so long"
    )
    parser.add_argument(
        "--json", default="", help=f"where to write; the table beside it (default {RESULT})"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
