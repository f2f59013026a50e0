"""`logstore serve`: run one replica in the foreground."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from logstore.cli.options import IntegerRange
from logstore.cli.run_replica import run_replica
from logstore.client.endpoint import parse_endpoints
from logstore.config import Config, NodeSettings, load_config

DEFAULT_FOLDER = Path("logstore-data")


@click.command()
@click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="the cluster's TOML file; only [process] may differ between nodes",
)
@click.option("--node", required=True, type=IntegerRange(1), help="which of its nodes this is")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"the data folder [default: {DEFAULT_FOLDER}/node-N]",
)
@click.option(
    "--join",
    "endpoints",
    metavar="HOST:PORT[,…]",
    help="members of the cluster that it joins; one that answers is enough. The config then needs "
    "this node's own [[nodes]] entry only",
)
def serve(config_path: Path, node: int, folder: Path | None, endpoints: str | None) -> None:
    """Run a replica until SIGTERM or SIGINT; leadership is handed over before it ends.

    With --join it forms no cluster: it asks who the members are, for a minute where none answers,
    and joins them once `logstore member add` has reserved its place. It may be given at later
    starts, too; one that formed the cluster goes by the nodes of its file until the log names the
    members.

    Exit status 70: its processes crashed too often; 78: starting it again cannot help, or its data
    folder is gone; 3: no member answers.
    """
    signal.signal(signal.SIGTERM, _leave)  # until the replica takes it: there is nothing to end yet
    folder = folder or DEFAULT_FOLDER / f"node-{node}"
    if endpoints is None:
        sys.exit(run_replica(config_path, node, folder))
    config = load_config(config_path)
    parse_endpoints(endpoints)
    others = _members(endpoints, config, node, folder)
    sys.exit(run_replica(config_path, node, folder, others=others))


def _members(endpoints: str, config: Config, node: int, folder: Path) -> list[NodeSettings] | None:
    from logstore.cli.join import members_to_join  # a client's imports, which no other start needs

    return members_to_join(endpoints, config, node, folder)


def _leave(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)
