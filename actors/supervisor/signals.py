"""SIGTERM and SIGINT as a descriptor to poll: the self-pipe that `signal.set_wakeup_fd` writes to.

A handler that only sets a flag can lose the race with a poll that is about to begin; a byte in a
pipe cannot. Must be created in the main thread.
"""

from __future__ import annotations

import os
import signal
from types import TracebackType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """While entered, a stop signal makes `fileno()` readable instead of ending the process. A
    hang-up that is ignored, as under nohup, stays so."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> StopSignals:
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._handlers_before = {each: signal.getsignal(each) for each in STOP_SIGNALS}
        if self._handlers_before[signal.SIGHUP] == signal.SIG_IGN:
            del self._handlers_before[signal.SIGHUP]
        for each in self._handlers_before:
            signal.signal(each, lambda *_: None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._handlers_before.items():
            signal.signal(each, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        return self._reader

    def count(self) -> int:
        """How many stop signals came since the last call."""
        try:
            received = os.read(self._reader, 512)
        except BlockingIOError:
            return 0
        return sum(1 for number in received if number in STOP_SIGNALS)
