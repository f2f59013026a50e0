"""Checks the answers to the appends of one producer epoch, before the core reads them (E7, E9).

Owns which batches were sent, and the answers to each, and tells the ledger. SessionState decides
the outcome, the ack feed shows it earlier: both must report the same, of batches that were sent,
and never two outcomes of one sequence. Batches that must be refused are pushed under rounds of
their own, whose refusals the core ignores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from actors.simulation.checkers.acknowledgements import FINAL_CODES
from actors.simulation.checkers.client_facts import (
    AppendAcknowledged,
    AppendInvoked,
    AppendRefused,
    BatchRefused,
    ComparisonRefused,
    CompressionRefused,
)
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.message_checker import MessageChecker, Received
from actors.simulation.checkers.messages.witness import Witness
from logstore.client.core.packs import Pack
from logstore.errors import ErrorCode, LogStoreError, NextLsnIs
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import ACK_ROW, Acks, SessionStateReply
from logstore.format.conditional_prefix import (
    CONDITIONAL_PREFIX,
    batch_start,
    read_conditional_prefix,
)
from logstore.model import Codec

# Rounds that no session reaches, since sessions number theirs up from zero.
MISCHIEF_ROUND_FIRST = 1 << 31
# After these refusals the sequence of a batch that expects an LSN is unused (E11).
_UNUSED = frozenset({ErrorCode.NEXT_LSN_IS, ErrorCode.LEVEL_REFUSED})
_FRAMES_KEPT = 32
# After these refusals the core sends the batch again, or knows its outcome.
_OF_A_BATCH = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.NO_QUORUM,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
        ErrorCode.NOT_COMMITTED,
        ErrorCode.OUTCOME_UNKNOWN,
        ErrorCode.GAP,
        ErrorCode.FENCED,
        ErrorCode.UNKNOWN_PRODUCER,
        ErrorCode.COMMITTED_LSN_UNKNOWN,
    }
)


class Append(Pack, Protocol):
    """A batch of the core. `acknowledged_as`: first LSN and count of the first acknowledgement;
    None: there is none yet. `is_over`: its outcome is final."""

    count: int
    operation: int
    acknowledged_as: tuple[int, int] | None
    is_acknowledged: bool
    is_over: bool


class AppendChecker:
    """Checks one session; `messages` checks its links. `begin` is called once the session is open.

    `round`: of the core's last SessionState. By sequence: `waiting` are appends whose outcome is
    open, `settled` those whose outcome is final, `unsent` those that were not sent yet. `frames`:
    the newest pushes that expect an LSN, by round and attempt. `on_over` is called with each append
    whose outcome is final.
    """

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        listeners = {SessionStateReply: self._on_state, Acks: self._on_acks}
        self.messages = MessageChecker(witness, listeners, self._on_sent)
        self.round = 0
        self.waiting: dict[int, Append] = {}
        self.settled: dict[int, Append] = {}
        self.unsent: dict[int, None] = {}
        self.frames: deque[tuple[int, bytes]] = deque(maxlen=_FRAMES_KEPT)  # with their sequences
        self.on_over: Callable[[Any], None] = _pass_over
        self._attempt = (0, 0)  # round and number of the newest of these
        self._bad: dict[int, int] = {}  # by sequence, operations that must be refused
        self._producer_id = self._producer_epoch = 0
        self._is_dense = False
        self._given_up = -1  # the lowest sequence of a batch that was never sent; -1: none

    def begin(self, *, producer_id: int, producer_epoch: int, is_dense: bool) -> None:
        self._producer_id, self._producer_epoch = producer_id, producer_epoch
        self._is_dense = is_dense

    # --- what the core does ---

    def on_numbered(self, append: Append) -> None:
        """The core gave this append its sequence and its bytes."""
        is_compressed = read_batch_header(append.batch).codec != Codec.NONE
        sent = append.batch if is_compressed else b""
        expected_lsn = append.expected_next_lsn
        append.operation = self._invoked(append.sequence, append.payloads, expected_lsn, sent)
        self.waiting[append.sequence] = append
        self.unsent[append.sequence] = None

    def _on_sent(self, _link: Any, frame: bytes) -> None:
        start = batch_start(frame)
        if start == CONDITIONAL_PREFIX.size:
            expectation = read_conditional_prefix(frame)
            self._attempt = (expectation.round, expectation.attempt)
        sequence = read_batch_header(frame, start).sequence
        if start == CONDITIONAL_PREFIX.size:
            self.frames.append((sequence, frame))
        self.unsent.pop(sequence, None)
        if 0 <= self._given_up < sequence:  # it counts as committed from now on (E1)
            text = f"sequence {sequence} is sent, and {self._given_up} was given up before"
            self.witness.violated(Invariant.I7, text)

    def on_committed(self, append: Append, first_lsn: int, count: int) -> None:
        self._settle(append)
        self.witness.count("acknowledged")
        self.witness.tell(AppendAcknowledged(append.operation, first_lsn, count))
        self.on_over(append)

    def on_failed(self, append: Append, error: LogStoreError) -> None:
        """A user got this error; if it is final, it must be true."""
        if not append.batch:
            append.is_over = True
            self.give_up(append.sequence)
            return
        is_forgotten = error.code == ErrorCode.COMMITTED_LSN_UNKNOWN
        if is_forgotten:
            self.witness.count("committed-lsn-unknown")
            append.is_over = True
            self._settle(append)
        if error.code in _UNUSED:
            append.is_over = True
            self.waiting.pop(append.sequence, None)
            self.unsent.pop(append.sequence, None)
            self.witness.count(f"compared-{error.code.name.lower()}")
        if isinstance(error, NextLsnIs):
            self.witness.tell(ComparisonRefused(append.operation, error.next_lsn))
        if error.code in FINAL_CODES or (is_forgotten and append.acknowledged_as is None):
            self.witness.tell(AppendRefused(append.operation, error.code))
        if append.is_over:
            self.on_over(append)

    def give_up(self, sequence: int) -> None:
        """A batch failed and was never sent. -1: it had no sequence yet."""
        if self._given_up < 0:
            self._given_up = sequence

    def expect_refusal(self, sequence: int, payloads: Iterable[bytes]) -> None:
        """A batch that no replica may store is about to be pushed, not by the core."""
        self._bad[sequence] = self._invoked(sequence, payloads)

    def _invoked(
        self,
        sequence: int,
        payloads: Iterable[bytes],
        expected_lsn: int | None = None,
        batch: bytes = b"",
    ) -> int:
        """Tell the ledger of a new append; returns its number. `batch`: if it is compressed."""
        operation = self.witness.next_operation()
        numbers = self._producer_id, self._producer_epoch, sequence
        self.witness.tell(AppendInvoked(operation, *numbers, list(payloads), expected_lsn, batch))
        return operation

    def _settle(self, append: Append) -> None:
        self.waiting.pop(append.sequence, None)
        self.unsent.pop(append.sequence, None)
        self.settled[append.sequence] = append

    # --- SessionState ---

    def _on_state(self, received: Received) -> None:
        reply: SessionStateReply = received.message
        self.round = received.request.round
        self.witness.count("rounds")
        known = {row[0]: row for row in ACK_ROW.iter_unpack(reply.rows)}
        for sequence, append in self.waiting.items():
            row = known.get(sequence)
            if row is None:
                if sequence < reply.next_sequence:
                    self._check_sent(append, "is committed")
                    self.witness.tell(BatchRefused(ErrorCode.COMMITTED_LSN_UNKNOWN))
            elif row[3] == ErrorCode.OK:
                self._acknowledged(append, row[1], row[2])
            else:
                self._check_sent(append, "is in the log")
                self.witness.count("in-log-unacknowledged")
        if self._is_dense:
            self._check_next(reply.next_sequence)

    def _check_next(self, next_sequence: int) -> None:
        used = max((*self.waiting, *self.settled), default=-1)
        if next_sequence > used + 1:
            text = f"the log expects sequence {next_sequence}, {used + 1} was never sent"
            self.witness.violated(Invariant.I7, text)

    # --- the ack feed ---

    def _on_acks(self, received: Received) -> None:
        """Hot."""
        acks: Acks = received.message
        self._judge_acks(acks, is_mischief=acks.round >= MISCHIEF_ROUND_FIRST)

    def on_mischief(self, received: Received) -> None:
        """Answers on a connection that batches were sent over which must be refused."""
        self._judge_acks(received.message, is_mischief=True)

    def _judge_acks(self, acks: Acks, *, is_mischief: bool) -> None:
        if acks.producer_epoch != self._producer_epoch:
            return
        for sequence, first_lsn, count, code, detail in ACK_ROW.iter_unpack(acks.rows):
            if is_mischief and self._is_refused_for_good(sequence, code):
                continue
            if is_mischief and self._is_dense:
                self._on_other_bytes(sequence, code)
            elif code == ErrorCode.OK:
                append = self.waiting.get(sequence) or self.settled.get(sequence)
                if append is None:
                    text = f"sequence {sequence} was never sent, and acknowledged"
                    self.witness.violated(Invariant.I7, text)
                else:
                    self._acknowledged(append, first_lsn, count)
            elif acks.round == self.round and code in _UNUSED and first_lsn:
                self._on_unused(sequence, code, detail, attempt=first_lsn)
            elif acks.round == self.round:
                self._on_refused(sequence, code, detail)

    def _is_refused_for_good(self, sequence: int, code: int) -> bool:
        """Whether this refuses a batch that must be refused: for its bytes, before its
        sequence is looked at."""
        operation = self._bad.get(sequence)  # kept, since a message may come twice
        if code == ErrorCode.OK or operation is None:
            return False
        if code == ErrorCode.GAP:
            text = f"sequence {sequence} is refused for its place, though its bytes are no batch"
            self.witness.violated(Invariant.I11, text)
        self.witness.count("refused-for-good")
        self.witness.tell(AppendRefused(operation, code))
        return True

    def _on_other_bytes(self, sequence: int, code: int) -> None:
        """The answer to other bytes under a used sequence of a dense session (E7)."""
        self.witness.tell(BatchRefused(code))
        if code == ErrorCode.SEQUENCE_REUSED:
            self.witness.count("sequence-reused")
        elif code == ErrorCode.OK:
            text = f"other bytes under the used sequence {sequence} are said to be committed"
            self.witness.violated(Invariant.I7, text)

    def _on_refused(self, sequence: int, code: int, detail: int) -> None:
        """A refusal of the current round."""
        epoch = self._producer_epoch
        self.witness.tell(BatchRefused(code))
        if code == ErrorCode.FENCED and detail <= epoch:
            self.witness.violated(Invariant.I7, f"epoch {epoch} is fenced by epoch {detail}")
        elif code == ErrorCode.LEVEL_REFUSED:
            self._on_level_refused(sequence, detail)
        elif code not in _OF_A_BATCH:
            text = f"sequence {sequence} of epoch {epoch} was refused with {code}"
            self.witness.violated(Invariant.I7, text)

    def _on_unused(self, sequence: int, code: int, detail: int, *, attempt: int) -> None:
        """A refusal of the current round, for what an attempt expects; of an older attempt it came
        twice."""
        newest = self._attempt[1] if self._attempt[0] == self.round else 0
        append = self.waiting.get(sequence)
        if attempt > newest or attempt < 1:
            text = f"attempt {attempt} of round {self.round} was refused and never made"
            self.witness.violated(Invariant.I22, text)
        elif attempt == newest and append is not None:
            self.witness.tell(BatchRefused(code))
            if append.expected_next_lsn is None or append.expected_next_lsn == detail:
                expected = append.expected_next_lsn
                text = f"sequence {sequence} expects LSN {expected}, the next one is {detail}"
                self.witness.violated(Invariant.I22, f"{text}, and it was refused")

    def _on_level_refused(self, sequence: int, level: int) -> None:
        """It ends the session, so it must be true: of a compressed batch, at a lower level."""
        numbers = self._producer_id, self._producer_epoch
        self.witness.tell(CompressionRefused(*numbers, level))
        append = self.waiting.get(sequence) or self.settled.get(sequence)
        codec = Codec.NONE if append is None else read_batch_header(append.batch).codec
        if codec == Codec.NONE:
            text = f"sequence {sequence} is refused for its compression and has none"
            self.witness.violated(Invariant.I21, text)

    # --- one append ---

    def _acknowledged(self, append: Append, first_lsn: int, count: int) -> None:
        """An answer reports the append as committed, with these LSNs."""
        witness = self.witness
        if append.acknowledged_as is not None and append.acknowledged_as != (first_lsn, count):
            text = (
                f"sequence {append.sequence} has {append.acknowledged_as[1]} payloads at LSN "
                f"{append.acknowledged_as[0]}, told again as {count} at {first_lsn}"
            )
            witness.violated(Invariant.I7, text)
        elif append.acknowledged_as is not None:
            witness.count("acknowledged-again")
            witness.tell(AppendAcknowledged(append.operation, first_lsn, count))
        elif self._check_sent(append, "was acknowledged") and count != append.count:
            text = f"{append.count} payloads of sequence {append.sequence}, {count} acknowledged"
            witness.violated(Invariant.I4, text)
        append.acknowledged_as = append.acknowledged_as or (first_lsn, count)

    def _check_sent(self, append: Append, what: str) -> bool:
        """Whether a batch that the log has was sent, and, in a dense session, every one before
        it."""
        if append.sequence in self.unsent:
            text = f"sequence {append.sequence} {what}, and was not sent"
        elif self.unsent and self._is_dense and min(self.unsent) < append.sequence:
            text = f"sequence {append.sequence} {what}, {min(self.unsent)} before it was never sent"
        else:
            return True
        self.witness.violated(Invariant.I7, text)
        return False


def _pass_over(_append: Append) -> None:
    """For appends whose end no caller waits for."""
