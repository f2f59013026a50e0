"""The reader of ranges for asyncio: iteration, and closing by any task.

`core.range_machine` decides how a range is fetched from which replica.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from logstore.aio.driver import CallGuard, Driver
from logstore.client.core.range_machine import Decode, RangeMachine, RangeWalk
from logstore.client.records import RawBatch, RecordBatch, batches_of, raw_batches_of

_B = TypeVar("_B", RecordBatch, RawBatch)


class RangeReader:
    """Reads ranges of LSNs, for one task at a time. Use it as an async context manager, or close
    it."""

    def __init__(self, driver: Driver, machine: RangeMachine) -> None:
        self._machine = machine
        self._guard = CallGuard(driver, "reader", machine)

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    async def close(self) -> None:
        """Close it; a call that waits raises `Closed`."""
        self._guard.close()

    async def __aenter__(self) -> RangeReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def read(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> AsyncIterator[RecordBatch]:
        """The committed payloads [first_lsn, last_lsn], in order, none left out. Arguments and
        errors as `logstore.RangeReader.read`."""
        return self._read(batches_of, first_lsn, last_lsn, min_lsn, is_linearizable=linearizable)

    def read_batches(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> AsyncIterator[RawBatch]:
        """The whole batches that hold [first_lsn, last_lsn]. Arguments and errors as
        `logstore.RangeReader.read_batches`."""
        return self._read(
            raw_batches_of, first_lsn, last_lsn, min_lsn, is_linearizable=linearizable
        )

    def _read(
        self,
        decode: Decode[_B],
        first_lsn: int,
        last_lsn: int,
        min_lsn: int,
        *,
        is_linearizable: bool,
    ) -> AsyncIterator[_B]:
        walk: RangeWalk[_B] = RangeWalk(
            self._machine,
            decode,
            first_lsn,
            last_lsn,
            min_lsn=min_lsn,
            is_linearizable=is_linearizable,
        )
        return _Read(self._guard, walk)


class _Read(Generic[_B]):
    """An iterator, not a generator, which a cancelled call would end."""

    def __init__(self, guard: CallGuard, walk: RangeWalk[_B]) -> None:
        self._guard = guard
        self._walk: RangeWalk[_B] = walk
        self._batches: deque[_B] = deque()

    def __aiter__(self) -> _Read[_B]:
        return self

    async def __anext__(self) -> _B:
        self._guard.check()
        while not self._batches:
            if self._walk.is_at_end:
                raise StopAsyncIteration
            found = await self._guard.run(self._walk.next_batches(), lost=self._batches.extend)
            self._batches.extend(found)
        return self._batches.popleft()
