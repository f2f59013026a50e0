"""The demo's producers and consumers as child processes: started, watched, waited for.

Owns their lives. Must not know what they do. Invariant: none outlives `close`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from logstore.cli.demo.board import WorkerSpec
from logstore.errors import LogStoreError

STDERR_BYTES = 1_500
KILL_TIMEOUT_S = 10.0


class WorkerFailed(LogStoreError):
    """A producer or consumer of the demo ended with an error; the message holds what it said."""


class Workers:
    """Child processes by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, module: str, spec: WorkerSpec) -> None:
        """Run `python -m module` with the spec as its argument; call from the main thread."""
        command = [sys.executable, "-m", module, msgspec.json.encode(spec).decode()]
        with open(self._stderr_path(spec.name), "wb") as errors:
            self._children[spec.name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )

    def are_done(self, names: Sequence[str]) -> bool:
        """Whether all of these have ended well.

        Raises:
            WorkerFailed: one, of these or the others, ended with an error.
        """
        for name, child in self._children.items():
            if child.poll():
                raise WorkerFailed(f"{name} failed:\n{self._stderr(name)}")
        return all(self._children[name].returncode == 0 for name in names)

    def close(self) -> None:
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait(KILL_TIMEOUT_S)

    def _stderr_path(self, name: str) -> Path:
        return self._folder / f"{name}.stderr"

    def _stderr(self, name: str) -> str:
        return self._stderr_path(name).read_bytes()[-STDERR_BYTES:].decode(errors="replace")
