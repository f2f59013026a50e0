"""SIGINT and SIGTERM for a command that counts what it did: they end waiting, no step half way.

Owns the two signals' handlers while it is entered. A second signal always gets through.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns the signals into KeyboardInterrupt, inside `allowed()` and `look()` only."""

    def __init__(self) -> None:
        self._is_due = False
        self._is_allowed = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self._previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """While this waits, a signal ends it; one that came before ends it at once."""
        self._is_allowed = True
        try:
            if self._is_due:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def look(self) -> None:
        """Between two steps: a signal that came before ends it here.

        Raises:
          KeyboardInterrupt: one came.
        """
        if self._is_due:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_allowed or self._is_due:
            raise KeyboardInterrupt
        self._is_due = True


class InterruptibleSource:
    """A binary file whose reading a signal ends."""

    def __init__(self, source: BufferedReader, interrupts: Interrupts) -> None:
        self._source = source
        self._interrupts = interrupts

    def read1(self, size: int = -1, /) -> bytes:
        with self._interrupts.allowed():
            return self._source.read1(size)
