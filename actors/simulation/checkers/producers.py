"""The order of one producer's batches in a log (I7).

Owns the last batch of each producer, the modes of their sessions and the fences. A dense producer
epoch counts 0, 1, 2, …; a monotone producer's sequences rise across its epochs; epochs never go
back, and no batch of an older epoch is committed after the answer that opened a newer one.
"""

from __future__ import annotations

from actors.simulation.checkers.batches import StoredBatch
from logstore.format.session_entries import OpenEntry
from logstore.model import SequenceMode


class Sessions:
    """Which producer epochs clients have opened, and the fences that follow."""

    __slots__ = ("_fences", "modes")

    def __init__(self) -> None:
        self.modes: dict[int, SequenceMode] = {}  # by producer
        # By producer, in rising order: (epoch, first LSN that it can have); LSN 0: not known.
        self._fences: dict[int, list[tuple[int, int]]] = {}

    def open(
        self, producer_id: int, producer_epoch: int, mode: SequenceMode, next_lsn: int
    ) -> str | None:
        """A client has this epoch; everything below `next_lsn` is committed.

        Returns:
          What is wrong with it; None: nothing.
        """
        fences = self._fences.setdefault(producer_id, [])
        if any(epoch == producer_epoch for epoch, _ in fences):
            return f"epoch {producer_epoch} of producer {producer_id} was opened twice"
        self.modes[producer_id] = mode
        fences.append((producer_epoch, next_lsn))
        return None

    def order(self, entry: OpenEntry) -> None:
        """A leader put this OPEN into its log, committed or not."""
        self.modes[entry.producer_id] = SequenceMode(entry.mode)

    def is_fenced(self, batch: StoredBatch) -> bool:
        """Whether its LSNs are above all that was committed when a newer epoch was opened."""
        return any(
            batch.producer_epoch < epoch and 0 < lsn <= batch.first_lsn
            for epoch, lsn in self._fences.get(batch.producer_id, ())
        )


class ProducerOrder:
    """Reads one log from its beginning, batch by batch."""

    __slots__ = ("_last", "_sessions")

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._last: dict[int, tuple[int, int]] = {}  # producer -> (epoch, sequence)

    def last(self, producer_id: int) -> tuple[int, int]:
        """(epoch, sequence) of the producer's last batch; (0, -1): it has none."""
        return self._last.get(producer_id, (0, -1))

    def add(self, batch: StoredBatch) -> str | None:
        """The next batch of the log.

        Returns:
          What is wrong with its place in the log; None: nothing.
        """
        producer, epoch, sequence = batch.producer_id, batch.producer_epoch, batch.sequence
        last_epoch, last_sequence = self.last(producer)
        self._last[producer] = max((last_epoch, last_sequence), (epoch, sequence))
        mode = self._sessions.modes.get(producer)
        expected = last_sequence + 1 if epoch == last_epoch else 0
        if epoch < last_epoch:
            fault = "its epoch had ended"
        elif self._sessions.is_fenced(batch):
            fault = "a newer epoch had been opened before it"
        elif (epoch == last_epoch or mode is SequenceMode.MONOTONE) and sequence <= last_sequence:
            fault = "it is there twice, or out of order"
        elif mode is SequenceMode.DENSE and sequence != expected:
            fault = f"{expected} is missing"
        else:
            return None
        name = f"batch {epoch}/{sequence} of producer {producer} at LSN {batch.first_lsn}"
        return f"{name} after {last_epoch}/{last_sequence}: {fault}"
