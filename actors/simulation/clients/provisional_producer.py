"""A producer of level `leader` or `none`: appends bursts, ends, crashes, and begins again (E10).

Owns its sessions, one after the other, and the numbers in its payloads. The core sends the batches,
each once, and counts what may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.provisional_checker import NUMBER, ProvisionalChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.clients.open_request import session_name
from actors.simulation.network.core_appends import PackQueue
from actors.simulation.network.core_client import CoreClient
from actors.simulation.network.core_links import SimulatedLinks
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.client.core.connection import Session
from logstore.client.core.provisional_machine import ProvisionalMachine, ProvisionalOptions
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host, Steps
from logstore.client.core.task import Task
from logstore.errors import ErrorCode, LogStoreError
from logstore.format.batch import PackedPayloads, batch_size
from logstore.format.client_messages import OpenSessionRequest
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import AckLevel, SequenceMode

_OPEN_TIMEOUT_S = 5.0
_ACK_TIMEOUT_S = (0.5, 3.0)
_DELIVER_S = 10.0
_LINGER_S = 0.001
_BURST = 12
_FLOOD = 3 * SESSION_WINDOW_MIN  # batches: more than the leader may take at a time
_FLOODS_PERMILLE = 60
_ENDS_PERMILLE = 12
_BEGIN_AGAIN_NS = (20 * MS_NS, 1_500 * MS_NS)
_QUEUE_MAX = 96  # batches


class Batch:
    """A `Pack` of the core."""

    def __init__(self, payloads: list[bytes], now_ns: int) -> None:
        self.payloads: list[bytes] | PackedPayloads = payloads
        self.size_bytes = batch_size(len(payloads), sum(map(len, payloads)))
        self.opened_ns = now_ns
        self.deadline_ns = now_ns + int(_DELIVER_S * 1e9)
        self.sequence = -1
        self.expected_next_lsn: int | None = None
        self.batch = b""
        self._is_settled = False

    def is_settled(self) -> bool:
        return self._is_settled

    def resolve(self, first_lsn: int, count: int) -> None:
        raise AssertionError(f"a provisional batch is told LSN {first_lsn}, {count} payloads")

    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        del is_flushed
        self._is_settled = True

    def fail(self, error: LogStoreError) -> None:
        del error
        self._is_settled = True


class Batches(PackQueue[Batch]):
    """A `PackSource` of the core."""

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, batch: Batch) -> None:
        self._queue.append(batch)

    def snapshot(self) -> Sequence[Batch]:
        return ()

    def release(self, size_bytes: int) -> None:
        """What is queued is bounded by its number."""


class ProvisionalProducer:
    """`client` is its process."""

    def __init__(self, host: ClientHost, *, append_every_ns: int, payload_max_bytes: int) -> None:
        random = host.random
        self.host = host
        self.client = CoreClient(host, self._live)
        self.witness = Witness(host)
        self._level = random.choice((AckLevel.LEADER, AckLevel.NONE))
        self._name = session_name(host.name) if random.random() < 0.5 else b""
        self._append_every_ns = append_every_ns
        self._payload_max_bytes = payload_max_bytes
        self._number = 0  # of batches
        self._producers = 0
        self._batches = Batches()
        self._machine: ProvisionalMachine | None = None
        self._task: Task[None] | None = None
        self._is_stopped = False

    @property
    def is_asking(self) -> bool:
        """Whether it is still busy with what it has sent."""
        return self._machine is not None

    def stop(self) -> None:
        """Append nothing new, and end. Wake its process."""
        self._is_stopped = True
        if self._machine is not None:
            self._machine.stop()

    # --- its life ---

    def _live(self, client: CoreClient) -> Steps[None]:
        random = self.host.random
        while not self._is_stopped:
            self._task = client.start(self._produce(client))
            while not self._task.is_done:
                pause_ns = int(random.expovariate(1.0) * self._append_every_ns * _BURST)
                until_ns = client.clock.now_ns + pause_ns
                while client.clock.now_ns < until_ns and not self._task.is_done:
                    yield client.sleep(until_ns)
                self._act(client)
            begin_ns = client.clock.now_ns + random.randrange(*_BEGIN_AGAIN_NS)
            while client.clock.now_ns < begin_ns and not self._is_stopped:
                yield client.sleep(begin_ns)

    def _act(self, client: CoreClient) -> None:
        """Append a burst; now and then end, as a program does or as a crash does."""
        random, machine = self.host.random, self._machine
        if machine is None or self._is_stopped:
            return
        if random.random() * 1_000 < _ENDS_PERMILLE:
            self._end(client)
            return
        is_flood = random.random() * 1_000 < _FLOODS_PERMILLE
        for _ in range(_FLOOD if is_flood else random.randint(1, _BURST)):
            if len(self._batches) < _QUEUE_MAX:
                self._append(client.clock.now_ns)
        client.wake()

    def _end(self, client: CoreClient) -> None:
        if self._machine is not None and self.host.random.random() < 0.5:
            self.witness.count("ends")
            self._machine.stop()
            client.wake()
        elif self._task is not None:
            self.witness.count("crashes")
            self._task.close()

    def _append(self, now_ns: int) -> None:
        filler = bytes(int(self.host.random.random() * self._payload_max_bytes))
        self._batches.append(Batch([NUMBER.pack(self._number) + filler, b"second"], now_ns))
        self._number += 1

    # --- one session after the other ---

    def _produce(self, client: CoreClient) -> Steps[None]:
        self._producers += 1
        duplicated = self.host.duplicated()
        name = f"{self.host.name}/{self._producers}"
        checker = ProvisionalChecker(self.witness, name, self._level)
        core = client.core_on(SimulatedLinks(self.host.links, checker.messages))
        routing = client.connect(core)
        opening = OpenSessionRequest(
            0, SequenceMode.DENSE, self._level, SESSION_WINDOW_MIN, self._name
        )
        try:
            session = yield from open_session(core, routing, opening, timeout_s=_OPEN_TIMEOUT_S)
            self.witness.count("opened")
            machine = self._make_machine(core, routing, session, opening)
            if self._is_stopped:  # while the session was opened
                machine.stop()
            yield from self._serve(machine, checker)
        except LogStoreError as error:
            self.witness.count(f"ended-{error.code.name.lower()}")
            # One OPEN that is delivered twice begins two epochs.
            may_be_own = self.host.duplicated() != duplicated
            if error.code == ErrorCode.FENCED and not (self._name or may_be_own):
                text = f"{name} ended as fenced, and no other producer knows its session"
                self.witness.violated(Invariant.I7, text)
        finally:
            routing.close()
            client.wake()

    def _serve(self, machine: ProvisionalMachine, checker: ProvisionalChecker) -> Steps[None]:
        self._machine = machine
        ending: LogStoreError | None = None
        try:
            yield from machine.live()
        except LogStoreError as error:
            ending = error
            raise
        finally:
            machine.settle_rest(ending)
            told = machine.counts.statistics()
            for _ in range(told.reopened):
                self.witness.count("reopened")
            checker.counted(told.possibly_lost_batches)
            self._machine = None

    def _make_machine(
        self, core: Host, routing: Routing, session: Session, opening: OpenSessionRequest
    ) -> ProvisionalMachine:
        options = ProvisionalOptions(
            opening=opening,
            linger_s=_LINGER_S,
            ack_timeout_s=self.host.random.uniform(*_ACK_TIMEOUT_S),
            delivery_timeout_s=_DELIVER_S,
            on_ack=None,
            on_connected=lambda _: None,
        )
        return ProvisionalMachine(core, routing, session, self._batches, options)
