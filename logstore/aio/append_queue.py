"""The queue between the code that appends and the steps that send: packing and back-pressure.

Owns the open pack, the sealed packs, and how many bytes are queued and sent; one loop uses it, so
nothing waits here but `room`. Knows no sockets, sequences or leaders. Invariants: packs leave in
the order they were opened; the bytes that are sent and unacknowledged exceed the window only by a
pack that found it empty; what is queued behind them is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from logstore.client.append_queue import QueueLimits, batch_of, bytes_of, full_window
from logstore.client.clock import monotonic_ns
from logstore.client.core.steps import nanoseconds
from logstore.client.future import (
    BATCH_OVERHEAD_BYTES,
    FLUSHED,
    HANDED_OVER,
    PAYLOAD_OVERHEAD_BYTES,
    LsnRange,
    without_traceback,
)
from logstore.errors import LogStoreError, Overloaded
from logstore.format.batch import PackedPayloads
from logstore.limits import MIB

# What may be queued behind the window: appends do not wait.
QUEUE_MAX_BYTES = 64 * MIB


class LoopPack:
    """One client batch from its first payload to its outcome. `futures`: one for each payload, or
    one for all of them."""

    __slots__ = (
        "_is_settled",
        "_on_settled",
        "batch",
        "deadline_ns",
        "expected_next_lsn",
        "futures",
        "is_whole",
        "number",
        "opened_ns",
        "payloads",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self,
        payloads: list[bytes] | PackedPayloads,
        futures: list[asyncio.Future[LsnRange]],
        *,
        is_whole: bool,
        size_bytes: int,
        deadline_after_ns: int,
        number: int,
        on_settled: Callable[[], None],
    ) -> None:
        self.payloads = payloads
        self.futures = futures
        self.is_whole = is_whole
        self.size_bytes = size_bytes
        self.opened_ns = monotonic_ns()
        self.deadline_ns = self.opened_ns + deadline_after_ns
        self.sequence = -1
        self.expected_next_lsn: int | None = None
        self.batch = b""
        self.number = number
        self._is_settled = False
        self._on_settled = on_settled

    def is_settled(self) -> bool:
        return self._is_settled

    def resolve(self, first_lsn: int, count: int) -> None:
        """The batch is committed with `count` LSNs from `first_lsn` on."""
        if self._is_settled:
            return
        futures = self._settle()
        if self.is_whole:
            if futures and not futures[0].done():
                futures[0].set_result(LsnRange(first_lsn, first_lsn + count - 1))
            return
        for lsn, future in enumerate(futures, first_lsn):
            if not future.done():  # cancelled: nobody waits any more
                future.set_result(LsnRange(lsn, lsn))

    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        """Nothing more is said of the batch (SAFETY E10)."""
        if self._is_settled:
            return
        outcome = FLUSHED if is_flushed else HANDED_OVER
        for future in self._settle():
            if not future.done():
                future.set_result(outcome)

    def fail(self, error: LogStoreError) -> None:
        if self._is_settled:
            return
        for future in self._settle():
            if not future.done():
                future.set_exception(without_traceback(error))
                future.exception()  # a caller that only flushes need not ask for it

    def _settle(self) -> list[asyncio.Future[LsnRange]]:
        """The futures that take the outcome: none of a loop that is closed."""
        self._is_settled = True
        futures, self.futures = self.futures, []
        self._on_settled()
        return [] if futures[0].get_loop().is_closed() else futures


class LoopAppendQueue:
    """Packs on their way from callers to the steps that send them."""

    def __init__(
        self, limits: QueueLimits, loop: asyncio.AbstractEventLoop, *, wake: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._loop = loop
        self._wake = wake
        self._open: LoopPack | None = None
        self._sealed: deque[LoopPack] = deque()
        self._unsettled: deque[LoopPack] = deque()
        self._packs = 0  # how many there were: the number of the last one
        # By number: done once all packs up to that one are settled.
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._size_bytes = 0
        self._sent_bytes = 0  # of them, handed out
        self._limit_bytes = limits.window_bytes + QUEUE_MAX_BYTES
        self._refusal: LogStoreError | None = None
        self._room: asyncio.Future[None] | None = None
        self._pack_bytes = limits.pack_max_bytes
        self._delivery_timeout_ns = nanoseconds(limits.delivery_timeout_s)

    # --- callers ---

    def append(self, payload: bytes) -> asyncio.Future[LsnRange]:
        """Add one payload to the open pack. Hot: once per payload."""
        if type(payload) is not bytes:
            payload = bytes_of(payload)
        size = len(payload) + PAYLOAD_OVERHEAD_BYTES
        if self._size_bytes + size > self._limit_bytes:
            self._refuse_append()
        pack = self._open
        if pack is not None and pack.size_bytes + size > self._pack_bytes:
            self._seal()
            pack = None
        future = self._loop.create_future()
        if pack is None:
            self._open = self._new_pack([payload], [future], size)
            self._wake()
        else:
            self._size_bytes += size
            pack.size_bytes += size
            pack.payloads.append(payload)  # type: ignore[union-attr]  # an open one is a list
            pack.futures.append(future)
        return future

    def append_batch(
        self, payloads: Sequence[bytes], *, sequence: int, expected_next_lsn: int | None = None
    ) -> asyncio.Future[LsnRange]:
        """Seal what is open, then queue these payloads as a batch. `sequence` -1: the next."""
        batch, size = batch_of(payloads)
        if self._size_bytes + size > self._limit_bytes:
            self._refuse_append()
        future = self._loop.create_future()
        self._seal()
        pack = self._new_pack(batch, [future], size, is_whole=True)
        pack.sequence = sequence
        pack.expected_next_lsn = expected_next_lsn
        self._sealed.append(pack)
        self._wake()
        return future

    async def room(self) -> None:
        """Wait until less than a window of appends has no outcome.

        Raises:
          Overloaded: nothing was acknowledged for the append timeout.
          LogStoreError: appends are refused.
        """
        while self._refusal is None and self._size_bytes >= self._limits.window_bytes:
            if self._room is None:
                self._room = self._loop.create_future()
            done, _ = await asyncio.wait([self._room], timeout=self._limits.append_timeout_s)
            if not done:
                raise full_window(self._size_bytes, self._limits.append_timeout_s)
        if self._refusal is not None:
            raise without_traceback(self._refusal)

    def flush(self) -> asyncio.Future[None]:
        """Seal what is open; a future that is done once every pack so far has its outcome."""
        self._seal()
        self._wake()
        flush = self._flushes.get(self._packs)
        if flush is None:
            flush = self._loop.create_future()
            if self._unsettled:
                self._flushes[self._packs] = flush
            else:
                flush.set_result(None)
        return flush

    def snapshot(self) -> list[LoopPack]:
        """Seal what is open; every pack whose outcome is not known yet."""
        self._seal()
        return [pack for pack in self._unsettled if not pack.is_settled()]

    # --- the steps ---

    def seal_due(self, opened_before_ns: int) -> None:
        """Seal the open pack if it was opened before that time (monotonic ns)."""
        if self._open is not None and self._open.opened_ns <= opened_before_ns:
            self._seal()

    def open_since_ns(self) -> int:
        """When the open pack was opened, monotonic; 0: there is none."""
        return 0 if self._open is None else self._open.opened_ns

    def pop_sealed(self) -> LoopPack | None:
        """The next pack, if the window has room for it."""
        if not self._sealed:
            return None
        size_bytes = self._sealed[0].size_bytes
        if self._sent_bytes and self._sent_bytes + size_bytes > self._limits.window_bytes:
            return None
        self._sent_bytes += size_bytes
        return self._sealed.popleft()

    def limit_batches(self, most_bytes: int) -> None:
        """Build, and take, batches of at most so many bytes from now on."""
        self._limits = self._limits.with_batch_max(most_bytes)
        self._pack_bytes = self._limits.pack_max_bytes

    def pop_expired(self, now_ns: int) -> list[LoopPack]:
        """Packs that are past their deadline and were never handed out for sending."""
        expired = []
        if self._open is not None and self._open.deadline_ns <= now_ns:
            self._seal()
        while self._sealed and self._sealed[0].deadline_ns <= now_ns:
            expired.append(self._sealed.popleft())
            self._sent_bytes += expired[-1].size_bytes  # `release` takes it back
        return expired

    def first_deadline_ns(self) -> int:
        """Of the packs not handed out yet; 0: there are none."""
        pack = self._sealed[0] if self._sealed else self._open
        return 0 if pack is None else pack.deadline_ns

    def drain(self) -> list[LoopPack]:
        """All packs that were never handed out. Call it after `refuse`: none are added then."""
        self._seal()
        packs = list(self._sealed)
        self._sealed.clear()
        self._sent_bytes += sum(pack.size_bytes for pack in packs)
        return packs

    def release(self, size_bytes: int) -> None:
        """Packs of so many bytes in all are settled."""
        self._size_bytes -= size_bytes
        self._sent_bytes -= size_bytes
        self._tell_room()

    def refuse(self, error: LogStoreError) -> None:
        """Refuse every later append, and those that wait for room, with this error."""
        if self._refusal is None:
            self._refusal = error
        self._limit_bytes = -1
        self._tell_room()

    # --- within ---

    def _new_pack(
        self,
        payloads: list[bytes] | PackedPayloads,
        futures: list[asyncio.Future[LsnRange]],
        size: int,
        *,
        is_whole: bool = False,
    ) -> LoopPack:
        size_bytes = BATCH_OVERHEAD_BYTES + size
        self._limits.check_batch(size_bytes)
        pack = LoopPack(
            payloads,
            futures,
            is_whole=is_whole,
            size_bytes=size_bytes,
            deadline_after_ns=self._delivery_timeout_ns,
            number=self._packs + 1,
            on_settled=self._on_settled,
        )
        self._packs += 1
        self._size_bytes += size_bytes
        self._unsettled.append(pack)
        return pack

    def _seal(self) -> None:
        pack, self._open = self._open, None
        if pack is not None:
            self._sealed.append(pack)

    def _on_settled(self) -> None:
        unsettled, flushes = self._unsettled, self._flushes
        while unsettled and unsettled[0].is_settled():
            unsettled.popleft()
        if flushes:
            first = unsettled[0].number if unsettled else self._packs + 1
            while flushes and (number := next(iter(flushes))) < first:  # they rise
                flush = flushes.pop(number)
                if not flush.done() and not self._loop.is_closed():
                    flush.set_result(None)

    def _tell_room(self) -> None:
        """Who waits looks again, and waits for as long again if there is none."""
        room, self._room = self._room, None
        if room is not None and not room.done() and not self._loop.is_closed():
            room.set_result(None)

    def _refuse_append(self) -> None:
        if self._refusal is not None:
            raise without_traceback(self._refusal)
        raise Overloaded(
            f"{self._size_bytes} bytes of appends have no outcome, {QUEUE_MAX_BYTES} more than "
            "the window: await producer.room() between appends"
        )
