"""The product's sink, which can be held between its commit and what Spark makes of it.

Every batch that it says is committed becomes a line of COMMITS; while HOLD is there, it says so in
HELD and waits for its end. A module of its own, for Spark's processes import it by name.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logstore.spark.data_source import LogStoreDataSource
from logstore.spark.writers import LogStreamWriter

COMMITS = "commits.txt"
HOLD = "hold"
HELD = "held"
FOLDER_OPTION = "folder"


class HeldSink(DataSource):
    """The sink `logstore`, which can be held after a commit."""

    @classmethod
    def name(cls) -> str:
        return "logstore_held"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = {name: self.options[name] for name in self.options if name != FOLDER_OPTION}
        writer = LogStoreDataSource(options).streamWriter(schema, overwrite)
        return _HeldWriter(writer, self.options[FOLDER_OPTION])


class _HeldWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: LogStreamWriter, folder: str) -> None:
        self._writer = writer
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.commit(messages, batchId)
        folder = Path(self._folder)
        with open(folder / COMMITS, "a") as commits:
            commits.write(f"{batchId}\n")
        if (folder / HOLD).exists():
            part = folder / f"{HELD}.part"
            part.write_text(str(batchId))
            part.rename(folder / HELD)
            while True:
                signal.pause()

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)
