"""Packs of payloads, and futures for their outcome.

A pack is one client batch. Callers fill it under the producer's lock until it is sealed. After that
only the producer's network thread changes it, and settles it once: resolved or failed. A future is
a view of a pack, so an append costs one small object, and settling is done once for each batch, not
for each payload.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from logstore.client.threads import closed
from logstore.errors import InvalidRequest, LogStoreError
from logstore.format.batch import PackedPayloads
from transport.client_links import forks

_LOG = logging.getLogger(__name__)

# Header, first offset, padding: the most that a batch adds to its payloads.
BATCH_OVERHEAD_BYTES = 60
PAYLOAD_OVERHEAD_BYTES = 4  # its offset


class LsnRange(NamedTuple):
    """The LSNs of an append, both ends included."""

    first: int
    last: int


class Provisional(LsnRange):
    """The outcome of an append at acks "leader" or "none" (SAFETY E10): it has no LSN, and is never
    called committed. It stands where an LsnRange does; to ask it for an LSN raises InvalidRequest.

    Attributes:
      is_flushed: the leader has the batch on its disk, or a majority has; False: it was handed to
        the connection, no more.
    """

    is_flushed: bool

    def __new__(cls, *, is_flushed: bool) -> Provisional:
        # A tuple of nothing: what reads tuples without asking them finds no LSN, either.
        outcome: Provisional = tuple.__new__(cls)
        outcome.is_flushed = is_flushed
        return outcome

    @property
    def first(self) -> int:
        raise _no_lsn()

    @property
    def last(self) -> int:
        raise _no_lsn()

    def __iter__(self) -> Iterator[int]:
        raise _no_lsn()

    def __getitem__(self, index: object) -> NoReturn:
        raise _no_lsn()

    def __len__(self) -> int:
        raise _no_lsn()

    def __bool__(self) -> bool:
        return True

    def __contains__(self, item: object) -> bool:
        raise _no_lsn()

    def __lt__(self, other: object) -> bool:
        raise _no_lsn()

    def __le__(self, other: object) -> bool:
        raise _no_lsn()

    def __gt__(self, other: object) -> bool:
        raise _no_lsn()

    def __ge__(self, other: object) -> bool:
        raise _no_lsn()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Provisional) and other.is_flushed == self.is_flushed

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((Provisional, self.is_flushed))

    def __reduce__(self) -> tuple[object, ...]:
        return _provisional, (self.is_flushed,)

    def __repr__(self) -> str:
        return f"Provisional(is_flushed={self.is_flushed})"


def _provisional(is_flushed: bool) -> Provisional:
    return FLUSHED if is_flushed else HANDED_OVER


def _no_lsn() -> InvalidRequest:
    return InvalidRequest("an append at acks leader or none has no LSN: use acks quorum")


FLUSHED = Provisional(is_flushed=True)
HANDED_OVER = Provisional(is_flushed=False)


class Pack:
    """One client batch from its first payload to its outcome.

    Attributes:
      payloads: in order; emptied once the pack is settled.
      size_bytes: of the batch on the wire, at most.
      opened_ns: when the first payload came, monotonic.
      deadline_ns: monotonic; after it the futures fail, whatever becomes of the batch.
      sequence: -1 until one is given to it: when it is first sent, or by the caller.
      expected_next_lsn: where the log must end for the batch to be stored; None: anywhere.
      batch: its bytes, from the first sending on until the log's answer; the same for every retry.
    """

    __slots__ = (
        "_callbacks",
        "_count",
        "_error",
        "_event",
        "_first_lsn",
        "_forks",
        "_is_settled",
        "_lock",
        "_provisional",
        "batch",
        "deadline_ns",
        "expected_next_lsn",
        "opened_ns",
        "payloads",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self, payloads: list[bytes] | PackedPayloads, *, opened_ns: int, deadline_ns: int
    ) -> None:
        self.payloads: list[bytes] | PackedPayloads = payloads
        self.size_bytes: int = BATCH_OVERHEAD_BYTES
        self.opened_ns: int = opened_ns
        self.deadline_ns: int = deadline_ns
        self.sequence: int = -1
        self.expected_next_lsn: int | None = None
        self.batch: bytes = b""
        self._lock = threading.Lock()
        self._forks = forks()
        self._is_settled = False
        self._first_lsn = 0
        self._count = 0
        self._error: LogStoreError | None = None
        self._provisional: Provisional | None = None
        # One for all threads that wait, made by the first, however often waits time out.
        self._event: threading.Event | None = None
        self._callbacks: list[Callable[[], None]] = []

    def is_settled(self) -> bool:
        return self._is_settled

    @property
    def error(self) -> LogStoreError | None:
        return self._error

    @property
    def provisional(self) -> Provisional | None:
        """The outcome at another level than quorum."""
        return self._provisional

    @property
    def lsns(self) -> LsnRange:
        """Of the whole batch, once it is committed."""
        return LsnRange(self._first_lsn, self._first_lsn + self._count - 1)

    def resolve(self, first_lsn: int, count: int) -> None:
        """The batch is committed with `count` LSNs from `first_lsn` on."""
        self._settle(first_lsn, count, None)

    def resolve_provisionally(self, *, is_flushed: bool) -> None:
        """Nothing more is said of the batch (SAFETY E10)."""
        if not self._is_settled:  # only the network thread settles
            self._provisional = FLUSHED if is_flushed else HANDED_OVER
        self._settle(0, 0, None)

    def fail(self, error: LogStoreError) -> None:
        self._settle(0, 0, error)

    def wait(self, timeout_s: float | None) -> bool:
        """Park until the batch is settled, at most `timeout_s`; whether it is.

        Raises:
          Closed: it was not when this process was forked, in which nothing settles it.
        """
        if self.is_settled():
            return True
        if self._forks != forks():  # before the lock, which a thread of the parent may hold
            raise closed()
        with self._lock:
            if self.is_settled():
                return True
            if self._event is None:
                self._event = threading.Event()
            event = self._event
        return event.wait(timeout_s)

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Call back from the network thread, or at once when the batch is settled already."""
        with self._lock:
            if not self._is_settled:
                self._callbacks.append(callback)
                return
        try:
            callback()
        except Exception:
            _LOG.exception("a callback of an append raised")

    def _settle(self, first_lsn: int, count: int, error: LogStoreError | None) -> None:
        with self._lock:
            if self._is_settled:
                return
            self._first_lsn, self._count, self._error = first_lsn, count, error
            self._is_settled = True
            event, callbacks = self._event, self._callbacks
            self._event, self._callbacks = None, []
        if event is not None:
            event.set()
        for callback in callbacks:
            try:
                callback()
            except BaseException:  # sys.exit, too: the others that wait must get the outcome
                _LOG.exception("a callback of an append raised")


