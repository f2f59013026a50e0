"""An importer: the batches of another log, at the LSNs that they had there (P1).

Owns what is imported. Each call of the core imports some of it. Tells the ledger of each batch as
of an append; `import_checker` judges what replicas answer. Between the core's own batches it sends
some that are in the log already, or that do not belong where they claim to, as another importer
would: the log must not change by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from actors.simulation.checkers.client_facts import AppendInvoked, ImportMoved
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.import_checker import REFUSALS, ImportChecker, Imported
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.clients.codec import draw_compressor
from actors.simulation.clients.payloads import draw_payloads
from actors.simulation.faults.script import Ground
from actors.simulation.network.core_client import CoreClient
from actors.simulation.network.core_links import SimulatedLink
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.client.core.importing import Window, import_batches
from logstore.client.core.operating import Cluster
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Steps, Wait
from logstore.client.refusal import RETRIED
from logstore.errors import LevelRefused, LogStoreError, OutOfRange
from logstore.format.batch import encode_batch, read_batch_header
from logstore.format.client_messages import ImportRequest
from logstore.format.message import decode_message, encode_message
from logstore.limits import POSITION_MAX
from logstore.model import Lsn
from transport import link

PRODUCER_FIRST = 0xF0F0  # of the other log: far below what this one draws
_PRODUCERS = 3
_EPOCH = 4
_PAUSE_NS = (10 * MS_NS, 200 * MS_NS)
_MISCHIEF = 0.2
_STRANGER_BITS = 63


class ImporterOptions(msgspec.Struct, frozen=True):
    """`batches` in all, given up after `for_ns`. `at_once`: how many each call of the core imports.
    `batch_every_ns`: the mean pace."""

    batches: int
    for_ns: int
    at_once: int
    batch_every_ns: int
    payload_max_bytes: int
    batch_max_payloads: int
    batch_max_bytes: int


def draw_options(host: ClientHost, ground: Ground, *, for_ns: int) -> ImporterOptions:
    random = host.random
    return ImporterOptions(
        batches=ground.imports,
        for_ns=for_ns,
        at_once=random.choice((1, 2, 4, 16)),
        batch_every_ns=random.randrange(5, 250) * MS_NS,
        payload_max_bytes=ground.payload_max_bytes,
        batch_max_payloads=ground.batch_max_payloads,
        batch_max_bytes=ground.batch_max_bytes,
    )


class Importer:
    """`client` is its process. `on_over` is called once, when it ends."""

    def __init__(
        self, host: ClientHost, options: ImporterOptions, on_over: Callable[[], None]
    ) -> None:
        self.host = host
        self.options = options
        self.witness = Witness(host)
        self.is_over = False
        self._checker = ImportChecker(self.witness, self._meddle)
        self.client = CoreClient(host, self._live, self._checker.messages)
        self._on_over = on_over
        self._compressor = draw_compressor(host.random)
        self._asked_lsn = 0  # where the last call began

    def _live(self, client: CoreClient) -> Steps[None]:
        end_ns = client.clock.now_ns + self.options.for_ns
        task = client.start(self._import(client))
        while not task.is_done and client.clock.now_ns < end_ns:
            yield client.sleep(end_ns)
        if not task.is_done:
            self.witness.count("given-up")
            task.close()
        if len(self._checker.leaders) > 1:
            self.host.tell(ImportMoved())
        self.is_over = True
        self._on_over()

    def _import(self, client: CoreClient) -> Steps[None]:
        routing, random = client.connect(), self.host.random
        try:
            while self._checker.settled < self.options.batches:
                try:
                    yield from self._import_some(routing)
                    batches = self.options.at_once
                    pause_ns = batches * random.expovariate(1.0) * self.options.batch_every_ns
                except LogStoreError as error:
                    if isinstance(error, OutOfRange) and error.first > self._asked_lsn:
                        # committed, not acknowledged, and trimmed before it could be compared
                        self.witness.count("gone")
                        return
                    if isinstance(error, LevelRefused):  # until the log is raised, or for good
                        self.witness.count("level-refused")
                    elif error.code not in RETRIED | REFUSALS:
                        text = f"an import ended with {type(error).__name__}: {error}"
                        self.witness.violated(Invariant.I11, text)
                        return
                    self.witness.call_failed(error)
                    pause_ns = random.randrange(*_PAUSE_NS)
                yield Wait(client.clock.now_ns + int(pause_ns))
            self.witness.count("imported")
        finally:
            routing.close()
            client.wake()

    def _import_some(self, routing: Routing) -> Steps[None]:
        """One call, as a user makes it. It begins with what an earlier one did not finish."""
        checker, core = self._checker, self.client.core
        cluster = Cluster(core, routing, self.host.draw_timeout_ns() / 1e9)
        self._asked_lsn = int(checker.due_lsn)
        next_lsn = yield from import_batches(cluster, Window(checker.due_lsn, self._source()))
        if next_lsn != checker.due_lsn:
            text = f"everything below LSN {next_lsn} was imported, says the core"
            self.witness.violated(Invariant.I4, f"{text}; the log said {checker.due_lsn}")

    def _source(self) -> Iterator[bytes]:
        checker, first = self._checker, self._checker.settled
        for number in range(first, min(first + self.options.at_once, self.options.batches)):
            if number == len(checker.batches):
                checker.batches.append(self._draw_batch(number))
            yield checker.batches[number].data

    def _meddle(self, pusher: SimulatedLink, frame: bytes) -> None:
        """After a batch of the core, send it or an earlier one again. Mostly it: that one is still
        under way."""
        random = self.host.random
        if random.random() >= _MISCHIEF:
            return
        envelope, request = decode_message(frame)
        sent = [each for each in self._checker.batches if each.first_lsn <= request.first_lsn]
        again = random.choice((random.choice(sent), sent[-1]))  # the next one would be taken
        # where it belongs, where it can never be, or in its own midst
        first_lsn = random.choice((again.first_lsn, again.first_lsn, POSITION_MAX, again.last_lsn))
        request = ImportRequest(random.getrandbits(_STRANGER_BITS), Lsn(first_lsn), again.data)
        frame = encode_message(
            request,
            cluster_id=envelope.cluster_id,
            sender_uuid=envelope.sender_uuid,
            sender=envelope.sender,
            target=envelope.target,
            correlation=0,
        )
        if link.try_send(pusher.socket, (frame,)):
            self.witness.count("mischief")

    def _draw_batch(self, number: int) -> Imported:
        """The next batch. Each producer of the other log numbered its own batches, with gaps."""
        host, options = self.host, self.options
        producer_id = PRODUCER_FIRST + number % _PRODUCERS
        sequence = 10 * number + host.random.randrange(10)
        payloads = draw_payloads(
            host.random,
            client=host.number,
            producer_id=producer_id,
            producer_epoch=_EPOCH,
            sequence=sequence,
            count_max=options.batch_max_payloads,
            payload_max_bytes=options.payload_max_bytes,
            batch_max_bytes=options.batch_max_bytes,
        )
        data = encode_batch(
            payloads, producer_id=producer_id, producer_epoch=_EPOCH, sequence=sequence,
            timestamp_ns=0, compressor=self._compressor,
        )  # fmt: skip
        operation = self.witness.next_operation()
        sent = data if read_batch_header(data).codec else b""
        numbers = producer_id, _EPOCH, sequence
        host.tell(AppendInvoked(operation, *numbers, payloads, batch=sent))
        return Imported(operation, self._checker.next_lsn, len(payloads), data)
