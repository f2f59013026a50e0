"""Checks what replicas say of the appends of one producer epoch, before the core hears it (E7, E9).

Owns what was said of each so far. SessionState is the authority, the ack feed only makes it quick;
both must tell the same, of what was sent, and never two things of one sequence.
"""

from __future__ import annotations

from actors.simulation.checkers.client_facts import AppendAcknowledged, BatchRefused
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.amiss import ODD_ROUND_FIRST, Amiss
from actors.simulation.clients.append import Append
from actors.simulation.clients.appends import Appends
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wire_checker import Heard, WireChecker
from actors.simulation.clients.wish import Wish
from actors.simulation.network.core_links import SimulatedLink
from logstore.client.core.connection import Session
from logstore.client.refusal import RETRIED, TRANSIENT
from logstore.errors import ErrorCode
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    Acks,
    ErrorReply,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
)
from logstore.settings import PortOffset

_OF_SESSION = (OpenSessionRequest, SessionStateRequest)
_OF_A_REQUEST = TRANSIENT | {
    ErrorCode.NOT_COMMITTED, ErrorCode.OUTCOME_UNKNOWN, ErrorCode.FENCED,
    ErrorCode.UNKNOWN_PRODUCER,
}  # fmt: skip
_OF_A_BATCH = RETRIED | {
    ErrorCode.FENCED, ErrorCode.UNKNOWN_PRODUCER, ErrorCode.COMMITTED_LSN_UNKNOWN,
}  # fmt: skip


class AppendChecker:
    """The observer of one session's links. `begin` once the session is open."""

    def __init__(self, wire: Wire, wish: Wish) -> None:
        self.wire = wire
        self.amiss = Amiss(wire)
        self.round = 0
        self._wish = wish
        self._messages = WireChecker(
            wire,
            {
                OpenSessionReply: self._on_opened,
                SessionStateReply: self._on_state,
                ErrorReply: self._on_refused,
                Acks: self._on_acks,
            },
        )
        self._session: Session | None = None
        self._appends: Appends | None = None

    def begin(self, session: Session, appends: Appends) -> None:
        self._session, self._appends = session, appends

    # --- an observer's words ---

    def sent(self, link: SimulatedLink, frame: bytes) -> None:
        if self._messages.place_of(link)[1] is not PortOffset.APPEND:
            self._messages.sent(link, frame)
        elif self._appends is not None:
            header = read_batch_header(frame, APPEND_PREFIX.size)
            self._appends.unsent.pop(header.sequence, None)

    def received(self, link: SimulatedLink, frames: list[bytes]) -> None:
        self._messages.received(link, frames)

    def closed(self, link: SimulatedLink) -> None:
        self._messages.closed(link)

    # --- requests ---

    def _on_opened(self, heard: Heard) -> None:
        if not self._wish.is_granted_by(heard.message):
            self.wire.violated(Invariant.I17, f"{self._wish} was answered by {heard.message}")

    def _on_refused(self, heard: Heard) -> None:
        if isinstance(heard.request, _OF_SESSION) and heard.message.code not in _OF_A_REQUEST:
            text = f"{heard.request} is refused with {heard.message}"
            self.wire.violated(Invariant.I17, text)
        if heard.message.code == ErrorCode.UNKNOWN_PRODUCER:
            self.wire.count("strange-answers")

    def _on_state(self, heard: Heard) -> None:
        reply: SessionStateReply = heard.message
        session, appends = self._session, self._appends
        if session is None or appends is None:
            return
        if (reply.producer_id, reply.producer_epoch) != (
            session.producer_id, session.producer_epoch,
        ):  # fmt: skip
            self.wire.violated(Invariant.I7, f"state of another session: {reply}")
        self.round = heard.request.round
        self.wire.count("rounds")
        known = {row[0]: row for row in ACK_ROW.iter_unpack(reply.rows)}
        for sequence, append in appends.waiting.items():
            row = known.get(sequence)
            if row is None:
                if sequence < reply.next_sequence:
                    self._check_sent(append, "is committed")
                    self.wire.host.tell(BatchRefused(ErrorCode.COMMITTED_LSN_UNKNOWN))
            elif row[3] == ErrorCode.OK:
                self._acknowledged(append, row[1], row[2])
            else:
                self._check_sent(append, "is in the log")
                self.wire.count("in-log-unacknowledged")
        if self._wish.is_dense:
            self._check_next(appends, reply.next_sequence)

    def _check_next(self, appends: Appends, next_sequence: int) -> None:
        used = max((*appends.waiting, *appends.settled), default=-1)
        if next_sequence > used + 1:
            text = f"the log expects sequence {next_sequence}, {used + 1} was never sent"
            self.wire.violated(Invariant.I7, text)

    # --- the ack feed ---

    def _on_acks(self, heard: Heard) -> None:
        """Hot."""
        acks: Acks = heard.message
        session, appends = self._session, self._appends
        if session is None or appends is None or acks.producer_epoch != session.producer_epoch:
            return
        is_odd = acks.round >= ODD_ROUND_FIRST
        for sequence, first_lsn, count, code, detail in ACK_ROW.iter_unpack(acks.rows):
            if is_odd and self.amiss.refused(sequence, code):
                continue
            if is_odd and self._wish.is_dense:
                self.amiss.answered(sequence, code)
            elif code == ErrorCode.OK:
                append = appends.waiting.get(sequence) or appends.settled.get(sequence)
                if append is None:
                    text = f"sequence {sequence} was never sent, and acknowledged"
                    self.wire.violated(Invariant.I7, text)
                else:
                    self._acknowledged(append, first_lsn, count)
            elif acks.round == self.round:
                self._batch_refused(sequence, code, detail, session.producer_epoch)

    def _batch_refused(self, sequence: int, code: int, detail: int, epoch: int) -> None:
        """A refusal of the current round."""
        self.wire.host.tell(BatchRefused(code))
        if code == ErrorCode.FENCED and detail <= epoch:
            self.wire.violated(Invariant.I7, f"epoch {epoch} is fenced by epoch {detail}")
        elif code not in _OF_A_BATCH:
            text = f"sequence {sequence} of epoch {epoch} was refused with {code}"
            self.wire.violated(Invariant.I7, text)

    # --- one append ---

    def _acknowledged(self, append: Append, first_lsn: int, count: int) -> None:
        """The log says: committed, with these LSNs."""
        wire = self.wire
        if append.told is not None and append.told != (first_lsn, count):
            text = (
                f"sequence {append.sequence} has {append.told[1]} payloads at LSN "
                f"{append.told[0]}, told again as {count} at {first_lsn}"
            )
            wire.violated(Invariant.I7, text)
        elif append.told is not None:
            wire.count("acknowledged-again")
            wire.host.tell(AppendAcknowledged(append.operation, first_lsn, count))
        elif self._check_sent(append, "was acknowledged") and count != append.count:
            text = f"{append.count} payloads of sequence {append.sequence}, {count} acknowledged"
            wire.violated(Invariant.I4, text)
        append.told = append.told or (first_lsn, count)

    def _check_sent(self, append: Append, what: str) -> bool:
        """A dense session's batch that the log has was sent, and so was every one before it."""
        unsent = self._appends.unsent if self._appends is not None else ()
        if append.sequence in unsent:
            text = f"sequence {append.sequence} {what}, and was not sent"
        elif unsent and self._wish.is_dense and min(unsent) < append.sequence:
            text = f"sequence {append.sequence} {what}, {min(unsent)} before it was never sent"
        else:
            return True
        self.wire.violated(Invariant.I7, text)
        return False
