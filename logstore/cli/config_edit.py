"""Changes the placement of one node in a config file that people write, and keeps the rest of it:
comments, order, spaces, ends of lines. A key that is taken out takes the comment of its line along,
and a line that is new ends in a line feed, also where the others have a carriage return before it.

Owns the file and how it is replaced. Must not know whether what is written can be had.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import Table

from logstore.config_layout import REPLICATOR
from logstore.errors import ConfigError, InvalidRequest
from logstore.storage.disk import flush_path

# A key of [[nodes]] with its value for a process; None: what the file says of it is taken out.
Change = Mapping[str, Any]


def edit_placement(text: str, node: int, processes: Sequence[str], change: Change) -> str:
    """`text` with `change` made for each of `processes` of `node`.

    Args:
      text: a config that was decoded without error.
      node: a node that it has.
      processes: as they are written in the file; `replicator` is all of them, so that what the
        node says of single ones is taken out.
      change: `cpus`, `nice`, `io_threads`, or some of them.
    """
    document: Any = tomlkit.parse(text)
    table = next(each for each in document["nodes"] if each["node"] == node)
    for key, value in change.items():
        for process in processes:
            for written in _entries_of(process, table.get(key, {})):
                del table[key][written]
            if value is not None:
                if key not in table:
                    _add_table(table, key)
                table[key][process] = value
        if not table.get(key, True):
            del table[key]
    return tomlkit.dumps(document)


def _entries_of(process: str, entries: Mapping[str, Any]) -> list[str]:
    if process != REPLICATOR:
        return [name for name in entries if name == process]
    return [name for name in entries if name.partition("-")[0] == REPLICATOR]


def _add_table(table: Any, key: str) -> None:
    """Behind the last entry that is no table by itself: comments at the end of a table are often
    about the next one."""
    last = [name for name in table if not isinstance(table[name], Table)][-1]
    table.value._insert_after(last, key, tomlkit.inline_table())


@contextmanager
def locked_config(path: Path) -> Iterator[Path]:
    """The file itself, where `path` is a link; nobody else changes it by this way meanwhile.

    Raises:
      InvalidRequest: another command does now.
      ConfigError: its folder cannot be locked, on a network file system for example.
    """
    target = path.resolve()
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor, path)
        yield target
    finally:
        os.close(descriptor)


def _lock(folder: int, path: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InvalidRequest(f"another command changes {path} now: try again") from error
    except OSError as error:
        raise ConfigError(
            f"the folder of {path} cannot be locked, nothing was changed: {error.strerror}"
        ) from error


def replace_file(path: Path, text: str) -> None:
    """Put `text` into the place of `path` as one act, with the same rights, and flush both.

    Raises:
      ConfigError: it cannot be written, on a full disk for example, or its folder not be flushed;
        says whether it was changed.
    """
    try:
        _put(path, text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written, nothing was changed: {error.strerror}"
        ) from error
    try:
        flush_path(path.parent)
    except OSError as error:
        raise ConfigError(
            f"{path} was changed, but may be the old one after a power failure: its folder cannot "
            f"be flushed: {error.strerror}"
        ) from error


def _put(path: Path, text: str) -> None:
    status = path.stat()
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            _give_rights(descriptor, status)
            file.write(text)
        flush_path(Path(temporary))
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _give_rights(descriptor: int, status: os.stat_result) -> None:
    """Those of the file that is replaced; only root gives files away."""
    for owner in ((status.st_uid, status.st_gid), (-1, status.st_gid)):
        with suppress(PermissionError):
            os.fchown(descriptor, *owner)
            break
    os.fchmod(descriptor, status.st_mode & 0o7777)
