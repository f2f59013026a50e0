"""`logstore inspect …`: what lies in a file, without a node."""

from __future__ import annotations

import os.path
import sys
from collections.abc import Iterable

import click
import msgspec

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import json_option
from logstore.cli.output import STDOUT, open_output, write_json
from logstore.cli.stdout_reader import before_exit_status
from logstore.errors import InvalidRequest
from logstore.storage.disk import RealDisk
from logstore.storage.inspect import InspectRow, inspect_meta, inspect_records, inspect_segment
from transport.counters import read_counters
from transport.errors import CountersInvalid

_path = click.argument("path", type=click.Path(exists=True, dir_okay=False))


@click.group("inspect")
def inspect() -> None:
    """Show what lies in a file of a replica's folder. Exit status 5 if it is damaged."""


@inspect.command()
@_path
@json_option
def segment(path: str, json_path: str | None) -> None:
    """The header of a segment file, N.data or N.raft."""
    _show_one(inspect_segment(RealDisk(), path), json_path)


@inspect.command()
@_path
@json_option
def meta(path: str, json_path: str | None) -> None:
    """One of the two META files."""
    _show_one(inspect_meta(RealDisk(), path), json_path)


@inspect.command()
@_path
@json_option
def record(path: str, json_path: str | None) -> None:
    """Every record of N.raft, or every frame of N.data; a JSON object a line."""
    is_damaged = _show_rows(inspect_records(RealDisk(), path), json_path or STDOUT)
    if is_damaged:
        sys.exit(ExitStatus.DAMAGED)


@inspect.command()
@click.argument("path", type=click.Path(dir_okay=False))
@json_option
def counters(path: str, json_path: str | None) -> None:
    """The counters of a running replica."""
    if os.path.islink(path) and not os.path.exists(path):
        raise InvalidRequest(f"{path}: its replica does not run: only a running one has counters")
    try:
        values = read_counters(path)
    except CountersInvalid as error:
        raise InvalidRequest(
            f"{path} is no counters file of a running replica ({error}): name `counters` in the "
            "folder of one"
        ) from error
    if json_path is not None:
        write_json(values, json_path)
    else:
        for name, value in values.items():
            click.echo(f"{name} {value}")


def _show_one(row: InspectRow, json_path: str | None) -> None:
    if json_path is not None:
        write_json(row, json_path)
    else:
        with before_exit_status():
            for name, value in row.items():
                click.echo(f"{name} {value}")
    if row["fault"]:
        sys.exit(ExitStatus.DAMAGED)


def _show_rows(rows: Iterable[InspectRow], path: str) -> bool:
    """Write the rows; whether one of them is damaged."""
    is_damaged = False
    with open_output(path) as output:
        for row in rows:
            is_damaged = is_damaged or bool(row["fault"])
            output.write(msgspec.json.encode(row) + b"\n")
    return is_damaged
