"""This log as one of the systems: three replicas as they ship, the public client.

Owns nothing of how either works.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

import msgspec
import psutil

import logstore
from benchmarks.load import LoadSpec
from benchmarks.peers.line_process import LineProcess, tail_of
from benchmarks.peers.loads import FLUSHED_ON_MAJORITY, LOADS, SINGLES, Way
from benchmarks.peers.peer import System
from benchmarks.peers.servers import NODES
from logstore.cli.embedded import LEADER_TIMEOUT_S, EmbeddedCluster, make_config
from logstore.cli.replica_process import LOG_NAME
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.errors import LogStoreError, Unreachable

CONTENDER = "logstore"


class OurCluster:
    """See `Peer`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster = EmbeddedCluster(folder, make_config(len(NODES), Random(os.urandom(8))))
        self._clients: list[LineProcess] = []
        self._killed_ns = 0

    def start(self, node: int) -> None:
        self._cluster.start(node)

    def wait_first_ack(self) -> int:
        self._cluster.wait_for_leader()
        deadline_ns = seconds_from_now(LEADER_TIMEOUT_S)
        while True:
            try:
                with logstore.connect(self._cluster.endpoints) as log, log.producer() as producer:
                    producer.append(bytes(1_024)).result(timeout=LEADER_TIMEOUT_S)
                    return monotonic_ns()
            except LogStoreError:
                if monotonic_ns() > deadline_ns:
                    raise

    def pids(self) -> list[int]:
        self._cluster.wait_for_leader()  # raises if a replica has ended
        try:
            return [process.pid for process in self._cluster.all_processes().values()]
        except psutil.NoSuchProcess as error:
            raise Unreachable(f"process {error.pid} has ended") from error

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess:
        spec = LoadSpec(
            endpoints=self._cluster.endpoints,
            payload_bytes=way.load.payload_bytes,
            batch=way.load.batch,
            may_pack=True,
            window_bytes=way.load.window_bytes,
            rate=way.load.rate,
            seconds=seconds,
            samples=str(samples),
            parent_pid=os.getpid(),
        )
        return self._client("benchmarks.load", msgspec.json.encode(spec).decode())

    def wait_in_step(self) -> int:
        leader = self._cluster.wait_for_leader()
        newest = self._cluster.visible_lsn(leader)
        for node in NODES:
            self._cluster.wait_until_visible(node, newest)
        return leader

    def begin_probe(self) -> LineProcess:
        return self._client("benchmarks.peers.probe", *self._cluster.endpoints)

    def kill(self, node: int) -> None:
        self._cluster.kill(node)
        self._killed_ns = monotonic_ns()

    def killed_ns(self) -> int:
        return self._killed_ns

    def logs(self) -> str:
        return "\n".join(
            f"-- node {node}: {tail_of(self._cluster.node_folder(node) / LOG_NAME)}"
            for node in NODES
        )

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._cluster.close()

    def _client(self, module: str, *arguments: str) -> LineProcess:
        command = [sys.executable, "-m", module, *arguments]
        self._clients.append(LineProcess(command, self._folder / "client.log"))
        return self._clients[-1]


OURS = System(
    name=CONTENDER,
    ways=tuple(Way(CONTENDER, load, FLUSHED_ON_MAJORITY) for load in LOADS),
    warm_ups=(Way(CONTENDER, SINGLES, FLUSHED_ON_MAJORITY),),
    durability=(FLUSHED_ON_MAJORITY, FLUSHED_ON_MAJORITY),
    find_missing=lambda: "",
    versions=dict,
    open=OurCluster,
)
