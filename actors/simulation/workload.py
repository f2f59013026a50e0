"""The clients of one run: who appends, who follows, and what the phases ask of them.

Owns the clients' processes. Must not know faults, nor how a client works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.simulation.clients import consumer as consumers
from actors.simulation.clients import importer as importers
from actors.simulation.clients import producer as producers
from actors.simulation.clients import reader as readers
from actors.simulation.clients.auditor import Auditor
from actors.simulation.clients.brink import Brink
from actors.simulation.clients.bungler import Bungler
from actors.simulation.clients.consumer import Consumer
from actors.simulation.clients.importer import Importer
from actors.simulation.clients.inquirer import Inquirer, Subject
from actors.simulation.clients.keeper import Keeper
from actors.simulation.clients.open_request import session_name
from actors.simulation.clients.openers import Flooder, Opener
from actors.simulation.clients.operators import Founder, Operator
from actors.simulation.clients.producer import Probe, Producer
from actors.simulation.clients.reader import Reader, ReaderOptions
from actors.simulation.clients.session_lister import SessionLister
from actors.simulation.clients.session_reader import SessionReader
from actors.simulation.clients.surveyor import Surveyor
from actors.simulation.cluster import SimulatedCluster
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import ClientHost
from actors.simulation.world.process import Process
from actors.simulation.world.random_streams import stream
from logstore.model import FIRST_LSN, Lsn

# Numbers of clients: each kind has its own hundred, so that none is given twice.
_PRODUCERS, _CONSUMERS, _READERS, _OPERATORS, _KEEPERS, _AUDITORS = range(0, 600, 100)
_FOUNDERS, _IMPORTERS, _OPENERS, _SESSION_READERS, _SURVEYORS = range(600, 1_100, 100)
_BUNGLERS, _BRINKS, _FLOODERS, _LISTERS = range(1_100, 1_500, 100)
# An import has so much of the time in which faults strike: appends come after it.
_IMPORT_SHARE = 3


class Workload:
    """Producers and consumers of `cluster`; `start` before its world runs."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        # who asks one thing after the other, or without an end
        self._inquirers: dict[str, Inquirer | Brink] = {}
        self._listers: dict[str, SessionLister] = {}
        self._probes: list[Probe] = []
        self._auditors: list[Auditor] = []
        self._operator: Operator | None = None

    def start(self) -> None:
        ground = self._cluster.script.ground
        if ground.first_lsn != FIRST_LSN:
            self._cluster.add_client("founder-1", self._make_founder)
        if ground.imports:
            self._cluster.add_client("importer-1", self._make_importer)
        else:
            self._start_producers()
        for number in range(1, ground.consumers + 1):
            self._cluster.add_client(f"consumer-{number}", self._make_consumer)
        self._cluster.add_client("reader-1", self._make_reader)
        self._cluster.add_client("reader-2", self._make_roaming_reader)
        self._cluster.add_client("surveyor-1", self._make_surveyor)
        self._cluster.add_client("operator-1", self._make_operator)
        self._cluster.add_client("bungler-1", self._make_bungler)
        for number in (1, 2):  # who shares no cursor compares it with itself alone
            self._cluster.add_client(f"keeper-{number}", self._make_keeper)

    def _start_producers(self) -> None:
        """Once the import is over, if there is one: the log takes it as long as it has no
        session."""
        for number in range(1, self._cluster.script.ground.producers + 1):
            self._cluster.add_client(f"producer-{number}", self._make_producer)
        self._cluster.add_client("opener-1", self._make_opener)
        if self._cluster.script.ground.session_idle_ms:
            self._cluster.add_client("opener-2", self._make_passer_by)
        if self._cluster.script.ground.has_brink:
            self._cluster.add_client("brink-1", self._make_brink)
        if self._cluster.script.ground.has_flooder:
            self._cluster.add_client("flooder-1", self._make_flooder)
        self._cluster.add_client("session-reader-1", self._make_session_reader)
        for number in (1, 2):  # who ends the same session as another one
            self._cluster.add_client(f"session-lister-{number}", self._make_session_lister)

    def transfer(self, target: int) -> None:
        """The operator wants `target` to lead; 0: whoever fits best."""
        if self._operator is not None:
            self._operator.transfer(target)
            self._cluster.clients["operator-1"].wake()

    def flood(self, is_again: bool) -> None:
        """Every producer sends as much as may be under way, or what is under way, once more; and
        sessions are to be ended."""
        for name, producer in self._producers.items():
            if is_again:
                producer.send_again()
            else:
                producer.flood()
            self._cluster.clients[name].wake()
        for name, lister in self._listers.items():
            lister.hurry()
            self._cluster.clients[name].wake()

    @property
    def appends_acknowledged(self) -> int:
        return sum(each.witness.counts.get("acknowledged", 0) for each in self._producers.values())

    @property
    def has_unresolved(self) -> bool:
        """A producer waits for an outcome, or another client for its answer."""
        return bool(self.unresolved)

    @property
    def unresolved(self) -> list[str]:
        """The clients that wait."""
        waiting = [name for name, each in self._producers.items() if each.has_unresolved]
        return waiting + [name for name, each in self._inquirers.items() if each.is_asking]

    def has_read(self, lsn: int) -> bool:
        """Every consumer has been given everything up to `lsn`."""
        return all(each.next_lsn in (0, lsn + 1) for each in self._consumers.values())

    def probe(self) -> None:
        """An append by each producer, from now on."""
        self._probes = [each.append_probe() for each in self._producers.values()]
        for name in self._producers:
            self._cluster.clients[name].wake()

    def is_probe_acknowledged(self) -> bool:
        return any(each.is_acknowledged for each in self._probes)

    def audit(self, nodes: Sequence[int]) -> None:
        """Somebody reads all that each of `nodes` shows."""
        for node in nodes:
            self._cluster.add_client(f"auditor-{node}", self._make_auditor)

    @property
    def has_audited(self) -> bool:
        return all(each.is_done for each in self._auditors)

    def stop_appending(self) -> None:
        for name, producer in self._producers.items():
            producer.stop_appending()
            self._cluster.clients[name].wake()
        for name, inquirer in self._inquirers.items():
            inquirer.stop()
            self._cluster.clients[name].wake()

    def _make_producer(self, process: Process) -> CoreClient:
        ground, host = self._cluster.script.ground, self._host(process, _PRODUCERS)
        options = producers.draw_options(
            host,
            append_every_ns=ground.append_every_ns,
            payload_max_bytes=ground.payload_max_bytes,
            batch_max_payloads=ground.batch_max_payloads,
        )
        producer = self._producers[process.name] = Producer(host, options)
        return producer.client

    def _make_founder(self, process: Process) -> CoreClient:
        return Inquirer(self._host(process, _FOUNDERS), Founder).client

    def _make_importer(self, process: Process) -> CoreClient:
        ground, host = self._cluster.script.ground, self._host(process, _IMPORTERS)
        options = importers.draw_options(host, ground, for_ns=ground.safety_ns // _IMPORT_SHARE)
        return Importer(host, options, self._start_producers).client

    def _make_consumer(self, process: Process) -> CoreClient:
        host = self._host(process, _CONSUMERS)
        consumer = self._consumers[process.name] = Consumer(host, consumers.draw_options(host))
        return consumer.client

    def _make_reader(self, process: Process) -> CoreClient:
        host = self._host(process, _READERS)
        return self._read(host, readers.draw_options(host))

    def _make_roaming_reader(self, process: Process) -> CoreClient:
        host = self._host(process, _READERS)
        return self._read(host, readers.draw_roaming(host))

    def _make_hasty_reader(self, process: Process) -> CoreClient:
        return self._read(self._host(process, _READERS), readers.HASTY)

    def _read(self, host: ClientHost, options: ReaderOptions) -> CoreClient:
        return Inquirer(host, lambda inquirer: Reader(inquirer, options)).client

    def read_without_a_pause(self) -> None:
        """One reader more, which asks the leader several times a heartbeat."""
        self._cluster.add_client("reader-3", self._make_hasty_reader)

    def _make_auditor(self, process: Process) -> CoreClient:
        host = self._host(process, _AUDITORS)
        auditor = Auditor(host, node=host.number - _AUDITORS)
        self._auditors.append(auditor)
        return auditor.client

    def _make_operator(self, process: Process) -> CoreClient:
        def make(inquirer: Inquirer) -> Operator:
            self._operator = Operator(inquirer)
            return self._operator

        return Inquirer(self._host(process, _OPERATORS), make).client

    def _make_bungler(self, process: Process) -> CoreClient:
        return self._ask(process, _BUNGLERS, Bungler)

    def _make_keeper(self, process: Process) -> CoreClient:
        return self._ask(process, _KEEPERS, Keeper)

    def _make_opener(self, process: Process) -> CoreClient:
        name = session_name(process.name)
        return self._ask(process, _OPENERS, lambda inquirer: Opener(inquirer, name))

    def _make_passer_by(self, process: Process) -> CoreClient:
        return self._ask(process, _OPENERS, lambda inquirer: Opener(inquirer, b""))

    def _make_brink(self, process: Process) -> CoreClient:
        brink = self._inquirers[process.name] = Brink(self._host(process, _BRINKS))
        return brink.client

    def _make_flooder(self, process: Process) -> CoreClient:
        name = session_name(process.name)
        return self._ask(process, _FLOODERS, lambda inquirer: Flooder(inquirer, name))

    def _make_session_reader(self, process: Process) -> CoreClient:
        clients = (*self._appenders, "opener-1", "nobody")
        names = tuple(session_name(each).decode() for each in clients)
        return self._ask(process, _SESSION_READERS, lambda inquirer: SessionReader(inquirer, names))

    def _make_session_lister(self, process: Process) -> CoreClient:
        appenders = frozenset(session_name(each).decode() for each in self._appenders)

        def make(inquirer: Inquirer) -> SessionLister:
            lister = self._listers[process.name] = SessionLister(inquirer, appenders)
            return lister

        return self._ask(process, _LISTERS, make)

    def _make_surveyor(self, process: Process) -> CoreClient:
        return self._ask(process, _SURVEYORS, Surveyor)

    @property
    def _appenders(self) -> list[str]:
        numbers = range(1, self._cluster.script.ground.producers + 1)
        return [f"producer-{number}" for number in numbers]

    def _ask(
        self, process: Process, base: int, subject_of: Callable[[Inquirer], Subject]
    ) -> CoreClient:
        inquirer = self._inquirers[process.name] = Inquirer(self._host(process, base), subject_of)
        return inquirer.client

    def _host(self, process: Process, base: int) -> ClientHost:
        cluster = self._cluster
        return ClientHost(
            number=base + int(process.name.rpartition("-")[2]),
            name=process.name,
            links=cluster.network.links(process),
            endpoint=cluster.endpoint,
            nodes=cluster.nodes,
            random=stream(cluster.script.seed, f"client.{process.name}"),
            tell=cluster.ledger.tell,
            world_now=lambda: cluster.world.now_ns,
            first_lsn=Lsn(cluster.script.ground.first_lsn),
        )
