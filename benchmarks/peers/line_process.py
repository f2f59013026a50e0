"""A child process that is told lines and answers in lines, such as the client of a peer.

Owns its life: it dies with this process, its errors go to a file, and every wait for it is bounded.
Start it from the main thread, whose end the kernel takes for ours.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path

from actors.child import die_with_parent
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.errors import Unreachable

LOG_TAIL_BYTES = 2_000
END_TIMEOUT_S = 30.0
_PIECE_BYTES = 1 << 16


class LineProcess:
    """Started with the object. Used by one thread; close it."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        parent = os.getpid()
        self._name = os.path.basename(command[0])
        self._log = log
        self._unread = b""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                preexec_fn=lambda: die_with_parent(parent),
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._readable = select.poll()
        self._readable.register(self._out, select.POLLIN)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, line: str) -> None:
        """Send a line.

        Raises:
          Unreachable: it has ended.
        """
        try:
            self._in.write(line.encode() + b"\n")
        except BrokenPipeError as error:
            raise self._failed("has ended") from error

    def hear(self, timeout_s: float) -> str:
        """The next line, without its end.

        Raises:
          Unreachable: it ended or said nothing in time; with the end of what it wrote to its log.
        """
        if line := self.hear_or_end(timeout_s):
            return line
        raise self._failed("has ended")

    def hear_or_end(self, timeout_s: float) -> str:
        """The same; "": it has ended, and well."""
        deadline_ns = seconds_from_now(timeout_s)
        while b"\n" not in self._unread:
            if not self._readable.poll(milliseconds_until(deadline_ns)):
                raise self._failed(f"said nothing for {timeout_s:g} s")
            piece = os.read(self._out.fileno(), _PIECE_BYTES)
            if not piece:
                self._wait_end(END_TIMEOUT_S)
                return ""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def drain(self, seconds: float) -> int:
        """Hear all that it says for so long; how many lines. Raises as `hear`, if it ends."""
        deadline_ns = seconds_from_now(seconds)
        lines = 0
        while self._readable.poll(milliseconds_until(deadline_ns)):
            piece = os.read(self._out.fileno(), _PIECE_BYTES)
            if not piece:
                raise self._failed("has ended")
            self._unread += piece
            whole, _, self._unread = self._unread.rpartition(b"\n")
            lines += len(whole.splitlines())
        return lines

    def ask(self, line: str, timeout_s: float) -> str:
        """Send a line, then wait for one; raises as both."""
        self.tell(line)
        return self.hear(timeout_s)

    def close(self) -> None:
        """Kill it, if it still runs."""
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()

    def _wait_end(self, timeout_s: float) -> None:
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"runs on after {timeout_s:g} s") from error
        if status:
            raise self._failed(f"ended with status {status}")

    def _failed(self, what: str) -> Unreachable:
        return Unreachable(f"{self._name} {what}; it wrote: {tail_of(self._log)}")


def tail_of(log: Path) -> str:
    """The end of a log, for messages about the process that wrote it."""
    try:
        return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "nothing"
    except OSError:
        return "nothing"
