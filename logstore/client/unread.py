"""What a consumer has read and iteration has not handed on.

Pure; shared by the consumers of threads and of asyncio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from logstore.client.records import Record, RecordBatch


class Unread:
    """Batches, in order. A loop over `records` may be left and begun again."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._next_lsn = 0  # of the first batch, if iteration has begun it
        self._takes = 0  # how often batches left by another way than a loop: such loops end

    def __bool__(self) -> bool:
        return self.position is not None

    @property
    def position(self) -> int | None:
        """The LSN of the record that comes next; None: everything was handed on."""
        for batch in self._batches:
            if batch.last_lsn >= self._next_lsn:
                return max(batch.first_lsn, self._next_lsn)
        return None

    def add(self, batches: Iterable[RecordBatch]) -> None:
        if not self:
            self.clear()
        self._batches.extend(batches)

    def clear(self) -> None:
        """Forget them; loops over records end."""
        self._takes += 1
        self._batches.clear()
        self._next_lsn = 0

    def records(self) -> Iterator[Record]:
        """Hand on each record. Hot: once for each."""
        batches, takes = self._batches, self._takes
        while batches:
            batch = batches[0].cut(self._next_lsn, batches[0].last_lsn)
            for record in () if batch is None else batch.records():
                self._next_lsn = record.lsn + 1
                yield record
                if takes != self._takes:
                    return
            batches.popleft()

    def take_batch(self) -> RecordBatch | None:
        """The first batch that is left; loops over records end."""
        self._takes += 1
        while self._batches:
            batch = self._batches.popleft()
            if (rest := batch.cut(self._next_lsn, batch.last_lsn)) is not None:
                return rest
        return None

    def take(self) -> list[RecordBatch]:
        """All batches that are left; loops over records end."""
        taken = []
        while (batch := self.take_batch()) is not None:
            taken.append(batch)
        return taken
