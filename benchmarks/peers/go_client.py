"""The client programs in Go, natsload and etcdload, which take the same words.

Owns how they are called: a process for each word.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.line_process import LineProcess
from benchmarks.peers.loads import Way

START_TIMEOUT_S = 60.0
IN_STEP_TIMEOUT_S = 60.0


class GoClient:
    """See `Client`. `urls`: of the servers, by node; `log`: where errors go."""

    def __init__(self, program: Path, urls: list[str], log: Path) -> None:
        self._program = program
        self._urls = ",".join(urls)
        self._log = log
        self._processes: list[LineProcess] = []

    def wait_first_ack(self) -> int:
        return int(self._begin("first").hear(START_TIMEOUT_S))

    def begin_load(self, way: Way, seconds: float, samples: Path) -> LineProcess:
        load = way.load
        settings = {
            "-payload": load.payload_bytes,
            "-batch": load.batch,
            "-window": load.window_bytes,
            "-rate": load.rate,
            "-seconds": seconds,
            "-samples": samples,
        }
        words = [str(each) for pair in settings.items() for each in pair]
        return self._begin("load", *words, *way.arguments)

    def wait_in_step(self) -> int:
        return int(self._begin("leader").hear(IN_STEP_TIMEOUT_S))

    def begin_probe(self) -> LineProcess:
        return self._begin("probe")

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def _begin(self, word: str, *arguments: str) -> LineProcess:
        command = [str(self._program), word, "-urls", self._urls, *arguments]
        self._processes.append(LineProcess(command, self._log))
        return self._processes[-1]
