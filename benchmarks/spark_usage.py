"""What Spark uses: processor seconds and peak memory of the JVM, its Python workers and the driver.

Owns the reading of it, from the kernel. Spark's daemon lets nobody account for workers that end
(it ignores SIGCHLD), so each process counts with what it had used when it was seen last: one that
begins and ends between two marks is missed, one that ends takes with it what it used since the
mark before. Spark keeps its workers for a minute of idleness, so that between two marks a few
seconds apart they begin, at most.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil

from logstore.errors import Unreachable


class SparkMark(msgspec.Struct, frozen=True):
    """Processor seconds so far, user and system.

    Attributes:
      jvm: of the JVM itself, its compilers and collectors included.
      workers: of every Python process below it.
      driver: of this process, where pipelines plan and commit.
    """

    jvm: float
    workers: float
    driver: float

    @property
    def total(self) -> float:
        return self.jvm + self.workers + self.driver

    def since(self, before: SparkMark) -> SparkMark:
        return SparkMark(
            round(self.jvm - before.jvm, 3),
            round(self.workers - before.workers, 3),
            round(self.driver - before.driver, 3),
        )


class PeakMemory(msgspec.Struct, frozen=True):
    """The most that was resident so far, in MB, as the kernel keeps it (VmHWM).

    Attributes:
      worker: of the largest Python worker.
      workers: of all that live now, together; pages that they share are counted in each.
    """

    jvm: float
    worker: float
    workers: float
    driver: float


def find_jvm() -> psutil.Process:
    """The JVM that this process has started.

    Raises:
      Unreachable: there is none.
    """
    for process in psutil.Process().children():
        if process.name() == "java":
            return process
    raise Unreachable("no JVM was started: is there a Spark session?")


class SparkUsage:
    """Looks at one JVM and what is below it. Used by one thread."""

    def __init__(self, jvm: psutil.Process) -> None:
        self._jvm = jvm
        self._workers: dict[psutil.Process, float] = {}

    def mark(self) -> SparkMark:
        """Look now."""
        for process in self._jvm.children(recursive=True):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._workers[process] = times.user + times.system
        jvm, driver = self._jvm.cpu_times(), psutil.Process().cpu_times()
        return SparkMark(
            jvm.user + jvm.system, sum(self._workers.values()), driver.user + driver.system
        )

    def peak_memory(self) -> PeakMemory:
        """So far."""
        workers = [_peak_mb(process.pid) for process in self._jvm.children(recursive=True)]
        return PeakMemory(
            jvm=_peak_mb(self._jvm.pid),
            worker=max(workers, default=0.0),
            workers=round(sum(workers), 1),
            driver=_peak_mb(psutil.Process().pid),
        )


def _peak_mb(pid: int) -> float:
    """0.0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    for line in lines.splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) * 1_024 / 1e6, 1)
    return 0.0
