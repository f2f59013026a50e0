"""Raft's view of rows that are no longer in memory: the Raft log's files, read-only (SAFETY M9)."""

from __future__ import annotations

from collections.abc import Callable

from logstore.errors import CorruptData
from logstore.format.entry import Row
from logstore.model import Index
from logstore.storage.log_reader import LogReader


class FileLogView:
    """The core's LogView over a log reader. `map_generation` is looked at before each read (V7): an
    open file of a dead pair still reads well, and its rows are no longer the log's. Where a row is
    not there, headers are read again all the same."""

    def __init__(self, log: LogReader, map_generation: Callable[[], int]) -> None:
        self._log = log
        self._map_generation = map_generation
        self._seen = map_generation()

    def row(self, index: Index) -> Row:
        generation = self._map_generation()
        if generation != self._seen:
            self._log.refresh()
            self._seen = generation
        try:
            return self._log.row(index)
        except (CorruptData, FileNotFoundError, LookupError):
            self._log.refresh()
            return self._log.row(index)

    def let_go(self) -> None:
        """Close what may have been removed since, and would keep its space; the next row opens
        what it needs. Reads nothing."""
        if self._map_generation() != self._seen:
            self._log.close()
