"""Starts, signals and reaps one child process; decides nothing.

The child gets its spec as one line on standard input. That pipe stays open while the supervisor
lives, so its end of file tells the child that it is an orphan (SAFETY M3). The supervisor polls a
pidfd, since a pid may belong to another process by the time it is used.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from actors.child import ChildSpec

# -P: never import a folder of the working directory that is named like one of our packages.
CHILD_COMMAND = (sys.executable, "-P", "-m", "actors.child_main")


class ChildProcess:
    """A running child. The main thread must start it, because PDEATHSIG
    follows the thread that forked.

    Args:
      command: what to execute; the process name and our pid are appended (`actors.child_main`).
      descriptors: what the child inherits, under the same numbers.
    """

    def __init__(
        self,
        command: Sequence[str],
        spec: ChildSpec,
        descriptors: tuple[int, ...],
        *,
        now_ns: int,
    ) -> None:
        self.name = spec.process
        self.started_ns = now_ns
        self._popen = subprocess.Popen(
            [*command, spec.process, str(os.getpid())],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
        )
        self.pidfd = os.pidfd_open(self._popen.pid)
        self._send(msgspec.json.encode(spec) + b"\n")

    def _send(self, line: bytes) -> None:
        """Never waits, because a spec is far below a pipe's 64 KiB. The
        pidfd shows a dead child."""
        if self._popen.stdin is None:
            return
        try:
            self._popen.stdin.write(line)
            self._popen.stdin.flush()
        except BrokenPipeError:
            return

    @property
    def pid(self) -> int:
        return self._popen.pid

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
        status = self._popen.wait()
        if self._popen.stdin is not None:
            # the spec was never read; the descriptor is closed all the same
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
        os.close(self.pidfd)
        return status


def describe_status(status: int) -> str:
    """An exit status as text: "exited with status 1", "was killed by SIGKILL"."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
