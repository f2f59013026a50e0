"""The driver as a process of ours: started, killed in two ways, started anew on its checkpoint."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from logstore.cli.embedded import poll_until
from tests.spark.chaos.driver import CHECKPOINT, Copy
from tests.spark.chaos.held_sink import COMMITS, HELD, HOLD
from tests.spark.standalone import driver_environment, kill_driver

END_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 3_000


class Copier:
    """One driver at a time, on one checkpoint. Use it as a context manager.

    Attributes:
      starts: of drivers so far.
      failures: the last line of those that ended by themselves.
    """

    def __init__(self, copy: Copy) -> None:
        self.starts = 0
        self.failures: list[str] = []
        self._copy = copy
        self._folder = Path(copy.folder)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._kill(self._process)

    def start(self) -> None:
        (self._folder / HELD).unlink(missing_ok=True)
        self.starts += 1
        with open(self._log(), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.chaos.driver", self._order()],
                env=driver_environment() | {"TMPDIR": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start_again_if_it_ended(self) -> None:
        """As whoever looks after a query would do."""
        if self._running.poll() is not None:
            self._kill(self._running)
            lines = self.tail().split("\n")
            self.failures.append(next(filter(None, reversed(lines)), ""))
            self.start()

    def hold(self) -> None:
        """Let the sink, this driver's or that of the next, stop after its next commit."""
        (self._folder / HOLD).touch()

    def held_batch(self) -> int | None:
        """The batch that the sink has committed and Spark has not; None: not there yet."""
        with suppress(FileNotFoundError):
            return int((self._folder / HELD).read_text())
        return None

    def is_logged(self, batch: int, *, log: str) -> bool:
        """Whether Spark's checkpoint has the batch in `offsets` or in `commits`."""
        return (self._folder / CHECKPOINT / log / str(batch)).exists()

    def kill(self) -> None:
        """The whole driver at once; what is held ends with it."""
        self._kill(self._running)
        (self._folder / HOLD).unlink(missing_ok=True)

    def kill_jvm_and_start(self) -> None:
        """Kill the JVM alone, and start the next driver while the rest of this one still lives."""
        old = self._running
        rest = psutil.Process(old.pid).children(recursive=True)
        for each in rest:
            with suppress(psutil.NoSuchProcess):
                if each.name() == "java":
                    each.kill()
        self.start()
        with suppress(subprocess.TimeoutExpired):
            old.wait(END_TIMEOUT_S)
        self._kill(old)
        if not poll_until(lambda: not any(map(_is_alive, rest)), END_TIMEOUT_S):
            raise TimeoutError(f"processes of a dead driver live on: {rest}")

    def stop(self) -> int:
        """Ask for the end; the exit status."""
        process = self._running
        if process.stdin is not None:
            process.stdin.close()
        return process.wait(END_TIMEOUT_S)

    def batches(self) -> list[int]:
        """Ids of all batches that sinks have committed, replayed ones again, in order."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self._folder / COMMITS).read_text().split()]
        return []

    def query_id(self) -> str:
        metadata = self._folder / CHECKPOINT / "metadata"
        return str(msgspec.json.decode(metadata.read_bytes())["id"])

    def tail(self) -> str:
        """The last that the newest driver said."""
        return self._log().read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()

    # --- inside ---

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        """Whatever is left of it."""
        kill_driver(process)
        if process.stdin is not None:
            process.stdin.close()

    def _order(self) -> str:
        return msgspec.json.encode(self._copy).decode()

    def _log(self) -> Path:
        return self._folder / f"driver-{self.starts}.log"


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