def without_traceback(error: LogStoreError) -> LogStoreError:
    """The error without its traceback. One error is raised for every payload of a batch, and for
    every append after the end. Each raise would lengthen its traceback, which keeps the frames and
    with them the payloads."""
    return error.with_traceback(None)


class AppendFuture:
    """The outcome of one append. Cheap to hold, safe to ask from any thread."""

    __slots__ = ("_is_whole", "_pack", "_position")

    def __init__(self, pack: Pack, position: int, is_whole: bool) -> None:
        self._pack = pack
        self._position = position
        self._is_whole = is_whole

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._pack.is_settled()

    def result(self, timeout: float | None = None) -> LsnRange:
        """The LSNs of the committed payloads, at acks leader and none a `Provisional`; waits for
        them, at most `timeout` seconds.

        Raises:
          TimeoutError: the outcome is not known yet; the append goes on.
          NotCommitted, OutcomeUnknown, Fenced, …: the append failed; the type says what to do.
          Closed: this process was forked before the outcome was known: ask in its parent.
        """
        error = self.exception(timeout)
        if error is not None:
            raise without_traceback(error)
        if self._pack.provisional is not None:
            return self._pack.provisional
        lsns = self._pack.lsns
        if self._is_whole:
            return lsns
        lsn = lsns.first + self._position
        return LsnRange(lsn, lsn)

    def exception(self, timeout: float | None = None) -> LogStoreError | None:
        """Why the append failed, None if it is committed or provisional; waits like `result`."""
        if not self._pack.wait(timeout):
            raise TimeoutError(f"no outcome within {timeout} s; the append goes on")
        return self._pack.error

    def add_done_callback(self, callback: Callable[[AppendFuture], None]) -> None:
        """Call `callback(self)` once the outcome is known, from the producer's network thread.

        It must be quick and must not wait for another append. What it raises is logged.
        """
        self._pack.call_when_settled(lambda: callback(self))
