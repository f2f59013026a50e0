"""Changes the placement of one node in a config file that people write, and keeps the rest of it:
comments, order, spaces.

Owns the file and how it is replaced. Must not know whether what is written can be had.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomlkit

from logstore.errors import InvalidRequest

# A key of [[nodes]] with its value for a process; None: what the file says of it is taken out.
Change = Mapping[str, Any]


def edit_placement(text: str, node: int, processes: Sequence[str], change: Change) -> str:
    """`text` with `change` made for each of `processes` of `node`.

    Args:
      text: a config that was decoded without error.
      node: a node that it has.
      processes: as they are written in the file; `replicator` is all of them.
      change: `cpus`, `nice`, `io_threads`, or some of them.
    """
    document: Any = tomlkit.parse(text)
    table = next(each for each in document["nodes"] if each["node"] == node)
    for key, value in change.items():
        for process in processes:
            if value is not None:
                if key not in table:
                    table[key] = tomlkit.inline_table()
                table[key][process] = value
            elif key in table:
                table[key].pop(process, None)
        if not table.get(key, True):
            del table[key]
    return tomlkit.dumps(document)


@contextmanager
def locked_config(path: Path) -> Iterator[Path]:
    """The file itself, where `path` is a link; nobody else changes it by this way meanwhile.

    Raises:
      InvalidRequest: another command does now.
    """
    target = path.resolve()
    descriptor = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield target
    except BlockingIOError as error:
        raise InvalidRequest(f"another command changes {path} now: try again") from error
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Put `text` into the place of `path` as one act, with the same rights."""
    status = path.stat()
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), status.st_mode & 0o7777)
            with suppress(PermissionError):  # only root gives files away
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
