"""The reader of ranges, for a thread: iteration, and closing by any thread.

Owns the guard of its calls. `core.range_machine` decides how a range is fetched from which replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from logstore.client.call_guard import CallGuard
from logstore.client.core.range_machine import READ_BYTES, Decode, RangeMachine, RangeWalk
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host
from logstore.client.records import RawBatch, RecordBatch, batches_of, raw_batches_of
from logstore.client.threads import run

_B = TypeVar("_B", RecordBatch, RawBatch)


class RangeReader:
    """Reads ranges of LSNs. Used by one thread; close it, from any thread, or use it as a context
    manager."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        *,
        replica: int | None,
        timeout_s: float,
        max_bytes: int = READ_BYTES,
        reads_ahead: bool = False,
    ) -> None:
        self._machine = RangeMachine(
            host,
            routing,
            replica=replica,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            reads_ahead=reads_ahead,
        )
        self._guard = CallGuard("reader", self._machine.close)

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    def close(self) -> None:
        """Close it. During another thread's fetch, the sockets close when that ends."""
        self._guard.close()

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RecordBatch]:
        """The committed payloads [first_lsn, last_lsn], in order, none left out.

        Args:
          first_lsn, last_lsn: both included; a batch that passes them is cut.
          min_lsn: wait until the replica shows this LSN; 0: read what it shows now.
          linearizable: ask the leader to confirm that it leads before it answers.

        Raises:
          OutOfRange: the range is not wholly within what the replica serves; it says what is.
          NotReady, Unreachable: no replica could serve it in time.
          CorruptData: the replica's disk is damaged there.
          Closed: the reader or its client was closed, maybe while this call waited.
        """
        return self._read(batches_of, first_lsn, last_lsn, min_lsn, is_linearizable=linearizable)

    def read_batches(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RawBatch]:
        """The whole batches that hold [first_lsn, last_lsn], in order, none left out or cut: the
        first may begin below first_lsn, the last may end above last_lsn.

        Arguments and errors as `read`.
        """
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
    ) -> Iterator[_B]:
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
            with self._guard:
                batches = run(walk.next_batches(), check=self._guard.check)
            yield from batches
