"""The configurations of a log that may still matter: the newest committed one and those above it
(SAFETY C5).

Owns which one is in force: the newest in this replica's log, committed or not. Must not know what a
configuration says, nor entries besides their index.

Invariants: indexes rise; the newest committed one is never truncated (F8).
"""

from __future__ import annotations

from logstore.errors import InvariantViolated
from logstore.format.configuration_body import NO_UUID, Configuration
from logstore.model import NO_INDEX, NO_RANGE, Index, IndexRange, NodeId


class Configurations:
    """Begins with the configuration of no entry: that of the configuration file."""

    __slots__ = ("_above", "_committed", "_hidden", "_needs_one")

    def __init__(
        self, first: Configuration, *, hidden: IndexRange = NO_RANGE, needs_one: bool = False
    ) -> None:
        """`hidden`: the lowest and the highest index at which there may be a CONFIG that cannot be
        read.
        `needs_one`: `first` says nothing, for this log has had one, or is of a replica that
        joined."""
        self._hidden = hidden
        self._needs_one = needs_one
        self._committed = (NO_INDEX, first)
        self._above: list[tuple[Index, Configuration]] = []

    @property
    def in_force(self) -> Configuration:
        """The newest one in the log."""
        return self._newest[1]

    @property
    def committed(self) -> Configuration:
        """The newest one that is known to be committed."""
        return self._committed[1]

    @property
    def newest_index(self) -> Index:
        """Of the entry that is in force; NO_INDEX: there is none yet."""
        return self._newest[0]

    def append(self, index: Index, configuration: Configuration) -> None:
        """The entry at `index`, which is above every earlier one, is in force from now on."""
        if index <= self.newest_index:
            raise InvariantViolated(f"a CONFIG at entry {index} after that at {self.newest_index}")
        self._above.append((index, configuration))

    def names_voter(self, node: NodeId, uuid: bytes) -> bool:
        """Whether the newest committed configuration, or a later one, has `node` as a voter, under
        `uuid` if neither is empty: only such a replica campaigns (C9). Not while there may be a
        newer one that cannot be read: the older one could be a majority of its own (C12)."""
        if self._committed[0] < self._hidden[1]:
            return False
        is_committed_known = not self._needs_one or self._committed[0]
        kept = (self._committed, *self._above) if is_committed_known else self._above
        return any(
            member.number == node and (not uuid or member.uuid in (uuid, NO_UUID))
            for _, each in kept
            for member in (*each.voters, *each.incoming)
        )

    def truncate(self, first_index: Index) -> None:
        """Entries from `first_index` on are gone, and what they said is not in force any more."""
        if first_index <= self._committed[0]:
            raise InvariantViolated(
                f"entry {first_index} is truncated below the committed CONFIG at entry "
                f"{self._committed[0]}"
            )
        while self._above and self._above[-1][0] >= first_index:
            self._above.pop()
        lowest, highest = self._hidden
        is_left = lowest < first_index
        self._hidden = (lowest, min(highest, Index(first_index - 1))) if is_left else NO_RANGE

    def commit(self, index: Index) -> None:
        """Entries up to `index` are committed. Hot: called for each commit."""
        while self._above and self._above[0][0] <= index:
            self._committed = self._above.pop(0)

    def start_over(self, index: Index, *, needs_one: bool) -> None:
        """The log is empty after a log start that is installed, at `index`. The newest
        configuration that is known to be committed stays. Where this log had one, or the leader's
        `needs_one`, that has one above `index`, which comes with what follows: no truncation takes
        it."""
        if self.newest_index or needs_one:
            self._hidden = (index, Index(index + 1))
        self._needs_one = self._needs_one or needs_one
        self._above.clear()

    @property
    def _newest(self) -> tuple[Index, Configuration]:
        return self._above[-1] if self._above else self._committed
