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
from logstore.client.core.producer_machine import ProducerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host
from logstore.client.future import AppendFuture
from logstore.client.producer_options import (
    STOP_TIMEOUT_S,
    ProducerOptions,
    check_sequence,
    machine_options,
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
        self._is_dense = options.mode == SequenceMode.DENSE
        self._last_sequence = -1
        self._order = threading.Lock()
        self._doorbell = Doorbell.create()
        self._forks = forks()
        self._queue = AppendQueue(queue_limits(options, self._session), ring=self._ring)
        self._machine = ProducerMachine(
            host,
            routing,
            self._session,
            self._queue,
            machine_options(options, on_connected=self._log_connection),
        )
        self._delivery_timeout_s = options.delivery_timeout_s
        self._closing = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name=f"producer-{self._session.producer_id}", daemon=True
        )
        self._thread.start()

    @property
    def session(self) -> Session:
        """Id, epoch and limits; `next_sequence` is where this opening began."""
        return self._session

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def append(self, payload: bytes) -> AppendFuture:
        """Append one payload; it may share a batch with its neighbours.

        Waits while the window is full.

        Raises:
          BatchTooLarge: above the replicas' `batch_max_bytes`; nothing was sent.
          Overloaded: the window stayed full for `append_timeout_s`.
          LogStoreError: the producer ended, fenced for example, or was closed.
        """
        if not self._is_dense:
            raise InvalidRequest("a monotone producer appends by append_batch(…, sequence=…)")
        return self._queue.append(payload)

    def append_batch(
        self, payloads: Sequence[bytes], *, sequence: int | None = None
    ) -> AppendFuture:
        """Append payloads as one batch, which commits whole or not at all, under consecutive LSNs.

        Args:
          payloads: at least one; zero-length ones are allowed.
          sequence: for monotone producers, above the one before; a sequence that the log has
            already is answered with the LSNs it got then, and stored no second time.

        Raises: as `append`, and
          InvalidBatch: no payloads.
          InvalidRequest: a sequence where none belongs, none where one does, or one that falls.
        """
        if self._is_dense:
            if sequence is not None:
                raise InvalidRequest("a dense producer counts for itself: give no sequence")
            return self._queue.append_batch(payloads, sequence=-1)
        with self._order:
            return self._append_numbered(payloads, sequence)

    def flush(self, timeout: float | None = None) -> None:
        """Send what lingers and wait until the outcome of every append so far is known.

        The futures say whether they were committed.

        Raises:
          TimeoutError: not within `timeout` seconds; the appends go on.
        """
        deadline_ns = None if timeout is None else seconds_from_now(timeout)
        for pack in self._queue.snapshot():
            left_s = None if deadline_ns is None else (deadline_ns - monotonic_ns()) / 1e9
            if not pack.wait(left_s if left_s is None else max(0.0, left_s)):
                raise TimeoutError(f"appends without an outcome after {timeout} s; they go on")

    def close(self, timeout: float | None = None) -> None:
        """Flush, then end the session's thread. What has no outcome by then fails. May be called
        twice, and from any thread; a callback of an append closes without the flush.

        Args:
          timeout: for the flush, in seconds; None: the delivery timeout bounds it.
        """
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
            ending = error
        except BaseException as error:  # the thread ends: the futures must fail
            _LOG.exception("the network thread of a producer failed")
            ending = InvariantViolated(f"the producer's network thread failed: {error!r}")
        self._machine.settle_rest(ending)
        self._doorbell.close()

    def _log_connection(self, node: int) -> None:
        _LOG.info("producer %d appends at node %d", self._session.producer_id, node)

    def _ring(self) -> None:
        """Wake the network thread, which a forked child does not have."""
        if self._forks != forks():
            raise closed()
        self._doorbell.ring()

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

    def _append_numbered(self, payloads: Sequence[bytes], sequence: int | None) -> AppendFuture:
        sequence = check_sequence(sequence, self._last_sequence)
        future = self._queue.append_batch(payloads, sequence=sequence)
        self._last_sequence = sequence
        return future
