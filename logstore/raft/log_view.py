"""What the core knows of its log: term runs of all of it, full rows of its newest part (SAFETY M9).

Owns: which (index, term) the log holds, its format level by index, and the rows in memory. Must not
know: files, commit rules.

Invariants: term runs rise strictly in index and term; rows in memory are contiguous up to
the last index; `position(start.index)` is always known; nothing is kept at or below log start, and
nothing asked for (G6). Older rows come through `LogView`, the port on the Raft log.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

import msgspec

from logstore.errors import CorruptData, InvariantViolated
from logstore.format.configuration_body import Configuration
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import FIRST_LEVEL, LEVEL_KINDS, level_of
from logstore.limits import TRIMS_AT_ONCE
from logstore.model import (
    NO_INDEX,
    NO_RANGE,
    NO_TERM,
    EntryKind,
    Index,
    IndexRange,
    Lsn,
    NodeId,
    Term,
)


class LogView(Protocol):
    """Read-only port on the Raft log of this replica."""

    def row(self, index: Index) -> Row:
        """The live entry at `index`, from the files.

        Raises:
          CorruptData: the entry is faulty and not even its record can be read.
          LookupError: the log start in the files has passed it; the core is told so next.
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


class WholeLogStart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A log start with all that a log that begins there goes on from: the bytes up to and with the
    entry at log start, its stamp, and the log's format level."""

    position: Position
    cumulative_bytes: int
    timestamp_ns: int
    level: int


NOWHERE = Position(NO_INDEX, NO_TERM, Lsn(0), 0)


class RecoveredLog(msgspec.Struct, frozen=True):
    """What recovery hands to the core (SAFETY section 4). Everything in it is durable.

    `start` is the position just below the first entry: index 0, term 0, the first LSN and chain_0
    for a log that was never trimmed. `term_runs` are (first index, term), `faulty` ranges are
    [first, last]. `commit_floor` is S2's commit index as known when the last record was written;
    `persisted` is section 4's, before the cap of a faulty entry is lifted by a later commit.
    `trims` are the indexes of TRIM entries: which of them acted already, the writer knows. `level`
    is META's format level, `levels` are the entries that raise it: (index, level) (S11).
    `start_bytes` and `start_timestamp_ns` are of the entry at log start; 0 where damage hides them.
    `configurations` are the CONFIG entries from the newest one that is committed on: (index, what
    it holds) (C5). `config_hidden`: the lowest and the highest index at which there may be one that
    cannot be read (C12); NO_RANGE: there is none. `has_config`: META says that the log has had a
    CONFIG.
    """

    start: Position
    last: Row | None
    term_runs: tuple[tuple[Index, Term], ...]
    commit_floor: Index
    persisted: Index
    faulty: tuple[tuple[Index, Index], ...]
    term: Term
    vote: NodeId
    trims: tuple[Index, ...] = ()
    level: int = FIRST_LEVEL
    levels: tuple[tuple[Index, int], ...] = ()
    start_bytes: int = 0
    start_timestamp_ns: int = 0
    configurations: tuple[tuple[Index, Configuration], ...] = ()
    config_hidden: IndexRange = NO_RANGE
    has_config: bool = False


