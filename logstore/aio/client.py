"""The client for asyncio: one connection to a cluster, from which producers, consumers and readers
are made.

Owns the driver and the map of the cluster, which all of them share, and closes what was made from
it when it is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TypeVar

from logstore.aio.admin import Admin
from logstore.aio.consumer import Consumer
from logstore.aio.driver import Driver
from logstore.aio.members_timer import keep_current
from logstore.aio.opening import Opening
from logstore.aio.producer import Producer, open_producer
from logstore.aio.reader import RangeReader
from logstore.aio.watch import Watch
from logstore.client.clock import seconds_from_now
from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.core.range_machine import READ_BYTES, RangeMachine
from logstore.client.core.routing import Routing
from logstore.client.core.start import Start
from logstore.client.core.watermarks_watch import WatermarksWatch
from logstore.client.digest import BatchDigest
from logstore.client.endpoint import Endpoint, parse_endpoints
from logstore.client.producer_options import ProducerOptions, options_or_default
from logstore.client.records import RawBatch, RecordBatch, batches_of
from logstore.client.threads import closed
from logstore.errors import InvalidRequest
from logstore.limits import BATCH_MAX_BYTES, CLIENT_TIMEOUT_S

_T = TypeVar("_T", RecordBatch, RawBatch)
_Opened = TypeVar("_Opened", Producer, Consumer, RangeReader, Watch)


def connect(
    endpoints: str | Iterable[str | Endpoint], *, timeout: float = CLIENT_TIMEOUT_S
) -> Opening[LogClient]:
    """A client of the cluster that answers at `endpoints`: `async with connect(…) as log`, or
    `log = await connect(…)` and `await log.close()`.

    Arguments and errors as `logstore.connect`; those of the arguments are raised at once.
    """
    if not timeout > 0:
        raise InvalidRequest(f"timeout {timeout}: give seconds above 0")
    return Opening(partial(_connect, parse_endpoints(endpoints), timeout))


async def _connect(endpoints: tuple[Endpoint, ...], timeout_s: float) -> LogClient:
    driver = Driver()
    try:
        host = driver.host()
        routing = Routing(host, endpoints)
        await driver.run(routing.check_endpoints(deadline_ns=seconds_from_now(timeout_s)))
    except BaseException:
        driver.close()
        raise
    return LogClient(driver, routing, timeout_s=timeout_s)


class LogClient:
    """A client of one cluster, for the event loop that connected it. Any number of its tasks may
    use it and its producers; a consumer, reader or watch is for one task at a time."""

    def __init__(self, driver: Driver, routing: Routing, *, timeout_s: float) -> None:
        self._driver = driver
        self._host = driver.host()
        self._routing = routing
        self._timeout_s = timeout_s
        self._opened: list[Producer | Consumer | RangeReader | Watch] = []
        self._closing: asyncio.Future[None] | None = None
        keep_current(driver, routing)
        self.admin: Admin = Admin(driver, self._host, routing, timeout_s=timeout_s)

    async def __aenter__(self) -> LogClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def cluster_id(self) -> bytes:
        """16 bytes; zeros until a replica has answered."""
        return self._routing.cluster_id

    async def nodes(self) -> dict[int, Endpoint]:
        """The members by node id, as a replica says now. Errors as `logstore.LogClient.nodes`."""
        self._driver.check()
        return await self._driver.run(self._routing.current_nodes(timeout_s=self._timeout_s))

    async def batch_max_bytes(self) -> int:
        """The largest batch that a replica takes, its header included, as it is configured now.
        Errors as `nodes`."""
        self._driver.check()
        limits = await self._driver.run(self._routing.limits(timeout_s=self._timeout_s))
        return limits.get("batch_max_bytes", BATCH_MAX_BYTES)

    def producer(self, options: ProducerOptions | None = None) -> Opening[Producer]:
        """Open a producer session, by `async with` or `await`. Errors as
        `logstore.LogClient.producer`."""
        self._check()
        chosen = options_or_default(options)

        async def opens() -> Producer:
            self._check()
            producer = await open_producer(
                self._driver, self._host, self._routing, chosen, timeout_s=self._timeout_s
            )
            return await self._remember(producer)

        return Opening(opens)

    def consumer(
        self,
        start: Start = "earliest",
        *,
        end_lsn: int | None = None,
        replica: int | None = None,
        on_out_of_range: str = "error",
    ) -> Opening[Consumer]:
        """A consumer of every committed payload from `start` on, by `async with` or `await`.
        Arguments and errors as `logstore.LogClient.consumer`."""
        self._check()

        async def opens() -> Consumer:
            self._check()
            machine = ConsumerMachine(
                self._host,
                self._routing,
                batches_of,
                end_lsn=end_lsn,
                replica=replica,
                timeout_s=self._timeout_s,
                on_out_of_range=on_out_of_range,
            )
            consumer = Consumer(self._driver, machine, timeout_s=self._timeout_s)
            await consumer.locate(start)
            return await self._remember(consumer)

        return Opening(opens)

    def reader(
        self,
        *,
        replica: int | None = None,
        max_bytes: int = READ_BYTES,
        timeout: float | None = None,
        reads_ahead: bool = False,
    ) -> RangeReader:
        """A reader of LSN ranges from one replica, or from any. Arguments as
        `logstore.LogClient.reader`."""
        self._check()
        machine = RangeMachine(
            self._host,
            self._routing,
            replica=replica,
            timeout_s=self._timeout_s if timeout is None else timeout,
            max_bytes=max_bytes,
            reads_ahead=reads_ahead,
        )
        return self._keep(RangeReader(self._driver, machine))

    def watch(self, *, replica: int | None = None) -> Watch:
        """A watch of how far one replica, or any, shows the log, without reading it."""
        self._check()
        machine = WatermarksWatch(
            self._host, self._routing, replica=replica, timeout_s=self._timeout_s
        )
        return self._keep(Watch(self._driver, machine))

    def read(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        replica: int | None = None,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> AsyncIterator[RecordBatch]:
        """The committed payloads [first_lsn, last_lsn]; see `RangeReader.read`. A generator: a call
        of it that is cancelled ends it, unlike what a `reader` gives."""
        self._check()
        return self._read(RangeReader.read, first_lsn, last_lsn, replica, min_lsn, linearizable)

    def read_batches(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        replica: int | None = None,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> AsyncIterator[RawBatch]:
        """The whole batches that hold [first_lsn, last_lsn]; see `RangeReader.read_batches`."""
        self._check()
        return self._read(
            RangeReader.read_batches, first_lsn, last_lsn, replica, min_lsn, linearizable
        )

    async def _read(
        self,
        read: Callable[..., AsyncIterator[_T]],
        first_lsn: int,
        last_lsn: int,
        replica: int | None,
        min_lsn: int,
        linearizable: bool,
    ) -> AsyncIterator[_T]:
        """What `read`, a method of the reader, gives; closes the reader behind it."""
        if linearizable and replica is None:
            replica = await self.admin.leader()
        async with self.reader(replica=replica) as reader:
            batches = read(reader, first_lsn, last_lsn, min_lsn=min_lsn, linearizable=linearizable)
            async for batch in batches:
                yield batch

    async def digest(
        self, first_lsn: int, last_lsn: int, *, replica: int | None = None, min_lsn: int = 0
    ) -> BatchDigest:
        """The digest of the whole batches that hold [first_lsn, last_lsn]; see
        `logstore.LogClient.digest`."""
        digest = BatchDigest()
        batches = self.read_batches(first_lsn, last_lsn, replica=replica, min_lsn=min_lsn)
        async for batch in batches:
            digest.add(batch.first_lsn, batch.count, batch.data)
        return digest

    async def close(self) -> None:
        """Close every producer (flushing it), consumer and reader, then the sockets. A task during
        a call, of a consumer for example, gets `Closed` there. Nothing is opened from now on.

        May be called twice, and at once: the second call waits for the first. Where it is
        cancelled, producers end without waiting for outcomes.

        Raises:
          InvalidRequest: this is not the client's event loop.
        """
        self._driver.check_end()
        if self._closing is not None:
            await asyncio.wait([self._closing])
            return
        opened, self._opened = self._opened, []
        if self._driver.is_closed or self._driver.loop.is_closed():
            for each in opened:
                await each.close()  # which waits for nothing
            self._close_sockets()
            return
        self._closing = self._driver.loop.create_future()
        try:
            # At once: each producer may wait for its own outcomes.
            await asyncio.gather(*(each.close() for each in opened))
        finally:
            self._close_sockets()
            self._closing.set_result(None)

    def _close_sockets(self) -> None:
        if not self._driver.is_closed:
            self._routing.close()
        self._driver.close()

    def _check(self) -> None:
        """Before something is opened.

        Raises:
          Closed: the client is, or is about to be.
          InvalidRequest: this is not the client's event loop.
        """
        self._driver.check()
        if self._closing is not None:
            raise closed()

    async def _remember(self, opened: _Opened) -> _Opened:
        """Keep what took a while to open: the client may be closed by now."""
        if self._driver.is_closed or self._closing is not None:
            await opened.close()
            raise closed()
        return self._keep(opened)

    def _keep(self, opened: _Opened) -> _Opened:
        self._opened = [each for each in self._opened if not each.is_closed]
        self._opened.append(opened)
        return opened
