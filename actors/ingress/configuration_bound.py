"""Up to where the log may be trimmed because of its newest CONFIG (SAFETY C12, G1).

The log start stays below the newest committed CONFIG: a replica that finds none does not campaign.
Owns which one that is, and asks raft for the same members once more where it is in the way of a
TRIM. While the members change raft refuses, and is asked again. Must not know who trims.
"""

from __future__ import annotations

from actors.ingress.sockets_and_rings import ToRaft
from actors.topology import Counter
from logstore.model import NO_INDEX, Index
from logstore.raft.effects import MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested

# Of no client's request: those count from 1, and raft's own have a higher bit.
RENEWAL_ID = 1 << 62
# A CONFIG is committed in some milliseconds; a change of the members takes longer, and ends.
ASK_AGAIN_NS = 200_000_000
NEVER_NS = 1 << 62


class ConfigurationBound:
    """Of one replica; it asks while this one leads."""

    def __init__(self, to_raft: ToRaft, slots: memoryview) -> None:
        self._to_raft = to_raft
        self._slots = slots
        self._has_config = False
        self._committed = NO_INDEX
        self._kept = NO_INDEX  # the newest one that this replica's files have, too (F9)
        self._wanted_above: Index | None = None
        self._due_ns = 0

    def on_members(self, changed: MembersChanged) -> None:
        self._has_config = self._has_config or changed.index > NO_INDEX
        if changed.is_committed:
            self._committed = changed.index

    @property
    def index(self) -> Index:
        """The first entry kept lies at or below it; NO_INDEX: the log has no CONFIG. 1: it has one,
        and which is committed or on this disk is not known yet."""
        if self._committed <= self._slots[Counter.VISIBLE_INDEX]:
            self._kept = self._committed
        return Index(max(self._kept, 1)) if self._has_config else NO_INDEX

    def want(self) -> None:
        """The newest one is in the way."""
        newest = self.index
        if self._wanted_above is None or newest > self._wanted_above:
            self._wanted_above, self._due_ns = newest, 0

    @property
    def next_timer_ns(self) -> int:
        return NEVER_NS if self._wanted_above is None else self._due_ns

    def do_work(self, now_ns: int, *, is_leading: bool) -> None:
        """Ask, once in a while, until there is a newer one or this replica leads no more."""
        if self._wanted_above is None:
            return
        if not is_leading or self.index > self._wanted_above:
            self._wanted_above = None
        elif now_ns >= self._due_ns:
            self._due_ns = now_ns + ASK_AGAIN_NS
            if self._committed <= self._wanted_above:
                self._to_raft.send(ChangeRequested(RENEWAL_ID, ChangeKind.RENEW))