class EntryLog:
    """The log as consensus sees it."""

    __slots__ = (
        "_level", "_raised", "_rows", "_rows_first", "_run_firsts", "_run_terms", "_trims",
        "_trims_taken", "_view", "last", "start", "start_bytes", "start_timestamp_ns",
    )  # fmt: skip

    def __init__(self, recovered: RecoveredLog, view: LogView) -> None:
        self.start = recovered.start
        self.start_bytes = recovered.start_bytes
        self.start_timestamp_ns = recovered.start_timestamp_ns
        self._view = view
        self._run_firsts = [first for first, _ in recovered.term_runs]
        self._run_terms = [term for _, term in recovered.term_runs]
        self._trims = list(recovered.trims)  # above the log start
        self._trims_taken = 0  # of them, the lowest
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
    def origin(self) -> Position:
        """The position before the first entry of all, which every replica has. Only a log that was
        never trimmed knows its chain."""
        return self.start if self.start.index == NO_INDEX else NOWHERE

    @property
    def last_index(self) -> Index:
        return self.last.index

    @property
    def last_header(self) -> EntryHeader | None:
        """The header of the last entry; None when the log is empty above its start, and between a
        truncation and the entry that follows it."""
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

    def know_level(self, level: int) -> None:
        """The log was raised to `level` by an entry that is committed, and that damage may hide."""
        self._level = max(self._level, level)
        self._raised = [each for each in self._raised if each[1] > self._level]

    @property
    def newest_trim(self) -> Index:
        """The newest TRIM entry, whether it has acted or not; NO_INDEX: none is above log start."""
        return self._trims[-1] if self._trims else NO_INDEX

    def row(self, index: Index) -> Row | None:
        """The entry at `index`, in (start.index, last_index]; None when
        damage made it unreadable, or the log start is about to pass it."""
        if index >= self._rows_first:
            return self._rows[index - self._rows_first]
        try:
            return self._view.row(index)
        except (CorruptData, LookupError):
            return None

    def is_damaged(self, index: Index) -> bool:
        """Whether damage hides the entry at `index`. False: it can be read, or the log start is
        about to pass it."""
        if index >= self._rows_first:
            return False
        try:
            self._view.row(index)
        except CorruptData:
            return True
        except LookupError:
            pass
        return False

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

    def bytes_in_memory(self, index: Index) -> int | None:
        """The bytes of all entries up to `index`, trimmed ones included; never reads a file. None:
        only the files may say it."""
        if index == self.start.index:
            return self.start_bytes
        is_known = self._rows_first <= index <= self.last.index
        return self._rows[index - self._rows_first].header.cumulative_bytes if is_known else None

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
        if header.kind == EntryKind.TRIM:
            self._trims.append(header.index)
        self._rows.append(row)
        self.last = Position.after(row)

    def take_trims(self, visible: Index) -> list[Index]:
        """The TRIM entries at or below `visible` that were not taken yet; of many the newest, for
        none reaches less far than one before it."""
        first = self._trims_taken
        self._trims_taken = max(first, bisect_right(self._trims, visible))
        first = max(first, self._trims_taken - TRIMS_AT_ONCE)
        return self._trims[first : self._trims_taken]

    def position_by_next(self, index: Index) -> Position | None:
        """The position after `index`, as the entry after it says; None: there is none, or damage
        made it unreadable."""
        following = self.row(Index(index + 1)) if index < self.last.index else None
        if following is None:
            return None
        header = following.header
        return Position(index, header.prev_term, header.first_lsn, header.prev_chain)

    def whole_start(self) -> WholeLogStart | None:
        """The log start with what a log that begins there goes on from; None when damage hides the
        first entry, which says how many bytes come before it."""
        first = (
            self.row(Index(self.start.index + 1)) if self.start.index < self.last.index else None
        )
        if first is None:
            return None
        header = first.header
        return WholeLogStart(
            self.start,
            header.cumulative_bytes - header.body_size,
            min(self.start_timestamp_ns, header.timestamp_ns),
            self.level_at(self.start.index),
        )

    def move_start(self, whole: WholeLogStart) -> None:
        """The log starts after one of its entries. Its format level goes with it, since damage may
        hide an entry here that raised it."""
        start, level = whole.position, whole.level
        first = Index(start.index + 1)
        if not self.start.index < start.index <= self.last.index:
            raise InvariantViolated(f"log start {start} in a log from {self.start} to {self.last}")
        below = max(0, bisect_right(self._run_firsts, first) - 1)
        if start.index == self.last.index:
            below = len(self._run_firsts)
        del self._run_firsts[:below], self._run_terms[:below]
        if self._run_firsts:  # damage may hide every term
            self._run_firsts[0] = max(self._run_firsts[0], first)
        if self._rows_first < first:
            del self._rows[: first - self._rows_first]
            self._rows_first = first
        gone = bisect_right(self._trims, start.index)
        del self._trims[:gone]
        self._trims_taken = max(0, self._trims_taken - gone)
        self._level = max(self.level_at(start.index), level)
        self._raised = [each for each in self._raised if each[0] >= first and each[1] > self._level]
        self._set_start(whole)

    def start_over(self, whole: WholeLogStart) -> None:
        """The log is empty after a log start that is installed; nothing of before is left (G5a)."""
        self._level = max(self._level, whole.level)
        for kept in (self._run_firsts, self._run_terms, self._raised, self._trims, self._rows):
            kept.clear()
        self._trims_taken = 0
        self._set_start(whole)
        self.last = whole.position
        self._rows_first = Index(self.start.index + 1)

    def truncate(self, kept: Position) -> None:
        """Remove what follows `kept`. The caller has checked F8 and appends an entry next."""
        first_index = Index(kept.index + 1)
        while self._run_firsts and self._run_firsts[-1] >= first_index:
            self._run_firsts.pop()
            self._run_terms.pop()
        while self._raised and self._raised[-1][0] >= first_index:
            self._raised.pop()
        while self._trims and self._trims[-1] >= first_index:
            self._trims.pop()
        self._trims_taken = min(self._trims_taken, len(self._trims))
        if first_index <= self._rows_first:
            self._rows.clear()
            self._rows_first = first_index
        else:
            del self._rows[first_index - self._rows_first :]
        self.last = kept

    def _set_start(self, whole: WholeLogStart) -> None:
        self.start = whole.position
        self.start_bytes, self.start_timestamp_ns = whole.cumulative_bytes, whole.timestamp_ns

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
