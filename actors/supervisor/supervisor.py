"""The supervisor's loop: what happens next to a replica's processes (SAFETY M3).

One thread polls pidfds, signals, raft's bell and the metrics sockets; it wakes once a
second to sample. `restarts` and `liveness` decide, `running_replica` carries out; the
phase is the only state.
"""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Callable
from enum import Enum
from random import Random

from actors import topology
from actors.child import EXIT_LOST, EXIT_REFUSED, ChildSpec
from actors.supervisor.child_process import describe_status
from actors.supervisor.held_folder import HeldFolder
from actors.supervisor.http_listener import HttpListener
from actors.supervisor.liveness import LivenessMonitor
from actors.supervisor.placement_keeper import PlacementKeeper
from actors.supervisor.restarts import (
    EXIT_CRASH_LOOP,
    RestartPolicy,
    is_stall_fatal,
    is_vital,
)
from actors.supervisor.running_replica import RunningReplica
from actors.supervisor.sampler import SAMPLE_NS, ProcessSampler
from actors.supervisor.signals import StopSignals
from actors.supervisor.start_wait import StartWait
from logstore.config import Config
from logstore.model import NodeId
from transport.errors import RegionUnavailable

_SECOND_NS = 1_000_000_000
# Children close sockets and files and go; a writer's last flush is the slowest of it.
TERMINATE_NS = 5 * _SECOND_NS
# Handing over takes a round trip, and an election timeout when the first target does not answer.
HAND_OVER_EXTRA_NS = 1 * _SECOND_NS
_log = logging.getLogger(__name__)


class Phase(Enum):
    """The phase of the replica."""

    RUNNING = "running"
    HANDING_OVER = "handing over"  # raft was asked to hand leadership over
    TERMINATING = "terminating"  # children got SIGTERM
    KILLING = "killing"  # children were killed and are being reaped
    WAITING = "waiting"  # no children; the next incarnation starts at _restart_ns
    DONE = "done"


