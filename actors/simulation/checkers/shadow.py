"""What each replica's log holds by the orders its own raft gave, and every entry ever ordered.

Owns the shadow logs, as chains by index, and the header and body of each chain. Must not know what
is durable or committed. Equal chains mean equal logs up to there (SAFETY S3), so a chain identifies
an entry together with everything before it.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.stamps import Stamps
from logstore.format.entry import EntryHeader
from logstore.format.level import FIRST_LEVEL, level_of
from logstore.raft.log_view import Position, RecoveredLog


class KnownEntries:
    """Every entry that some replica's raft ordered to be written in this run."""

    __slots__ = ("_chain_by_place", "_findings", "_stamps", "bodies", "headers")

    def __init__(self, findings: Findings, stamps: Stamps) -> None:
        self._findings = findings
        self._stamps = stamps
        self.headers: dict[int, EntryHeader] = {}  # by chain
        self.bodies: dict[int, bytes] = {}  # by chain; those whose bytes the harness could read
        self._chain_by_place: dict[tuple[int, int], int] = {}  # by (term, index)

    @property
    def newest_level(self) -> int:
        """The highest format level to which some entry, committed or not, raises a log."""
        return max([FIRST_LEVEL, *(level_of(each.kind) for each in self.headers.values())])

    def add(self, header: EntryHeader, chain: int) -> None:
        """An entry is ordered. One (term, index) is one entry, with one history (I3)."""
        if chain in self.headers:
            return
        self.headers[chain] = header
        self._stamps.on_entry(header, self.headers.get(header.prev_chain))
        if header.chain() != chain:
            self._findings.report(Invariant.I3, f"{header} is stored with the chain {chain:#x}")
        place = (header.term, header.index)
        if self._chain_by_place.setdefault(place, chain) != chain:
            self._findings.report(
                Invariant.I3, f"two entries {header.index} of term {header.term}: {header}"
            )


class ShadowLog:
    """One replica's log: chains of the entries above `start`, in order of index."""

    __slots__ = ("chains", "start")

    def __init__(self, start: Position) -> None:
        self.start = start
        self.chains: list[int] = []

    @property
    def last_index(self) -> int:
        return self.start.index + len(self.chains)

    def chain_at(self, index: int) -> int | None:
        """The chain of the entry at `index`, or of the start; None: there is none."""
        place = index - self.start.index - 1
        if place == -1:
            return self.start.chain
        return self.chains[place] if 0 <= place < len(self.chains) else None

    def truncate(self, first_index: int) -> None:
        del self.chains[max(first_index - self.start.index - 1, 0) :]

    def start_over(self, start: Position) -> None:
        """The log is empty after `start`."""
        self.start = start
        self.chains = []

    def recover(self, recovered: RecoveredLog, known: KnownEntries) -> int | None:
        """Set the log to what recovery found, by following the chain back from its last entry.

        Returns:
          The index of an entry that no replica ever ordered, if there is one.
        """
        if recovered.start != self.start:
            self.start = recovered.start
            self.chains = []
        if recovered.last is None:
            self.chains = []
            return None
        index, chain = int(recovered.last.header.index), recovered.last.chain
        self.truncate(index + 1)
        found: list[int] = []
        while index > self.start.index and self.chain_at(index) != chain:
            found.append(chain)
            header = known.headers.get(chain)
            if header is None:
                return index
            index, chain = index - 1, header.prev_chain
        self.truncate(index + 1)
        self.chains.extend(reversed(found))
        return None
