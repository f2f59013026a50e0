"""The producer: appends in, futures out; one session, one order, one network thread.

Owns the session and the thread. It promises: batches are committed in the order of the calls,
whole, once each, however often leaders change; a future has the outcome of each.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from logstore.client.append_queue import AppendQueue
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.connection import Session
from logstore.client.core.given_sequences import GivenSequences
from logstore.client.core.producer_statistics import ProducerStatistics
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host
from logstore.client.future import AppendFuture
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
from logstore.client.threads import closed, run
from logstore.errors import (
    InvalidRequest,
    InvariantViolated,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
)
from logstore.model import SequenceMode
from transport.client_links import forks
from transport.doorbell import Doorbell

_LOG = logging.getLogger(__name__)


class Producer:
    """Appends payloads. Any thread may call it; close it, or use it as a context manager."""

    def __init__(
        self, host: Host, routing: Routing, options: ProducerOptions, *, timeout_s: float
    ) -> None:
        request = open_request(options)
        self._session = run(open_session(host, routing, request, timeout_s=timeout_s))
        self._is_dense = mode_of(options) == SequenceMode.DENSE
        self._order = threading.Lock()
        self._doorbell = Doorbell.create()
        self._forks = forks()
        limits = queue_limits(options, self._session)
        self._queue = AppendQueue(limits, ring=self._doorbell.ring)
        self._given = GivenSequences(host.new_lock())
        self._machine = make_machine(
            host,
            routing,
            options,
            self._session,
            self._queue,
            self._given,
            on_connected=self._log_connection,
        )
        self._delivery_timeout_s = options.delivery_timeout_s
        self._ending: LogStoreError | None = None
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name=f"producer-{self._session.producer_id}", daemon=True
        )
        self._thread.start()

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

    def append(self, payload: bytes) -> AppendFuture:
        """Append one payload; it may share a batch with its neighbours.

        Waits while the window is full.

        Raises:
          BatchTooLarge: above the `batch_max_bytes` of the leader that was found last; nothing was
            sent. If a restart has lowered it meanwhile, this may also be the outcome of what was
            not sent yet. What was, and can no longer be stored, ends the producer.
          Overloaded: the window stayed full for `append_timeout_s`.
          LogStoreError: the producer ended, fenced for example, or was closed.
        """
        if self._forks != forks():  # before the queue's lock, which a thread of the parent may hold
            raise closed()
        if not self._is_dense:
            raise InvalidRequest("a monotone producer appends by append_batch(…, sequence=…)")
        return self._queue.append(payload)

    def append_batch(
        self,
        payloads: Sequence[bytes],
        *,
        sequence: int | None = None,
        expected_next_lsn: int | None = None,
    ) -> AppendFuture:
        """Append payloads as one batch, which commits whole or not at all, under consecutive LSNs.

        Args:
          payloads: at least one; zero-length ones are allowed.
          sequence: for monotone producers, above the one before; a sequence that the log has
            already is answered with the LSNs it got then, and stored no second time.
          expected_next_lsn: for monotone producers: store the batch only if it gets this LSN, which
            is to say, if nothing else was appended since. The session goes on after a refusal, and
            its sequence may be given again. An append behind it is decided by itself: wait for the
            outcome before you give another one with an expectation that depends on it.

        Raises: as `append`, and
          InvalidBatch: no payloads.
          InvalidRequest: a sequence where none belongs, none where one does, or one that falls; an
            expected LSN that a dense producer gives, or that no batch can have.

        The outcome may also be:
          NextLsnIs: the log ended elsewhere; nothing was stored.
          LevelRefused: the log's format level is too low for an expected LSN.
        """
        self._check_process()
        check_expected(expected_next_lsn)
        if self._is_dense:
            no_sequence(sequence, expected_next_lsn)
            return self._queue.append_batch(payloads, sequence=-1)
        with self._order:
            return self._append_numbered(payloads, sequence, expected_next_lsn)

    def flush(self, timeout: float | None = None) -> None:
        """Send what lingers and wait until the outcome of every append so far is known: at acks
        leader until the leader has flushed them, at none until they are handed over.

        The futures say whether they were committed.

        Raises:
          TimeoutError: not within `timeout` seconds; the appends go on.
        """
        self._check_process()
        deadline_ns = None if timeout is None else seconds_from_now(timeout)
        for pack in self._queue.snapshot():
            left_s = None if deadline_ns is None else (deadline_ns - monotonic_ns()) / 1e9
            if not pack.wait(left_s if left_s is None else max(0.0, left_s)):
                raise TimeoutError(f"appends without an outcome after {timeout} s; they go on")

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the session's thread. What has no outcome by then fails. At acks leader
        and none it asks, for two seconds at most, until all is in the log. May be called twice, and
        from any thread; a callback of an append closes without the flush.

        Args:
          timeout: for the flush, in seconds; None: the delivery timeout bounds it.
        """
        if self._forks != forks():  # before the lock: a thread of the parent may be closing it
            self._is_closed = True
            return
        if threading.current_thread() is self._thread:  # else it would wait for itself
            self._is_closed = True
            self._stop()
            return
        with self._closing:
            if not self._thread.is_alive():
                self._is_closed = True
                return
            self._is_closed = True
            try:
                # The thread fails late appends; it cannot while it is in a callback of the user.
                most_s = self._delivery_timeout_s + STOP_TIMEOUT_S
                self.flush(most_s if timeout is None else timeout)
            except TimeoutError:
                pass  # the futures fail now
            finally:
                self._end_thread()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        """The network thread."""
        ending: LogStoreError | None = None
        try:
            run(self._machine.live(), bell=self._doorbell)
        except LogStoreError as error:
            log_ending(self._machine, error)
            ending = error
        except BaseException as error:  # the thread ends: the futures must fail
            _LOG.exception("the network thread of a producer failed")
            ending = InvariantViolated(f"the producer's network thread failed: {error!r}")
        self._ending = ending
        self._machine.settle_rest(ending)
        self._doorbell.close()

    def _check_process(self) -> None:
        """A forked child has no network thread, so nothing that it appends would be settled.

        Raises:
          Closed: this is one.
        """
        if self._forks != forks():
            raise closed()

    def _log_connection(self, node: int) -> None:
        _LOG.info("producer %d appends at node %d", self._session.producer_id, node)

    def _stop(self) -> None:
        self._machine.stop()
        self._doorbell.ring()

    def _end_thread(self) -> None:
        self._stop()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():  # in a callback: the thread ends when that returns
            self._queue.refuse(NotCommitted("the producer is closed: open a new one"))
            for pack in self._queue.snapshot():
                pack.fail(
                    OutcomeUnknown("the producer was closed while a callback of an append ran")
                )

    def _append_numbered(
        self, payloads: Sequence[bytes], given: int | None, expected_next_lsn: int | None
    ) -> AppendFuture:
        sequence = self._given.give(given)
        try:
            return self._queue.append_batch(
                payloads, sequence=sequence, expected_next_lsn=expected_next_lsn
            )
        except Exception:  # no interrupt, which may come when it is queued, and will be sent
            self._given.take_back(sequence)
            raise
