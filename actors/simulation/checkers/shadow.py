"""What each replica's log holds by the orders its own raft gave, and every entry ever ordered.

Owns the shadow logs, as chains by index, and the header and body of each chain. Must not know what
is durable or committed. Equal chains mean equal logs up to there (SAFETY S3), so a chain identifies
an entry together with everything before it.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from logstore.format.entry import EntryHeader
from logstore.format.level import FIRST_LEVEL, level_of
from logstore.model import EntryKind
from logstore.raft.log_view import Position, RecoveredLog


class KnownEntries:
    """Every entry that some replica's raft ordered to be written in this run."""

    __slots__ = ("_chain_by_place", "_findings", "bodies", "headers")

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.headers: dict[int, EntryHeader] = {}  # by chain
        self.bodies: dict[int, bytes] = {}  # by chain; those whose bytes the harness could read
        self._chain_by_place: dict[tuple[int, int], int] = {}  # by (term, index)

    @property
    def newest_level(self) -> int:
        """The highest format level to which some entry, committed or not, raises a log."""
        return max([FIRST_LEVEL, *(level_of(each.kind) for each in self.headers.values())])

    def add(self, header: EntryHeader, chain: int) -> bool:
        """An entry is ordered; whether it is for the first time, by its leader. One (term, index)
        is one entry, with one history (I3)."""
        if chain in self.headers:
            return False
        self.headers[chain] = header
        if header.chain() != chain:
            self._findings.report(Invariant.I3, f"{header} is stored with the chain {chain:#x}")
        place = (header.term, header.index)
        if self._chain_by_place.setdefault(place, chain) != chain:
            self._findings.report(
                Invariant.I3, f"two entries {header.index} of term {header.term}: {header}"
            )
        return True


class ShadowLog:
    """One replica's log: chains of the entries above `start`, in order of index."""

    __slots__ = ("_configs", "_dropped_config", "chains", "start")

    def __init__(self, start: Position) -> None:
        self.start = start
        self.chains: list[int] = []
        self._configs: list[int] = []  # the indexes of CONFIG entries
        self._dropped_config = 0  # the chain of the newest one that went with an installed start

    @property
    def newest_config(self) -> int:
        """The chain of the newest CONFIG; 0: there is none. Hot."""
        if not self._configs:
            return self._dropped_config
        return self.chains[self._configs[-1] - self.start.index - 1]

    @property
    def configs(self) -> list[int]:
        """The indexes of its CONFIG entries."""
        return self._configs

    def append(self, header: EntryHeader, chain: int) -> None:
        """The next entry."""
        self.chains.append(chain)
        if header.kind == EntryKind.CONFIG:
            self._configs.append(header.index)

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
        while self._configs and self._configs[-1] >= first_index:
            self._configs.pop()

    def start_over(self, start: Position) -> None:
        """The log is empty after `start`."""
        self._dropped_config = self.newest_config
        self.start = start
        self.chains = []
        self._configs = []

    def recover(self, recovered: RecoveredLog, known: KnownEntries) -> int | None:
        """Set the log to what recovery found, by following the chain back from its last entry.

        Returns:
          The index of an entry that no replica ever ordered, if there is one.
        """
        unknown_index = self._recover(recovered, known)
        headers, first = known.headers, self.start.index + 1
        self._dropped_config = 0
        self._configs = [
            first + place
            for place, chain in enumerate(self.chains)
            if headers[chain].kind == EntryKind.CONFIG
        ]
        return unknown_index

    def _recover(self, recovered: RecoveredLog, known: KnownEntries) -> int | None:
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
