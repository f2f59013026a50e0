"""The producer for asyncio: appends in, futures out; one session, one order.

Owns the session and the run of the steps that send. It promises what `logstore.Producer` does:
batches are committed in the order of the calls, whole, once each, however often leaders change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from logstore.aio.append_queue import LoopAppendQueue
from logstore.aio.driver import Driver, Run
from logstore.client.clock import monotonic_ns
from logstore.client.core.connection import Session
from logstore.client.core.given_sequences import GivenSequences
from logstore.client.core.producer_statistics import ProducerStatistics
from logstore.client.core.provisional_machine import ProvisionalMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host
from logstore.client.future import LsnRange
from logstore.client.producer_options import (
    STOP_TIMEOUT_S,
    ProducerOptions,
    check_expected,
    log_ending,
    make_machine,
    mode_of,
    no_sequence,
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
        self._is_dense = mode_of(options) == SequenceMode.DENSE
        self._yielded_ns = 0
        self._closing: asyncio.Future[None] | None = None  # done once the call that closes it is
        self._is_closed = False
        self._ending: LogStoreError | None = None
        self._is_settled = False  # nothing is sent any more, and every append has its outcome
        self._delivery_timeout_s = options.delivery_timeout_s
        limits = queue_limits(options, session)
        self._queue = LoopAppendQueue(limits, driver.loop, wake=self._wake)
        self._given = GivenSequences(host.new_lock())
        self._machine = make_machine(
            host,
            routing,
            options,
            session,
            self._queue,
            self._given,
            on_connected=self._log_connection,
        )
        self._run: Run[None] = driver.start(self._machine.live())
        self._run.future.add_done_callback(self._on_end)

    @property
    def session(self) -> Session:
        """Id, epoch and limits; `next_sequence` is where this opening began. At acks leader and
        none the epoch rises with each time that it was opened again."""
        return self._machine.session

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def ending(self) -> LogStoreError | None:
        """Why it ended by itself, fenced for example; None: it has not, or it was closed."""
        return self._ending

    def statistics(self) -> ProducerStatistics:
        """What came of the appends so far, in numbers; also after `close`."""
        return self._machine.counts.statistics()

    def append(self, payload: bytes) -> asyncio.Future[LsnRange]:
        """Append one payload; it may share a batch with its neighbours. It is queued at once, and
        sent when the caller next awaits something.

        To cancel the future, or what awaits it, gives up the wait, not the append.

        Returns: a future of its LSN; a failed append's error is raised where it is awaited.

        Raises:
          BatchTooLarge: above the `batch_max_bytes` of the leader that was found last; nothing was
            queued. May also be an outcome, as `logstore.Producer.append` says.
          Overloaded: QUEUE_MAX_BYTES more than the window have no outcome; `room` waits for it.
          LogStoreError: the producer ended, fenced for example, or was closed.
          InvalidRequest: this is another event loop than the client's, or none.
        """
        self._driver.check()
        if not self._is_dense:
            raise InvalidRequest("a monotone producer appends by append_batch(…, sequence=…)")
        return self._queue.append(payload)

    def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        sequence: int | None = None,
        expected_next_lsn: int | None = None,
    ) -> asyncio.Future[LsnRange]:
        """Append payloads as one batch, which commits whole or not at all, under consecutive LSNs.

        Args:
          payloads: at least one; zero-length ones are allowed.
          sequence: for monotone producers, above the one before; a sequence that the log has
            already is answered with the LSNs it got then, and stored no second time.
          expected_next_lsn: for monotone producers: store the batch only if it gets this LSN, which
            is to say, if nothing else was appended since. The session goes on after a refusal, and
            its sequence may be given again. An append behind it is decided by itself: wait for the
            outcome before you give another one with an expectation that depends on it.

        Returns, and raises: as `append`, and
          InvalidBatch: no payloads.
          InvalidRequest: a sequence where none belongs, none where one does, or one that falls; an
            expected LSN that a dense producer gives, or that no batch can have.

        The outcome may also be:
          NextLsnIs: the log ended elsewhere; nothing was stored.
          LevelRefused: the log's format level is too low for an expected LSN.
        """
        self._driver.check()
        check_expected(expected_next_lsn)
        if self._is_dense:
            no_sequence(sequence, expected_next_lsn)
            return self._queue.append_batch(payloads, sequence=-1)
        number = self._given.give(sequence)
        try:
            return self._queue.append_batch(
                payloads, sequence=number, expected_next_lsn=expected_next_lsn
            )
        except Exception:  # no interrupt, which may come when it is queued, and will be sent
            self._given.take_back(number)
            raise

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
        """Send what lingers and wait until the outcome of every append so far is known: at acks
        leader until the leader has flushed them, at none until they are handed over.

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
        is cancelled. At acks leader and none it asks, for two seconds at most, until all is in the
        log. May be called twice, and at once: the second call waits for the first.

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
            with contextlib.suppress(TimeoutError):  # what has no outcome fails at the end
                await self.flush(most_s if timeout is None else timeout)
            if isinstance(self._machine, ProvisionalMachine):
                self._machine.stop()
                self._run.wake()
                await asyncio.wait([self._run.future], timeout=STOP_TIMEOUT_S)
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
        if error is None or self._is_settled:
            return
        if isinstance(error, LogStoreError):
            log_ending(self._machine, error)
        else:
            _LOG.error("the steps of a producer failed", exc_info=error)
            error = InvariantViolated(f"the producer's steps failed: {error!r}")
        self._ending = error
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
