"""The producer: appends in, futures out; one session, one order, one network thread.

Owns the session and the thread. It promises: batches are committed in the order of the calls,
whole, once each, however often leaders change; a future has the outcome of each.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import msgspec

from logstore.client.append_queue import AppendQueue, QueueLimits
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.core.connection import Session
from logstore.client.core.producer_machine import AckObserver, MachineOptions, ProducerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host
from logstore.client.future import AppendFuture
from logstore.client.threads import closed, run
from logstore.errors import (
    InvalidRequest,
    InvariantViolated,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
)
from logstore.format.client_messages import OpenSessionRequest
from logstore.limits import (
    KIB,
    POSITION_MAX,
    SESSION_NAME_MAX_BYTES,
    SESSION_WINDOW_BYTES,
    SESSION_WINDOW_MAX,
    SESSION_WINDOW_MIN,
)
from logstore.model import AckLevel, SequenceMode
from transport.client_links import forks
from transport.doorbell import Doorbell

_LOG = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a producer.

    Attributes:
      name: a lasting identity; a producer that opens it again fences the one before. None:
        anonymous.
      mode: DENSE, sequences are counted for you; MONOTONE, each batch brings its own, rising one.
      linger_ms: how long a small append waits for others to share its batch while another batch is
        in flight.
      pack_bytes: a pack of small appends of this size goes without lingering.
      window: batches in flight at most (SESSION_WINDOW_MIN..MAX).
      window_bytes: unacknowledged bytes at most; never above what the leader grants.
      append_timeout_s: how long an append waits for room in the window before it raises Overloaded.
      delivery_timeout_s: after this a future fails, whatever happened to its batch.
      ack_timeout_s: after so long without an acknowledgement the leader is looked for and asked.
      on_ack: called per committed batch, from the network thread, with its bytes, its payloads, and
        the monotonic times in ns at which its first payload was appended and its acknowledgement
        came.
    """

    name: str | None = None
    mode: SequenceMode = SequenceMode.DENSE
    linger_ms: float = 1.0
    pack_bytes: int = 64 * KIB
    window: int = 1_024
    window_bytes: int = SESSION_WINDOW_BYTES
    append_timeout_s: float = 30.0
    delivery_timeout_s: float = 30.0
    ack_timeout_s: float = 1.0
    on_ack: AckObserver | None = None


class Producer:
    """Appends payloads. Any thread may call it; close it, or use it as a context manager."""

    def __init__(
        self, host: Host, routing: Routing, options: ProducerOptions, *, timeout_s: float
    ) -> None:
        _check(options)
        request = OpenSessionRequest(
            0, options.mode, AckLevel.QUORUM, options.window, (options.name or "").encode()
        )
        self._session = run(open_session(host, routing, request, timeout_s=timeout_s))
        self._is_dense = options.mode == SequenceMode.DENSE
        self._last_sequence = -1
        self._order = threading.Lock()
        self._doorbell = Doorbell.create()
        self._forks = forks()
        self._queue = AppendQueue(
            QueueLimits(
                window_bytes=min(options.window_bytes, self._session.window_bytes),
                pack_bytes=options.pack_bytes,
                batch_max_bytes=self._session.batch_max_bytes,
                append_timeout_s=options.append_timeout_s,
                delivery_timeout_s=options.delivery_timeout_s,
            ),
            ring=self._ring,
        )
        machine_options = MachineOptions(
            linger_s=options.linger_ms / 1_000,
            ack_timeout_s=options.ack_timeout_s,
            delivery_timeout_s=options.delivery_timeout_s,
            is_dense=self._is_dense,
            on_ack=options.on_ack,
            on_connected=self._log_connection,
        )
        self._machine = ProducerMachine(host, routing, self._session, self._queue, machine_options)
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
        if sequence is None or sequence < 0:
            raise InvalidRequest(f"a monotone producer gives each batch a sequence, not {sequence}")
        if sequence >= POSITION_MAX:
            raise InvalidRequest(f"sequence {sequence}: sequences end at {POSITION_MAX - 1}")
        if sequence <= self._last_sequence:
            raise InvalidRequest(f"sequence {sequence} after {self._last_sequence}: they must rise")
        future = self._queue.append_batch(payloads, sequence=sequence)
        self._last_sequence = sequence
        return future


def _check(options: ProducerOptions) -> None:
    if not SESSION_WINDOW_MIN <= options.window <= SESSION_WINDOW_MAX:
        raise InvalidRequest(
            f"window {options.window}: give {SESSION_WINDOW_MIN}..{SESSION_WINDOW_MAX} batches"
        )
    if options.name is not None and not 0 < len(options.name.encode()) <= SESSION_NAME_MAX_BYTES:
        raise InvalidRequest(f"a producer's name has 1..{SESSION_NAME_MAX_BYTES} bytes")
    if options.mode == SequenceMode.MONOTONE and options.name is None:
        raise InvalidRequest("a monotone producer needs a name: its sequences outlive it")
    positive = {
        "window_bytes": options.window_bytes,
        "pack_bytes": options.pack_bytes,
        "append_timeout_s": options.append_timeout_s,
        "delivery_timeout_s": options.delivery_timeout_s,
        "ack_timeout_s": options.ack_timeout_s,
    }
    for name, value in positive.items():
        if not value > 0:  # NaN is not, either
            raise InvalidRequest(f"{name} {value}: give a number above 0")
    if not options.linger_ms >= 0:
        raise InvalidRequest(f"linger_ms {options.linger_ms}: give 0 or more")
