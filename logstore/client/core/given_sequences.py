"""The sequences that a monotone producer's caller has given: which may come next.

They rise, but that a refused batch leaves its sequence unused (SAFETY E11): it may be given again,
as long as nothing above it was given that is not refused as well. Owns the rule. Callers give
sequences, the steps say what became of them, from another thread maybe: hence the lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.client.core.steps import Lock
from logstore.errors import InvalidRequest
from logstore.limits import POSITION_MAX


class GivenSequences:
    """Bounded by what the producer's queue holds: of the batches that the log has only the newest
    one counts."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._settled = -1  # the highest one that the log has; nothing up to it is given again
        self._given: deque[int] = deque()  # rising, above it

    @property
    def last(self) -> int:
        """The highest one that may not be given again; -1: none was given."""
        return self._given[-1] if self._given else self._settled

    def give(self, sequence: int | None) -> int:
        """The caller gives this sequence to its next batch; returns it.

        Raises:
          InvalidRequest: there is none, or it does not rise.
        """
        if sequence is None or sequence < 0:
            raise InvalidRequest(f"a monotone producer gives each batch a sequence, not {sequence}")
        if sequence >= POSITION_MAX:
            raise InvalidRequest(f"sequence {sequence}: sequences end at {POSITION_MAX - 1}")
        with self._locked():
            if sequence <= self.last:
                raise InvalidRequest(f"sequence {sequence} after {self.last}: they must rise")
            self._given.append(sequence)
        return sequence

    def take_back(self, sequence: int) -> None:
        """The batch was refused, or never queued: its sequence is unused."""
        with self._locked():
            if self._given and self._given[-1] == sequence:
                self._given.pop()
            elif sequence in self._given:  # at once: the one under way is the oldest
                self._given.remove(sequence)

    def settle(self, sequence: int) -> None:
        """The log has the batch, so neither its sequence nor one below it may be given any more,
        whether it was taken back or not."""
        with self._locked():
            self._settled = max(self._settled, sequence)
            while self._given and self._given[0] <= self._settled:
                self._given.popleft()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()
