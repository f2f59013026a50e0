"""The clients of one run: which there are, and what the phases ask of them.

Owns the clients' processes. Must not know faults, nor how a client works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

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
from actors.simulation.clients.known_end import KnownEnd
from actors.simulation.clients.member_operator import MemberOperator
from actors.simulation.clients.mender import Mender
from actors.simulation.clients.open_request import session_name
from actors.simulation.clients.openers import Flooder, Opener
from actors.simulation.clients.operators import Founder, Operator
from actors.simulation.clients.producer import Probe, Producer, ProducerOptions
from actors.simulation.clients.provisional_producer import ProvisionalProducer
from actors.simulation.clients.reader import Reader, ReaderOptions
from actors.simulation.clients.session_lister import SessionLister
from actors.simulation.clients.session_reader import SessionReader
from actors.simulation.clients.surveyor import Surveyor
from actors.simulation.clients.trimmer import Trimmer
from actors.simulation.clients.upgrader import Upgrader
from actors.simulation.cluster import SimulatedCluster
from actors.simulation.faults.draw import vulnerable_nodes
from actors.simulation.faults.script import FaultKind
from actors.simulation.machines import ClusterMachines
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS, ClientHost
from actors.simulation.world.process import Process
from actors.simulation.world.random_streams import stream
from logstore.model import FIRST_LSN, Lsn

# Each kind has a hundred client numbers of its own, so that no number is given twice.
_KINDS = (
    "producer", "consumer", "reader", "operator", "keeper", "auditor", "founder", "importer",
    "opener", "session-reader", "surveyor", "bungler", "brink", "flooder", "session-lister",
    "upgrader", "trimmer", "comparer", "provisional", "member",
    "mender",
)  # fmt: skip
_MEMBER_OPERATOR = "member-1"
# An import may take this share of the time in which faults strike: appends come after it.
_IMPORT_SHARE = 3


class Workload:
    """The clients of `cluster`; `start` before its world runs."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._ground = cluster.script.ground
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, Consumer] = {}
        # Each waits for an answer.
        self._inquirers: dict[str, Inquirer | Brink | ProvisionalProducer] = {}
        self._listers: dict[str, SessionLister] = {}
        self._probes: list[Probe] = []
        self._auditors: list[Auditor] = []
        self._known_end = KnownEnd(Lsn(self._ground.first_lsn))
        self._operator: Operator | None = None

    def start(self) -> None:
        cluster = self._cluster
        if self._ground.first_lsn != FIRST_LSN:
            self._add("founder-1", lambda host: Inquirer(host, Founder).client)
        if self._ground.imports:
            self._add("importer-1", self._make_importer)
        else:
            self._start_producers()
        for number in range(1, self._ground.consumers + 1):
            self._add(f"consumer-{number}", self._make_consumer)
        self._add("reader-1", lambda host: _reader(host, readers.draw_options(host)))
        self._add("reader-2", lambda host: _reader(host, readers.draw_roaming(host)))
        self._add_inquirer("surveyor-1", Surveyor)
        self._add("operator-1", self._make_operator)
        self._add_inquirer("bungler-1", Bungler)
        if self._ground.newest_levels:
            self._add_inquirer("upgrader-1", Upgrader)
        if self._ground.joiners:
            vulnerable = vulnerable_nodes(cluster.script.seed, replicas=self._ground.replicas)
            machines = ClusterMachines(cluster, vulnerable)
            self._add_inquirer(
                _MEMBER_OPERATOR, lambda inquirer: MemberOperator(inquirer, machines)
            )
        if not self._ground.is_lost_replaced:
            self._add("mender-1", self._make_mender)
        if self._ground.trim_every_ms:
            every_ns = self._ground.trim_every_ms * MS_NS
            for number in (1, 2):  # two, so that one trims while the other trims or holds
                self._add_inquirer(
                    f"trimmer-{number}", lambda inquirer: Trimmer(inquirer, every_ns)
                )
        for number in (1, 2):  # two that share cursors, so that each is compared with the other
            self._add_inquirer(f"keeper-{number}", Keeper)

    def _start_producers(self) -> None:
        """After the import, if there is one: a log with sessions takes no import."""
        names = [f"producer-{number}" for number in range(1, self._ground.producers + 1)]
        appenders = [session_name(each).decode() for each in names]
        for name in names:
            self._add(name, self._make_producer)
        for number in range(1, self._ground.comparers + 1):
            self._add(f"comparer-{number}", self._make_comparer)
        self._add("provisional-1", self._make_provisional)
        self._add_inquirer("opener-1", lambda inquirer: Opener(inquirer, session_name("opener-1")))
        if self._ground.session_idle_ms:
            self._add_inquirer("opener-2", lambda inquirer: Opener(inquirer, b""))
        if self._ground.has_brink:
            self._add("brink-1", self._make_brink)
        if self._ground.has_flooder:
            session = session_name("flooder-1")
            self._add_inquirer("flooder-1", lambda inquirer: Flooder(inquirer, session))
        known = (*appenders, *(session_name(each).decode() for each in ("opener-1", "nobody")))
        self._add_inquirer("session-reader-1", lambda inquirer: SessionReader(inquirer, known))
        for number in (1, 2):  # two that end the same sessions
            self._add_lister(f"session-lister-{number}", frozenset(appenders))

    def transfer(self, target: int) -> None:
        """Ask the leader to hand over to `target`; 0: the leader chooses."""
        if self._operator is not None:
            self._operator.transfer(target)
            self._wake(["operator-1"])

    def flood(self, is_again: bool) -> None:
        """Every producer sends as much as may be in flight, or again what is in flight; and
        sessions are ended."""
        for producer in self._producers.values():
            if is_again:
                producer.send_again()
            else:
                producer.flood()
        self._wake(self._producers)
        for lister in self._listers.values():
            lister.hurry()
        self._wake(self._listers)

    @property
    def appends_acknowledged(self) -> int:
        return sum(each.witness.counts.get("acknowledged", 0) for each in self._producers.values())

    @property
    def unresolved(self) -> list[str]:
        """The producers that wait for an outcome, and other clients that wait for an answer."""
        waiting = [name for name, each in self._producers.items() if each.has_unresolved]
        return waiting + [name for name, each in self._inquirers.items() if each.is_asking]

    def has_read(self, lsn: int) -> bool:
        """Every consumer has received everything up to `lsn`."""
        return all(each.next_lsn in (0, lsn + 1) for each in self._consumers.values())

    def probe(self) -> None:
        """Each producer appends from now on."""
        self._probes = [each.append_probe() for each in self._producers.values()]
        self._wake(self._producers)

    def is_probe_acknowledged(self) -> bool:
        return any(each.is_acknowledged for each in self._probes)

    def audit(self, nodes: Sequence[int]) -> None:
        """Read everything that each of `nodes` shows."""
        for node in nodes:
            self._add(f"auditor-{node}", self._make_auditor)

    @property
    def has_audited(self) -> bool:
        """A lost replica need not show its log."""
        replicas = self._cluster.replicas
        return all(each.is_done or replicas[each.node].is_lost for each in self._auditors)

    def read_without_a_pause(self) -> None:
        """One more reader, which asks the leader several times per heartbeat."""
        self._add("reader-3", lambda host: _reader(host, readers.HASTY))

    def stop_changes(self) -> None:
        """No further change of the members is asked for."""
        if _MEMBER_OPERATOR in self._inquirers:
            self._inquirers[_MEMBER_OPERATOR].stop()
            self._wake([_MEMBER_OPERATOR])

    @property
    def is_changing(self) -> bool:
        """A change of the members is asked for and not answered."""
        return _MEMBER_OPERATOR in self._inquirers and self._inquirers[_MEMBER_OPERATOR].is_asking

    def stop_appending(self) -> None:
        for producer in self._producers.values():
            producer.stop_appending()
        self._wake(self._producers)
        for inquirer in self._inquirers.values():
            inquirer.stop()
        self._wake(self._inquirers)

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            self._cluster.clients[name].wake()

    def _make_producer(self, host: ClientHost) -> CoreClient:
        producer = self._producers[host.name] = Producer(host, self._draw_producer(host))
        return producer.client

    def _make_comparer(self, host: ClientHost) -> CoreClient:
        options = producers.draw_comparer_options(host, self._draw_producer(host))
        producer = self._producers[host.name] = Producer(host, options, self._known_end)
        return producer.client

    def _draw_producer(self, host: ClientHost) -> ProducerOptions:
        return producers.draw_options(
            host,
            append_every_ns=self._ground.append_every_ns,
            payload_max_bytes=self._ground.payload_max_bytes,
            batch_max_payloads=self._ground.batch_max_payloads,
            is_answered=int(host.name.rpartition("-")[2]) <= self._ground.answered_producers,
        )

    def _make_provisional(self, host: ClientHost) -> CoreClient:
        producer = self._inquirers[host.name] = ProvisionalProducer(
            host,
            append_every_ns=self._ground.append_every_ns,
            payload_max_bytes=self._ground.payload_max_bytes,
        )
        return producer.client

    def _make_importer(self, host: ClientHost) -> CoreClient:
        for_ns = self._ground.safety_ns // _IMPORT_SHARE
        options = importers.draw_options(host, self._ground, for_ns=for_ns)
        return Importer(host, options, self._start_producers).client

    def _make_consumer(self, host: ClientHost) -> CoreClient:
        consumer = self._consumers[host.name] = Consumer(host, consumers.draw_options(host))
        return consumer.client

    def _make_auditor(self, host: ClientHost) -> CoreClient:
        auditor = Auditor(host, node=int(host.name.rpartition("-")[2]))
        self._auditors.append(auditor)
        return auditor.client

    def _make_operator(self, host: ClientHost) -> CoreClient:
        def make(inquirer: Inquirer) -> Operator:
            self._operator = Operator(inquirer)
            return self._operator

        return Inquirer(host, make).client

    def _make_mender(self, host: ClientHost) -> CoreClient:
        cluster = self._cluster

        def lost() -> list[int]:
            return [node for node in cluster.lost if not cluster.is_made_good(node)]

        return Inquirer(host, lambda inquirer: Mender(inquirer, lost)).client

    def _make_brink(self, host: ClientHost) -> CoreClient:
        brink = self._inquirers[host.name] = Brink(host)
        return brink.client

    def _add_lister(self, name: str, appenders: frozenset[str]) -> None:
        def make(inquirer: Inquirer) -> SessionLister:
            lister = self._listers[name] = SessionLister(inquirer, appenders)
            return lister

        self._add_inquirer(name, make)

    def _add_inquirer(self, name: str, subject_of: Callable[[Inquirer], Subject]) -> None:
        def make(host: ClientHost) -> CoreClient:
            inquirer = self._inquirers[name] = Inquirer(host, subject_of)
            return inquirer.client

        self._add(name, make)

    def _add(self, name: str, make: Callable[[ClientHost], CoreClient]) -> None:
        """Start the client `name`, "kind-number"."""
        self._cluster.add_client(name, lambda process: make(self._host(process)))

    def _host(self, process: Process) -> ClientHost:
        cluster = self._cluster
        kind, _, number = process.name.rpartition("-")
        return ClientHost(
            number=100 * _KINDS.index(kind) + int(number),
            name=process.name,
            links=cluster.network.links(process),
            endpoint=cluster.endpoint,
            nodes=cluster.founders,
            joiners=cluster.nodes[len(cluster.founders) :],
            has_lost_disks=any(each.kind is FaultKind.LOST_DISK for each in cluster.script.faults),
            random=stream(cluster.script.seed, f"client.{process.name}"),
            tell=cluster.ledger.tell,
            world_now=lambda: cluster.world.now_ns,
            first_lsn=Lsn(self._ground.first_lsn),
            duplicated=lambda: cluster.network.counters.duplicated,
        )


def _reader(host: ClientHost, options: ReaderOptions) -> CoreClient:
    return Inquirer(host, lambda inquirer: Reader(inquirer, options)).client
