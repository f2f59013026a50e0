"""A quick cluster whose members change: machines that are added, disks that are lost, and what its
leader says of it all."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

import logstore
from logstore import Members, ProducerOptions
from logstore.cli.embedded import make_config, poll_until
from logstore.cli.free_ports import find_free_ports
from logstore.cli.replica_process import start_replica
from logstore.client.admin import Admin
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.config import Config, render_config
from logstore.errors import OutcomeUnknown
from logstore.format.level import CONFIG_LEVEL
from logstore.settings import NodeSettings
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster, quick_config

PATIENCE_S = 90.0
PACE_S = 0.002
DIGITS = 18  # of a payload's number; before it are zeros


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
        named = {each.port for each in self.config.nodes}  # of machines that are off, too
        port = next(each for each in find_free_ports(len(named) + 1, Random()) if each not in named)
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

    def start_with(self, node: int, config: Config) -> None:
        """Start it with another configuration file than the others have."""
        path = self.folder / f"node-{node}.toml"
        path.write_text(render_config(config), encoding="utf-8")
        process = start_replica(path, node, self.node_folder(node), dies_with_us=True)
        self._running[node] = process
        self.sessions.add(process.pid)

    def lose_disk(self, node: int) -> None:
        """Kill it, and start it again on an empty folder."""
        self.kill(node)
        shutil.rmtree(self.node_folder(node))
        self.start(node)

    def empty(self, node: int) -> None:
        """Kill it, if it runs, and remove its folder."""
        if self.is_running(node):
            self.kill(node)
        shutil.rmtree(self.node_folder(node), ignore_errors=True)

    def retire(self, node: int) -> None:
        """A machine that is no member goes, and its line in the configuration file."""
        self.empty(node)
        nodes = [each for each in self.config.nodes if each.node != node]
        self.name_nodes(msgspec.structs.replace(self.config, nodes=nodes))

    def change(self, ask: Callable[[Admin], None]) -> None:
        """Ask for a change, and again while its outcome is unknown."""
        deadline_ns = seconds_from_now(PATIENCE_S)
        while True:
            try:
                with self.connect() as log:
                    return ask(log.admin)
            except OutcomeUnknown:
                assert milliseconds_until(deadline_ns), self.said()

    @contextmanager
    def changing(self, ask: Callable[[Admin], None]) -> Iterator[None]:
        """The change is asked for in a thread, and done in the end."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.change, ask)
            yield
            asked.result(2 * PATIENCE_S)

    def check_equal(self) -> None:
        """Every member has answered, is whole, and has what the others have."""
        with self.connect() as log:
            last = log.admin.commit_lsn()
            for member in log.admin.members().members:
                self.wait_until_visible(member.number, last, PATIENCE_S)
            found = log.admin.verify()
        assert found.is_good, found

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
    """A producer that appends one payload after the other in a thread, several in flight: numbers
    of `payload_bytes` digits at least."""

    def __init__(self, cluster: GrowingCluster, *, payload_bytes: int = 1) -> None:
        self._cluster = cluster
        self._payload_bytes = payload_bytes
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
                    futures.append(producer.append(b"%0*d" % (self._payload_bytes, self.appended)))
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
        """No append failed, and the log has each payload once, in order. Payloads that are no
        numbers are another producer's."""
        assert self.error is None, self.error
        assert len(self.lsns) == self.appended > 0
        assert self.lsns == sorted(set(self.lsns))
        with self._cluster.connect() as log:
            batches = log.read(self.lsns[0], self.lsns[-1], min_lsn=self.lsns[-1])
            payloads = [payload for batch in batches for payload in batch.payloads()]
        found = [int(payload[-DIGITS:]) for payload in payloads if payload.isdigit()]
        assert found == list(range(self.appended))
