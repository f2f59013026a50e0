"""The consumer, for a thread: iteration, and closing by any thread.

Owns the guard of its calls. `core.consumer_machine` decides what is read from which replica.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.client.call_guard import CallGuard
from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.start import Start
from logstore.client.core.steps import Host
from logstore.client.records import Record, RecordBatch, batches_of
from logstore.client.threads import run
from logstore.client.unread import Unread

_LOG = logging.getLogger(__name__)


class Consumer:
    """Reads committed payloads in order. Used by one thread; close it, from any thread, or use it
    as a context manager."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        start: Start,
        *,
        end_lsn: int | None,
        replica: int | None,
        on_out_of_range: str,
        timeout_s: float,
    ) -> None:
        self._timeout_s = timeout_s
        self._machine = ConsumerMachine(
            host,
            routing,
            batches_of,
            end_lsn=end_lsn,
            replica=replica,
            timeout_s=timeout_s,
            on_out_of_range=on_out_of_range,
        )
        self._unread = Unread()
        self._guard = CallGuard("consumer", self._machine.close)
        try:
            run(self._machine.locate(start))
        except BaseException:
            self._machine.close()
            raise

    @property
    def position(self) -> int:
        """The LSN of the payload that comes next."""
        return self._unread.position or self._machine.next_lsn

    @property
    def skipped_payloads(self) -> int:
        """How many were left out: trimmed before they were read, or with `on_out_of_range` "latest"
        passed over to go on at the end. 0 unless `on_out_of_range` allows it."""
        return self._machine.skipped_payloads

    @property
    def node(self) -> int:
        """The replica that is read now."""
        return self._machine.node

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `end_lsn` was handed on."""
        return not self._unread and self._machine.is_at_end

    @property
    def is_paused(self) -> bool:
        return self._machine.is_paused

    @property
    def is_closed(self) -> bool:
        return self._guard.is_closed

    def close(self) -> None:
        """Close it. A call of another thread raises `Closed` as soon as it wakes, at most a second
        later while the replica lives."""
        self._guard.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Record by record, up to `end_lsn`, else for ever. A loop that is left and begun again
        goes on after its last record. Errors as `poll`."""
        machine, unread = self._machine, self._unread
        while not self.is_at_end:
            if not self.is_paused:
                for record in unread.records():
                    yield record
                    if machine.is_paused:
                        break
            if machine.is_paused or not machine.is_at_end:
                unread.add(self._poll(self._timeout_s))

    def batches(self) -> Iterator[RecordBatch]:
        """Batches as they are committed, up to `end_lsn`, else for ever. A loop that is left and
        begun again goes on after its last batch.

        Raises: as `poll`.
        """
        while not self.is_at_end:
            batch = None if self._machine.is_paused else self._unread.take_batch()
            if batch is not None:
                yield batch
            else:
                self._unread.add(self._poll(self._timeout_s))

    def seek(self, start: Start) -> None:
        """Go on at another place: `start` as for `LogClient.consumer`.

        Raises:
          Unreachable, NoQuorum: no replica, or no leader, answered in time; the position stays.
          InvalidRequest: there is no such start.
        """
        with self._guard:
            run(self._machine.locate(start), check=self._guard.check)
        self._unread.clear()

    def pause(self) -> None:
        """Hand nothing on until `resume`: a poll waits its time, a loop waits, and the replica is
        not read. Any thread may call it, and `resume`, which takes a tenth of a second at most."""
        self._machine.is_paused = True

    def resume(self) -> None:
        """Go on where `pause` left off."""
        self._machine.is_paused = False

    def commit(self, name: str, *, position: int | None = None) -> int:
        """Set the cursor `name` before the position, and return that. `AtCursor(name)` begins
        there. Commit after what was read has taken effect, and it does at least once.

        Args:
          name: of the cursor; it need not exist.
          position: the first LSN that is to be read again; None: where the consumer stands.

        The cursor is moved from where this consumer last knew it: where it began at the cursor, or
        set it; else from where it stands now. It stays held or not held, as it is at that moment,
        also if another client has changed that. What this consumer has committed already is not
        sent again.

        Raises:
          CursorMoved: another client has moved it; `.lsn` says where to. Stop, or go on there, by
            `seek(AtCursor(name))`.
          OutcomeUnknown: it may be moved or not; commit again.
          TooManyCursors, OutOfRange, InvalidRequest: as `Admin.set_cursor`.
          Unreachable, NoQuorum: no replica, or no leader, answered in time.
        """
        position = self.position if position is None else position
        with self._guard:
            run(self._machine.commit(name, position), check=self._guard.check)
        return position

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches, at least one unless nothing came within `timeout_s`, the end is reached
        or the consumer is paused. First comes what iteration has not handed on.

        Raises:
          OutOfRange: the position lies below the log start: what was there is gone. `first` and
            `last` say what the log has; open another consumer there. Not raised if
            `on_out_of_range` says to go on.
          Unreachable: no replica sent anything for longer than the client's timeout.
          CorruptData: every replica asked is damaged there.
          WrongCluster: the replica belongs to another cluster.
          Closed: the consumer or its client was closed, maybe while this call waited. This is an
            error, so that it is not taken for the end of the range.
        """
        self._guard.check()
        unread = [] if self._machine.is_paused else self._unread.take()
        if unread:
            return unread
        found = self._poll(timeout_s)
        if not self._unread:
            return found
        self._unread.add(found)  # behind what a pause has held back that ended meanwhile
        return [] if self._machine.is_paused else self._unread.take()

    def _poll(self, timeout_s: float) -> list[RecordBatch]:
        with warn_of_skipped(self._machine), self._guard:
            return run(self._machine.poll(timeout_s), check=self._guard.check)


@contextmanager
def warn_of_skipped(machine: ConsumerMachine) -> Iterator[None]:
    """Log what a poll has left out."""
    skipped, trimmed = machine.skipped_payloads, machine.trimmed_payloads
    try:
        yield
    finally:
        _warn(machine.skipped_payloads - skipped, machine.trimmed_payloads - trimmed)


def _warn(skipped: int, trimmed: int) -> None:
    if skipped > trimmed:
        _LOG.warning(
            "%d payloads were trimmed before this consumer read them, and %d more passed over "
            "to go on at the end: left out",
            trimmed,
            skipped - trimmed,
        )
    elif skipped:
        _LOG.warning("%d payloads were trimmed before this consumer read them: left out", trimmed)
