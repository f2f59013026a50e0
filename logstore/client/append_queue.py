"""The queue between the threads that append and the one that sends: packing and backpressure.

Owns the open pack, the sealed packs and the count of unacknowledged bytes, all under one lock.
Knows no sockets, sequences or leaders. Invariants: packs leave in the order they were opened; the
unacknowledged bytes exceed the window only by a single append that found it empty. A
Ctrl-C during an append loses that append at most: what is counted has been queued, and what `flush`
waits for will be sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.steps import nanoseconds
from logstore.client.future import (
    BATCH_OVERHEAD_BYTES,
    PAYLOAD_OVERHEAD_BYTES,
    AppendFuture,
    Pack,
    without_traceback,
)
from logstore.errors import BatchTooLarge, InvalidBatch, InvalidRequest, LogStoreError, Overloaded
from logstore.format.batch import PackedPayloads
from logstore.limits import BATCH_MAX_PAYLOADS


class QueueLimits(msgspec.Struct, frozen=True):
    """What bounds a producer's memory and its waits."""

    window_bytes: int
    pack_bytes: int
    batch_max_bytes: int
    append_timeout_s: float
    delivery_timeout_s: float

    @property
    def pack_max_bytes(self) -> int:
        """When a pack is full. Each payload counts with its offset, so a pack of empty payloads is
        bounded, too."""
        payloads_bytes = PAYLOAD_OVERHEAD_BYTES * BATCH_MAX_PAYLOADS
        return min(self.pack_bytes, self.batch_max_bytes, payloads_bytes)

    def with_batch_max(self, most_bytes: int) -> QueueLimits:
        """The same with another limit of the replicas."""
        return msgspec.structs.replace(self, batch_max_bytes=most_bytes)

    def check_batch(self, size_bytes: int) -> None:
        """Raises: BatchTooLarge: no replica takes a batch of so many bytes."""
        if size_bytes > self.batch_max_bytes:
            raise BatchTooLarge(
                f"{size_bytes} bytes in one batch, at most {self.batch_max_bytes}: split it, or "
                "raise the replicas' limit"
            )


