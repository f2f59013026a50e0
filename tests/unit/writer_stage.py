"""The writer on a simulated disk; the test is raft and ingress."""

from __future__ import annotations

from pathlib import Path

from actors import topology
from actors.host import RealHost
from actors.messages import CreateLog
from actors.simulation.disk.disk import SimulatedDisk
from actors.topology import Counter
from actors.writer import WriterActor
from logstore.format.entry import Row, chain_start
from logstore.format.meta import LogStart
from logstore.model import FIRST_LSN, ReplicaState
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import Persist, Truncate
from logstore.storage.disk import Disk
from logstore.storage.segment import row_at_start
from tests.crash.storage_trial import next_header
from tests.unit.actor_stage import CLUSTER, ActorStage

START = LogStart(0, 0, chain_start(CLUSTER), FIRST_LSN)


class WriterStage:
    def __init__(self, folder: Path, *, disk: Disk | None = None) -> None:
        self.stage = ActorStage(folder)
        self.slots = self.stage.slots
        self.disk = disk or SimulatedDisk()
        host = RealHost(has_own_thread=False)
        host.disk = self.disk
        host.observer = self
        self.seen = []
        self.writer = WriterActor(self.stage.station(topology.WRITER, host))
        self.rows = [row_at_start(START)]
        self.seq = 0

    def start(self) -> None:
        self.writer.on_start()
        self.born = self.heard()

    def bear(self) -> None:
        """Start, and bring the log into being as the bootstrap does."""
        self.start()
        self.tell(SaveInit(1, ReplicaState.STARTING, 5, CLUSTER, FIRST_LSN))
        self.settle()
        self.tell(SaveInit(2, ReplicaState.VOTER, 5, CLUSTER, FIRST_LSN))
        self.settle()
        self.tell(CreateLog(CLUSTER))
        self.settle()
        self.born += self.heard()

    def saw(self, seen) -> None:
        """It looks on as well."""
        self.seen.append(seen)

    def tell(self, *commands) -> None:
        self.stage.send(topology.RAFT, topology.WRITER, *commands)

    def heard(self) -> list:
        return self.stage.heard(topology.WRITER, topology.RAFT)

    def persist(self, *sizes: int, term: int = 1, commit: int = 0) -> list[Persist]:
        """Order entries with bodies of these sizes behind the last one ordered."""
        bodies = [bytes([size % 251 + 1]) * size for size in sizes]
        return self.persist_bodies(bodies, term=term, commit=commit)

    def persist_bodies(
        self, bodies: list[bytes], *, term: int = 1, commit: int = 0, count: int = 1
    ) -> list:
        orders = []
        for body in bodies:
            header = next_header(self.rows[-1], term, body, count)
            self.rows.append(Row.of(header))
            start, end = self.stage.write_body(body) if body else (0, 0)
            self.seq += 1
            orders.append(Persist(self.seq, header, self.rows[-1].chain, start, end, commit))
        self.tell(*orders)
        return orders

    def truncate(self, first_index: int) -> None:
        del self.rows[first_index:]
        self.seq += 1
        self.tell(Truncate(self.seq, first_index))

    def work(self) -> None:
        self.stage.work(self.writer)

    def settle(self) -> None:
        """Work until neither the actor nor a worker has anything left to do now."""
        self.work()
        while any(worker.is_busy for worker in self.workers()):
            for worker in self.workers():
                worker.wait()
            self.work()

    def workers(self) -> tuple:
        return *self.writer._work.workers, self.writer._meta_worker

    def counter(self, counter: Counter) -> int:
        return self.slots[counter]

    def close(self) -> None:
        self.writer.on_close()
