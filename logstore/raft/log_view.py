"""What the core knows of its log: term runs of all of it, full rows of its newest part (SAFETY M9).

Owns: which (index, term) the log holds, its format level by index, and the rows in memory. Must not
know: files, commit rules.

Invariants: term runs rise strictly in index and term; rows in memory are contiguous up to
the last index; `position(start.index)` is always known. Older rows come through `LogView`,
the port on the Raft log.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

import msgspec

from logstore.errors import CorruptData, InvariantViolated
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import FIRST_LEVEL, LEVEL_KINDS, level_of
from logstore.model import Index, Lsn, NodeId, Term


class LogView(Protocol):
    """Read-only port on the Raft log of this replica."""

    def row(self, index: Index) -> Row:
        """The live entry at `index`, from the files.

        Raises:
          CorruptData: the entry is faulty and not even its record can be read.
        """
        ...


class Position(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A place in the log and all that must agree there (S3). Index 0 is before the first entry."""

    index: Index
    term: Term
    next_lsn: Lsn
    chain: int

    @classmethod
    def after(cls, row: Row) -> Position:
        header = row.header
        return cls(header.index, header.term, header.next_lsn, row.chain)


class RecoveredLog(msgspec.Struct, frozen=True):
    """What recovery hands to the core (SAFETY section 4). Everything in it is durable.

    `start` is the position just below the first entry: index 0, term 0, the first LSN and chain_0
    for a log that was never trimmed. `term_runs` are (first index, term), `faulty` ranges are
    [first, last]. `commit_floor` is S2's commit index as known when the last record was written;
    `persisted` is section 4's, before the cap of a faulty entry is lifted by a later commit.
    `level` is META's format level, `levels` are the entries that raise it: (index, level) (S11).
    """

    start: Position
    last: Row | None
    term_runs: tuple[tuple[Index, Term], ...]
    commit_floor: Index
    persisted: Index
    faulty: tuple[tuple[Index, Index], ...]
    term: Term
    vote: NodeId
    level: int = FIRST_LEVEL
    levels: tuple[tuple[Index, int], ...] = ()


class EntryLog:
    """The log as consensus sees it."""

    __slots__ = (
        "_level", "_raised", "_rows", "_rows_first", "_run_firsts", "_run_terms", "_view", "last",
        "start",
    )  # fmt: skip

    def __init__(self, recovered: RecoveredLog, view: LogView) -> None:
        self.start = recovered.start
        self._view = view
        self._run_firsts = [first for first, _ in recovered.term_runs]
        self._run_terms = [term for _, term in recovered.term_runs]
        self._level = recovered.level
        self._raised: list[tuple[Index, int]] = []  # above that level, both rise
        for index, level in recovered.levels:
            self._raise(index, level)
        self._rows: list[Row] = []
        self._rows_first = Index(self.start.index + 1)
        self.last = self.start
        if recovered.last is not None:
            self._rows.append(recovered.last)
            self._rows_first = recovered.last.header.index
            self.last = Position.after(recovered.last)

    @property
    def last_index(self) -> Index:
        return self.last.index

    @property
    def last_header(self) -> EntryHeader | None:
        """The header of the last entry; None when the log is empty above its start."""
        return self._rows[-1].header if self._rows else None

    def term_at(self, index: Index) -> Term:
        """The term of `index`, in [start.index, last_index]. Where damage hides it, the term of the
        entry before the damage, since terms never fall."""
        if not self.start.index <= index <= self.last.index:
            raise InvariantViolated(f"no entry {index} in ({self.start.index}, {self.last.index}]")
        run = bisect_right(self._run_firsts, index) - 1
        return self.start.term if run < 0 or index == self.start.index else self._run_terms[run]

    def run_first(self, index: Index) -> Index:
        """The first index of the run of entries that have the same term as `index`."""
        run = bisect_right(self._run_firsts, index) - 1
        return self.start.index if run < 0 else max(self._run_firsts[run], self.start.index)

    def last_at_or_below_term(self, index: Index, term: Term) -> Index:
        """The highest index in [start.index, index] whose term is at most `term`."""
        above = bisect_right(self._run_terms, term)  # the first run of a later term
        if above < len(self._run_firsts):
            index = min(index, Index(self._run_firsts[above] - 1))
        return max(index, self.start.index)

    def level_at(self, index: Index) -> int:
        """The format level of the log up to and with `index` (S11)."""
        for raised_at, level in reversed(self._raised):
            if raised_at <= index:
                return level
        return self._level

    def row(self, index: Index) -> Row | None:
        """The entry at `index`, in (start.index, last_index]; None when
        damage made it unreadable."""
        if index >= self._rows_first:
            return self._rows[index - self._rows_first]
        try:
            return self._view.row(index)
        except CorruptData:
            return None

    def position(self, index: Index) -> Position | None:
        """The position after `index`, in [start.index, last_index]; None when unreadable."""
        if index == self.last.index:
            return self.last
        if index == self.start.index:
            return self.start
        row = self.row(index)
        return None if row is None else Position.after(row)

    def position_in_memory(self, index: Index) -> Position | None:
        """As `position`, but never reads a file. None: only the files may have it."""
        is_known = index >= self._rows_first or index in (self.start.index, self.last.index)
        return self.position(index) if is_known else None

    def recent_position(self, index: Index) -> Position:
        """The position after `index`, whose row must be in memory: this incarnation appended it."""
        if not self._rows_first <= index <= self.last.index:
            raise InvariantViolated(f"entry {index} is not among the rows in memory")
        return Position.after(self._rows[index - self._rows_first])

    def append(self, row: Row) -> None:
        """Append an entry. It must follow the last one (W5)."""
        header = row.header
        last = self.last
        if (header.index, header.prev_term, header.first_lsn, header.prev_chain) != (
            last.index + 1, last.term, last.next_lsn, last.chain,
        ) or header.term < last.term:  # fmt: skip
            raise InvariantViolated(f"{header} does not follow {last}")
        if header.term > last.term or not self._run_terms:
            self._run_firsts.append(header.index)
            self._run_terms.append(header.term)
        if header.kind in LEVEL_KINDS:
            self._raise(header.index, level_of(header.kind))
        self._rows.append(row)
        self.last = Position.after(row)

    def truncate(self, kept: Position) -> None:
        """Remove what follows `kept`. The caller has checked F8 and appends an entry next."""
        first_index = Index(kept.index + 1)
        while self._run_firsts and self._run_firsts[-1] >= first_index:
            self._run_firsts.pop()
            self._run_terms.pop()
        while self._raised and self._raised[-1][0] >= first_index:
            self._raised.pop()
        if first_index <= self._rows_first:
            self._rows.clear()
            self._rows_first = first_index
        else:
            del self._rows[first_index - self._rows_first :]
        self.last = kept

    def _raise(self, index: Index, level: int) -> None:
        """The entry at `index` raises the log to `level`, unless it is there already."""
        if level > (self._raised[-1][1] if self._raised else self._level):
            self._raised.append((index, level))

    def drop_rows(self, durable_commit: Index, *, kept: int, at_once: int) -> None:
        """Remove rows below min(`durable_commit`, last - `kept`), which the files hold (M9), once
        there are `at_once` or more."""
        unneeded = min(durable_commit, self.last.index - kept) - self._rows_first
        if unneeded >= at_once:
            del self._rows[:unneeded]
            self._rows_first = Index(self._rows_first + unneeded)
