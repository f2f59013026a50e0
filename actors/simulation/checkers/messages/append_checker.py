"""Checks the answers to the appends of one producer epoch, before the core reads them (E7, E9).

Owns which batches were sent, and the answers to each, and tells the ledger. SessionState decides
the outcome, the ack feed shows it earlier: both must report the same, of batches that were sent,
and never two outcomes of one sequence. Batches that must be refused are pushed under rounds of
their own, whose refusals the core ignores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from actors.simulation.checkers.acknowledgements import FINAL_CODES
from actors.simulation.checkers.client_facts import (
    AppendAcknowledged,
    AppendInvoked,
    AppendRefused,
    BatchRefused,
)
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.message_checker import MessageChecker, Received
from actors.simulation.checkers.messages.witness import Witness
from logstore.client.core.packs import Pack
from logstore.errors import ErrorCode, LogStoreError
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import ACK_ROW, APPEND_PREFIX, Acks, SessionStateReply

# Rounds that no session reaches, since sessions number theirs up from zero.
MISCHIEF_ROUND_FIRST = 1 << 31
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
    open, `settled` those whose outcome is final, `unsent` those that were not sent yet.
    """

    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        listeners = {SessionStateReply: self._on_state, Acks: self._on_acks}
        self.messages = MessageChecker(witness, listeners, self._on_sent)
        self.round = 0
        self.waiting: dict[int, Append] = {}
        self.settled: dict[int, Append] = {}
        self.unsent: dict[int, None] = {}
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
        append.operation = self._invoked(append.sequence, append.payloads)
        self.waiting[append.sequence] = append
        self.unsent[append.sequence] = None

    def _on_sent(self, _link: Any, frame: bytes) -> None:
        sequence = read_batch_header(frame, APPEND_PREFIX.size).sequence
        self.unsent.pop(sequence, None)
        if 0 <= self._given_up < sequence:  # it counts as committed from now on (E1)
            text = f"sequence {sequence} is sent, and {self._given_up} was given up before"
            self.witness.violated(Invariant.I7, text)

    def on_committed(self, append: Append, first_lsn: int, count: int) -> None:
        self._settle(append)
        self.witness.count("acknowledged")
        self.witness.tell(AppendAcknowledged(append.operation, first_lsn, count))

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
        if error.code in FINAL_CODES or (is_forgotten and append.acknowledged_as is None):
            self.witness.tell(AppendRefused(append.operation, error.code))

    def give_up(self, sequence: int) -> None:
        """A batch failed and was never sent. -1: it had no sequence yet."""
        if self._given_up < 0:
            self._given_up = sequence

    def expect_refusal(self, sequence: int, payloads: Iterable[bytes]) -> None:
        """A batch that no replica may store is about to be pushed, not by the core."""
        self._bad[sequence] = self._invoked(sequence, payloads)

    def _invoked(self, sequence: int, payloads: Iterable[bytes]) -> int:
        """Tell the ledger of a new append; returns its number."""
        operation = self.witness.next_operation()
        numbers = self._producer_id, self._producer_epoch, sequence
        self.witness.tell(AppendInvoked(operation, *numbers, list(payloads)))
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
        if acks.producer_epoch != self._producer_epoch:
            return
        is_mischief = acks.round >= MISCHIEF_ROUND_FIRST
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
            elif acks.round == self.round:
                self._on_refused(sequence, code, detail)

    def _is_refused_for_good(self, sequence: int, code: int) -> bool:
        """Whether this refuses a batch that must be refused."""
        operation = self._bad.get(sequence)  # kept, since a message may come twice
        if code == ErrorCode.OK or operation is None:
            return False
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
        elif code not in _OF_A_BATCH:
            text = f"sequence {sequence} of epoch {epoch} was refused with {code}"
            self.witness.violated(Invariant.I7, text)

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
