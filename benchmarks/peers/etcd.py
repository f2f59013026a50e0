"""etcd: three members, puts under keys that are written again, transactions of puts for batches.

Owns how its members are configured, and in which ways it takes the loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.go_client import GoClient
from benchmarks.peers.loads import FLUSHED_ON_MAJORITY, LOADS, SINGLES, SMALL_BATCHES, Way
from benchmarks.peers.peer import Peer, System
from benchmarks.peers.programs import BIN, missing, said_version
from benchmarks.peers.servers import NODES, ServerCluster, free_ports

SERVER, CLIENT = BIN / "etcd", BIN / "etcdload"


def open_etcd(folder: Path) -> Peer:
    """A cluster as it ships, but for the most puts of a transaction."""
    ports, peer_ports = free_ports(), free_ports()
    members = ",".join(
        f"node-{node}=http://127.0.0.1:{port}" for node, port in zip(NODES, peer_ports, strict=True)
    )
    commands = {}
    for node, port, peer_port in zip(NODES, ports, peer_ports, strict=True):
        url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
        settings = {
            "--name": f"node-{node}",
            "--data-dir": folder / f"store-{node}",
            "--listen-client-urls": url,
            "--advertise-client-urls": url,
            "--listen-peer-urls": peer_url,
            "--initial-advertise-peer-urls": peer_url,
            "--initial-cluster": members,
            "--max-txn-ops": SMALL_BATCHES.batch,
            "--log-level": "error",
        }
        commands[node] = [str(SERVER), *(str(each) for pair in settings.items() for each in pair)]
    urls = [f"127.0.0.1:{port}" for port in ports]
    return ServerCluster(folder, commands, GoClient(CLIENT, urls, folder / "client.log"))


def _contender(batch: int) -> str:
    return "etcd, transactions" if batch > 1 else "etcd"


def _versions() -> Mapping[str, str]:
    return {"etcd": said_version(str(SERVER), "--version")}


ETCD = System(
    name="etcd",
    ways=tuple(Way(_contender(load.batch), load, FLUSHED_ON_MAJORITY) for load in LOADS),
    warm_ups=(Way(_contender(SINGLES.batch), SINGLES, FLUSHED_ON_MAJORITY),),
    durability=(FLUSHED_ON_MAJORITY, FLUSHED_ON_MAJORITY),
    find_missing=lambda: missing("etcd", SERVER.name, CLIENT.name),
    versions=_versions,
    open=open_etcd,
)
