"""`logstore reset`: moves the data folder of a replica that must not go on aside (SAFETY L6)."""

from __future__ import annotations

from pathlib import Path

import click

from logstore.cli.cluster import DEFAULT_FOLDER as CLUSTER_FOLDER
from logstore.cli.options import IntegerRange, json_option
from logstore.cli.output import say, write_json
from logstore.cli.serve import DEFAULT_FOLDER as SERVE_FOLDER
from logstore.cli.stopped_folder import has_log, move_aside, node_of, stopped
from logstore.errors import FolderRefused, InvalidRequest


@click.command()
@click.option("--node", required=True, type=IntegerRange(1), help="which node's replica it is")
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="its data folder, or the folder of the cluster that has it "
    f"[default: {SERVE_FOLDER}/node-N or {CLUSTER_FOLDER}/node-N, whichever is there]",
)
@json_option
def reset(node: int, folder: Path | None, json_path: str | None) -> None:
    """Move the data folder of a stopped replica aside, that it may start with an empty one. For a
    replica that must not go on with what it has: META lost, damage that it cannot pass.

    The folder is renamed, with the time in its name, and nothing is deleted: until the node is
    started again, renaming it back undoes it. While other replicas of its cluster are left, the new
    one asks them for a place, and takes no part before it has one.
    """
    found = _data_folder(node, folder)
    with stopped(found):
        _check(found, node)
        aside = move_aside(found)
    if json_path is not None:
        write_json({"node": node, "folder": str(found), "aside": str(aside)}, json_path)
        return
    say(f"{found} is {aside} now; nothing is deleted")
    say(
        f"started again, node {node} begins with an empty folder. While others of its cluster have "
        "theirs, it asks them for a place, and it takes no part before it has one: `logstore "
        "status` says why. If all folders of the cluster are moved aside, a new cluster can be "
        "formed"
    )


def _data_folder(node: int, given: Path | None) -> Path:
    """Raises: InvalidRequest: there is none, or which one is meant is not clear."""
    name = f"node-{node}"
    if given is not None:
        found = given / name if (given / name).is_dir() else given
        if found == given and (nodes := _nodes_of(given)):
            has = ", ".join(map(str, nodes))
            raise InvalidRequest(f"the cluster in {given} has no node {node}: it has {has}")
        if not found.is_dir():
            raise InvalidRequest(f"{found} is no folder: name the replica's data folder")
        return found.absolute()
    there = [parent / name for parent in (SERVE_FOLDER, CLUSTER_FOLDER) if (parent / name).is_dir()]
    if not there:
        raise InvalidRequest(
            f"there is neither {SERVE_FOLDER / name} nor {CLUSTER_FOLDER / name} here: name the "
            "replica's data folder with --dir"
        )
    if len(there) > 1:
        raise InvalidRequest(f"there are {there[0]} and {there[1]}: name one of them with --dir")
    return there[0].absolute()


def _nodes_of(folder: Path) -> list[int]:
    """Whose data folders are in it: none, unless it is the folder of a cluster."""
    names = [path.name.removeprefix("node-") for path in folder.glob("node-*") if path.is_dir()]
    return sorted(int(name) for name in names if name.isdecimal())


def _check(folder: Path, node: int) -> None:
    if not has_log(folder):
        raise InvalidRequest(
            f"nothing of a replica is in {folder}: there is nothing to move, start node {node}"
        )
    if folder.is_symlink():
        target = folder.resolve()
        raise FolderRefused(
            f"{folder} is a symbolic link to {target}: renamed, it would leave the next start to "
            f"make a folder beside it, perhaps on another disk. Rename {target} yourself, make an "
            "empty folder in its place, and start the node"
        )
    found = node_of(folder)
    if found not in (0, node):
        raise FolderRefused(
            f"{folder} is node {found}'s, not node {node}'s: check --node and --dir"
        )
