"""A played leader, and a producer of level `leader` or `none` of the core at work on it."""

from __future__ import annotations

from typing import Any

from logstore.client.core.connection import Session
from logstore.client.core.provisional_machine import ProvisionalMachine, ProvisionalOptions
from logstore.client.core.task import Task
from logstore.errors import (
    ErrorCode,
)
from logstore.format.batch import batch_payloads, read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
)
from logstore.model import AckLevel, SequenceMode
from logstore.settings import PortOffset
from tests.property.test_core_producer_model import PlayedPack, PlayedSource
from tests.unit.core_stage import PRODUCER, SECOND_NS, World, not_leader

WINDOW = 8


class Pack(PlayedPack):
    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        self.outcome = self.outcome or ("flushed" if is_flushed else "handed over")  # type: ignore[assignment]


class Leaders(World):
    """A world whose leader has one session, epoch by epoch. `reads` off: what is pushed waits."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 1
        self.stored: list[tuple[int, int, bytes]] = []  # epoch, sequence, payload
        self.uncommitted = 0  # of the newest
        self.flushes = True
        self.reads = True
        self.unread: list[tuple[int, bytes]] = []
        self.loses_opens = 0
        self.on_push = self.push
        self.on[SessionStateRequest] = self.state
        self.on[OpenSessionRequest] = self.open

    def of_epoch(self) -> int:
        return sum(epoch == self.epoch for epoch, _, _ in self.stored)

    def push(self, node: int, round_number: int, batch: bytes) -> None:
        header = read_batch_header(batch)
        if not self.reads:
            self.unread.append((round_number, batch))
        elif node != self.leader:
            self.row(round_number, header, ErrorCode.NOT_LEADER, node=node)
        elif header.producer_epoch != self.epoch:
            self.row(round_number, header, ErrorCode.FENCED)
        elif header.sequence != self.of_epoch():
            assert header.sequence > self.of_epoch(), "sent twice"
            self.row(round_number, header, ErrorCode.GAP)
        else:
            (payload,) = batch_payloads(batch, 0, header)
            self.stored.append((self.epoch, header.sequence, bytes(payload)))
            if self.flushes:
                self.row(round_number, header, ErrorCode.PROVISIONAL)

    def read(self) -> None:
        self.reads = True
        for each in self.unread:
            self.push(self.leader, *each)
        self.unread.clear()

    def row(self, round_number: int, header: Any, code: ErrorCode, *, node: int = 0) -> None:
        rows = ACK_ROW.pack(header.sequence, 0, header.count, code, 0)
        acks = Acks(PRODUCER, header.producer_epoch, round_number, rows)
        self.publish(PortOffset.ACKS, acks, node=node)

    def state(self, node: int, request: SessionStateRequest) -> Any:
        if node != self.leader:
            return not_leader(self.leader)
        if request.producer_epoch < self.epoch:
            return ErrorReply(ErrorCode.FENCED, 0, 0, 0, b"")
        taken = self.of_epoch()
        rows = b"".join(
            ACK_ROW.pack(sequence, 0, 1, ErrorCode.OUTCOME_UNKNOWN, 0)
            for sequence in range(max(0, taken - self.uncommitted), taken)
        )
        return SessionStateReply(PRODUCER, self.epoch, taken, rows)

    def open(self, node: int, request: OpenSessionRequest) -> Any:
        if node != self.leader:
            return not_leader(self.leader)
        assert request.producer_id == PRODUCER
        assert request.mode == SequenceMode.DENSE
        self.epoch += 1
        self.uncommitted = 0
        if self.loses_opens:
            self.loses_opens -= 1
            return None
        return OpenSessionReply(PRODUCER, self.epoch, WINDOW, 1 << 22, 1 << 20, 0)


class Producing:
    """A producer of this level at work."""

    def __init__(
        self,
        world: Leaders,
        level: AckLevel,
        *,
        delivery_timeout_s: float = 60.0,
        opens_in_doubt: int = 0,
    ) -> None:
        self.world = world
        self.source = PlayedSource()
        self.acked: list[int] = []
        self._timeout_ns = int(delivery_timeout_s * 1e9)
        options = ProvisionalOptions(
            opening=OpenSessionRequest(0, SequenceMode.DENSE, level, WINDOW, b""),
            linger_s=0.001,
            ack_timeout_s=1.0,
            delivery_timeout_s=delivery_timeout_s,
            on_ack=lambda _, payloads, *__: self.acked.append(payloads),
            on_connected=lambda _: None,
        )
        session = Session(PRODUCER, 1, WINDOW, 1 << 22, 1 << 20, 0, opens_in_doubt)
        self.machine = ProvisionalMachine(world.host, world.routing, session, self.source, options)
        self.task = Task(self.machine.live())

    @property
    def told(self) -> Any:
        return self.machine.counts.statistics()

    def append(self, count: int = 1) -> list[Pack]:
        world = self.world
        made = []
        for _ in range(count):
            payload = b"%d" % len(self.source.all)
            made.append(Pack([payload], world.now_ns, world.now_ns + self._timeout_ns))
            self.source.append(made[-1])
        return made

    def run_for(self, seconds: float) -> None:
        until_ns = self.world.now_ns + int(seconds * SECOND_NS)
        while self.world.now_ns < until_ns and not self.task.is_done:
            self.world.work(self.task)
            timer_ns = max(self.task.wait.until_ns, self.world.now_ns + 1)
            self.world.pass_time(min(until_ns, timer_ns))

    def stop(self) -> None:
        self.machine.stop()
        self.run_for(10)
        assert self.task.is_done
        self.machine.settle_rest(None)

    @property
    def stored(self) -> list[int]:
        """The numbers in the log: never doubled, never out of order."""
        numbers = [int(payload) for _, _, payload in self.world.stored]
        assert numbers == sorted(set(numbers))
        return numbers
