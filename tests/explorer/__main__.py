"""`python -m tests.explorer`: explore within a bound. Exit status 1: a promise is broken."""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import get_args

import click
import msgspec

from actors.simulation.code_name import code_name
from logstore.raft.raft_config import StreamMode
from tests.explorer.bound import Bound, FirstChange
from tests.explorer.report import Measured, lines_of
from tests.explorer.search import Explorer


@click.command()
@click.option("--terms", default=2, show_default=True, type=click.IntRange(1, 9))
@click.option("--entries", default=2, show_default=True, type=click.IntRange(1, 9))
@click.option("--crashes", default=1, show_default=True, type=click.IntRange(0, 3), help="Each.")
@click.option("--streams", default=2, show_default=True, type=click.IntRange(1, 9))
@click.option("--stream-mode", default="streaming", type=click.Choice(get_args(StreamMode)))
@click.option(
    "--changes", default=0, show_default=True, type=click.IntRange(0, 3), help="Of the members."
)
@click.option(
    "--change",
    default="promote",
    show_default=True,
    type=click.Choice(get_args(FirstChange)),
    help="The first of them.",
)
@click.option("--minutes", default=10.0, show_default=True, help="Stop after so long.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Add figures here.")
def main(
    *,
    terms: int,
    entries: int,
    crashes: int,
    streams: int,
    stream_mode: StreamMode,
    changes: int,
    change: FirstChange,
    minutes: float,
    json_file: Path | None,
) -> None:
    """Every schedule of three consensus cores within a bound, breadth first."""
    gc.disable()  # millions of objects, and no cycles
    bound = Bound(terms, entries, crashes, streams, stream_mode, changes, change)
    explorer = Explorer(bound)
    begun_ns = time.monotonic_ns()
    end_ns = begun_ns + int(minutes * 60_000_000_000)
    outcome = explorer.run(lambda: time.monotonic_ns() >= end_ns)
    elapsed_ns, cpu_ns = time.monotonic_ns() - begun_ns, time.process_time_ns()
    measured = Measured.of(outcome, elapsed_ns=elapsed_ns, cpu_ns=cpu_ns)
    for line in lines_of(measured):
        click.echo(line)
    if json_file is not None:
        _publish({"commit": code_name(), **measured.document()}, json_file)
    sys.exit(outcome.violation is not None)


def _bound_of(row: dict[str, object]) -> tuple[object, ...]:
    """Rows of before changes of members were explored do not say that there were none."""
    return msgspec.structs.astuple(msgspec.convert(row, Bound))


def _publish(row: dict[str, object], file: Path) -> None:
    """One row per bound; a new row replaces the old one of its bound."""
    rows = msgspec.json.decode(file.read_bytes())["rows"] if file.exists() else []
    rows = [each for each in rows if _bound_of(each) != _bound_of(row)]
    rows = sorted([*rows, row], key=_bound_of)
    text = msgspec.json.format(msgspec.json.encode({"rows": rows}), indent=2)
    file.write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