class Supervisor:
    """Runs the processes of one replica until it is stopped or gives up."""

    def __init__(
        self,
        config: Config,
        node: NodeId,
        folder: HeldFolder,
        *,
        signals: StopSignals,
        metrics: HttpListener | None,
        random: Random,
        run_child: Callable[[ChildSpec], None],
        placement: PlacementKeeper,
    ) -> None:
        self._config = config
        self._node = node
        self._folder = folder
        self._signals = signals
        self._metrics = metrics
        self._run_child = run_child
        self._placement = placement
        self._policy = RestartPolicy(random)
        # Differs from every incarnation of earlier supervisors, and is the
        # same in every file of ours.
        self._incarnation = random.getrandbits(48) + 1
        self._replica: RunningReplica | None = None
        self._damage = ""  # why the replica must not go on, for as long as this supervisor lives
        self._phase = Phase.WAITING
        self._exit_status: int | None = None
        self._restart_ns = 0
        self._deadline_ns = 0
        self._sample_ns = 0
        self._child_restarts: dict[str, int] = {}
        self._replica_restart_count = 0
        self._child_restart_count = 0
        self._liveness = LivenessMonitor()
        self._start_wait = StartWait(config, node)
        self._sampler: ProcessSampler | None = None

    def run(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> int:
        """Run until done; returns the exit status: 0 stopped, 70 crash loop, 78 refused, or
        the data folder is gone."""
        try:
            self._start_incarnation(monotonic_ns())
            while self._phase is not Phase.DONE:
                ready = self._wait(monotonic_ns())
                self._on_wake(ready, monotonic_ns())
        finally:
            self._kill_children()
        return self._exit_status or 0

    def counter_values(self) -> dict[str, int]:
        """Every shared counter by name, for /metrics; empty between incarnations."""
        return self._replica.station.counters.values() if self._replica else {}

    # --- waiting ---

    def _wait(self, now_ns: int) -> set[int]:
        poll = select.poll()
        poll.register(self._signals.fileno(), select.POLLIN)
        if self._replica is not None:
            poll.register(self._replica.bell_fileno(), select.POLLIN)
            for child in self._replica.children.values():
                poll.register(child.pidfd, select.POLLIN)
        if self._metrics is not None:
            for descriptor, events in self._metrics.sources():
                poll.register(descriptor, events)
        timeout_ns = max(0, self._next_timer_ns() - now_ns)
        return {descriptor for descriptor, _ in poll.poll(-(-timeout_ns // 1_000_000))}

    def _next_timer_ns(self) -> int:
        timers = [self._sample_ns, *self._child_restarts.values()]
        if self._phase is Phase.WAITING:
            timers.append(self._restart_ns)
        if self._phase in (Phase.HANDING_OVER, Phase.TERMINATING):
            timers.append(self._deadline_ns)
        return min(timers)

    # --- one wake ---

    def _on_wake(self, ready: set[int], now_ns: int) -> None:
        if self._metrics is not None:
            self._metrics.on_ready(ready, now_ns=now_ns)
        replica = self._replica
        if replica is not None:
            replica.clear_bell()
            for process in replica.by_pidfd(ready):
                self._on_death(replica, process, now_ns)
            self._on_progress(replica, now_ns)
        for _ in range(self._signals.count()):
            self._on_stop_signal(now_ns)
        if self._phase is Phase.WAITING and now_ns >= self._restart_ns:
            self._restart(now_ns)
        if now_ns >= self._sample_ns:
            self._on_sample(now_ns)

    def _on_death(self, replica: RunningReplica, process: str, now_ns: int) -> None:
        lived_ns = now_ns - replica.children[process].started_ns
        status = replica.reap(process)
        self._liveness.forget(process)
        if self._phase in (Phase.TERMINATING, Phase.KILLING):
            return
        reason = f"{process} {describe_status(status)}"
        if is_vital(replica.actors_of(process)):
            self._on_vital_death(replica, reason, status=status, now_ns=now_ns)
        elif self._phase is Phase.RUNNING:
            _log.warning("%s; it is started again", reason)
            replica.report_death(process)
            self._child_restarts[process] = self._policy.child_restart_at(
                process, now_ns=now_ns, lived_ns=lived_ns
            )

    def _on_vital_death(
        self, replica: RunningReplica, reason: str, *, status: int, now_ns: int
    ) -> None:
        """End the incarnation, and decide whether another begins; the policy decides when."""
        if self._has_lost_folder():
            self._kill(replica)
            return
        if self._phase is Phase.HANDING_OVER:
            _log.warning("%s during the stop", reason)
            self._kill(replica)
            return
        restart_ns = self._policy.try_replica_restart_at(now_ns=now_ns)
        if status == EXIT_REFUSED:
            _log.critical("%s: starting it again cannot help", reason)
            self._exit_status = EXIT_REFUSED
        elif status == EXIT_LOST:  # the next incarnation says why, and does nothing else
            _log.critical("%s: this replica must not go on", reason)
            self._restart_ns = now_ns
        elif restart_ns is None:
            _log.critical("%s; more than 5 restarts in 60 s, giving up", reason)
            self._exit_status = EXIT_CRASH_LOOP
        else:
            _log.error("%s; the replica is restarted", reason)
            self._restart_ns = restart_ns
        self._kill(replica)

    def _has_lost_folder(self) -> bool:
        """Whether the data folder is gone: then the replica must end, without another flush that
        would count in a majority and is lost all the same (SAFETY M2)."""
        loss = self._folder.loss()
        if loss:
            _log.critical("%s", loss)
            self._exit_status = EXIT_REFUSED
        return bool(loss)

    def _on_progress(self, replica: RunningReplica, now_ns: int) -> None:
        """Enter the next phase if what the current one waits for has come; start
        children that are due."""
        replica.flush()
        for spare in replica.take_orders():
            if self._phase is Phase.RUNNING and spare not in self._child_restarts:
                self._start_child(replica, spare, now_ns)
        is_overdue = now_ns >= self._deadline_ns
        if self._phase is Phase.HANDING_OVER and (replica.is_stop_ready or is_overdue):
            self._terminate(replica, now_ns)
        elif self._phase is Phase.TERMINATING and is_overdue:
            _log.warning("killing %s", ", ".join(replica.children))
            self._kill(replica)
        if self._phase in (Phase.TERMINATING, Phase.KILLING) and not replica.children:
            self._end_incarnation(replica)
        for process, due_ns in list(self._child_restarts.items()):
            if self._phase is Phase.RUNNING and now_ns >= due_ns:
                del self._child_restarts[process]
                if self._start_child(replica, process, now_ns):
                    self._child_restart_count += 1
                    self._store_restarts(replica)

    def _on_stop_signal(self, now_ns: int) -> None:
        """The first signal: hand leadership over, then stop. A second one: stop now."""
        replica = self._replica
        if replica is None:
            self._exit_status = self._exit_status or 0
            self._phase = Phase.DONE
        elif self._phase is Phase.RUNNING:
            _log.info("stopping")
            self._exit_status = 0
            self._child_restarts.clear()
            self._phase = Phase.HANDING_OVER
            election_ns = self._config.raft.election_timeout_ns
            self._deadline_ns = now_ns + 2 * election_ns + HAND_OVER_EXTRA_NS
            replica.request_stop()
        elif self._phase is Phase.KILLING:
            self._exit_status = self._exit_status or 0
        else:
            self._kill(replica)

    def _on_sample(self, now_ns: int) -> None:
        self._sample_ns = now_ns + SAMPLE_NS
        replica, sampler = self._replica, self._sampler
        if replica is None or sampler is None:
            return
        if self._phase is not Phase.KILLING and self._has_lost_folder():
            self._kill(replica)
            return
        slots = replica.station.slots
        slots[replica.station.slot(f"{topology.SUPERVISOR}.loops")] += 1
        sampler.sample({topology.SUPERVISOR: os.getpid(), **replica.pids()}, now_ns=now_ns)
        replica.keep_placement()
        if self._phase is not Phase.RUNNING:
            return
        is_ready = slots[topology.Counter.VISIBLE] > 0
        if waiting := self._start_wait.look(is_ready=is_ready, now_ns=now_ns):
            _log.info("%s", waiting)
        for process in self._liveness.stalled(replica.loops(), now_ns=now_ns):
            if is_stall_fatal(replica.actors_of(process)):
                _log.error("%s stands still and is killed", process)
                replica.children[process].kill()
            else:
                _log.warning("%s, which writes, stands still, maybe in the kernel", process)

    # --- actions ---

    def _start_child(self, replica: RunningReplica, process: str, now_ns: int) -> bool:
        """Start a process that is not vital, and whether it is started. Where the machine has no
        room for it now, the others go on without it, and it is tried again (SAFETY M3)."""
        try:
            replica.spawn(process, now_ns=now_ns)
        except (RegionUnavailable, OSError) as error:
            _log.warning("%s cannot be started: %s; it is tried again", process, error)
            self._child_restarts[process] = self._policy.child_restart_at(
                process, now_ns=now_ns, lived_ns=0
            )
            return False
        return True

    def _restart(self, now_ns: int) -> None:
        """Start the next incarnation, later if other processes have taken the
        shared memory or the descriptors meanwhile."""
        if self._has_lost_folder():
            self._phase = Phase.DONE
            return
        try:
            self._start_incarnation(now_ns)
        except (RegionUnavailable, OSError) as error:
            restart_ns = self._policy.try_replica_restart_at(now_ns=now_ns)
            if restart_ns is None:
                _log.critical("%s; more than 5 restarts in 60 s, giving up", error)
                self._exit_status, self._phase = EXIT_CRASH_LOOP, Phase.DONE
                return
            _log.error("%s; the replica is restarted later", error)
            self._restart_ns = restart_ns

    def _start_incarnation(self, now_ns: int) -> None:
        """Start every process. Where the machine has no room for one of them, the incarnation ends
        as if that had died.

        Raises:
          RegionUnavailable, OSError: too little shared memory, or no descriptors; nothing was
            started.
        """
        self._incarnation += 1
        replica = RunningReplica(
            self._config,
            self._node,
            str(self._folder.path),
            incarnation=self._incarnation,
            run_child=self._run_child,
            placement=self._placement,
            damage=self._damage,
        )
        self._replica = replica
        self._liveness = LivenessMonitor()
        self._sampler = ProcessSampler(replica.station)
        self._phase = Phase.RUNNING
        slot = replica.station.slot(f"{topology.SUPERVISOR}.pid")
        replica.station.slots[slot] = os.getpid()
        self._store_restarts(replica)
        try:
            replica.regions.publish_counters(self._folder.path)
            replica.spawn_all(now_ns=now_ns)
        except OSError as error:
            self._on_vital_death(replica, f"the start failed: {error}", status=1, now_ns=now_ns)

    def _terminate(self, replica: RunningReplica, now_ns: int) -> None:
        self._phase = Phase.TERMINATING
        self._deadline_ns = now_ns + TERMINATE_NS
        replica.terminate_all()

    def _kill(self, replica: RunningReplica) -> None:
        self._phase = Phase.KILLING
        self._child_restarts.clear()
        replica.kill_all()

    def _end_incarnation(self, replica: RunningReplica) -> None:
        self._sampler = None  # it holds the station, and so the shared memory
        replica.close()
        self._replica = None
        self._damage = replica.damage
        if self._exit_status is not None:
            self._phase = Phase.DONE
            return
        self._replica_restart_count += 1
        self._phase = Phase.WAITING

    def _kill_children(self) -> None:
        """Kill and reap every child: none may outlive the loop."""
        replica, self._replica, self._sampler = self._replica, None, None
        if replica is None:
            return
        replica.kill_all()
        for process in list(replica.children):
            replica.reap(process)
        replica.close()

    def _store_restarts(self, replica: RunningReplica) -> None:
        slots = replica.station.slots
        slots[topology.Counter.REPLICA_RESTARTS] = self._replica_restart_count
        slots[topology.Counter.CHILD_RESTARTS] = self._child_restart_count
