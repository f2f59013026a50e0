"""The consumer for asyncio: iteration, and closing by any task.

`core.consumer_machine` decides what is read from which replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from logstore.aio.driver import CallGuard, Driver
from logstore.client.consumer import warn_of_skipped
from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.core.start import Start
from logstore.client.records import Record, RecordBatch
from logstore.client.unread import Unread


class Consumer:
    """Reads committed payloads in order, for one task at a time. Use it as an async context
    manager, or close it.

    A call that is cancelled loses nothing: the next one goes on where it was.
    """

    def __init__(self, driver: Driver, machine: ConsumerMachine, *, timeout_s: float) -> None:
        self._machine = machine
        self._timeout_s = timeout_s
        self._guard = CallGuard(driver, "consumer", machine)
        self._unread = Unread()
        self._records: Iterator[Record] = iter(())

    async def locate(self, start: Start) -> None:
        """Find the position that `start` means: before anything is read."""
        try:
            await self._guard.run(self._machine.locate(start))
        except BaseException:
            self._guard.close()
            raise

    @property
    def position(self) -> int:
        """The LSN of the payload that comes next."""
        return self._unread.position or self._machine.next_lsn

    @property
    def skipped_payloads(self) -> int:
        """How many were left out: trimmed before they were read, or with `on_out_of_range` "latest"
        passed over to go on at the end. 0 unless `on_out_of_range` allows it."""
        return self._machine.skipped_payloads

    @property
    def node(self) -> int:
        """The replica that is read now."""
        return self._machine.node

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `end_lsn` was handed on."""
        return not self._unread and self._machine.is_at_end

    @property
    def is_paused(self) -> bool:
        return self._machine.is_paused

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    async def close(self) -> None:
        """Close it; a call that waits raises `Closed`.

        Raises:
          InvalidRequest: this is not the client's event loop.
        """
        self._guard.close()
        self._unread.clear()

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Consumer:
        """Record by record, up to `end_lsn`, else for ever. A loop that is left and begun again
        goes on after its last record. Errors as `poll`."""
        return self

    async def __anext__(self) -> Record:
        while True:
            if self._guard.is_closed:
                self._guard.check()
            if self._machine.is_paused:
                await self._read_on()
                continue
            for record in self._records:
                return record
            self._records = self._unread.records()
            if not self._unread:
                await self._read_on()

    async def _read_on(self) -> None:
        """Read what comes next, for iteration.

        Raises:
          StopAsyncIteration: there is nothing more.
        """
        if self.is_at_end:
            self._guard.check()
            raise StopAsyncIteration
        self._unread.add(await self._poll(self._timeout_s))

    def batches(self) -> AsyncIterator[RecordBatch]:
        """Batches as they are committed, up to `end_lsn`, else for ever. A loop that is left and
        begun again goes on after its last batch. Errors as `poll`."""
        return _Batches(self._next_batch, self._read_on)

    def _next_batch(self) -> RecordBatch | None:
        return None if self._machine.is_paused else self._unread.take_batch()

    async def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches, at least one unless nothing came within `timeout_s`, the end is reached
        or the consumer is paused. First comes what iteration has not handed on.

        Raises: as `logstore.Consumer.poll`; and
          InvalidRequest: another task's call runs.
        """
        self._guard.check()
        unread = [] if self._machine.is_paused else self._unread.take()
        if unread:
            return unread
        found = await self._poll(timeout_s)
        if not self._unread:
            return found
        self._unread.add(found)  # behind what a pause has held back that ended meanwhile
        return [] if self._machine.is_paused else self._unread.take()

    async def seek(self, start: Start) -> None:
        """Go on at another place. Errors as `logstore.Consumer.seek`."""
        # A caller that is cancelled as the position has changed must not get what lies before it.
        clear = self._unread.clear
        await self._guard.run(self._machine.locate(start), lost=lambda _: clear())
        clear()

    def pause(self) -> None:
        """Hand nothing on until `resume`: a poll waits its time, a loop waits, and the replica is
        not read."""
        self._machine.is_paused = True

    def resume(self) -> None:
        """Go on where `pause` left off, within a tenth of a second."""
        self._machine.is_paused = False

    async def commit(self, name: str, *, position: int | None = None) -> int:
        """Set the cursor `name` before the position, and return that. Arguments, promises and
        errors as `logstore.Consumer.commit`; one that is cancelled may have set it or not, and the
        next one goes on from either."""
        position = self.position if position is None else position
        await self._guard.run(self._machine.commit(name, position))
        return position

    async def _poll(self, timeout_s: float) -> list[RecordBatch]:
        with warn_of_skipped(self._machine):
            return await self._guard.run(self._machine.poll(timeout_s), lost=self._unread.add)


class _Batches:
    """An iterator, not a generator, which a cancelled call would end."""

    def __init__(
        self, next_batch: Callable[[], RecordBatch | None], read_on: Callable[[], Awaitable[None]]
    ) -> None:
        self._next_batch = next_batch
        self._read_on = read_on

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> RecordBatch:
        while (batch := self._next_batch()) is None:
            await self._read_on()
        return batch
