"""`logstore serve`: run one replica in the foreground."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from logstore.cli.run_replica import run_replica

DEFAULT_FOLDER = Path("logstore-data")


@click.command()
@click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="the cluster's TOML file; only [process] may differ between nodes",
)
@click.option("--node", required=True, type=click.IntRange(1), help="which of its nodes this is")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"the data folder [default: {DEFAULT_FOLDER}/node-N]",
)
def serve(config_path: Path, node: int, folder: Path | None) -> None:
    """Run a replica until SIGTERM or SIGINT; leadership is handed over before it ends.

    Exit status 70: its processes crashed too often; 78: starting it again cannot help.
    """
    signal.signal(signal.SIGTERM, _leave)  # until the replica takes it: there is nothing to end yet
    sys.exit(run_replica(config_path, node, folder or DEFAULT_FOLDER / f"node-{node}"))


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
