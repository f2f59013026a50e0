"""The producer for asyncio: appends in, futures out; one session, one order.

Owns the session and the run of the steps that send. It promises what `logstore.Producer` does:
batches are committed in the order of the calls, whole, once each, however often leaders change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from logstore.aio.append_queue import LoopAppendQueue
from logstore.aio.driver import Driver, Run
from logstore.client.clock import monotonic_ns
from logstore.client.core.connection import Session
from logstore.client.core.producer_machine import ProducerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host
from logstore.client.future import LsnRange
from logstore.client.producer_options import (
    STOP_TIMEOUT_S,
    ProducerOptions,
    check_sequence,
    machine_options,
    open_request,
    queue_limits,
)
from logstore.errors import InvalidRequest, InvariantViolated, LogStoreError, NotCommitted
from logstore.model import SequenceMode

_LOG = logging.getLogger(__name__)

# How often `room` lets the event loop have its turn.
_YIELD_EVERY_NS = 1_000_000


class Producer:
    """Appends payloads, in the event loop of its client. Use it as an async context manager, or
    close it."""

    def __init__(
        self,
        driver: Driver,
        host: Host,
        routing: Routing,
        options: ProducerOptions,
        session: Session,
    ) -> None:
        self._driver = driver
        self._session = session
        self._is_dense = options.mode == SequenceMode.DENSE
        self._last_sequence = -1
        self._yielded_ns = 0
        self._closing: asyncio.Future[None] | None = None  # done once the call that closes it is
        self._is_closed = False
        self._is_settled = False  # nothing is sent any more, and every append has its outcome
        self._delivery_timeout_s = options.delivery_timeout_s
        limits = queue_limits(options, session)
        self._queue = LoopAppendQueue(limits, driver.loop, wake=self._wake)
        self._machine = ProducerMachine(
            host,
            routing,
            session,
            self._queue,
            machine_options(options, on_connected=self._log_connection),
        )
        self._run: Run[None] = driver.start(self._machine.live())
        self._run.future.add_done_callback(self._on_end)

    @property
    def session(self) -> Session:
        """Id, epoch and limits; `next_sequence` is where this opening began."""
        return self._session

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def append(self, payload: bytes) -> asyncio.Future[LsnRange]:
        """Append one payload; it may share a batch with its neighbours. It is queued at once, and
        sent when the caller next awaits something.

        To cancel the future, or what awaits it, gives up the wait, not the append.

        Returns: a future of its LSN; a failed append's error is raised where it is awaited.

        Raises:
          BatchTooLarge: above the replicas' `batch_max_bytes`; nothing was queued.
          Overloaded: QUEUE_MAX_BYTES more than the window have no outcome; `room` waits for it.
          LogStoreError: the producer ended, fenced for example, or was closed.
          InvalidRequest: this is another event loop than the client's, or none.
        """
        self._driver.check()
        if not self._is_dense:
            raise InvalidRequest("a monotone producer appends by append_batch(…, sequence=…)")
        return self._queue.append(payload)

    def append_batch(
        self, payloads: Sequence[bytes], *, sequence: int | None = None
    ) -> asyncio.Future[LsnRange]:
        """Append payloads as one batch, which commits whole or not at all, under consecutive LSNs.

        Args:
          payloads: at least one; zero-length ones are allowed.
          sequence: for monotone producers, above the one before; a sequence that the log has
            already is answered with the LSNs it got then, and stored no second time.

        Returns, and raises: as `append`, and
          InvalidBatch: no payloads.
          InvalidRequest: a sequence where none belongs, none where one does, or one that falls.
        """
        self._driver.check()
        if self._is_dense:
            if sequence is not None:
                raise InvalidRequest("a dense producer counts for itself: give no sequence")
            return self._queue.append_batch(payloads, sequence=-1)
        sequence = check_sequence(sequence, self._last_sequence)
        future = self._queue.append_batch(payloads, sequence=sequence)
        self._last_sequence = sequence
        return future

    async def room(self) -> None:
        """Wait until less than a window of appends has no outcome: back-pressure for a loop that
        appends without waiting for outcomes. Where there is room, the event loop has its turn once
        a millisecond, in which appends are sent.

        Raises:
          Overloaded: the window stayed full for `append_timeout_s`.
          LogStoreError: the producer ended, or was closed.
        """
        self._driver.check()
        now_ns = monotonic_ns()
        if now_ns - self._yielded_ns >= _YIELD_EVERY_NS:
            self._yielded_ns = now_ns
            await asyncio.sleep(0)
        await self._queue.room()

    async def flush(self, timeout: float | None = None) -> None:
        """Send what lingers and wait until the outcome of every append so far is known.

        The futures say whether they were committed.

        Raises:
          TimeoutError: not within `timeout` seconds; the appends go on.
        """
        self._driver.check()
        flush = self._queue.flush()
        if not flush.done():
            await asyncio.wait([flush], timeout=timeout)
        if not flush.done():
            raise TimeoutError(f"appends without an outcome after {timeout} s; they go on")

    async def close(self, timeout: float | None = None) -> None:
        """Flush, then end. What has no outcome by then fails; so does everything at once where this
        is cancelled. May be called twice, and at once: the second call waits for the first.

        Args:
          timeout: for the flush, in seconds; None: the delivery timeout bounds it.

        Raises:
          InvalidRequest: this is not the client's event loop.
        """
        self._driver.check_end()
        if self._is_closed:
            return
        if self._driver.is_closed or self._driver.loop.is_closed():
            self._end()
            return
        if self._closing is not None:
            await asyncio.wait([self._closing])
            return
        self._closing = self._driver.loop.create_future()
        self._queue.refuse(NotCommitted("the producer is closed: open a new one"))
        try:
            most_s = self._delivery_timeout_s + STOP_TIMEOUT_S
            await self.flush(most_s if timeout is None else timeout)
        except TimeoutError:
            pass  # the futures fail now
        finally:
            self._end()
            if not self._closing.done():
                self._closing.set_result(None)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _wake(self) -> None:
        self._run.wake()

    def _log_connection(self, node: int) -> None:
        _LOG.info("producer %d appends at node %d", self._session.producer_id, node)

    def _end(self) -> None:
        """Send nothing any more, and fail what has no outcome."""
        self._is_closed = True
        ended = self._run.future
        self._run.close()
        self._on_end(ended)
        self._settle_rest(None)

    def _on_end(self, ended: asyncio.Future[None]) -> None:
        """If the steps have ended by themselves, every append fails for the same reason."""
        error = ended.exception() if ended.done() and not ended.cancelled() else None
        if error is None:
            return
        if not isinstance(error, LogStoreError):
            _LOG.error("the steps of a producer failed", exc_info=error)
            error = InvariantViolated(f"the producer's steps failed: {error!r}")
        self._settle_rest(error)

    def _settle_rest(self, ending: LogStoreError | None) -> None:
        if not self._is_settled:
            self._is_settled = True
            self._machine.settle_rest(ending)


async def open_producer(
    driver: Driver, host: Host, routing: Routing, options: ProducerOptions, *, timeout_s: float
) -> Producer:
    request = open_request(options)
    session = await driver.run(open_session(host, routing, request, timeout_s=timeout_s))
    return Producer(driver, host, routing, options, session)
