"""Raft's view of rows that are no longer in memory: the Raft log's files, read-only (SAFETY M9)."""

from __future__ import annotations

from logstore.errors import CorruptData
from logstore.format.entry import Row
from logstore.model import Index
from logstore.storage.log_reader import LogReader


class FileLogView:
    """The core's LogView over a log reader; headers are read again when a row is not there."""

    def __init__(self, log: LogReader) -> None:
        self._log = log

    def row(self, index: Index) -> Row:
        try:
            return self._log.row(index)
        except (CorruptData, FileNotFoundError, LookupError):
            self._log.refresh()
            return self._log.row(index)
