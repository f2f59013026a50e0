"""One producer epoch on the wire: opening it, and the steps of SAFETY E9 at each change of leader.

Owns the sockets and the round. What becomes of batches is `unresolved`'s; when to append is the
producer's. SessionState is the authority, the ack feed only makes it quick.

    FINDING ─▶ OPENING (once) ─▶ SUBSCRIBING ─(welcome)─▶ ASKING ─(SessionState)─▶ SERVING
       ▲                                                                              │
       └── no answer, NOT_LEADER, GAP, silence, … ────────────────────────────────────┘   ─▶ OVER
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from actors.simulation.checkers.client_facts import AppendInvoked, BatchRefused, SessionOpened
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.amiss import ODD_ROUND_FIRST, Amiss
from actors.simulation.clients.append import Append
from actors.simulation.clients.asker import SEND_AGAIN_NS, Answer, Asker
from actors.simulation.clients.connection import Connection
from actors.simulation.clients.host import MS_NS, NEVER_NS
from actors.simulation.clients.leader import LeaderFinder
from actors.simulation.clients.unresolved import Unresolved
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish
from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    ErrorReply,
    OpenSessionReply,
    SessionStateReply,
    SessionStateRequest,
    append_prefix,
)
from logstore.settings import PortOffset

_PAUSE_NS = (10 * MS_NS, 200 * MS_NS)
# An old leader that knows nothing of this session, or less than it acknowledged, is gone by then.
# No more: after a heal, a producer whose session has expired must append before patience ends.
STRANGE_ANSWERS_MAX = 3
# Another node, or the same one later, may take the batch.
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.NOT_COMMITTED,
        ErrorCode.OUTCOME_UNKNOWN,
        ErrorCode.GAP,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
    }
)


class Phase(Enum):
    FINDING = "finding"
    OPENING = "opening"
    SUBSCRIBING = "subscribing"
    ASKING = "asking"
    SERVING = "serving"
    OVER = "over"


class ProducerSession:
    """Call `do_work` until it `is_over`; `append` while it `has_room`."""

    def __init__(self, wire: Wire, wish: Wish, now_ns: int) -> None:
        self.wire = wire
        self.wish = wish
        self.phase = Phase.FINDING
        self.is_dense = wish.is_dense
        self.producer_id = 0
        self.producer_epoch = 0
        self.next_sequence = 0
        self.batch_max_bytes = 0
        self.round = 0
        self.is_fenced = False
        self.unresolved = Unresolved(wire, is_dense=self.is_dense)
        self.amiss = Amiss(wire)
        self._window = 0
        self._window_bytes = 0
        self._finder = LeaderFinder(wire)
        self._asker: Asker | None = None
        self._connection: Connection | None = None
        self._deadline_ns = NEVER_NS
        self._patience_ns = 0
        self._send_again_ns = NEVER_NS
        self._strange = 0
        self._finder.begin(now_ns)

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def is_open(self) -> bool:
        """Whether it has numbers to give: batches may wait for a leader."""
        return self.producer_id != 0 and self.phase is not Phase.OVER

    @property
    def is_serving(self) -> bool:
        return self.phase is Phase.SERVING

    @property
    def is_known(self) -> bool:
        """Whether the cluster still knew its producer id when it was last asked."""
        return self.producer_id != 0 and self._strange <= STRANGE_ANSWERS_MAX

    def has_room(self, size_bytes: int, *, batches: int = 1) -> bool:
        """Whether more batches of this size in all may be unresolved (E7, W6)."""
        unresolved = self.unresolved
        # two batches of a monotone session under way: the second could arrive alone
        window = self._window if self.is_dense else 1
        return (
            len(unresolved.waiting) + batches <= window
            and unresolved.size_bytes + size_bytes <= self._window_bytes
        )

    # --- the work ---

    def do_work(self, now_ns: int) -> None:
        """Take what came, send what is due."""
        phase = self.phase
        if phase is Phase.SERVING:
            self._serve(now_ns)
        elif phase is Phase.FINDING:
            node = self._finder.poll(now_ns)
            if node:
                self._connect(node, now_ns)
        elif phase is Phase.SUBSCRIBING:
            self._read_feed(now_ns)
            if self.phase is phase and now_ns >= self._deadline_ns:
                self.restart(now_ns)
        elif phase is not Phase.OVER:
            self._read_feed(now_ns)
            self._read_answer(now_ns)

    def next_timer_ns(self) -> int:
        phase = self.phase
        if phase is Phase.SERVING:
            since_ns = self.unresolved.oldest_since_ns()
            silent_ns = since_ns + self._patience_ns if since_ns else NEVER_NS
            return min(silent_ns, self._send_again_ns)
        if phase is Phase.FINDING:
            return self._finder.next_timer_ns()
        if phase is Phase.SUBSCRIBING:
            return self._deadline_ns
        return self._asker.next_timer_ns() if self._asker is not None else NEVER_NS

    def sockets(self) -> list[Any]:
        sockets = self._finder.sockets()
        if self._asker is not None and self._asker.is_waiting:
            sockets.append(self._asker.socket)
        if self._connection is not None:
            sockets.append(self._connection.feed)
        return sockets

    def close(self) -> None:
        """Stop, in the middle of whatever it is: what is unresolved stays unknown."""
        self._close_sockets()
        self.phase = Phase.OVER

    def restart(self, now_ns: int, *, hint: int = 0) -> None:
        """From the first step of E9: the PUSH socket goes, and what is queued in it."""
        self._close_sockets()
        self.phase = Phase.FINDING
        pause_ns = MS_NS if hint else self.wire.host.random.randrange(*_PAUSE_NS)
        self._finder.begin(now_ns + pause_ns, hint=hint)

    # --- appending ---

    def append(self, payloads: Sequence[bytes], sequence: int, now_ns: int) -> Append:
        """A new batch; it is sent as soon as may be."""
        append = self.make(payloads, sequence, now_ns)
        self.next_sequence = sequence + 1
        self.unresolved.add(append)
        self.unresolved.to_send.append(append)
        return append

    def make(self, payloads: Sequence[bytes], sequence: int, now_ns: int) -> Append:
        """The batch, and the ledger told of it; nothing is sent."""
        host = self.wire.host
        operation = self.wire.next_operation()
        numbers = self.producer_id, self.producer_epoch, sequence
        host.tell(AppendInvoked(operation, *numbers, payloads))
        return Append(
            operation, sequence, len(payloads), self.encode(payloads, sequence, now_ns), now_ns
        )

    def encode(self, payloads: Sequence[bytes], sequence: int, now_ns: int) -> bytes:
        return encode_batch(
            payloads,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            sequence=sequence,
            timestamp_ns=now_ns,
        )

    def flush(self, now_ns: int) -> None:
        """Send what is due, as far as the socket takes it."""
        unresolved, connection = self.unresolved, self._connection
        if connection is None or self.phase is not Phase.SERVING:
            return
        to_send, waiting = unresolved.to_send, unresolved.waiting
        while to_send:
            append = to_send[0]
            if append.sequence in waiting:
                if not connection.try_push(append.batch):
                    self._send_again_ns = now_ns + SEND_AGAIN_NS
                    return
                append.is_sent = True
            to_send.popleft()
        self._send_again_ns = NEVER_NS

    def push(self, frame: bytes) -> None:
        """Any frame at all, if it is serving."""
        if self._connection is not None and self.phase is Phase.SERVING:
            self._connection.try_push_frame(frame)

    def push_batch(self, batch: bytes, *, round_number: int = 0) -> None:
        """A batch under this round, the current one if none is given, if it is serving."""
        self.push(append_prefix(round_number or self.round) + batch)

    # --- the steps of E9 ---

    def _connect(self, node: int, now_ns: int) -> None:
        self._asker = Asker(self.wire, node, PortOffset.CONTROL)
        if self.producer_id:
            self._subscribe(node, now_ns)
            return
        self.phase = Phase.OPENING
        self._asker.ask(self.wish.request(), OpenSessionReply, now_ns)

    def _subscribe(self, node: int, now_ns: int) -> None:
        self.phase = Phase.SUBSCRIBING
        self._deadline_ns = now_ns + self.wire.host.patience_ns()
        self._connection = Connection(self.wire, node, self.producer_id)

    def _welcomed(self, now_ns: int) -> None:
        if self.phase is not Phase.SUBSCRIBING or self._asker is None:
            return  # anyone's subscription to this topic
        self.phase = Phase.ASKING
        self.round += 1
        request = SessionStateRequest(self.producer_id, self.producer_epoch, self.round)
        self._asker.ask(request, SessionStateReply, now_ns)

    def _read_answer(self, now_ns: int) -> None:
        asker = self._asker
        if asker is None:
            return
        answer = asker.poll(now_ns)
        if answer is None:
            if asker.is_late(now_ns):
                self.restart(now_ns)
        elif isinstance(answer.message, ErrorReply):
            self._refused_request(answer.message, now_ns)
        elif isinstance(answer.message, OpenSessionReply):
            self._opened(answer, now_ns)
        else:
            self._told_state(answer, now_ns)

    def _opened(self, answer: Answer, now_ns: int) -> None:
        reply: OpenSessionReply = answer.message
        wish = self.wish
        if not wish.is_granted_by(reply):
            self.wire.violated(Invariant.I17, f"{wish} was answered by {reply}")
        self.producer_id, self.producer_epoch = reply.producer_id, reply.producer_epoch
        self.next_sequence = reply.next_sequence
        self.batch_max_bytes = reply.batch_max_bytes
        self._window, self._window_bytes = reply.window, reply.window_bytes
        host = self.wire.host
        numbers = self.producer_id, self.producer_epoch
        host.tell(SessionOpened(*numbers, wish.mode))
        self.wire.count("opened")
        self._subscribe(answer.node, now_ns)

    def _told_state(self, answer: Answer, now_ns: int) -> None:
        reply: SessionStateReply = answer.message
        if (reply.producer_id, reply.producer_epoch) != (self.producer_id, self.producer_epoch):
            self.wire.violated(Invariant.I7, f"state of another session: {reply}")
        is_known = self.unresolved.reconcile(reply.next_sequence, reply.rows, now_ns)
        if not is_known:
            self._answered_strangely(now_ns)
            return
        self._strange = 0
        self._close_asker()
        self.phase = Phase.SERVING
        self.wire.count("rounds")
        self._patience_ns = self.wire.host.patience_ns()
        if self._connection is not None:
            self._connection.open_push(self.round)
        self.flush(now_ns)

    def _refused_request(self, error: ErrorReply, now_ns: int) -> None:
        code = error.code
        if code == ErrorCode.NOT_LEADER:
            self.restart(now_ns, hint=error.leader)
        elif code == ErrorCode.FENCED and self.producer_id:
            self._fenced()
        elif code == ErrorCode.UNKNOWN_PRODUCER:
            self._answered_strangely(now_ns)
        else:
            if code not in _RETRIED:
                self.wire.violated(Invariant.I17, f"{self.phase.value}: refused with {error}")
            self.restart(now_ns)

    def _answered_strangely(self, now_ns: int) -> None:
        """Nothing that the leader of today says; who was deposed a moment ago may."""
        self.wire.count("strange-answers")
        self._strange += 1
        if self._strange > STRANGE_ANSWERS_MAX:
            self.close()
        else:
            self.restart(now_ns)

    # --- serving ---

    def _serve(self, now_ns: int) -> None:
        self._read_feed(now_ns)
        if self.phase is not Phase.SERVING:
            return
        since_ns = self.unresolved.oldest_since_ns()
        if since_ns and now_ns - since_ns >= self._patience_ns:
            self.wire.count("silences")
            self.restart(now_ns)
        elif self.unresolved.to_send:
            self.flush(now_ns)

    def _read_feed(self, now_ns: int) -> None:
        """Settle what the feed says. Hot."""
        connection = self._connection
        if connection is not None:
            for message in connection.messages():
                if type(message) is Acks:
                    self._take_rows(message, now_ns)
                else:
                    self._welcomed(now_ns)

    def _take_rows(self, acks: Acks, now_ns: int) -> None:
        if acks.producer_epoch != self.producer_epoch:
            return
        is_odd = acks.round >= ODD_ROUND_FIRST
        for sequence, first_lsn, count, code, detail in ACK_ROW.iter_unpack(acks.rows):
            if is_odd and self.is_dense:
                self.amiss.answered(sequence, code)
            elif code == ErrorCode.OK:
                self.unresolved.acknowledge(sequence, first_lsn, count)
            elif acks.round == self.round and self.phase is Phase.SERVING:
                self._refused(sequence, code, detail, now_ns)

    def _refused(self, sequence: int, code: int, detail: int, now_ns: int) -> None:
        """A refusal of the current round."""
        wire = self.wire
        wire.host.tell(BatchRefused(code))
        if code in _RETRIED:
            self.restart(now_ns, hint=detail if code == ErrorCode.NOT_LEADER else 0)
        elif code == ErrorCode.FENCED:
            if detail <= self.producer_epoch:
                text = f"epoch {self.producer_epoch} is fenced by epoch {detail}"
                wire.violated(Invariant.I7, text)
            self._fenced()
        elif code == ErrorCode.UNKNOWN_PRODUCER:
            self._answered_strangely(now_ns)
        elif code == ErrorCode.COMMITTED_LSN_UNKNOWN:
            self.unresolved.forget(sequence)
        elif not self.amiss.refused(sequence, code):
            text = f"sequence {sequence} of epoch {self.producer_epoch} was refused with {code}"
            wire.violated(Invariant.I7, text)

    def _fenced(self) -> None:
        """A newer producer epoch is open: this one ends, its unresolved batches stay unknown."""
        self.wire.count("fenced")
        self.is_fenced = True
        self.close()

    def _close_asker(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    def _close_sockets(self) -> None:
        self._finder.close()
        self._close_asker()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._send_again_ns = NEVER_NS
