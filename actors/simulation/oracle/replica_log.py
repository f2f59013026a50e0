"""What the must-reach list keeps of one replica's log, across crashes.

Plain data, and how entries are looked up and forgotten. Must not know which situations are counted.
"""

from __future__ import annotations

from collections import deque

from logstore.format.level import FIRST_LEVEL


class ReplicaLog:
    """One replica's log, across crashes."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.rows: dict[int, tuple[int, bool]] = {}  # index → (term, whether it has LSNs)
        self.last_index = 0
        self.durable = 0
        self.acknowledged = 0  # to any leader, of what is in the log now
        self.in_flight: deque[tuple[int, int]] = deque()  # (seq, index), unanswered
        self.dropped: set[tuple[int, int]] = set()  # (index, term) truncated since the start
        self.configs: set[int] = set()  # the indexes of CONFIG entries that it took
        self.is_full = False
        self.has_lied = False
        self.newest_level = FIRST_LEVEL  # that its version reads
        self.found_index = 0  # its last entry at its start
        self.newest_trim = 0  # that it ordered carried out since then
        self.start_index = 0  # its log start, as its raft knows it
        self.installing_seq = 0  # of an InstallLog without an answer
        self.start_sent = 0  # the newest log start that it took from its leader


def term_at(replica: ReplicaLog, index: int) -> int:
    """0 if unknown."""
    row = replica.rows.get(index)
    return 0 if row is None else row[0]


def forget_from(replica: ReplicaLog, first_index: int) -> dict[int, tuple[int, bool]]:
    """Remove and return the entries from `first_index` on."""
    gone = {}
    for index in range(first_index, replica.last_index + 1):
        row = replica.rows.pop(index, None)
        if row is not None:
            gone[index] = row
    replica.last_index = min(replica.last_index, first_index - 1)
    replica.acknowledged = min(replica.acknowledged, first_index - 1)
    return gone
