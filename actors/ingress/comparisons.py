"""Batches that expect an LSN: compared where the log ends, taken or refused (SAFETY E11).

Owns the refusals that are not told yet. A batch is decided when it is read: it is taken if the
stream of proposals, its uncommitted tail included, ends at the LSN that it expects. Otherwise its
refusal says that the batch was never stored and never will be, and where the log ended. That must
be true under each leader, so a refusal is held back twice:

1. until raft has confirmed, by a quorum round begun after the decision, that this replica leads. A
   deposed leader does not know what its successor has stored, maybe the very batch;
2. until all that was in the stream at the decision is committed. Another leader may discard it, and
   the refusal would rest on what never happened.

If the gen ends before, the producer is sent on to the next leader, as with any batch that was not
taken: nothing is said about the expectation. Must not know what a conversation is.
"""

from __future__ import annotations

import msgspec

from actors.ingress.ack_levels import Held
from actors.ingress.acks import AckFeed
from actors.ingress.admission import NOT_OPEN, Admission
from actors.ingress.conversations import Conversations
from actors.ingress.groups import Group, Origin, Route
from actors.ingress.pushes import Push
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import READS_OF_COMPARISONS
from logstore.errors import ErrorCode
from logstore.format.conditional_prefix import Expectation
from logstore.format.level import EXPECTED_LSN_LEVEL
from logstore.model import NO_INDEX, Lsn
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.session.session import Refused

_NOT_MONOTONE = Refused(ErrorCode.INVALID_BATCH, 0, "only a monotone session expects LSNs")
_OTHER_CONVERSATION = Refused(ErrorCode.NOT_COMMITTED, 0, "ask SessionState, then send it again")


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A refusal, the `number`-th. `batch`: producer id, producer epoch, sequence, count. `seen`:
    the newest group that was not committed when it was decided."""

    number: int
    batch: tuple[int, int, int, int]
    route: Route
    attempt: int
    code: ErrorCode
    detail: int
    seen: Group | None


class Comparisons:
    """Decides batches with an expectation. One refusal of each producer is held, its newest: it has
    one batch under way."""

    def __init__(
        self, admission: Admission, conversations: Conversations, acks: AckFeed, to_raft: ToRaft
    ) -> None:
        self._admission = admission
        self._conversations = conversations
        self._acks = acks
        self._to_raft = to_raft
        self._held: dict[int, _Held] = {}  # by producer, in the order of their numbers
        self._decided = 0  # refusals, ever
        self._asked = 0  # so many of them were decided before raft was asked
        self._confirmed = 0  # so many raft has confirmed
        self._reads = 0
        self._is_asking = False

    def take(
        self, push: Push, batch: memoryview, expectation: Expectation, now_ns: int
    ) -> Origin | Refused | Held | None:
        """Add the batch to the stream if it is new and gets the LSN that it expects.

        Returns:
          As `Admission.take_batch`. None also stands for a refusal that is told later, and for a
          copy of a batch that was refused.
        """
        admission, header = self._admission, push.header
        table = admission.table
        if table is None:
            return NOT_OPEN
        producer_id = header.producer_id
        numbers = (producer_id, header.producer_epoch)
        known = table.check(*numbers, header.sequence, header.count, header.crc)
        session = table.get(producer_id)
        if known is not None or session is None:
            return admission.take_batch(push, batch, now_ns)  # whatever it expects
        if session.is_dense:
            return _NOT_MONOTONE
        conversations = self._conversations
        if not conversations.is_open(admission.proposals.gen, *numbers, push.route):
            return _OTHER_CONVERSATION
        if not conversations.is_new(producer_id, expectation.attempt):
            return None
        self._held.pop(producer_id, None)
        lsn = Lsn(expectation.expected_lsn)
        refused = self._why_refused(lsn)
        if refused is not None:
            admission.heard_of(producer_id, now_ns)
            self._hold(push, expectation, *refused)
            return None
        outcome = admission.take_batch(push, batch, now_ns)
        admission.proposals.expect(lsn)
        return outcome

    def _why_refused(self, expected_lsn: Lsn) -> tuple[ErrorCode, int] | None:
        """The code and detail of a refusal; None: the batch is taken. A conversation is open, so
        this leader is ready, and the level is that of the committed log (S11)."""
        if self._admission.level < EXPECTED_LSN_LEVEL:
            return ErrorCode.LEVEL_REFUSED, 0
        end_lsn = self._admission.proposals.end_lsn
        return None if end_lsn == expected_lsn else (ErrorCode.NEXT_LSN_IS, end_lsn)

    # --- refusals ---

    def _hold(self, push: Push, expectation: Expectation, code: ErrorCode, detail: int) -> None:
        header = push.header
        batch = (header.producer_id, header.producer_epoch, header.sequence, header.count)
        self._decided += 1
        seen = self._admission.proposals.newest_pending(None)
        self._held[header.producer_id] = _Held(
            self._decided, batch, push.route, expectation.attempt, code, detail, seen
        )
        self._ask()

    def _ask(self) -> None:
        """Have raft confirm what was decided so far; one read at a time."""
        if self._is_asking or self._decided == self._asked:
            return
        self._is_asking = True
        self._asked = self._decided
        self._reads += 1
        self._to_raft.send(ReadIndexRequested(READS_OF_COMPARISONS + self._reads))

    def on_read_index(self, answered: ReadIndexAnswered) -> bool:
        """Raft has confirmed that this replica leads, or it does not. False: that answers a read of
        another part."""
        if answered.request_id < READS_OF_COMPARISONS:
            return False
        self._is_asking = False
        self._confirmed = self._asked
        if not answered.is_leader:
            self._send_on(self._asked)
        self.release()
        self._ask()
        return True

    def release(self) -> None:
        """Tell the refusals that are confirmed, and whose stream is committed; send all on if the
        gen has ended. Called after each message of raft that may have changed that."""
        held, table = self._held, self._admission.table
        if table is None:
            self._send_on(self._decided)
            return
        while held:
            refusal = next(iter(held.values()))
            seen = refusal.seen
            if refusal.number > self._confirmed:
                return
            if seen is not None and not NO_INDEX < seen.index <= table.commit:
                return
            self._tell(refusal, refusal.code, refusal.detail, refusal.attempt)

    def _send_on(self, number: int) -> None:
        """Nothing is said about the expectations of the refusals up to this one: the batches were
        not taken here."""
        while self._held:
            refusal = next(iter(self._held.values()))
            if refusal.number > number:
                return
            self._tell(refusal, ErrorCode.NOT_LEADER, 0, attempt=0)

    def _tell(self, refusal: _Held, code: ErrorCode, detail: int, attempt: int) -> None:
        del self._held[refusal.batch[0]]
        self._acks.refuse(refusal.batch, refusal.route, code, detail, attempt)
