"""One producer epoch: the client's core opens it and appends, as a program's producer does, or as
one whose appends are answered on its connection.

Owns the steps, and what is sent between the core's own batches as mischief. The producer says when
to append; `append_checker` judges what replicas answer. At the produce port, where answers say no
round, batches that must be refused have a connection of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from actors.simulation.checkers.client_facts import SessionDenied
from actors.simulation.checkers.messages.append_checker import MISCHIEF_ROUND_FIRST, AppendChecker
from actors.simulation.checkers.messages.message_checker import MessageChecker
from actors.simulation.checkers.messages.witness import Witness
from actors.simulation.clients.answered_appends import (
    AnsweredMachine,
    open_answered_session,
)
from actors.simulation.clients.payloads import draw_payloads
from actors.simulation.network.core_appends import Append, Appends
from actors.simulation.network.core_client import CoreClient
from actors.simulation.network.core_links import SimulatedLink, SimulatedLinks
from logstore.client.core.connection import Session
from logstore.client.core.producer_machine import MachineOptions, ProducerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import NEVER_NS, Steps, Wait
from logstore.errors import ErrorCode, LevelRefused, LogStoreError
from logstore.format.batch import encode_batch
from logstore.format.client_messages import Acks, OpenSessionRequest, append_prefix
from logstore.format.codecs import Compressor
from logstore.model import SequenceMode
from logstore.settings import PortOffset
from transport import link

OPEN_TIMEOUT_S = 5.0
_ACK_TIMEOUT_S = (0.5, 3.0)
_LINGER_S = 0.001
_MONOTONE_QUEUE = 4
_OVER = (ErrorCode.FENCED, ErrorCode.UNKNOWN_PRODUCER)


class ProducerSession:
    """It begins at once. `append` while `appends` have room, until it `is_over`."""

    def __init__(
        self,
        client: CoreClient,
        witness: Witness,
        opening: OpenSessionRequest,
        *,
        deliver_ns: int,
        is_answered: bool = False,
        on_over: Callable[[Append], None] | None = None,
        compressor: Compressor | None = None,
    ) -> None:
        self.is_dense = opening.mode == SequenceMode.DENSE
        self.checker = AppendChecker(witness)
        if on_over is not None:
            self.checker.on_over = on_over
        self.numbers = Session(0, 0, 0, 0, 0, 0)
        self.appends = Appends(self.checker, self.numbers, limit=0, deliver_ns=deliver_ns)
        self._next_sequence = 0  # of a dense session
        self._machine: ProducerMachine | None = None
        self.is_over = False
        self.ending: LogStoreError | None = None
        self._client = client
        self._opening = opening
        self._witness = witness
        self._deliver_ns = deliver_ns
        self.is_answered = is_answered  # at the produce port
        self._compressor = compressor
        self._mischief_round = MISCHIEF_ROUND_FIRST
        self._links = SimulatedLinks(client.host.links, self.checker.messages)
        self._core = client.core_on(self._links)
        self._pusher: SimulatedLink | None = None
        mischief = MessageChecker(witness, {Acks: self.checker.on_mischief})
        self._mischief_links = SimulatedLinks(client.host.links, mischief)
        self._mischief: SimulatedLink | None = None
        self._answered: AnsweredMachine | None = None
        self._task = client.start(self._live())

    @property
    def is_open(self) -> bool:
        """Whether it has a producer id: batches may be appended, and wait for a leader."""
        return self.numbers.producer_id != 0 and not self.is_over

    @property
    def is_serving(self) -> bool:
        """Whether the core has a connection to append over."""
        return not self.is_over and self._pusher is not None and not self._pusher.is_closed

    @property
    def is_known(self) -> bool:
        """Whether the cluster knew its producer id when it was last asked."""
        code = self.ending.code if self.ending is not None else ErrorCode.OK
        return self.numbers.producer_id != 0 and code != ErrorCode.UNKNOWN_PRODUCER

    @property
    def must_not_compress(self) -> bool:
        """Whether it is over because the log's format level is too low for compressed batches."""
        cause = None if self.ending is None else self.ending.__cause__
        return isinstance(cause, LevelRefused)

    @property
    def has_unresolved(self) -> bool:
        """Whether an append waits for the log's answer."""
        return not self.is_over and self.appends.has_unresolved

    def close(self) -> None:
        """Stop at once. What is unresolved stays unknown."""
        self._task.close()
        self._end_mischief()
        self.is_over = True

    # --- appending ---

    @property
    def next_sequence(self) -> int:
        """The lowest one that may come next: that of a refused batch, maybe (E11)."""
        if self.is_dense or self._machine is None:
            return self._next_sequence
        return max(self._next_sequence, self._machine.given.last + 1)

    def append(
        self, payloads: list[bytes], sequence: int, expected_next_lsn: int | None = None
    ) -> Append:
        """A new batch; it is sent as soon as possible. The core gives a dense session its
        sequences."""
        if self.is_dense or self._machine is None:
            self._next_sequence = sequence + 1
        else:
            self._machine.given.give(sequence)
        self._client.wake()
        return self.appends.append(
            payloads,
            sequence=-1 if self.is_dense else sequence,
            now_ns=self._client.clock.now_ns,
            expected_next_lsn=expected_next_lsn,
        )

    def draw_payloads(
        self, sequence: int, *, count_max: int, payload_max_bytes: int
    ) -> list[bytes]:
        """Payloads of a batch with this sequence."""
        return draw_payloads(
            self._client.host.random,
            client=self._client.host.number,
            producer_id=self.numbers.producer_id,
            producer_epoch=self.numbers.producer_epoch,
            sequence=sequence,
            count_max=count_max,
            payload_max_bytes=payload_max_bytes,
            batch_max_bytes=self.numbers.batch_max_bytes,
        )

    def encode(
        self, payloads: Sequence[bytes], sequence: int, compressor: Compressor | None = None
    ) -> bytes:
        return encode_batch(
            payloads,
            producer_id=self.numbers.producer_id,
            producer_epoch=self.numbers.producer_epoch,
            sequence=sequence,
            timestamp_ns=self._client.clock.now_ns,
            compressor=compressor,
        )

    # --- what the core does not know of ---

    def push(self, frame: bytes, *, is_mischief: bool = False) -> None:
        """Send any frame between those of the core, if it is serving. `is_mischief`: its refusal
        must not reach the core."""
        if not self.is_serving:
            return
        if is_mischief and self._mischief is not None:
            self._mischief.try_send(frame)
        elif self._pusher is not None and link.try_send(self._pusher.socket, (frame,)):
            if self.is_answered:
                self.checker.messages.sent_between(self._pusher, frame)

    def push_batch(self, batch: bytes, *, is_mischief: bool = False) -> None:
        """Send a batch under the core's round, or under one that the core does not know."""
        round_ = self.next_mischief_round() if is_mischief else self.checker.round
        self.push(append_prefix(round_) + batch, is_mischief=is_mischief)

    def next_mischief_round(self) -> int:
        """The round of one push that the core does not know of."""
        self._mischief_round += 1
        return self._mischief_round

    def make_bad(
        self, payloads: Sequence[bytes], sequence: int, compressor: Compressor | None = None
    ) -> bytes:
        """A batch that must be refused, as it is or once it is changed."""
        self.checker.expect_refusal(sequence, payloads)
        return self.encode(payloads, sequence, compressor)

    def lose_next(self) -> None:
        """Lose the next batch that the core sends, but not those after it."""
        if self._pusher is not None:
            self._pusher.loses_next = True

    # --- its life ---

    def _live(self) -> Steps[None]:
        routing = self._client.connect(self._core)
        try:
            self.numbers = yield from self._open(routing)
            yield from self._serve(routing)
        except LogStoreError as error:
            self.ending = error
            self._witness.count(f"ended-{error.code.name.lower()}")
            numbers = self.numbers
            if numbers.producer_id and error.code in _OVER:
                self._client.host.tell(SessionDenied(numbers.producer_id, numbers.producer_epoch))
        finally:
            routing.close()
            self._end_mischief()
            self.is_over = True
            self._client.wake()

    def _open(self, routing: Routing) -> Steps[Session]:
        if self.is_answered:
            return open_answered_session(
                self._core, routing, self._opening, self._address_of, timeout_s=OPEN_TIMEOUT_S
            )
        return open_session(self._core, routing, self._opening, timeout_s=OPEN_TIMEOUT_S)

    def _address_of(self, node: int) -> str:
        return self._client.host.endpoint(node, PortOffset.PRODUCE)

    def _serve(self, routing: Routing) -> Steps[None]:
        numbers, witness = self.numbers, self._witness
        witness.count("opened")
        self._next_sequence = numbers.next_sequence
        limit = numbers.window if self.is_dense else _MONOTONE_QUEUE
        appends = Appends(self.checker, numbers, limit=limit, deliver_ns=self._deliver_ns)
        self.appends = appends
        self.checker.begin(
            producer_id=numbers.producer_id,
            producer_epoch=numbers.producer_epoch,
            is_dense=self.is_dense,
        )
        options = MachineOptions(
            linger_s=_LINGER_S,
            ack_timeout_s=self._client.host.random.uniform(*_ACK_TIMEOUT_S),
            delivery_timeout_s=self._deliver_ns / 1e9,
            is_dense=self.is_dense,
            on_ack=None,
            on_connected=self._connected,
            compressor=self._compressor,
        )
        machine = self._machine = self._make_machine(routing, appends, options)
        try:
            yield from machine.live()
        except LogStoreError as error:
            machine.settle_rest(error)
            raise

    def _make_machine(
        self, routing: Routing, appends: Appends, options: MachineOptions
    ) -> ProducerMachine:
        numbers = self.numbers
        if not self.is_answered:
            return ProducerMachine(self._core, routing, numbers, appends, options)
        machine = AnsweredMachine(self._core, routing, numbers, appends, options)
        machine.address_of = self._address_of
        self._answered = machine
        return machine

    def _connected(self, node: int) -> None:
        if self._answered is None:
            self._pusher = self._links.last_pusher
            return
        self._pusher = self._answered.link
        self._end_mischief()
        self._mischief = made = self._mischief_links.requester(self._address_of(node))
        self._client.start(_read_all(made))

    def _end_mischief(self) -> None:
        made, self._mischief = self._mischief, None
        if made is not None:
            made.close()


def _read_all(made: SimulatedLink) -> Steps[None]:
    """Its observer judges what comes."""
    while not made.is_closed:
        while made.try_receive() is not None:
            pass
        yield Wait(NEVER_NS, (made,))
