"""Observes messages of replicas as they are sent: to peers, and to clients.

Owns which endpoint is which, and which messages are decoded; others are told by their number. Must
not know what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.simulation.checkers import facts
from actors.simulation.oracle.ledger import Ledger
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    ACK_ROW,
    Acks,
    OpenSessionReply,
    SessionStateReply,
    TailGroup,
    TailNotice,
    Tip,
)
from logstore.format.message import decode_message, message_types
from logstore.format.peer_messages import AppendFrame
from logstore.settings import PortOffset

_NUMBERS = {cls: number.to_bytes(2, "little") for number, cls in message_types().items()}
NO_EPOCH = 0  # of answers to imports; those of producers begin at 1
_NUMBER = slice(6, 8)  # of the message, in its envelope
_ANSWERS = frozenset(_NUMBERS[each] for each in (Acks, OpenSessionReply, SessionStateReply))
_GROUPS = frozenset(_NUMBERS[each] for each in (TailGroup, TailNotice))
_TIP = _NUMBERS[Tip]


class WireObserver:
    """`place_of`: (node, which of its ports) of an endpoint."""

    def __init__(self, ledger: Ledger, place_of: Callable[[str], tuple[int, int]]) -> None:
        self._tell = ledger.tell
        self._place_of = place_of
        self._places: dict[str, tuple[int, int]] = {}

    def on_send(self, owner: Any, endpoint: str, frames: list[bytes]) -> None:
        """`owner` sends a message. Hot: every message of the world."""
        speaker = owner.node
        if not speaker:
            return  # a client
        place = self._places.get(endpoint)
        if place is None:
            place = self._places[endpoint] = self._place_of(endpoint)
        node, port = place
        if node != speaker:
            if port == PortOffset.PEER_BULK:
                self._appended(speaker, node, frames)
        elif port == PortOffset.TAIL:
            self._published(speaker, frames[0][_NUMBER])
        elif port in (PortOffset.ACKS, PortOffset.CONTROL, PortOffset.PRODUCE):
            if frames[1][_NUMBER] in _ANSWERS:
                self._answered(speaker, frames[1])

    def _appended(self, node: int, peer: int, frames: list[bytes]) -> None:
        """A message on a bulk lane between replicas; `peer`, too, drops what is no append."""
        try:
            _, message = decode_message(frames[0])
            append = message.append() if isinstance(message, AppendFrame) else None
        except FormatError:
            return
        if append is not None:
            body = frames[1] if len(frames) > 1 else b""
            self._tell(facts.EntrySent(node, peer, append, body))

    def _answered(self, node: int, frame: bytes) -> None:
        _, message = decode_message(frame)
        producer_id, epoch = message.producer_id, message.producer_epoch
        if isinstance(message, OpenSessionReply):
            self._tell(facts.OpenReplySent(node, producer_id, epoch))
            return
        for sequence, first_lsn, count, code, detail in ACK_ROW.iter_unpack(message.rows):
            if code == ErrorCode.UNKNOWN_PRODUCER:
                self._tell(facts.SessionDenied(producer_id))
            elif code == ErrorCode.NEXT_LSN_IS:
                self._tell(facts.NextLsnSent(node, detail))
            elif code == ErrorCode.OK and epoch == NO_EPOCH:
                self._tell(facts.ImportAckSent(node, (first_lsn, count)))
            elif code == ErrorCode.OK:
                self._tell(facts.AckSent(node, producer_id, sequence, (first_lsn, count)))

    def _published(self, node: int, number: bytes) -> None:
        if number in _GROUPS:
            self._tell(facts.GroupPublished(node))
        elif number == _TIP:
            self._tell(facts.TipPublished(node))
