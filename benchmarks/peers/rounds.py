"""A round: every system once, one after the other, each with a new cluster and all loads.

Owns the order, which turns from round to round, in systems and in loads, and what becomes of a
system that fails: its turn ends with a row that says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from benchmarks.measurement import without_paths
from benchmarks.peers.failover import Failover, kill_leaders
from benchmarks.peers.kernel_usage import pss_mb, write_back
from benchmarks.peers.loads import Way
from benchmarks.peers.peer import Peer, System
from benchmarks.peers.servers import NODES
from benchmarks.peers.timed_run import Curve, Run, run_timed
from benchmarks.peers.warm_up import WarmUp, run_until_settled
from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.errors import LogStoreError

FAILOVER_ROUND = 0
# From round to round the ways of a system begin so much further on, so that in five rounds a way is
# early, late and in between, whether there are 6, 7 or 26.
WAYS_ON = 5
T = TypeVar("T")


class Start(msgspec.Struct, frozen=True, tag="start", tag_field="kind"):
    """One start of an empty cluster. `seconds`: from the first server's fork to the first
    acknowledgement; formatted folders and a client's virtual machine are there before. Round 0 is
    that of the failovers."""

    round: int
    system: str
    durability: str
    seconds: float
    pss_mb: float


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="kind"):
    """A system's turn that ended early, and in what."""

    round: int
    system: str
    what: str
    error: str


class Skipped(msgspec.Struct, frozen=True, tag="skipped", tag_field="kind"):
    """A system's turn for which there was no time left."""

    round: int
    system: str


Row = Run | Start | WarmUp | Failover | Failed | Skipped
Say = Callable[[str], None]
Work = Callable[[Peer, System, int], None]


class Course(msgspec.Struct, frozen=True):
    """How a round goes.

    Attributes:
      loads: names of the loads.
      seconds: of each run, after `warm_s` that do not count.
      warm_up_runs: at most, before the runs that count; 0: none.
      minutes_max: no turn begins after so many.
    """

    loads: list[str]
    seconds: float
    warm_s: float
    warm_up_runs: int
    minutes_max: float


class Rounds:
    """Rows and curves as they come. Used by one thread, the main one."""

    def __init__(self, course: Course, folder: Path, say: Say) -> None:
        self._course = course
        self._deadline_ns = seconds_from_now(course.minutes_max * 60)
        self._folder = folder
        self._say = say
        self._doing = ""
        self.rows: list[Row] = []
        self.curves: list[Curve] = []

    def measure(self, systems: Sequence[System], number: int) -> None:
        """Round `number`, from 1 on."""
        for system in turned(systems, number - 1):
            self._take_turn(system, number, self._warm_up_and_run)

    def measure_failovers(self, systems: Sequence[System], kills: int) -> None:
        """So many kills of the leader of each."""
        if kills:
            for system in systems:
                self._take_turn(system, FAILOVER_ROUND, partial(self._kill_leaders, kills))

    def _take_turn(self, system: System, number: int, work: Work) -> None:
        """Do it to a cluster that has acknowledged an append; nothing of it is left afterwards.

        An error, or an answer that is none, ends this turn, and the others go on."""
        if monotonic_ns() > self._deadline_ns:
            self._add(Skipped(number, system.name))
            return
        folder = Path(tempfile.mkdtemp(prefix=f"{system.name}-", dir=self._folder))
        peer: Peer | None = None
        self._doing = "start"
        try:
            peer = system.open(folder)
            write_back()  # what the turn or the build before it left, and the folders' own files
            began_ns = monotonic_ns()
            for node in NODES:
                peer.start(node)
            seconds = (peer.wait_first_ack() - began_ns) / 1e9
            memory_mb = pss_mb(peer.pids())
            started = Start(number, system.name, system.durability[0], round(seconds, 3), memory_mb)
            self._add(started)
            work(peer, system, number)
        except (LogStoreError, OSError, ValueError, psutil.Error) as error:
            reason = without_paths(error, self._folder)
            self._add(Failed(number, system.name, self._doing, reason))
            self._say(f"{error}\n{peer.logs() if peer is not None else ''}")
        finally:
            if peer is not None:
                peer.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _warm_up_and_run(self, peer: Peer, system: System, number: int) -> None:
        for way in system.warm_ups if self._course.warm_up_runs else ():
            self._doing = f"{way.contender}, warm-up"
            self._warm_up(peer, system, way, number)
        ways = [way for way in system.ways if way.load.name in self._course.loads]
        for way in turned(ways, WAYS_ON * (number - 1)):
            self._doing = f"{way.contender}, {way.load.name}"
            run, curve = self._run(peer, system, way, number)
            self._add(run)
            self.curves.append(curve)

    def _warm_up(self, peer: Peer, system: System, way: Way, number: int) -> None:
        rates, is_settled = run_until_settled(
            lambda: self._run(peer, system, way, number)[0].payloads_per_s,
            runs_max=self._course.warm_up_runs,
        )
        self._add(WarmUp(number, system.name, way.contender, way.load.name, rates, is_settled))

    def _run(self, peer: Peer, system: System, way: Way, number: int) -> tuple[Run, Curve]:
        return run_timed(
            peer,
            way,
            system=system.name,
            round_=number,
            warm_s=self._course.warm_s,
            seconds=self._course.seconds,
            folder=self._folder,
        )

    def _kill_leaders(self, kills: int, peer: Peer, system: System, _: int) -> None:
        self._doing = "failover"
        for row in kill_leaders(peer, system.name, system.durability[1], kills):
            self._add(row)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        self._say(line_of(row))


def turned(items: Sequence[T], by: int) -> list[T]:
    """The same, begun elsewhere: in as many rounds as there are items, each is first once."""
    at = by % len(items) if items else 0
    return [*items[at:], *items[:at]]


def line_of(row: Row) -> str:
    """A row, for whoever waits."""
    match row:
        case Run():
            return (
                f"round {row.round}: {row.contender}, {row.load}: {row.payloads_per_s:,.0f}/s, "
                f"{row.mb_per_s:.1f} MB/s, p50 {row.p50_ms} ms, p99 {row.p99_ms} ms, "
                f"{row.server_cores} + {row.client_cores} cores, {row.other_cores} of others, "
                f"{row.durability}{f', {row.errors} errors: {row.error}' if row.errors else ''}"
            )
        case Start():
            return f"{row.system} started in {row.seconds} s, {row.pss_mb:.0f} MB"
        case WarmUp():
            rates = ", ".join(f"{rate:,.0f}" for rate in row.payloads_per_s)
            settled = "settled" if row.is_settled else "did NOT settle"
            return f"round {row.round}: {row.contender} warmed up and {settled}: {rates}/s"
        case Failover():
            return f"{row.system}, kill {row.kill} (node {row.leader}): {row.seconds} s"
        case Failed():
            return f"{row.system} FAILED in {row.what}: {row.error}"
        case Skipped():
            return f"round {row.round}: {row.system} is SKIPPED: no time left"
