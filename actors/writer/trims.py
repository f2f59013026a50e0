"""TRIM entries, and log starts that the leader sent, carried out one after the other, those that
wait as one (SAFETY G4, G5, F7).

Owns their order and the steps of each. Must not know when one is committed: raft orders it.

    1. the TRIMs that wait are read from this replica's files; the highest log start of all orders
       does what all ask for
    2. META gets the log start, flushed, in META's own worker (S8)
    3. pairs wholly below are removed; only now, since META is evidence of what they held
    4. map_generation rises (V7), and raft is told

A crash between any two leaves what recovery understands. The writer's thread does none of the disk
work; the pairs are taken out of the log there, while no segment is being opened (F6).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from actors.host import FlushWorker
from actors.messages import RingMessage, RotReported
from actors.observer import PairsRemoved
from actors.station import Station
from actors.topology import Counter
from actors.writer.folder import Folder, log_start_of
from logstore.format.segment_header import SegmentHeader
from logstore.model import Index, Lsn
from logstore.raft.events import LogStartMoved
from logstore.raft.log_view import WholeLogStart

_log = logging.getLogger("logstore.writer")


class Trims:
    """`meta_worker` is the only one that saves META; `answer` sends to raft."""

    def __init__(
        self,
        station: Station,
        folder: Folder,
        *,
        meta_worker: FlushWorker,
        answer: Callable[[RingMessage], None],
    ) -> None:
        self._slots = station.slots
        self._observer = station.host.observer
        self._folder = folder
        self._meta_worker = meta_worker
        self._answer = answer
        self._worker = station.host.flush_worker("trim", station.bell.ring)
        self._queue: deque[Index | WholeLogStart] = deque()
        self._is_saving = False
        self._saved: WholeLogStart | None = None  # in META, and not carried out yet
        self._removed: WholeLogStart | None = None  # and the pairs below it are gone

    @property
    def worker(self) -> FlushWorker:
        return self._worker

    def add(self, order: Index | WholeLogStart) -> None:
        """Take the index of a TRIM, or a log start."""
        self._queue.append(order)

    @property
    def is_idle(self) -> bool:
        """No order is being carried out. The worker is asked first: what its job leaves behind is
        there once it is done."""
        if self._queue or self._worker.is_busy:
            return False
        return not (self._is_saving or self._saved is not None or self._removed is not None)

    def forget(self) -> None:
        """The log is dropped, and with it the orders that wait. One that has begun is ended."""
        self._queue.clear()

    def do_work(self, *, is_opening: bool) -> int:
        """Begin the next step that can begin. `is_opening`: a segment is being opened.

        Raises:
          WriteFailed: a job failed; the incarnation ends (F5).
        """
        self._worker.check()
        if self._worker.is_busy or self._is_saving:
            return 0
        if self._removed is not None:
            self._moved(self._removed)
            self._removed = None
            return 1
        if self._saved is not None:
            if is_opening:
                return 0
            pairs = self._folder.log.move_start(log_start_of(self._saved))
            self._worker.start(partial(self._remove, self._saved, pairs))
            self._saved = None
            return 1
        if self._queue:
            self._worker.start(self._read)
            return 1
        return 0

    def close(self) -> None:
        self._worker.close()

    # --- jobs ---

    def _read(self) -> Iterator[None]:
        whole = self._folder.next_log_start(self._queue, self._report_rot)
        yield
        if whole is not None:
            self._is_saving = True
            self._meta_worker.start(partial(self._save, whole))

    def _report_rot(self, index: Index) -> None:
        """A leader that cannot carry its TRIM out hands over (Q3)."""
        self._answer(RotReported(index, Lsn(0), Lsn(0)))

    def _save(self, whole: WholeLogStart) -> Iterator[None]:
        """In the META worker."""
        self._folder.save_log_start(whole)
        yield
        self._saved = whole
        self._is_saving = False

    def _remove(self, whole: WholeLogStart, pairs: list[SegmentHeader]) -> Iterator[None]:
        for pair in pairs:
            self._folder.log.remove_pairs([pair])
            yield
        self._observer.saw(PairsRemoved(len(pairs)))
        self._removed = whole

    def _moved(self, whole: WholeLogStart) -> None:
        self._slots[Counter.MAP_GENERATION] += 1
        self._answer(LogStartMoved(whole))
        at = whole.position
        _log.info("the log starts at LSN %d now, after entry %d", at.next_lsn, at.index)
