"""The reader of ranges for asyncio: iteration, and closing by any task.

`core.range_machine` decides how a range is fetched from which replica.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

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

    async def _read(
        self,
        decode: Decode[_B],
        first_lsn: int,
        last_lsn: int,
        min_lsn: int,
        *,
        is_linearizable: bool,
    ) -> AsyncIterator[_B]:
        self._guard.check()
        walk = RangeWalk(
            self._machine,
            decode,
            first_lsn,
            last_lsn,
            min_lsn=min_lsn,
            is_linearizable=is_linearizable,
        )
        while not walk.is_at_end:
            for batch in await self._guard.run(walk.next_batches()):
                yield batch
