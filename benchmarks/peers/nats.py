"""NATS JetStream: a stream of three replicas in files, `sync_interval` as it ships or `always`.

Owns how its servers are configured, and in which ways it takes the loads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.peers.go_client import GoClient
from benchmarks.peers.loads import (
    CACHED_ON_MAJORITY,
    FLUSHED_ON_MAJORITY,
    LOADS,
    SINGLES,
    Way,
)
from benchmarks.peers.peer import Peer, System
from benchmarks.peers.programs import (
    BIN,
    INPUTS,
    filled,
    missing,
    pinned_version,
    said_version,
)
from benchmarks.peers.servers import NODES, ServerCluster, free_ports

SERVER, CLIENT = BIN / "nats-server", BIN / "natsload"


def open_nats(folder: Path, sync: str) -> Peer:
    """A cluster; `sync` is the line of its configuration about flushing, "" as it ships."""
    ports, route_ports = free_ports(), free_ports()
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in route_ports)
    commands = {}
    for node, port, route_port in zip(NODES, ports, route_ports, strict=True):
        values = {
            "NODE": node,
            "PORT": port,
            "ROUTE_PORT": route_port,
            "ROUTES": routes,
            "STORE": folder / f"store-{node}",
            "SYNC": sync,
        }
        config = folder / f"node-{node}.conf"
        config.write_text(filled(INPUTS / "nats" / "server.conf", values), encoding="utf-8")
        commands[node] = [str(SERVER), "-c", str(config)]
    urls = [f"nats://127.0.0.1:{port}" for port in ports]
    return ServerCluster(folder, commands, GoClient(CLIENT, urls, folder / "client.log"))


def _ways(contender: str, durability: str) -> Iterator[Way]:
    for load in LOADS:
        yield Way(f"{contender}, atomic" if load.batch > 1 else contender, load, durability)
    yield Way(f"{contender}, Msg-Id", SINGLES, durability, ("-msgid",))


def _versions() -> Mapping[str, str]:
    return {
        "nats-server": said_version(str(SERVER), "--version"),
        "nats.go": pinned_version("nats", "github.com/nats-io/nats.go"),
    }


def _system(name: str, contender: str, durability: str, sync: str) -> System:
    return System(
        name=name,
        ways=tuple(_ways(contender, durability)),
        warm_ups=(Way(contender, SINGLES, durability),),
        durability=(durability, durability),
        find_missing=lambda: missing("nats", SERVER.name, CLIENT.name),
        versions=_versions,
        open=lambda folder: open_nats(folder, sync),
    )


NATS = _system("nats", "NATS", CACHED_ON_MAJORITY, "")
NATS_ALWAYS = _system(
    "nats-always", "NATS sync always", FLUSHED_ON_MAJORITY, "sync_interval: always"
)
