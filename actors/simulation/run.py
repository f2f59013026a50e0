"""One seed from beginning to end: faults, heal, liveness, convergence, the last checks.

Owns the phases (FAULTS section 3.3). Must not know how a fault is drawn or carried out.

  1. safety: the script's faults strike, in most seeds once the cluster is born; what is checked at
     once is checked after every step;
  2. liveness: a majority is healed, the rest stays dead, or where disks rotted everybody is alive:
     an append must be acknowledged in time;
  3. convergence: everybody is there again: all replicas must come to hold and show the same;
  4. the end: the logs are read from the disks and compared, with each other and with what every
     client was told.

The first violation ends a run. A replica whose medium rotted is not repaired yet: convergence is
asked of the others, which are a majority, and so is liveness, with the damaged ones dead in half of
such runs and alive in the other half. Once the power went while a device was
lying, nothing is asked any more (`SimulatedCluster.excuse_rest`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from actors.simulation.checkers import facts
from actors.simulation.cluster import SimulatedCluster
from actors.simulation.conduct import Conductor
from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.script import FaultClass, Script
from actors.simulation.replica import Replica
from actors.simulation.result import SeedResult
from actors.simulation.workload import Workload
from actors.simulation.world.random_streams import stream
from logstore.format.entry import EntryHeader
from logstore.model import Index
from logstore.storage.log_reader import LogReader

_MS = 1_000_000
_SECOND = 1_000_000_000
# How much of the world's time passes between two looks at whether a phase is over.
LOOK_NS = 50 * _MS
ELECTIONS_TO_APPEND = 10
ELECTIONS_IN_A_CROWD = 20  # one that can commit nothing may have to give up first
ELECTIONS_TO_CONVERGE = 20
BIRTH_MAX_NS = 5 * _SECOND
SETTLE_NS = _SECOND
# Clients ask with patience of their own, seconds of it: what they may need on top.
CLIENT_PATIENCE_NS = 8 * _SECOND


def run_seed(
    seed: int,
    *,
    replicas: int | None = None,
    classes: Sequence[FaultClass] | None = None,
    script: Script | None = None,
    trace: Callable[[str], None] | None = None,
) -> SeedResult:
    """Run `seed`, or `script` if it is given; `trace` hears of every event as a line of text."""
    if script is None:
        script = draw_script(seed, replicas=replicas, classes=classes)
    with _quiet_collector():
        return _Run(script, trace).whole()


class _Run:
    def __init__(self, script: Script, trace: Callable[[str], None] | None) -> None:
        self.script = script
        self.cluster = SimulatedCluster(script, trace=trace)
        self.workload = Workload(self.cluster)
        self.conductor = Conductor(self.cluster, self.workload.transfer, self.workload.flood)

    def whole(self) -> SeedResult:
        started_s = time.perf_counter()
        self.cluster.start()
        self.workload.start()
        phases = (self._strike, self._live, self._converge, self._end)
        for phase in phases:
            phase()
            if self.cluster.has_problems:
                break
        return self._result(time.perf_counter() - started_s)

    # --- phases ---

    def _strike(self) -> None:
        """The bootstrap needs every node: struck, it may take for ever; few seeds are for it."""
        if not self.script.ground.is_struck_at_birth:
            self._pass_for(self._is_born, BIRTH_MAX_NS)
        self.conductor.schedule()
        self._pass_for(lambda: False, self.script.ground.safety_ns)

    def _is_born(self) -> bool:
        return len(self.cluster.observer.cores) == len(self.cluster.nodes)

    def _live(self) -> None:
        """A majority without rotten disks is healed. Who is not in it is dead, or else everybody is
        there: a damaged replica must not keep the whole ones, a majority, from anything."""
        cluster = self.cluster
        self.conductor.heal()
        is_born = len(cluster.observer.voters) == len(cluster.nodes)
        is_crowded = bool(cluster.excused) and bool(stream(self.script.seed, "crowd").randrange(2))
        core = self._core() if is_born and not is_crowded else cluster.nodes
        for node in core:
            cluster.replicas[node].start()
        for node in cluster.nodes:
            if node not in core:
                cluster.replicas[node].kill(for_good=True)
        elections = ELECTIONS_IN_A_CROWD if is_crowded else ELECTIONS_TO_APPEND
        within_ns = elections * self._election_ns + CLIENT_PATIENCE_NS
        self.workload.probe()
        cluster.ledger.tell(facts.Healed(within_ns))
        if not self._pass_for(self.workload.is_probe_acknowledged, within_ns):
            self._report_violation(
                f"no append was acknowledged within {within_ns / 1e9:.1f} s of the heal"
            )

    def _converge(self) -> None:
        cluster = self.cluster
        for node in cluster.nodes:
            if node in cluster.excused:
                cluster.replicas[node].kill()  # what it knows of its damage, it learns anew
            cluster.replicas[node].start()
        self.workload.stop_appending()
        within_ns = ELECTIONS_TO_CONVERGE * self._election_ns + CLIENT_PATIENCE_NS
        # Twice equal, with a pause between, then an audit with a pause behind it.
        equal_within_ns = 3 * within_ns + 2 * SETTLE_NS + LOOK_NS
        cluster.ledger.tell(facts.Returned(equal_within_ns))
        if self._pass_for(self._is_equal, within_ns):
            # Late copies and answers find their end, and what they were answered with, too.
            self._pass_for(lambda: False, SETTLE_NS)
        if not self._pass_for(self._is_equal, within_ns):
            self._report_violation(f"{self._state()} {within_ns / 1e9:.1f} s after the heal")
        self._audit(within_ns)

    def _audit(self, within_ns: int) -> None:
        """Whoever has damage and runs is read from one end to the other."""
        cluster = self.cluster
        nodes = [node for node in cluster.excused if node in cluster.observer.cores]
        if not nodes or cluster.has_problems:
            return
        self.workload.audit(sorted(nodes))
        if not self._pass_for(lambda: self.workload.has_audited, within_ns):
            self._report_violation(f"{self._state()}, and one of {nodes} does not show its log")
        self._pass_for(lambda: False, SETTLE_NS)  # what readers have found is told to raft

    def _end(self) -> None:
        cluster, tell = self.cluster, self.cluster.ledger.tell
        tell(facts.Converged())
        for node, core in cluster.observer.cores.items():
            tell(facts.DamageListed(node, core.faulty))
        for node in self._sound_nodes():
            core = cluster.observer.cores[node]
            entries = read_committed(cluster.replicas[node], core.commit)
            tell(facts.LogRead(node, entries))
        tell(facts.Finished())

    # --- helpers ---

    @property
    def _election_ns(self) -> int:
        return self.script.ground.election_ms * _MS

    def _core(self) -> tuple[int, ...]:
        """The majority that is healed first; replicas without damage as far as they reach."""
        cluster = self.cluster
        random = stream(self.script.seed, "core")
        order = random.sample(cluster.nodes, len(cluster.nodes))
        order.sort(key=lambda node: node in cluster.excused)
        return tuple(order[: len(order) // 2 + 1])

    def _sound_nodes(self) -> list[int]:
        return [node for node in self.cluster.nodes if node not in self.cluster.excused]

    def _is_equal(self) -> bool:
        """Every sound replica shows the same, all of its log is committed, nothing is under way."""
        cores = [self.cluster.observer.cores.get(node) for node in self._sound_nodes()]
        if self.workload.has_unresolved:
            return False
        states = {
            (core.commit, core.last_index, core.persisted, core.visible_lsn)
            for core in cores
            if core is not None
        }
        if None in cores or len(states) != 1:
            return False
        commit, last_index, persisted, visible_lsn = states.pop()
        return commit == last_index == persisted and self.workload.has_read(visible_lsn or 0)

    def _state(self) -> str:
        parts = [f"not answered: {', '.join(self.workload.unresolved) or 'nobody'}"]
        for node in self.cluster.nodes:
            core = self.cluster.observer.cores.get(node)
            if core is None:
                parts.append(f"node {node} has no core")
            else:
                parts.append(
                    f"node {node}: {core.role.name} term {core.term} last {core.last_index} "
                    f"persisted {core.persisted} commit {core.commit} visible {core.visible_lsn}"
                )
        return "replicas are not equal: " + "; ".join(parts)

    def _pass_for(self, is_done: Callable[[], bool], within_ns: int) -> bool:
        return self._pass_until(is_done, self.cluster.world.now_ns + within_ns)

    def _pass_until(self, is_done: Callable[[], bool], end_ns: int) -> bool:
        world, cluster = self.cluster.world, self.cluster
        while world.now_ns < end_ns:
            world.run_until(min(end_ns, world.now_ns + LOOK_NS))
            for replica in cluster.replicas.values():
                replica.report_holdings()
            if cluster.has_problems:
                return False
            if is_done():
                return True
        return False

    def _report_violation(self, text: str) -> None:
        self.cluster.observer.report_liveness_violation(text)

    def _result(self, wall_s: float) -> SeedResult:
        cluster = self.cluster
        for node in cluster.nodes:
            cluster.observer.report_counters(node)
        # what was wrong before a device lost what it had promised counts; the rest may follow
        until_ns = cluster.excused_from_ns or cluster.world.now_ns + 1
        violations = [each for each in cluster.violations if each.at_ns < until_ns]
        errors = [text for at_ns, text in cluster.observer.errors if at_ns < until_ns]
        return SeedResult(
            seed=self.script.seed,
            simulated_ns=cluster.world.now_ns,
            wall_s=wall_s,
            events=cluster.world.events,
            appends_acknowledged=self.workload.appends_acknowledged,
            violations=tuple(violations),
            faults_injected=dict.fromkeys(self.script.ground.faults, 1) | self.conductor.injected,
            reached=cluster.reach.counts(),
            event_hash=cluster.world.fingerprint(),
            error="\n".join(errors),
            excused_ns=max(0, cluster.world.now_ns - until_ns),
        )


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """The collector would walk the whole world again and again; a run is short."""
    was_enabled = gc.isenabled()
    gc.disable()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
        if was_enabled:
            gc.enable()


def read_committed(replica: Replica, commit: int) -> Iterator[tuple[EntryHeader, bytes]]:
    """Header and body of every entry up to `commit`, read from the disk by the real reader.

    Raises:
      CorruptData: one of them cannot be read.
    """
    reader = LogReader(replica.disk, replica.folder)
    for index in range(reader.start.index + 1, commit + 1):
        record = reader.record(Index(index))
        yield record.header, reader.body_of(record)
