"""Calls a command in this process, and puts back what it sets there."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logstore.cli.main import main


@contextmanager
def kept_process_settings() -> Iterator[None]:
    """Commands own their process; in tests they share it."""
    handler, interval = signal.getsignal(signal.SIGTERM), sys.getswitchinterval()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        sys.setswitchinterval(interval)


def run(*arguments: str | Path) -> int:
    try:
        return main([str(each) for each in arguments])
    except SystemExit as exit_:
        return int(exit_.code or 0)
