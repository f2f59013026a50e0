"""Keeps the processes of a replica where the config file says, and reports where they are.

A process takes its placement by itself when it starts (`actors.child`). Here those that run get a
new one when the file changes, and only then: what an operator does to a process with `taskset` or
`renice` stays until the file or the process is another one, and the report shows it.
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
        # What each process was started with, and what it was told to take since.
        self._started: dict[str, Placement] = {}
        self._told: dict[str, Placement] = {}
        self._reported: PlacementReport | None = None

    def place_supervisor(self) -> None:
        """Put this process where it belongs."""
        self._place(topology.SUPERVISOR, os.getpid(), self._file.of(topology.SUPERVISOR))
        self.begin(topology.SUPERVISOR)

    def begin(self, process: str) -> Placement:
        """What `process`, which is started now, is to take, by the file as it is now."""
        self._file.look()
        self._started[process] = self._told[process] = self._file.of(process)
        return self._told[process]

    def keep(self, pids: Mapping[str, int], loops: Mapping[str, int]) -> PlacementReport:
        """Look at the file, move whom it moves, and report.

        Args:
          pids: of the children that run.
          loops: of the same; 0: not begun yet, so the child may still take what it was started
            with, and is moved later.
        """
        self._file.look()
        running = {topology.SUPERVISOR: os.getpid(), **pids}
        for process, pid in running.items():
            wanted = self._file.of(process)
            if _differ(wanted, self._told[process]) and loops.get(process, 1):
                self._told[process] = wanted
                self._place(process, pid, wanted)
                _log.info("%s: CPUs %s, niceness %s", process, list(wanted.cpus), wanted.nice)
        report = PlacementReport(
            node=self._node,
            machine=self._file.machine,
            refusal=self._file.refusal,
            processes={
                process: self._report_of(process, running.get(process, 0))
                for process in self._file.placements
            },
            config_path=str(self._file.path or ""),
        )
        if report != self._reported:
            self._reported = report
            self._link.write(report)
        return report

    def close(self) -> None:
        self._link.close()

    def _place(self, process: str, pid: int, wanted: Placement) -> None:
        try:
            place_threads(pid, wanted)
        except OSError as error:
            _log.warning("%s (pid %d) does not take its new placement: %s", process, pid, error)

    def _report_of(self, process: str, pid: int) -> ProcessReport:
        configured = self._file.of(process)
        try:
            cpus, nice = cpus_and_nice(pid) if pid else ((), None)
        except OSError:
            pid = 0
        if not pid:
            return ProcessReport(0, None, configured)
        now = msgspec.structs.replace(self._started[process], cpus=cpus, nice=nice)
        return ProcessReport(pid, now, configured)


def _differ(wanted: Placement, told: Placement) -> bool:
    """Whether a process that was told one would move for the other."""
    return (wanted.cpus, wanted.nice) != (told.cpus, told.nice)
