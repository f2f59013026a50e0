"""Rows that are no longer in memory, read from the Raft log's files (SAFETY M9)."""

from __future__ import annotations

from collections.abc import Callable

from logstore.errors import CorruptData
from logstore.format.entry import Row
from logstore.model import Index
from logstore.storage.log_reader import LogReader


class FileLogView:
    """The core's LogView over a log reader. It compares `map_generation` before each read (V7): the
    open file of a dead pair is still readable, but its rows are no longer in the log. If a row is
    missing, it reads the headers again, too."""

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

    def close_if_stale(self) -> None:
        """Close the files if some may have been removed, since an open file keeps its space. Reads
        nothing; the next row opens what it needs."""
        if self._map_generation() != self._seen:
            self._log.close()