class AppendQueue:
    """Packs on their way from callers to the network thread."""

    def __init__(self, limits: QueueLimits, *, ring: Callable[[], None]) -> None:
        self._limits = limits
        self._ring = ring
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._open: Pack | None = None
        self._sealed: deque[Pack] = deque()
        self._unsettled: deque[Pack] = deque()
        self._size_bytes = 0
        # What `_size_bytes` may reach, with room for the batch that an append may begin.
        self._most_bytes = limits.window_bytes - BATCH_OVERHEAD_BYTES
        # The same without a closer look: below 0 once appends are refused.
        self._limit_bytes = self._most_bytes
        self._refusal: LogStoreError | None = None
        self._pack_bytes = limits.pack_max_bytes
        self._delivery_timeout_ns = nanoseconds(limits.delivery_timeout_s)

    # --- callers ---

    def append(self, payload: bytes) -> AppendFuture:
        """Add one payload to the open pack. Hot: once per payload."""
        if type(payload) is not bytes:
            payload = bytes_of(payload)
        size = len(payload) + PAYLOAD_OVERHEAD_BYTES
        is_first = False
        with self._lock:
            if self._size_bytes + size > self._limit_bytes:
                self._wait_for_room(size)
            pack = self._open
            if pack is not None and pack.size_bytes + size > self._pack_bytes:
                self._seal()
                pack = None
            if pack is None:
                is_first, position = True, 0
                pack = self._new_pack([payload], size)
                self._size_bytes += pack.size_bytes
                self._open = pack
                self._unsettled.append(pack)
            else:
                self._size_bytes += size
                pack.size_bytes += size
                position = len(pack.payloads)
                pack.payloads.append(payload)  # type: ignore[union-attr]  # an open one is a list
        if is_first:
            self._ring()
        return AppendFuture(pack, position, False)

    def append_batch(
        self, payloads: Sequence[bytes], *, sequence: int, expected_next_lsn: int | None = None
    ) -> AppendFuture:
        """Seal what is open, then queue these payloads as a batch. `sequence` -1: the next."""
        batch, size = batch_of(payloads)
        with self._lock:
            if self._size_bytes + size > self._limit_bytes:
                self._wait_for_room(size)
            self._seal()
            pack = self._new_pack(batch, size)
            pack.sequence = sequence
            pack.expected_next_lsn = expected_next_lsn
            self._size_bytes += pack.size_bytes
            self._sealed.append(pack)
            self._unsettled.append(pack)
        self._ring()
        return AppendFuture(pack, 0, True)

    def snapshot(self) -> list[Pack]:
        """Seal what is open; every pack whose outcome is not known yet."""
        with self._lock:
            self._seal()
            packs = [pack for pack in self._unsettled if not pack.is_settled()]
        self._ring()
        return packs

    # --- the network thread ---

    def seal_due(self, opened_before_ns: int) -> None:
        """Seal the open pack if it was opened before that time (monotonic ns)."""
        with self._lock:
            if self._open is not None and self._open.opened_ns <= opened_before_ns:
                self._seal()

    def open_since_ns(self) -> int:
        """When the open pack was opened, monotonic; 0: there is none."""
        pack = self._open
        return 0 if pack is None else pack.opened_ns

    def pop_sealed(self) -> Pack | None:
        with self._lock:
            return self._sealed.popleft() if self._sealed else None

    def limit_batches(self, most_bytes: int) -> None:
        """Build, and take, batches of at most so many bytes from now on."""
        with self._lock:
            self._limits = self._limits.with_batch_max(most_bytes)
            self._pack_bytes = self._limits.pack_max_bytes

    def pop_expired(self, now_ns: int) -> list[Pack]:
        """Packs that are past their deadline and were never handed out for sending."""
        expired = []
        with self._lock:
            if self._open is not None and self._open.deadline_ns <= now_ns:
                self._seal()
            while self._sealed and self._sealed[0].deadline_ns <= now_ns:
                expired.append(self._sealed.popleft())
        return expired

    def first_deadline_ns(self) -> int:
        """Of the packs not handed out yet; 0: there are none."""
        with self._lock:
            pack = self._sealed[0] if self._sealed else self._open
            return 0 if pack is None else pack.deadline_ns

    def drain(self) -> list[Pack]:
        """All packs that were never handed out. Call it after `refuse`: none are added then."""
        with self._lock:
            self._seal()
            packs = list(self._sealed)
            self._sealed.clear()
        return packs

    def release(self, size_bytes: int) -> None:
        """Packs of so many bytes in all are settled: let waiting callers go on."""
        with self._lock:
            self._size_bytes -= size_bytes
            unsettled = self._unsettled
            while unsettled and unsettled[0].is_settled():
                unsettled.popleft()
            self._room.notify_all()

    def refuse(self, error: LogStoreError) -> None:
        """Refuse every later append, and those that wait for room, with this error."""
        with self._lock:
            if self._refusal is None:
                self._refusal = error
            self._limit_bytes = -1
            self._room.notify_all()

    # --- under the lock ---

    def _new_pack(self, payloads: list[bytes] | PackedPayloads, size: int) -> Pack:
        now_ns = monotonic_ns()
        pack = Pack(payloads, opened_ns=now_ns, deadline_ns=now_ns + self._delivery_timeout_ns)
        self._limits.check_batch(pack.size_bytes + size)
        pack.size_bytes += size
        return pack

    def _seal(self) -> None:
        pack, self._open = self._open, None
        if pack is not None:
            self._sealed.append(pack)

    def _wait_for_room(self, size: int) -> None:
        """Park the caller until the window takes `size` more bytes, or is empty."""
        deadline_ns = seconds_from_now(self._limits.append_timeout_s)
        while True:
            if self._refusal is not None:
                raise without_traceback(self._refusal)
            if not self._size_bytes or self._size_bytes + size <= self._most_bytes:
                return
            if self._open is not None:  # a pack that fills the window must not linger
                self._seal()
                self._ring()
            left_s = (deadline_ns - monotonic_ns()) / 1e9
            if left_s <= 0 or not self._room.wait(left_s):
                raise full_window(self._size_bytes, self._limits.append_timeout_s)


def full_window(size_bytes: int, waited_s: float) -> Overloaded:
    return Overloaded(
        f"{size_bytes} unacknowledged bytes fill the window, and none was acknowledged within "
        f"{waited_s} s: retry later"
    )


def batch_of(payloads: Sequence[bytes]) -> tuple[list[bytes] | PackedPayloads, int]:
    """The payloads of one batch, and their bytes with those of their offsets.

    Raises:
      InvalidBatch, BatchTooLarge: none, or too many.
      InvalidRequest: one is not bytes.
    """
    batch: list[bytes] | PackedPayloads
    given: object = payloads
    if isinstance(given, bytes | str) or not isinstance(given, Iterable):
        raise InvalidRequest(f"a batch is a list of payloads, not {type(payloads).__name__}")
    if isinstance(payloads, PackedPayloads):
        batch, payload_bytes = payloads, len(payloads.values)
    else:
        batch = [item if type(item) is bytes else bytes_of(item) for item in payloads]
        payload_bytes = sum(map(len, batch))
    if not batch:
        raise InvalidBatch("a batch holds at least one payload; there is nothing to append")
    if len(batch) > BATCH_MAX_PAYLOADS:
        raise BatchTooLarge(
            f"{len(batch)} payloads in one batch, at most {BATCH_MAX_PAYLOADS}: split it"
        )
    return batch, payload_bytes + PAYLOAD_OVERHEAD_BYTES * len(batch)


def bytes_of(payload: object) -> bytes:
    try:
        return memoryview(payload).tobytes()  # type: ignore[arg-type]  # checked by the call itself
    except TypeError:
        raise InvalidRequest(
            f"a payload is bytes, not {type(payload).__name__}: encode it first"
        ) from None
