"""A quick cluster whose members change: machines that are added, disks that are lost, and what its
leader says of it all."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import logstore
from logstore import Members, ProducerOptions
from logstore.cli.embedded import make_config, poll_until
from logstore.cli.free_ports import find_free_ports
from logstore.format.level import CONFIG_LEVEL
from logstore.settings import NodeSettings
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster, quick_config

PATIENCE_S = 90.0
PACE_S = 0.002


def growing_config(replicas: int) -> Any:
    nodes = make_config(replicas, Random()).nodes
    return msgspec.structs.replace(quick_config(ring="auto"), nodes=nodes)


class GrowingCluster(QuickCluster):
    """Its configuration file names each machine that was ever added."""

    def begin(self) -> None:
        """Start the founders, and raise the log until it has its first configuration."""
        self.start_all()
        self.wait_for_leader(RECOVERY_TIMEOUT_S)
        with self.connect() as log:
            for level in range(2, CONFIG_LEVEL + 1):
                log.admin.raise_level(level)
        self.wait_for(lambda members: members.id > 0 and members.is_committed)

    def connect(self) -> logstore.LogClient:
        return logstore.connect(self.endpoints, timeout=PATIENCE_S)

    def add_machine(self) -> int:
        """A machine with an empty folder, which is in the configuration file from now on."""
        number = max(self.nodes) + 1
        (port,) = find_free_ports(1, Random())
        nodes = [*self.config.nodes, NodeSettings(node=number, port=port)]
        self.name_nodes(msgspec.structs.replace(self.config, nodes=nodes))
        return number

    def address(self, node: int) -> tuple[str, int]:
        settings = self.config.node(node)
        return settings.host, settings.port

    def join(self, node: int) -> None:
        """Reserve a place, start the replica, and make it a voter once it has caught up."""
        with self.connect() as log:
            log.admin.add_member(node, *self.address(node))
        self.start(node)
        self.wait_for_role(node, "learner")
        with self.connect() as log:
            log.admin.promote_member(node)

    def lose_disk(self, node: int) -> None:
        """Kill it, and start it again on an empty folder."""
        self.kill(node)
        shutil.rmtree(self.node_folder(node))
        self.start(node)

    def members(self) -> Members:
        with self.connect() as log:
            return log.admin.members()

    def role(self, node: int) -> str:
        member = self.members().member(node)
        return "" if member is None else member.role

    def wait_for(self, is_so: Callable[[Members], bool]) -> Members:
        found = self.members()

        def look() -> bool:
            nonlocal found
            found = self.members()
            return is_so(found)

        assert poll_until(look, PATIENCE_S), f"{found}\n{self.said()}"
        return found

    def wait_for_role(self, node: int, role: str) -> Members:
        def has_role(found: Members) -> bool:
            member = found.member(node)
            return role == ("" if member is None else member.role)

        return self.wait_for(has_role)


@contextmanager
def growing_cluster(folder: Path, replicas: int) -> Iterator[GrowingCluster]:
    with GrowingCluster(folder, growing_config(replicas)) as cluster:
        cluster.begin()
        yield cluster


class Load:
    """A producer that appends one payload after the other in a thread, several in flight."""

    def __init__(self, cluster: GrowingCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.appended = 0
        self.lsns: list[int] = []
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            options = ProducerOptions(append_timeout_s=PATIENCE_S, delivery_timeout_s=PATIENCE_S)
            with self._cluster.connect() as log, log.producer(options) as producer:
                futures = []
                while not self._stop.wait(PACE_S):
                    futures.append(producer.append(b"%d" % self.appended))
                    self.appended += 1
                producer.flush(PATIENCE_S)
                self.lsns = [future.result(PATIENCE_S).first for future in futures]
        except BaseException as error:
            self.error = error
            raise

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE_S)

    def more(self, payloads: int = 300) -> None:
        """Wait until so many more were appended."""
        until = self.appended + payloads
        assert poll_until(lambda: self.appended >= until or self.error is not None, PATIENCE_S)

    def check(self) -> None:
        """No append failed, and the log has each payload once, in order."""
        assert self.error is None, self.error
        assert len(self.lsns) == self.appended > 0
        assert self.lsns == sorted(set(self.lsns))
        with self._cluster.connect() as log:
            batches = log.read(self.lsns[0], self.lsns[-1])
            found = [int(payload) for batch in batches for payload in batch.payloads()]
        assert found == list(range(self.appended))
