"""Checks the answers to the appends of one producer of level `leader` or `none`, before the core
reads them (E10).

Owns which batches it has sent, by their numbers in the payloads, which rise over its epochs. It is
told nothing as committed on the ack feed, at level none nothing but refusals, and never that its
window is full. The core sends no batch a second time.
"""

from __future__ import annotations

import struct
from typing import Any

from actors.simulation.checkers.client_facts import (
    AppendInvoked,
    LossesCounted,
    ProvisionalSent,
    ProvisionalTold,
)
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.message_checker import MessageChecker, Received
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode
from logstore.format.batch import batch_payloads, read_batch_header
from logstore.format.client_messages import ACK_ROW, APPEND_PREFIX, Acks
from logstore.model import AckLevel

NUMBER = struct.Struct("<Q")  # at the beginning of a batch's first payload
# After these refusals the core opens the session again.
_REFUSALS = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.GAP,
        ErrorCode.FENCED,
        ErrorCode.UNKNOWN_PRODUCER,
    }
)


class ProvisionalChecker:
    """Checks one producer, `name`; `messages` checks its links."""

    def __init__(self, witness: Witness, name: str, level: AckLevel) -> None:
        self.witness = witness
        self.messages = MessageChecker(witness, {Acks: self._on_acks}, self._on_sent)
        self._name = name
        self._level = level
        self._sent: set[tuple[int, int, int]] = set()  # producer id, epoch, sequence
        self._numbers: set[int] = set()

    def counted(self, possibly_lost: int) -> None:
        """The producer has ended: so many of its batches may be lost."""
        self.witness.tell(LossesCounted(self._name, possibly_lost))

    def _on_sent(self, _link: Any, frame: bytes) -> None:
        header = read_batch_header(frame, APPEND_PREFIX.size)
        payloads = [bytes(each) for each in batch_payloads(frame, APPEND_PREFIX.size, header)]
        (number,) = NUMBER.unpack_from(payloads[0])
        numbers = header.producer_id, header.producer_epoch, header.sequence
        if number in self._numbers or numbers in self._sent:
            self.witness.violated(Invariant.I7, f"batch {number} is sent twice, as {numbers}")
        self._numbers.add(number)
        self._sent.add(numbers)
        self.witness.count("sent")
        self.witness.tell(AppendInvoked(self.witness.next_operation(), *numbers, payloads))
        self.witness.tell(ProvisionalSent(self._name, number, *numbers))

    def _on_acks(self, received: Received) -> None:
        acks: Acks = received.message
        for sequence, first_lsn, _, code, _ in ACK_ROW.iter_unpack(acks.rows):
            numbers = acks.producer_id, acks.producer_epoch, sequence
            if code == ErrorCode.PROVISIONAL:
                self._on_provisional(received.node, numbers, first_lsn)
            elif code == ErrorCode.OK:
                self.witness.violated(Invariant.I7, f"{numbers} is told as committed")
            elif code not in _REFUSALS:
                self.witness.violated(Invariant.I7, f"{numbers} was refused with {code}")
            else:
                self.witness.count(f"refused-{ErrorCode(code).name.lower()}")

    def _on_provisional(self, node: int, numbers: tuple[int, int, int], first_lsn: int) -> None:
        if self._level != AckLevel.LEADER or first_lsn or numbers not in self._sent:
            text = f"{numbers} is told as provisional at LSN {first_lsn}, of level {self._level}"
            self.witness.violated(Invariant.I7, text)
        self.witness.count("provisional")
        self.witness.tell(ProvisionalTold(node, *numbers))
