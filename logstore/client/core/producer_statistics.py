"""What came of a producer's appends, in numbers.

Owns the counts. The steps raise them, in one thread; any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


class ProducerStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a producer's appends so far, in batches and in payloads.

    Attributes:
      sent_batches, sent_payloads: handed to a connection, each counted once.
      committed_batches, committed_payloads: acknowledged at level `quorum`.
      provisional_batches, provisional_payloads: of level `leader`: the leader has flushed them, or
        a majority has; of level `none`: handed over.
      possibly_lost_batches, possibly_lost_payloads: of levels `leader` and `none`: sent, and not
        known to be in the log when the session was opened again, or when the producer ended. An
        upper bound: no more is lost, and some of it may be in the log.
      reopened: how often the session was opened again, for a connection that broke or another
        leader.
    """

    sent_batches: int
    sent_payloads: int
    committed_batches: int
    committed_payloads: int
    provisional_batches: int
    provisional_payloads: int
    possibly_lost_batches: int
    possibly_lost_payloads: int
    reopened: int


@dataclass(slots=True)
class Count:
    """Of batches, and of the payloads in them."""

    batches: int = 0
    payloads: int = 0

    def add(self, payloads: int, *, batches: int = 1) -> None:
        self.batches += batches
        self.payloads += payloads


class ProducerCounts:
    """The counts of one producer."""

    def __init__(self) -> None:
        self.sent = Count()
        self.committed = Count()
        self.provisional = Count()
        self.possibly_lost = Count()
        self.reopened = 0

    def statistics(self) -> ProducerStatistics:
        """The counts now."""
        return ProducerStatistics(
            sent_batches=self.sent.batches,
            sent_payloads=self.sent.payloads,
            committed_batches=self.committed.batches,
            committed_payloads=self.committed.payloads,
            provisional_batches=self.provisional.batches,
            provisional_payloads=self.provisional.payloads,
            possibly_lost_batches=self.possibly_lost.batches,
            possibly_lost_payloads=self.possibly_lost.payloads,
            reopened=self.reopened,
        )
