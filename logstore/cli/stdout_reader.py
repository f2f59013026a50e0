"""What a command does once the reader of its stdout has enough: `logstore verify | head`.

Owns how the rest of the output is dropped. Imports nothing that is drawn with: each command pays
for this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def before_exit_status() -> Iterator[None]:
    """For output that an exit status follows: where its reader has enough, the rest is dropped, and
    the command goes on to that status."""
    try:
        yield
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Drop what stdout still holds, and what comes: the interpreter would fail on it once more at
    its end."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or not there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
