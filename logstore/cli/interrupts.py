"""SIGINT and SIGTERM for a command that counts what it did: they end waits, no step half done.

Owns the two signals' handlers while it is entered. A second signal always gets through.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, UnsupportedOperation
from types import FrameType
from typing import Any

from logstore.errors import InvalidRequest

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def terminate(_number: int, _frame: FrameType | None) -> None:
    """A handler of SIGTERM that unwinds, as SIGINT's own does."""
    raise Terminated


class Interrupts:
    """Turns the signals into KeyboardInterrupt or Terminated, in `allowed()` and `look()` only."""

    def __init__(self) -> None:
        self._due: type[KeyboardInterrupt] | None = None
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
            self.look()
            yield
        finally:
            self._is_allowed = False

    def look(self) -> None:
        """Between two steps: a signal that came before ends it here.

        Raises:
          KeyboardInterrupt: SIGINT came.
          Terminated: SIGTERM came.
        """
        if self._due is not None:
            raise self._due

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        is_second = self._due is not None
        self._due = self._due or (Terminated if number == signal.SIGTERM else KeyboardInterrupt)
        if self._is_allowed or is_second:
            raise self._due


class InterruptibleSource:
    """A binary file whose reading a signal ends."""

    def __init__(self, source: BufferedReader, interrupts: Interrupts) -> None:
        self._source = source
        self._interrupts = interrupts

    def read1(self, size: int = -1, /) -> bytes:
        """Raises: InvalidRequest: it cannot be read, for a fault of its disk for example."""
        with self._interrupts.allowed():
            try:
                self._wait_for_input()
                return self._source.read1(size)
            except OSError as error:
                raise InvalidRequest(
                    f"{self._source.name} cannot be read: {error.strerror}"
                ) from error

    def _wait_for_input(self) -> None:
        """Where the descriptor does not block, as a parent may leave its children's stdin, a read
        that finds nothing yet looks like the end."""
        try:
            descriptor = self._source.fileno()
        except UnsupportedOperation:  # in memory
            return
        if not os.get_blocking(descriptor):
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll()
