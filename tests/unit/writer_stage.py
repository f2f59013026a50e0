"""The writer on a simulated disk; the test is raft and ingress."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from msgspec.structs import replace

from actors import topology
from actors.host import RealHost
from actors.messages import CreateLog
from actors.simulation.disk.disk import SimulatedDisk
from actors.topology import Counter
from actors.writer import WriterActor
from logstore.format.entry import Row, chain_start
from logstore.format.level import FIRST_LEVEL, TRIM_LEVEL
from logstore.format.meta import LogStart
from logstore.format.trim_entry import TrimEntry, TrimReason, encode_trim
from logstore.model import FIRST_LSN, EntryKind, ReplicaState
from logstore.raft.bootstrap import SaveInit
from logstore.raft.effects import ApplyTrim, InstallLog, Persist, Truncate
from logstore.storage.disk import Disk
from logstore.storage.segment import row_at_start
from tests.crash.storage_trial import next_header
from tests.paper.virtual_node import whole_start
from tests.unit.actor_stage import CLUSTER, ActorStage

START = LogStart(0, 0, chain_start(CLUSTER), FIRST_LSN)


class HeldCalls:
    """Calls of a simulated disk that wait, each from its beginning until they are released."""

    def __init__(self, disk: SimulatedDisk, what: str, suffix: str = "") -> None:
        self._disk, self._what, self._suffix = disk, what, suffix
        self._may_go, self._has_begun = Event(), Event()
        disk.on_call = self._hold

    @property
    def have_begun(self) -> bool:
        return self._has_begun.is_set()

    def wait_until_begun(self) -> None:
        assert self._has_begun.wait(30)

    def release(self) -> None:
        self._disk.on_call = None
        self._may_go.set()

    def _hold(self, what: str, path: str) -> None:
        if what == self._what and path.endswith(self._suffix):
            self._has_begun.set()
            self._may_go.wait(30)


class WriterStage:
    def __init__(self, folder: Path, *, disk: Disk | None = None, damage: str = "") -> None:
        self.stage = ActorStage(folder)
        self.stage.damage = damage
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
        self,
        bodies: list[bytes],
        *,
        term: int = 1,
        commit: int = 0,
        count: int = 1,
        kind: EntryKind = EntryKind.DATA,
    ) -> list:
        orders = []
        for body in bodies:
            header = next_header(self.rows[-1], term, body, count, kind=kind)
            self.rows.append(Row.of(header))
            start, end = self.stage.write_body(body) if body else (0, 0)
            self.seq += 1
            orders.append(Persist(self.seq, header, self.rows[-1].chain, start, end, commit))
        self.tell(*orders)
        return orders

    def start_at(self, index: int) -> LogStart:
        """The log start after this entry."""
        header = self.rows[index].header
        return LogStart(index, header.term, self.rows[index].chain, header.next_lsn)

    def persist_trim(self, start: LogStart, *, damage: bytes = b"", level: int = TRIM_LEVEL) -> int:
        """Order a TRIM to this log start; its index."""
        body = encode_trim(TrimEntry(TrimReason.OPERATOR, start, 0, 0, level))
        self.persist_bodies([damage or body], kind=EntryKind.TRIM)
        self.settle()
        return self.rows[-1].header.index

    def trim(self, index: int) -> None:
        """A TRIM to this entry, carried out."""
        trim = self.persist_trim(self.start_at(index))
        self.tell(ApplyTrim(trim))
        self.settle()

    def order_install(self, before: Row, *, level: int = FIRST_LEVEL) -> int:
        """Order the log to start over after the entry `before`; the order's number."""
        self.seq += 1
        whole = replace(whole_start(before), level=level)
        self.tell(InstallLog(self.seq, whole))
        self.rows = [before] * (before.header.index + 1)
        return self.seq

    def install(self, before: Row) -> None:
        """As `order_install`, carried out."""
        self.order_install(before)
        self.settle()

    def truncate(self, first_index: int) -> None:
        del self.rows[first_index:]
        self.seq += 1
        self.tell(Truncate(self.seq, first_index))

    def work(self) -> int:
        return self.stage.work(self.writer)

    def settle(self) -> None:
        """Work until neither the actor nor a worker has anything left to do now. A job may begin
        and end unseen in one round, so the last of them is one more."""
        rounds_left = 2
        while rounds_left:
            for worker in self.workers():
                worker.wait()
            has_worked = self.work()
            is_busy = any(worker.is_busy for worker in self.workers())
            rounds_left = 2 if has_worked or is_busy else rounds_left - 1

    def workers(self) -> tuple:
        writer = self.writer
        own = (writer._meta_worker, writer._starts_worker, writer._trims.worker)
        return *writer._work.workers, *own

    def counter(self, counter: Counter) -> int:
        return self.slots[counter]

    def close(self) -> None:
        self.writer.on_close()
