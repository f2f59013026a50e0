"""The appends of one producer epoch, as the core takes them and reports their outcome.

Owns their order and how many may be unresolved. Must not know sockets or rounds. It is to this
driver what `client.append_queue` is to that of threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from actors.simulation.checkers.messages.append_checker import AppendChecker
from logstore.client.core.connection import Session
from logstore.client.core.packs import Pack
from logstore.errors import InvariantViolated, LogStoreError
from logstore.format.batch import PackedPayloads, batch_size

P = TypeVar("P", bound=Pack)


class Append:
    """A batch from its payloads to its outcome: a `Pack` of the core. Its bytes are kept, since
    mischief sends them again."""

    def __init__(
        self,
        checker: AppendChecker,
        payloads: list[bytes],
        *,
        sequence: int,
        opened_ns: int,
        deadline_ns: int,
        expected_next_lsn: int | None = None,
    ) -> None:
        self.payloads: list[bytes] | PackedPayloads = payloads
        self.count = len(payloads)
        self.size_bytes = batch_size(self.count, sum(map(len, payloads)))
        self.opened_ns = opened_ns
        self.deadline_ns = deadline_ns
        self.sequence = sequence
        self.expected_next_lsn = expected_next_lsn
        self.operation = 0
        self.is_over = False
        self.acknowledged_as: tuple[int, int] | None = None
        self.is_acknowledged = False
        self.error: LogStoreError | None = None
        self._checker = checker
        self._batch = b""

    @property
    def batch(self) -> bytes:
        return self._batch

    @batch.setter
    def batch(self, batch: bytes) -> None:
        if batch:  # it is emptied once it is settled
            self._batch = batch
            self._checker.on_numbered(self)

    def is_settled(self) -> bool:
        return self.is_acknowledged or self.error is not None

    def resolve(self, first_lsn: int, count: int) -> None:
        self.is_acknowledged = self.is_over = True
        self._checker.on_committed(self, first_lsn, count)

    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        """No session of this producer has another level than quorum."""
        told = f"provisional, flushed: {is_flushed}"
        raise InvariantViolated(f"batch {self.sequence} of a session of quorum is {told}")

    def fail(self, error: LogStoreError) -> None:
        self.error = self.error or error
        self._checker.on_failed(self, error)


class PackQueue(Generic[P]):
    """What a `PackSource` of the core is where batches come whole: those that were not sent yet."""

    def __init__(self) -> None:
        self._queue: deque[P] = deque()

    def seal_due(self, opened_before_ns: int) -> None:
        """Batches come whole."""

    def open_since_ns(self) -> int:
        return 0

    def pop_sealed(self) -> P | None:
        return self._queue.popleft() if self._queue else None

    def limit_batches(self, most_bytes: int) -> None:
        """No replica of a seed changes its limit."""
        del most_bytes

    def pop_expired(self, now_ns: int) -> list[P]:
        expired = []
        while self._queue and self._queue[0].deadline_ns <= now_ns:
            expired.append(self._queue.popleft())
        return expired

    def first_deadline_ns(self) -> int:
        return self._queue[0].deadline_ns if self._queue else 0

    def drain(self) -> Sequence[P]:
        rest = list(self._queue)
        self._queue.clear()
        return rest

    def refuse(self, error: LogStoreError) -> None:
        """Producers see by themselves that their session is over."""
        del error


class Appends(PackQueue[Append]):
    """A `PackSource` of the core."""

    def __init__(
        self, checker: AppendChecker, session: Session, *, limit: int, deliver_ns: int
    ) -> None:
        super().__init__()
        self.size_bytes = 0
        self._checker = checker
        self._deliver_ns = deliver_ns
        self._session = session
        self._limit = limit

    @property
    def is_queue_empty(self) -> bool:
        return not self._queue

    @property
    def has_unresolved(self) -> bool:
        """Whether the log may still answer one of them, or one was not sent yet."""
        waiting = self._checker.waiting.values()
        return bool(self._queue) or any(not each.is_over for each in waiting)

    def has_room(self, size_bytes: int, *, batches: int = 1) -> bool:
        """Whether more batches of this size in all may be unresolved (E7, W6)."""
        is_within = len(self._checker.waiting) + len(self._queue) + batches <= self._limit
        return is_within and self.size_bytes + size_bytes <= self._session.window_bytes

    def append(
        self,
        payloads: list[bytes],
        *,
        sequence: int,
        now_ns: int,
        expected_next_lsn: int | None = None,
    ) -> Append:
        """A new batch; it is sent as soon as possible."""
        append = Append(
            self._checker,
            payloads,
            sequence=sequence,
            opened_ns=now_ns,
            deadline_ns=now_ns + self._deliver_ns,
            expected_next_lsn=expected_next_lsn,
        )
        self._queue.append(append)
        self.size_bytes += append.size_bytes
        return append

    # --- what the core asks for ---

    def snapshot(self) -> Sequence[Pack]:
        unresolved: tuple[Pack, ...] = (*self._checker.waiting.values(), *self._queue)
        return [append for append in unresolved if not append.is_settled()]

    def release(self, size_bytes: int) -> None:
        self.size_bytes -= size_bytes
