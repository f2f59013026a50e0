"""Keeps the processes of a replica where the config file says, and reports where they are.

A process takes its placement by itself when it starts (`actors.child`), and gets it once more here
when it has begun, in case it could not. Those that run get theirs again when the file is written:
what an operator does to a process with `taskset` or `renice` stays until then, or until the process
starts again, and the report shows it. A process that the kernel does not let move is tried again at
each look, so there CPUs that an operator gave it do not stay.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from actors import topology
from actors.supervisor.placement_file import PlacementFile
from actors.supervisor.placement_report import PlacementReport, ProcessReport, ReportLink
from actors.thread_placement import cpus_and_nice, place_threads
from logstore.config_placement import Placement
from logstore.model import NodeId

_log = logging.getLogger(__name__)


class PlacementKeeper:
    """Of the replica `node` in `folder`. `close` it when the replica has ended."""

    def __init__(self, file: PlacementFile, node: NodeId, folder: Path) -> None:
        self._file = file
        self._node = node
        self._link = ReportLink(folder)
        self._started: dict[str, Placement] = {}
        # Processes that are still to be given what the file says, and those of them that refused.
        self._unplaced: set[str] = set()
        self._refusing: set[str] = set()
        self._reported: PlacementReport | None = None

    def place_supervisor(self) -> None:
        """Put this process where it belongs."""
        self.begin(topology.SUPERVISOR)
        self._place(topology.SUPERVISOR, os.getpid())

    def begin(self, process: str) -> Placement:
        """What `process`, which is started now, is to take, by the file as it is now."""
        self._look()
        self._unplaced.add(process)
        self._started[process] = self._file.of(process)
        return self._started[process]

    def keep(self, pids: Mapping[str, int], loops: Mapping[str, int]) -> PlacementReport:
        """Look at the file, place each process if it is another one, and report.

        Args:
          pids: of the children that run.
          loops: of the same; 0: not begun yet, so the child may still take what it was started
            with, and is placed later.
        """
        self._look()
        running = {topology.SUPERVISOR: os.getpid(), **pids}
        for process, pid in running.items():
            if process in self._unplaced and loops.get(process, 1):
                self._place(process, pid)
        report = PlacementReport(
            node=self._node,
            machine=self._file.machine,
            refusal=_shown(self._file.refusal),
            processes={
                process: self._report_of(process, running.get(process, 0))
                for process in dict.fromkeys((*self._file.placements, *pids))
            },
            config_path=_shown(str(self._file.path or "")),
        )
        if report != self._reported:
            self._reported = report
            self._link.write(report)
        return report

    def _actors_of(self, process: str) -> tuple[str, ...]:
        if process in topology.SPARE_NAMES:
            return (process,)
        return self._file.layout.get(process, ())

    def close(self) -> None:
        self._link.close()

    def _look(self) -> None:
        if self._file.look():
            self._unplaced = {*self._file.placements, *self._started}
            self._refusing.clear()

    def _place(self, process: str, pid: int) -> None:
        wanted = self._file.of(process)
        try:
            before = cpus_and_nice(pid)
            place_threads(pid, wanted)
        except OSError as error:
            if process not in self._refusing:
                self._refusing.add(process)
                _log.warning("%s (pid %d) does not take its placement: %s", process, pid, error)
            return
        self._unplaced.discard(process)
        if before != (wanted.cpus, wanted.nice):
            _log.info("%s: CPUs %s, niceness %s", process, list(wanted.cpus), wanted.nice)

    def _report_of(self, process: str, pid: int) -> ProcessReport:
        configured, actors = self._file.of(process), self._actors_of(process)
        try:
            cpus, nice = cpus_and_nice(pid) if pid else ((), None)
        except OSError:
            pid = 0
        if not pid:
            return ProcessReport(0, None, configured, actors)
        now = msgspec.structs.replace(self._started[process], cpus=cpus, nice=nice)
        return ProcessReport(pid, now, configured, actors)


def _shown(text: str) -> str:
    """`text` as JSON takes it: the name of a file may have bytes that are no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
