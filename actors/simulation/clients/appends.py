"""The appends of one producer epoch: the core takes them from here and reports their outcome.

Owns their order and their room, and tells the ledger of them. Must not know sockets or rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from actors.simulation.checkers.acknowledgements import FINAL_CODES
from actors.simulation.checkers.client_facts import AppendAcknowledged, AppendInvoked, AppendRefused
from actors.simulation.checkers.messages.append_checker import AppendChecker
from logstore.client.core.connection import Session
from logstore.errors import ErrorCode, LogStoreError
from logstore.format.batch import PackedPayloads, batch_size


class Append:
    """A batch from its payloads to its outcome: a `Pack` of the core. Its bytes never change.

    They stay, for who sends them again. `told`: first LSN and count, as the log acknowledged them
    first; count 0: committed, LSNs unknown. `is_over`: nothing more will be heard of it.
    """

    def __init__(
        self, appends: Appends, payloads: list[bytes], *, sequence: int, opened_ns: int
    ) -> None:
        self.payloads: list[bytes] | PackedPayloads = payloads
        self.count = len(payloads)
        self.size_bytes = batch_size(self.count, sum(map(len, payloads)))
        self.opened_ns = opened_ns
        self.deadline_ns = opened_ns + appends.deliver_ns
        self.sequence = sequence
        self.operation = 0
        self.is_over = False
        self.told: tuple[int, int] | None = None
        self.is_acknowledged = False
        self.error: LogStoreError | None = None
        self._appends = appends
        self._batch = b""

    @property
    def batch(self) -> bytes:
        return self._batch

    @batch.setter
    def batch(self, batch: bytes) -> None:
        if batch:  # it is emptied once it is settled
            self._batch = batch
            self._appends.on_numbered(self)

    def is_settled(self) -> bool:
        return self.is_acknowledged or self.error is not None

    def resolve(self, first_lsn: int, count: int) -> None:
        self.is_acknowledged = self.is_over = True
        self._appends.on_committed(self, first_lsn, count)

    def fail(self, error: LogStoreError) -> None:
        self.error = self.error or error
        self._appends.on_failed(self, error)


class Appends:
    """A `PackSource` of the core. By sequence, of those that have their bytes: `waiting` for the
    log's answer, `settled` for good."""

    def __init__(
        self, checker: AppendChecker, session: Session, *, limit: int, deliver_ns: int
    ) -> None:
        self.deliver_ns = deliver_ns
        self.waiting: dict[int, Append] = {}
        self.settled: dict[int, Append] = {}
        self.size_bytes = 0
        self._checker = checker
        self._witness = checker.witness
        self._session = session
        self._limit = limit
        self._queue: deque[Append] = deque()

    @property
    def is_queue_empty(self) -> bool:
        return not self._queue

    @property
    def has_unresolved(self) -> bool:
        """Whether the log may still answer one of them, or one was not sent yet."""
        return bool(self._queue) or any(not each.is_over for each in self.waiting.values())

    def has_room(self, size_bytes: int, *, batches: int = 1) -> bool:
        """Whether more batches of this size in all may be unresolved (E7, W6)."""
        is_within = len(self.waiting) + len(self._queue) + batches <= self._limit
        return is_within and self.size_bytes + size_bytes <= self._session.window_bytes

    def append(self, payloads: list[bytes], *, sequence: int, now_ns: int) -> Append:
        """A new batch; it is sent as soon as may be."""
        append = Append(self, payloads, sequence=sequence, opened_ns=now_ns)
        self._queue.append(append)
        self.size_bytes += append.size_bytes
        return append

    # --- what the core asks for ---

    def seal_due(self, opened_before_ns: int) -> None:
        """Batches come whole."""

    def open_since_ns(self) -> int:
        return 0

    def pop_sealed(self) -> Append | None:
        return self._queue.popleft() if self._queue else None

    def pop_expired(self, now_ns: int) -> list[Append]:
        expired = []
        while self._queue and self._queue[0].deadline_ns <= now_ns:
            expired.append(self._queue.popleft())
        return expired

    def first_deadline_ns(self) -> int:
        return self._queue[0].deadline_ns if self._queue else 0

    def drain(self) -> Sequence[Append]:
        rest = list(self._queue)
        self._queue.clear()
        return rest

    def snapshot(self) -> Sequence[Append]:
        unresolved = (*self.waiting.values(), *self._queue)
        return [append for append in unresolved if not append.is_settled()]

    def release(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes

    def refuse(self, error: LogStoreError) -> None:
        """Its session is over, and whoever appends sees that."""
        del error

    # --- what becomes of each ---

    def on_numbered(self, append: Append) -> None:
        """It has its sequence and its bytes."""
        append.operation = self._witness.next_operation()
        self.waiting[append.sequence] = append
        self._checker.unsent[append.sequence] = None
        session = self._session
        numbers = session.producer_id, session.producer_epoch, append.sequence
        self._witness.tell(AppendInvoked(append.operation, *numbers, list(append.payloads)))

    def on_committed(self, append: Append, first_lsn: int, count: int) -> None:
        self._settle(append)
        self._witness.count("acknowledged")
        self._witness.tell(AppendAcknowledged(append.operation, first_lsn, count))

    def on_failed(self, append: Append, error: LogStoreError) -> None:
        """What the user is told for good must be true."""
        if not append.batch:
            append.is_over = True
            return
        is_forgotten = error.code == ErrorCode.COMMITTED_LSN_UNKNOWN
        if is_forgotten:
            self._witness.count("committed-lsn-unknown")
            append.is_over = True
            self._settle(append)
        if error.code in FINAL_CODES or (is_forgotten and append.told is None):
            self._witness.tell(AppendRefused(append.operation, error.code))

    def _settle(self, append: Append) -> None:
        self.waiting.pop(append.sequence, None)
        self._checker.unsent.pop(append.sequence, None)
        self.settled[append.sequence] = append
