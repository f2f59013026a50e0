"""A consumer: the core's (SAFETY V8), which is moved to another replica now and then without a
reason."""

from __future__ import annotations

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.delivery_recorder import DeliveryRecorder
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.network.core_client import CoreClient
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.core.start import Start
from logstore.client.core.steps import Steps, Wait
from logstore.errors import LogStoreError, OutOfRange

_PAUSE_NS = (20 * MS_NS, 300 * MS_NS)  # after a call that failed


class ConsumerOptions(msgspec.Struct, frozen=True):
    """`move_every_ns` is a mean."""

    start: Start
    fetch_bytes: int
    move_every_ns: int
    timeout_s: float


def draw_options(host: ClientHost) -> ConsumerOptions:
    random = host.random
    first = random.choice((int(host.first_lsn), "earliest"))
    return ConsumerOptions(
        start=first if random.random() < 0.7 else "latest",
        fetch_bytes=1 << random.randrange(6, 17),
        move_every_ns=random.randrange(3_000, 20_000) * MS_NS,
        timeout_s=host.draw_timeout_ns() / 1e9,
    )


class Consumer:
    """`client` is its process."""

    def __init__(self, host: ClientHost, options: ConsumerOptions) -> None:
        self.host = host
        self.options = options
        self.witness = Witness(host)
        self.client = CoreClient(host, self._live, MessageChecker(self.witness))
        self._machine: ConsumerMachine | None = None

    @property
    def next_lsn(self) -> int:
        """Its position; 0: not known yet."""
        return self._machine.next_lsn if self._machine is not None else 0

    @property
    def node(self) -> int:
        """The replica that it reads; 0: none yet."""
        return self._machine.node if self._machine is not None else 0

    def _live(self, client: CoreClient) -> Steps[None]:
        recorder, options = DeliveryRecorder(self.host), self.options
        machine = self._machine = ConsumerMachine(
            client.core,
            client.connect(),
            recorder,
            end_lsn=None,
            replica=None,
            timeout_s=options.timeout_s,
            fetch_bytes=options.fetch_bytes,
        )
        while not machine.next_lsn:
            try:
                yield from machine.locate(options.start)
            except LogStoreError as error:
                yield self._pause(client, error)
        recorder.begin_at(machine.next_lsn, is_earliest=options.start == "earliest")
        while True:
            try:
                yield from self._consume(client, machine, recorder)
                self.witness.count("moves")
                yield from machine.move()
            except OutOfRange as gone:
                yield self._pause(client, gone)
                if machine.next_lsn < gone.first:
                    yield from self._go_on_at(machine, recorder, gone.first)
            except LogStoreError as error:
                yield self._pause(client, error)

    def _go_on_at(
        self, machine: ConsumerMachine, recorder: DeliveryRecorder, lsn: int
    ) -> Steps[None]:
        """What comes next is gone: go on at `lsn`."""
        self.witness.count("gone")
        while machine.next_lsn != lsn:
            try:
                yield from machine.move()
                yield from machine.locate(lsn)
            except LogStoreError as error:
                yield self._pause(self.client, error)
        recorder.begin_at(lsn)

    def _consume(
        self, client: CoreClient, machine: ConsumerMachine, recorder: DeliveryRecorder
    ) -> Steps[None]:
        """Poll until it is time to move."""
        pause_ns = self.host.random.expovariate(1.0) * self.options.move_every_ns
        move_ns = client.clock.now_ns + int(pause_ns) + MS_NS
        while (left_ns := move_ns - client.clock.now_ns) > 0:
            batches = yield from machine.poll(left_ns / 1e9)
            if batches and not batches[0].is_whole:
                text = f"the position lies within a batch, at {batches[0].first_lsn}"
                self.witness.violated(Invariant.I4, text)
            recorder.record(machine.node, batches)

    def _pause(self, client: CoreClient, error: LogStoreError) -> Wait:
        self.witness.call_failed(error)
        return Wait(client.clock.now_ns + self.host.random.randrange(*_PAUSE_NS))
