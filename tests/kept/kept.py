"""What commit 5f87717 wrote, kept as it was: folders of replicas, a lake, and what they hold.

Owns the archives beside this file and where a test unpacks them. A format may get a newer form;
what an older commit wrote opens for ever.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from random import Random

import msgspec

from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.free_ports import find_free_ports
from logstore.config import load_config

HERE = Path(__file__).parent
CLUSTER = "cluster-of-three"
BOUND = "sequence-at-the-bound"
LAKE = "lake"


class Acknowledged(msgspec.Struct, frozen=True):
    """The newest batch of the session `query-7`, a monotone one of three payloads a batch."""

    sequence: int
    first_lsn: int
    last_lsn: int


class Kept(msgspec.Struct, frozen=True, rename={"query_7": "query-7"}):
    """What the cluster held when it was stopped; `digest` is that of LSNs 1 to `last_lsn`."""

    last_lsn: int
    payloads: int
    batches: int
    digest: str
    query_7: Acknowledged
    cursors: dict[str, int]


def what_was_kept() -> Kept:
    return msgspec.json.decode((HERE / "kept.json").read_bytes(), type=Kept)


def unpack(name: str, folder: Path) -> Path:
    """The archive's content in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def kept_cluster(name: str, folder: Path) -> EmbeddedCluster:
    """The replicas of the archive, not started yet, as they were configured but for their ports."""
    config = load_config(unpack(name, folder) / "cluster.toml")
    ports = find_free_ports(len(config.nodes), Random())
    nodes = [
        msgspec.structs.replace(node, port=port)
        for node, port in zip(config.nodes, ports, strict=True)
    ]
    return EmbeddedCluster(folder, msgspec.structs.replace(config, nodes=nodes))
