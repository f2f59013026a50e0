"""Checks what comes over one connection of the produce port: answers to what was sent over it, and
no others (SAFETY E9).

Owns, by connection, the batches that were sent there, and those that a SessionState there said are
in the log: whose answers follow on it. What the answers say is judged elsewhere.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.client_facts import AnsweredThere
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.messages.witness import Witness
from logstore.errors import ErrorCode, FormatError, LogStoreError
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    SessionStateReply,
    append_prefix,
)
from logstore.format.conditional_prefix import batch_start

_MAGIC = append_prefix(0)[:2]


class AnsweredConnections:
    """The connections of one client, by link."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        # by producer id, epoch and sequence: whether a SessionState said that it is in the log
        self._due: dict[Any, dict[tuple[int, int, int], bool]] = {}

    def is_batch(self, frame: bytes) -> bool:
        return frame[: len(_MAGIC)] == _MAGIC

    def sent(self, link: Any, frame: bytes) -> None:
        """A batch, or what a careless producer sends in place of one."""
        try:
            header = read_batch_header(frame, batch_start(frame))
        except (FormatError, LogStoreError):
            return
        batch = header.producer_id, header.producer_epoch, header.sequence
        self._due.setdefault(link, {}).setdefault(batch, False)

    def on_state(self, link: Any, state: SessionStateReply) -> None:
        due = self._due.setdefault(link, {})
        for sequence, _, _, code, _ in ACK_ROW.iter_unpack(state.rows):
            if code == ErrorCode.OUTCOME_UNKNOWN:
                due[state.producer_id, state.producer_epoch, sequence] = True

    def on_acks(self, link: Any, node: int, acks: Acks) -> bool:
        """Whether each row is of a batch that was sent, or asked for, over this connection."""
        due = self._due.get(link, {})
        is_awaited = False
        for sequence, _, _, code, _ in ACK_ROW.iter_unpack(acks.rows):
            batch = acks.producer_id, acks.producer_epoch, sequence
            if batch not in due:
                text = f"node {node} answered {batch} over a connection on which it was not sent"
                self._witness.violated(Invariant.I11, text)
                return False
            is_awaited = is_awaited or (code == ErrorCode.OK and due[batch])
        self._witness.tell(AnsweredThere(is_awaited))
        return True

    def closed(self, link: Any) -> None:
        self._due.pop(link, None)
