"""Starts, signals and reaps one child process; decides nothing.

The child reads from a pipe that stays open while the supervisor lives, so its end of file tells the
child that it is an orphan (SAFETY M3). The supervisor polls a pidfd, since a pid may belong to
another process by the time it is used.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress

import msgspec

from actors.child import LAST_WORDS_MAX_BYTES, ChildSpec
from actors.supervisor.fork import fork_child


class ChildProcess:
    """A running child. The main thread must start it, because PDEATHSIG
    follows the thread that forked.

    Args:
      run: what the child does with its spec; when it returns, the child ends with status 0.
      descriptors: what the child has besides its lifeline, the pipe for its last words and the
        standard ones.
    """

    def __init__(
        self,
        run: Callable[[ChildSpec], None],
        spec: ChildSpec,
        descriptors: tuple[int, ...],
        *,
        now_ns: int,
    ) -> None:
        self.name = spec.process
        self.started_ns = now_ns
        with ExitStack() as undo:
            theirs, ours = os.pipe2(os.O_CLOEXEC)
            undo.callback(os.close, ours)
            words, told = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            undo.callback(os.close, words)
            whole = msgspec.structs.replace(spec, last_words=told)
            try:
                self.pid = fork_child(
                    lambda: run(whole), lifeline=theirs, descriptors=(*descriptors, told)
                )
            finally:
                os.close(theirs)
                os.close(told)
            undo.callback(os.waitpid, self.pid, 0)
            undo.callback(os.kill, self.pid, signal.SIGKILL)
            self.pidfd = os.pidfd_open(self.pid)
            undo.pop_all()
        self._lifeline = ours
        self._words = words
        self.last_words = ""  # once it was reaped: why the replica must not go on

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return

    def reap(self) -> int:
        """Collect the dead child; returns its exit status, negative for a
        signal. Waits if it lives."""
        _, status = os.waitpid(self.pid, 0)
        with suppress(BlockingIOError):  # a process of the child's own has the pipe still
            self.last_words = os.read(self._words, LAST_WORDS_MAX_BYTES).decode(errors="replace")
        for descriptor in (self._lifeline, self._words, self.pidfd):
            os.close(descriptor)
        return os.waitstatus_to_exitcode(status)


def describe_status(status: int) -> str:
    """An exit status as text: "exited with status 1", "was killed by SIGKILL"."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
