"""What a leader knows of each peer: its match and whether it is alive. The
replicator owns the stream.

Invariant: `match` never falls within a term (SAFETY W2).
"""

from __future__ import annotations

from dataclasses import dataclass

from logstore.model import NO_INDEX, Index, NodeId
from logstore.raft.log_view import Position


@dataclass(slots=True)
class Progress:
    """One peer, as the leader knows it. Times in ns of the monotonic clock."""

    peer: NodeId
    match: Index
    known: Position  # the newest position at or below match that was in memory: for heartbeats
    # (index 0 while nothing is known, which no follower verifies)
    heard_ns: int
    advanced_ns: int
    boot: int | None = None
    round_answered: int = 0
    commit_sent: Index = NO_INDEX
    catches_up_to: Index = NO_INDEX  # it got log start, and needs what follows up to here (G7)
    has_replied: bool = False
    last_index: Index = NO_INDEX
    faulty_first: Index = NO_INDEX
    faulty_last: Index = NO_INDEX
    limits_digest: int = 0  # 0: not reported
    newest_level: int | None = None  # that it reads (S11); None: not reported since it started
    is_disk_full: bool = False  # as last reported (S9)
    room_end: int = 0  # of a full disk, by `space.end_of`: how far this leader's log fits
    clock_ahead_ns: int = 0  # its wall clock less our monotonic clock, when it was reported
    clock_recorded_ns: int | None = None  # when its clock was reported

    @property
    def is_whole(self) -> bool:
        """The peer has reported that none of its entries is damaged."""
        return self.has_replied and self.faulty_first == NO_INDEX

    def has_other_limits(self, digest: int) -> bool:
        """The peer has reported limits, and they are not those of `digest`."""
        return self.limits_digest not in (0, digest)

    def was_heard_since(self, since_ns: int) -> bool:
        return self.heard_ns >= since_ns

    def has_restarted(self, boot: int) -> bool:
        """The peer answers from a newer incarnation than the one known so
        far. Records the new one."""
        known, self.boot = self.boot, max(boot, self.boot or 0)
        return known is not None and boot > known

    def on_match(self, index: Index, now_ns: int) -> None:
        """The peer has everything up to `index`, which is above its match, verified and flushed."""
        self.match = index
        self.advanced_ns = now_ns
        if index >= self.catches_up_to:
            self.catches_up_to = NO_INDEX
