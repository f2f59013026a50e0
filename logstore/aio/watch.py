"""The watch for asyncio: how far a replica shows the log, without reading it.

`core.watermarks_watch` sends the requests.
"""

from __future__ import annotations

from logstore.aio.driver import CallGuard, Driver
from logstore.client.core.operating import Watermarks
from logstore.client.core.watermarks_watch import WatermarksWatch


class Watch:
    """For one task at a time. Use it as an async context manager, or close it."""

    def __init__(self, driver: Driver, machine: WatermarksWatch) -> None:
        self._machine = machine
        self._guard = CallGuard(driver, "watch", machine)

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    async def close(self) -> None:
        """Close it; a call that waits raises `Closed`."""
        self._guard.close()

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def now(self) -> Watermarks:
        """The bounds that a replica serves now. Errors as `logstore.client.watch.Watch.now`."""
        return await self._guard.run(self._machine.now())

    async def wait_beyond(self, lsn: int, wait_s: float) -> Watermarks:
        """The bounds once the replica shows more than `lsn`, or after `wait_s` seconds. Errors as
        `now`."""
        return await self._guard.run(self._machine.wait_beyond(lsn, wait_s))
