"""What commands print: JSON documents, tables, a progress bar where somebody watches.

Data goes to stdout, everything said about it to stderr.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TransferSpeedColumn,
)
from rich.table import Column, Table

from logstore.cli.stdout_reader import before_exit_status

STDOUT = "-"
UNLIMITED_WIDTH = 1 << 20  # characters; a table takes no more than it needs


def write_json(document: Any, path: str) -> None:
    """One JSON document, indented, to a file or stdout."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    if path == STDOUT:
        with before_exit_status():
            output = _stdout()
            output.write(text)
            output.flush()
    else:
        Path(path).write_bytes(text)


def write_json_line(document: Any) -> None:
    """One JSON document in a line, on stdout."""
    output = _stdout()
    output.write(msgspec.json.encode(document) + b"\n")
    output.flush()


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Stdout, or a file that is created anew."""
    if path == STDOUT:
        output = _stdout()
        yield output
        output.flush()
    else:
        with open(path, "wb") as file:
            yield file


def _stdout() -> IO[bytes]:
    """Python has none where the command was started with `>&-`."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")
    return sys.stdout.buffer


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def printable(name: str) -> str:
    """A name that a user chose, its control characters escaped: they would move the cursor of
    the reader's terminal, or recolour it."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in name
    )


def committed_words(first_lsn: int, last_lsn: int) -> str:
    """Of a log of [first_lsn, last_lsn]. One that is empty and begins above LSN 1 was trimmed to
    its end, or goes on from an archive."""
    if last_lsn >= max(first_lsn, 1):
        return f"LSN {first_lsn} to {last_lsn} committed"
    if first_lsn <= 1:
        return "nothing committed yet"
    if last_lsn < first_lsn - 1:
        return f"nothing shown yet: the log begins at LSN {first_lsn}"
    return f"LSN {last_lsn} committed, none of it kept: the log begins at LSN {first_lsn}"


class Terminal(Console):
    """A console to which a broken pipe is an error like any other: rich ends the process with 1.
    What is no terminal has no width: a file or a pipe gets each row in a line."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        if not self.is_terminal:
            self.width = UNLIMITED_WIDTH

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class FoldedTable(Table):
    """A table that folds what a narrow terminal has no room for: rich would cut it."""

    def __init__(self, *headers: Column | str, **options: Any) -> None:
        super().__init__(*headers, **options)
        for column in self.columns:
            column.overflow = "fold"


class Bar:
    """What is done, drawn on stderr if that is a terminal; a quiet object otherwise."""

    def __init__(
        self, words: str, total_bytes: int | None, columns: Sequence[ProgressColumn] | None = None
    ) -> None:
        """Of bytes, unless other columns are given."""
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *(columns or (DownloadColumn(), TransferSpeedColumn())),
                console=Terminal(stderr=True),
                transient=True,
            )
            self._task = self._progress.add_task(words, total=total_bytes)

    @classmethod
    def of_tasks(cls, words: str) -> Bar:
        """Of tasks, for `set_of`."""
        return cls(words, None, (MofNCompleteColumn(),))

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def set(self, done_bytes: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done_bytes)

    def set_of(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total)
