"""A standalone Spark on this machine, from the pip package: a master and workers as our children.

Owns their lives. Nothing is downloaded or installed: `bin/spark-class` of pyspark starts them, on
loopback and free ports. Executors are grandchildren, found by their command line; they and their
Python workers have the repository on their path, as `pip install` would have it on a real cluster.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pyspark

from logstore.cli.embedded import poll_until
from tests.tidy.repository import ROOT

SPARK_HOME = Path(pyspark.__file__).parent
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_TIMEOUT_S = 120.0  # a JVM on a busy small machine
ANSWER_TIMEOUT_S = 10.0
END_TIMEOUT_S = 20.0
LOOK_MS = 50
WORKERS = 2
# Half the processor time of a start: what lives for a minute is not worth compiling twice.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# What a driver on this machine needs besides the master: the rest is Spark's own choice.
DRIVER_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.memory": "768m",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
}


class StandaloneSpark:
    """A master and two workers of one core each in `folder`; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._web = ""
        self.url = ""

    def __enter__(self) -> StandaloneSpark:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def executors(self) -> list[psutil.Process]:
        """Every executor that runs, of whatever application."""
        found = []
        for worker in self._processes[1:]:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(worker.pid).children()
                found += [each for each in children if _is_executor(each)]
        return found

    def state(self) -> dict[str, Any]:
        """What the master tells of itself, its workers and applications."""
        with urlopen(f"{self._web}/json/", timeout=ANSWER_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def wait_until_idle(self) -> None:
        """Until the master knows of no application any more."""
        if not poll_until(lambda: not self.state()["activeapps"], START_TIMEOUT_S, look_ms=LOOK_MS):
            raise TimeoutError(f"applications are left: {self.state()}")

    def close(self) -> None:
        """Kill what runs, the workers before their master, and each with its executors."""
        for process in reversed(self._processes):
            tree = [process.pid, *_descendants(process.pid)]
            for pid in tree:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(END_TIMEOUT_S)
        self._processes.clear()

    # --- inside ---

    def _start(self) -> None:
        call = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        log = self._spawn("master", *call, "--port", "0", "--webui-port", "0")
        self.url = f"spark://127.0.0.1:{self._port(log, 'sparkMaster')}"
        self._web = f"http://127.0.0.1:{self._port(log, 'MasterUI')}"
        for number in range(1, WORKERS + 1):
            call = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
            call += ["--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            call += ["--work-dir", str(self.folder / f"worker-{number}"), self.url]
            self._spawn(f"worker-{number}", *call)
        if not poll_until(self._has_all_workers, START_TIMEOUT_S, look_ms=LOOK_MS):
            raise TimeoutError(f"the workers do not register; see {self.folder}")

    def _spawn(self, name: str, *call: str) -> Path:
        """Start a daemon of Spark; its log."""
        log = self.folder / f"{name}.log"
        environment = os.environ | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_LAUNCHER_OPTS": JAVA_OPTIONS,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": "no-python-of-the-workers",  # the driver's decides
        }
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *call],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return log

    def _port(self, log: Path, service: str) -> str:
        words = f"Successfully started service '{service}' on port "
        if not poll_until(lambda: words in log.read_text(), START_TIMEOUT_S, look_ms=LOOK_MS):
            raise TimeoutError(f"{service} does not start; {log.read_text()}")
        return log.read_text().partition(words)[2].partition(".")[0]

    def _has_all_workers(self) -> bool:
        try:
            workers = self.state()["workers"]
        except (OSError, ValueError):
            # before its pages are attached the port may answer 404, its first page, or nothing
            return False
        return sum(each["state"] == "ALIVE" for each in workers) == WORKERS


def kill_driver(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a driver program with its JVM and its Python workers, all at once.

    They are stopped first, so that none sees the others' end and says goodbye to the master.
    """
    tree = [process.pid, *_descendants(process.pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in tree:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
    process.wait(END_TIMEOUT_S)


def driver_environment() -> dict[str, str]:
    """What a driver program is started with: it finds the right Python by itself."""
    own = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
    return own | {"PYTHONPATH": str(ROOT)}


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return EXECUTOR in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _descendants(pid: int) -> list[int]:
    with suppress(psutil.NoSuchProcess):
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    return []
