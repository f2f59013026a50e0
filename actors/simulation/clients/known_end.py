"""Where producers that compare and append believe the log to end, and which LSN they expect
(FAULTS K14).

Owns what they have heard, all together: so two of them expect the same LSN, and one of the two is
right at most. Must not know who asks.
"""

from __future__ import annotations

from random import Random

from actors.simulation.network.core_appends import Append
from logstore.errors import NextLsnIs
from logstore.model import Lsn

# Of 1,000 expectations: an LSN that is gone, and one that is to come. A late copy of the second may
# find the log where it expects it.
_STALE = 120
_TOO_HIGH = 250
_STALE_BY = 5  # at most
_TOO_HIGH_BY = 256  # at most: as much as is appended until a change of leader is over


class KnownEnd:
    """`next_lsn` after everything that was acknowledged or named in a refusal."""

    def __init__(self, first_lsn: Lsn) -> None:
        self.first_lsn = first_lsn
        self.next_lsn = int(first_lsn)

    def learn(self, append: Append) -> bool:
        """An append is over. Whether it was refused, for the log had gone on."""
        if append.is_acknowledged and append.acknowledged_as is not None:
            first_lsn, count = append.acknowledged_as
            self.next_lsn = max(self.next_lsn, first_lsn + count)
        if not isinstance(append.error, NextLsnIs):
            return False
        self.next_lsn = max(self.next_lsn, append.error.next_lsn)
        return True

    def draw(self, random: Random, compares: int) -> int | None:
        """What the next append expects; None: of 1,000 all but `compares` expect nothing."""
        if random.random() * 1_000 >= compares:
            return None
        kind = random.random() * 1_000
        if kind < _STALE:
            return max(int(self.first_lsn), self.next_lsn - random.randrange(1, _STALE_BY + 1))
        if kind < _STALE + _TOO_HIGH:
            return self.next_lsn + int(_TOO_HIGH_BY ** random.random())
        return self.next_lsn
