"""An importer of the virtual world: another log's batches, at the LSNs that they had (P1).

Owns the batches and what became of each: the linearizable end of the log is the authority, the ack
feed only makes it quick. Sends now and then what must be refused: a batch that is there already, or
one whose turn has not come. Tells the ledger of each batch as of an append.

    FINDING ─▶ ASKING ─(where the log ends)─▶ SUBSCRIBING ─(welcome)─▶ PUSHING ─▶ OVER
       ▲                                                                  │
       └── GAP, NOT_LEADER, silence, … ───────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import AppendAcknowledged, AppendInvoked, ImportMoved
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.append import draw_payloads
from actors.simulation.clients.asker import SEND_AGAIN_NS, Asker
from actors.simulation.clients.connection import Connection
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.leader import LeaderFinder
from actors.simulation.clients.wire import Wire
from actors.simulation.faults.script import Ground
from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    ErrorReply,
    ImportRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.limits import POSITION_MAX
from logstore.model import Lsn
from logstore.settings import PortOffset

PRODUCER_FIRST = 0xF0F0  # of the other log: far below what this one draws
_PRODUCERS = 3
_EPOCH = 4
_PAUSE_NS = (10 * MS_NS, 200 * MS_NS)
_MISCHIEF = 0.08
_RETRIED = frozenset(
    {
        ErrorCode.GAP,
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.TIMED_OUT,
        ErrorCode.CORRUPT_DATA,
    }
)


class Phase(Enum):
    FINDING = "finding"
    ASKING = "asking"
    SUBSCRIBING = "subscribing"
    PUSHING = "pushing"
    OVER = "over"


class ImporterOptions(msgspec.Struct, frozen=True):
    """`batches` in all, given up after `for_ns`. `window`: how many are on their way."""

    batches: int
    for_ns: int
    window: int
    push_every_ns: int
    payload_max_bytes: int
    batch_max_payloads: int
    batch_max_bytes: int


def draw_options(host: ClientHost, ground: Ground, *, for_ns: int) -> ImporterOptions:
    random = host.random
    return ImporterOptions(
        batches=ground.imports,
        for_ns=for_ns,
        window=random.choice((1, 2, 4, 16)),
        push_every_ns=random.randrange(5, 250) * MS_NS,
        payload_max_bytes=ground.payload_max_bytes,
        batch_max_payloads=ground.batch_max_payloads,
        batch_max_bytes=ground.batch_max_bytes,
    )


class _Batch(msgspec.Struct, frozen=True, gc=False):
    operation: int
    first_lsn: int
    count: int
    data: bytes

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


class Importer:
    """Looks like an actor; `on_over` is called once, when it ends."""

    def __init__(
        self, host: ClientHost, options: ImporterOptions, on_over: Callable[[], None]
    ) -> None:
        self.host = host
        self.options = options
        self.wire = Wire(host)
        self.phase = Phase.FINDING
        self._on_over = on_over
        self._batches: list[_Batch] = []  # all that were ever sent, in order
        self._settled = 0  # how many of them are known to be committed
        self._sent = 0  # how many were sent over this connection
        self._next_lsn = int(host.first_lsn)
        self._finder = LeaderFinder(self.wire)
        self._asker: Asker | None = None
        self._connection: Connection | None = None
        self._number = 0  # under which this connection is answered
        self._leaders: set[int] = set()
        self._end_ns = 0
        self._deadline_ns = NEVER_NS  # of the silence under way
        self._push_ns = 0

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        if not self._end_ns:
            self._end_ns = now_ns + self.options.for_ns
            self._finder.begin(now_ns)
        if self.phase is Phase.OVER:
            return 0
        if now_ns >= self._end_ns:
            self._finish("given-up")
        elif self.phase is Phase.FINDING:
            node = self._finder.poll(now_ns)
            if node:
                self._ask_end(node, now_ns)
        elif self.phase is Phase.ASKING:
            self._read_end(now_ns)
        else:
            self._read_feed(now_ns)
            if self.phase is Phase.PUSHING:
                self._push(now_ns)
            if self._connection is not None and now_ns >= self._deadline_ns:
                self._begin_anew(now_ns, "silence")
        return 0

    def wait_on(self) -> list[Any]:
        if self._asker is not None:
            return [self._asker.socket]
        if self._connection is not None:
            return [self._connection.feed]
        return self._finder.sockets() if self.phase is Phase.FINDING else []

    def next_timer_ns(self) -> int:
        match self.phase:
            case Phase.OVER:
                return NEVER_NS
            case Phase.FINDING:
                timer_ns = self._finder.next_timer_ns() if self._end_ns else 0
            case Phase.ASKING if self._asker is not None:
                timer_ns = self._asker.next_timer_ns()
            case Phase.PUSHING if self._has_room:
                timer_ns = min(self._push_ns, self._deadline_ns)
            case _:
                timer_ns = self._deadline_ns
        return min(timer_ns, self._end_ns)

    def on_close(self) -> None:
        self._finder.close()
        for each in (self._asker, self._connection):
            if each is not None:
                each.close()
        self._asker = self._connection = None

    # --- where the log ends ---

    def _ask_end(self, node: int, now_ns: int) -> None:
        self.phase = Phase.ASKING
        self._asker = Asker(self.wire, node, PortOffset.FETCH)
        self._asker.ask(WatermarksRequest(Lsn(0), 0, True), WatermarksReply, now_ns)

    def _read_end(self, now_ns: int) -> None:
        asker = self._asker
        answer = asker.poll(now_ns) if asker is not None else None
        if asker is None or answer is None:
            if asker is None or asker.is_late(now_ns):
                self._begin_anew(now_ns, "late")
            return
        if isinstance(answer.message, ErrorReply):
            self._refused(answer.message.code, now_ns)
            return
        self._settle(answer.message.visible_lsn)
        self.on_close()
        if self._is_whole:
            self._finish("imported")
            return
        self.phase = Phase.SUBSCRIBING
        self._number = self.host.random.getrandbits(63)
        self._connection = Connection(self.wire, answer.node, self._number)
        self._deadline_ns = now_ns + self.host.patience_ns()
        self._sent = self._settled

    def _settle(self, end_lsn: int) -> None:
        """The log ends there, confirmed by a quorum: nobody else writes yet, so it is all ours."""
        while self._settled < len(self._batches):
            batch = self._batches[self._settled]
            if batch.last_lsn > end_lsn:
                break
            self._acknowledge(batch)
        due_lsn = self._next_lsn
        if self._settled < len(self._batches):
            due_lsn = self._batches[self._settled].first_lsn
        if end_lsn != due_lsn - 1:
            text = f"the log ends at LSN {end_lsn}, {due_lsn - 1} or a whole batch more was sent"
            self.wire.violated(Invariant.I6, text)

    def _acknowledge(self, batch: _Batch) -> None:
        self._settled += 1
        host = self.host
        host.tell(AppendAcknowledged(batch.operation, batch.first_lsn, batch.count))

    # --- pushing ---

    @property
    def _is_whole(self) -> bool:
        return self._settled == self.options.batches

    @property
    def _has_room(self) -> bool:
        is_more = self._sent < self.options.batches
        return is_more and self._sent - self._settled < self.options.window

    def _push(self, now_ns: int) -> None:
        connection = self._connection
        if connection is None or now_ns < self._push_ns or not self._has_room:
            return
        if self._sent == len(self._batches):
            self._draw_batch()
        batch = self._batches[self._sent]
        if not connection.try_push_frame(self._frame(batch.first_lsn, batch)):
            self._push_ns = now_ns + SEND_AGAIN_NS
            return
        if self._sent == self._settled:
            self._deadline_ns = now_ns + self.host.patience_ns()
        self._sent += 1
        random = self.host.random
        self._push_ns = now_ns + int(random.expovariate(1.0) * self.options.push_every_ns)
        if random.random() < _MISCHIEF:
            again = random.choice(self._batches[: self._sent])  # the next one would be taken
            # where it belongs, where it can never be, or in its own midst
            first_lsn = random.choice((again.first_lsn, POSITION_MAX, again.last_lsn))
            if connection.try_push_frame(self._frame(first_lsn, again)):
                self.wire.count("mischief")

    def _frame(self, first_lsn: int, batch: _Batch) -> bytes:
        return self.wire.encode(ImportRequest(self._number, Lsn(first_lsn), batch.data))[1]

    def _draw_batch(self) -> None:
        """The next one. Each producer of the other log counted for itself, with gaps."""
        host, options, number = self.host, self.options, len(self._batches)
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
            timestamp_ns=0,
        )  # fmt: skip
        operation = self.wire.next_operation()
        numbers = producer_id, _EPOCH, sequence
        host.tell(AppendInvoked(operation, *numbers, payloads))
        self._batches.append(_Batch(operation, self._next_lsn, len(payloads), data))
        self._next_lsn += len(payloads)

    # --- what the feed says ---

    def _read_feed(self, now_ns: int) -> None:
        connection = self._connection
        if connection is None:
            return
        for message in connection.messages():
            if isinstance(message, Acks):
                for row in ACK_ROW.iter_unpack(message.rows):
                    self._take_row(row, now_ns)
            elif self.phase is Phase.SUBSCRIBING:
                self.phase = Phase.PUSHING
                connection.open_push(0)
                self._leaders.add(connection.node)
                self._deadline_ns = now_ns + self.host.patience_ns()
        if self._is_whole and self.phase is not Phase.OVER:
            self._finish("imported")

    def _take_row(self, row: tuple[int, ...], now_ns: int) -> None:
        """One answer; `asked` is the first LSN of the request."""
        asked, first_lsn, count, code, detail = row
        if code != ErrorCode.OK:
            is_due = self._sent > self._settled
            due_lsn = self._batches[self._settled].first_lsn if is_due else 0
            if code == ErrorCode.GAP and (asked != due_lsn or detail == due_lsn):
                self.wire.count("gap")  # of a mischief, or behind a request that was lost
                return
            self._refused(code, now_ns)
            return
        if self._settled and first_lsn <= self._batches[self._settled - 1].last_lsn:
            self.wire.count("late-ack")
            return
        batch = self._batches[self._settled] if self._settled < self._sent else None
        if batch is None or (asked, first_lsn, count) != (batch.first_lsn,) * 2 + (batch.count,):
            if batch is not None and asked == first_lsn > batch.first_lsn:
                self._begin_anew(now_ns, "lost-ack")
                return
            self.wire.violated(Invariant.I4, f"acknowledged {row}, {batch} is due")
            return
        self._deadline_ns = now_ns + self.host.patience_ns()
        self._acknowledge(batch)

    def _refused(self, code: int, now_ns: int) -> None:
        if code in _RETRIED:
            self._begin_anew(now_ns, f"refused-{ErrorCode(code).name.lower()}")
        else:
            self.wire.violated(Invariant.I11, f"an import was refused with {code}")
            self._finish("refused")

    def _begin_anew(self, now_ns: int, why: str) -> None:
        self.wire.count(why)
        self.on_close()
        self.phase = Phase.FINDING
        self._deadline_ns = NEVER_NS
        pause_ns = self.host.random.randrange(*_PAUSE_NS)
        self._finder.begin(now_ns + pause_ns, hint=self.host.any_node())

    def _finish(self, how: str) -> None:
        self.wire.count(how)
        if len(self._leaders) > 1:
            self.host.tell(ImportMoved())
        self.phase = Phase.OVER
        self.on_close()
        self._on_over()
