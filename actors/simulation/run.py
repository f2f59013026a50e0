"""One seed from beginning to end, in four phases (FAULTS section 3.3).

Owns the phases. Must not know how a fault is drawn or injected.

  1. safety: the script's faults strike, in most seeds after the bootstrap; checkers run at every
     step;
  2. liveness: no more faults; a majority is healed and the rest is dead, or all are alive where
     disks rotted: an append must be acknowledged in time;
  3. convergence: all replicas are back: they must come to hold and show the same;
  4. the logs are read from the disks and compared with each other and with all answers to clients.

The first violation ends a run. Replicas whose medium rotted are not repaired yet, so phases 2 to 4
check the others, which are a majority; in half of such runs the damaged ones are dead in phase 2.
After a power cut of a lying device nothing is checked (`SimulatedCluster.excuse_rest`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from actors.simulation.checkers import facts
from actors.simulation.cluster import SimulatedCluster
from actors.simulation.fault_injector import FaultInjector
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
CHECK_NS = 50 * _MS  # how often it is checked whether a phase is over, in simulated time
ELECTIONS_TO_APPEND = 10
ELECTIONS_WITH_DAMAGED = 20  # a damaged leader that cannot commit may have to step down first
ELECTIONS_TO_CONVERGE = 20
BIRTH_MAX_NS = 5 * _SECOND
SETTLE_NS = _SECOND  # in which late copies and answers, and answers to those, arrive
JOINED_WITHIN_NS = 20 * _SECOND  # a lost replica's place is taken, by one that asks now and then
CLIENT_TIMEOUTS_NS = 8 * _SECOND  # what the clients' own timeouts may add


def run_seed(
    seed: int,
    *,
    replicas: int | None = None,
    classes: Sequence[FaultClass] | None = None,
    script: Script | None = None,
    trace: Callable[[str], None] | None = None,
) -> SeedResult:
    """Run `seed`, or `script` if given; `trace` gets a line of text for each event."""
    if script is None:
        script = draw_script(seed, replicas=replicas, classes=classes)
    with _without_gc_and_logs():
        return _Run(script, trace).all_phases()


class _Run:
    def __init__(self, script: Script, trace: Callable[[str], None] | None) -> None:
        self.script = script
        self.cluster = SimulatedCluster(script, trace=trace)
        self.workload = Workload(self.cluster)
        self.injector = FaultInjector(self.cluster, self.workload.transfer, self.workload.flood)

    def all_phases(self) -> SeedResult:
        started_s = time.perf_counter()
        self.cluster.start()
        self.workload.start()
        phases = (
            self._inject_faults,
            self._check_liveness,
            self._check_convergence,
            self._check_logs,
        )
        for phase in phases:
            phase()
            if self.cluster.has_problems:
                break
        return self._result(time.perf_counter() - started_s)

    # --- phases ---

    def _inject_faults(self) -> None:
        """Faults may stop a bootstrap for long, which needs every node: in few seeds they begin so
        early."""
        if not self.script.ground.is_struck_at_birth:
            self._run_for(BIRTH_MAX_NS, self._is_born)
        self.injector.schedule()
        self._run_for(self.script.ground.safety_ns)

    def _is_born(self) -> bool:
        return len(self.cluster.observer.cores) >= len(self.cluster.founders)

    def _check_liveness(self) -> None:
        """A majority without rotten disks is alive and the others are dead. Or all are alive:
        damaged replicas must not keep the whole ones, a majority, from committing. Nor are any dead
        while a change of the members is under way."""
        cluster = self.cluster
        self.injector.heal()
        is_changing = self.script.ground.joiners > 0 and not self._end_changes()
        is_born = len(cluster.observer.voters) >= len(cluster.founders)
        random = stream(self.script.seed, "crowd")
        are_all_alive = is_changing or (bool(cluster.excused) and bool(random.randrange(2)))
        alive = self._healed_majority() if is_born and not are_all_alive else cluster.nodes
        for node in sorted(cluster.commissioned.intersection(alive)):
            cluster.replicas[node].start()
        for node in cluster.nodes:
            if node not in alive:
                cluster.replicas[node].kill(for_good=True)
        elections = ELECTIONS_WITH_DAMAGED if are_all_alive else ELECTIONS_TO_APPEND
        within_ns = elections * self._election_ns + CLIENT_TIMEOUTS_NS
        self.workload.probe()
        cluster.ledger.tell(facts.FaultsEnded(within_ns))
        if not self._run_for(within_ns, self.workload.is_probe_acknowledged):
            self._report_violation(
                f"no append was acknowledged within {within_ns / 1e9:.1f} s of the heal"
            )

    def _end_changes(self) -> bool:
        """No operator asks for a change any more; whether the last one is over, and none follows by
        itself. One that begins a moment after a voter died may need that voter, and stands still,
        as it should (C11)."""
        workload, record = self.workload, self.cluster.ledger.record
        workload.stop_changes()
        return self._run_for(
            SETTLE_NS,
            lambda: (
                not workload.is_changing
                and len(record.electorates_in_force()) == 1
                and not record.newest_committed.configuration.incoming
                and not record.newest_committed.awaits_voter
            ),
        )

    def _check_convergence(self) -> None:
        cluster = self.cluster
        for node in cluster.nodes:
            if node not in cluster.commissioned:
                continue
            if node in cluster.excused:
                cluster.replicas[node].kill()  # its next start must find its damage again
            cluster.replicas[node].start()
        self.workload.stop_appending()
        within_ns = ELECTIONS_TO_CONVERGE * self._election_ns + CLIENT_TIMEOUTS_NS
        if not cluster.is_settled:
            within_ns += JOINED_WITHIN_NS
        # Equal twice with a pause between, then an audit and a pause, and equal again.
        equal_within_ns = 4 * within_ns + 2 * SETTLE_NS + CHECK_NS
        cluster.ledger.tell(facts.ReplicasReturned(equal_within_ns))
        self._wait_until_equal(within_ns)
        if cluster.has_problems:
            return
        self._run_for(SETTLE_NS)
        self._wait_until_equal(within_ns)
        self._audit(within_ns)
        if not self._is_equal():  # an operator's late transfer may take leadership elsewhere
            self._wait_until_equal(within_ns)

    def _wait_until_equal(self, within_ns: int) -> None:
        if not self._run_for(within_ns, self._is_equal_after_mending):
            self._report_violation(f"{self._state()} {within_ns / 1e9:.1f} s after the heal")

    def _audit(self, within_ns: int) -> None:
        """Read the whole log of each damaged member that runs: one that left shows nothing."""
        cluster, record = self.cluster, self.cluster.ledger.record
        nodes = [
            node for node in cluster.excused
            if node in cluster.observer.cores and record.is_member(node)
        ]  # fmt: skip
        if not nodes or cluster.has_problems:
            return
        self.workload.audit(sorted(nodes))
        if not self._run_for(within_ns, lambda: self.workload.has_audited):
            self._report_violation(f"{self._state()}, and one of {nodes} does not show its log")
        self._run_for(SETTLE_NS)  # readers report to raft what they found

    def _check_logs(self) -> None:
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

    def _healed_majority(self) -> tuple[int, ...]:
        """A random majority, of undamaged replicas as far as possible."""
        cluster = self.cluster
        random, record = stream(self.script.seed, "core"), cluster.ledger.record
        order = random.sample(cluster.nodes, len(cluster.nodes))
        order.sort(key=lambda node: node in cluster.excused)
        order = [node for node in order if record.is_member(node)]
        in_force = record.electorates_in_force()
        for size in range(1, len(order) + 1):
            alive = [record.replicas[node] for node in order[:size]]
            if all(each.is_majority(alive) for each in in_force):
                return tuple(order[:size])
        return tuple(order)

    def _sound_nodes(self) -> list[int]:
        """Members whose disks are whole."""
        cluster, record = self.cluster, self.cluster.ledger.record
        return [
            node for node in cluster.nodes
            if node not in cluster.excused and record.is_member(node)
        ]  # fmt: skip

    def _is_equal_after_mending(self) -> bool:
        """A replica that was set back after its last answer may not read a level that is raised
        meanwhile (FAULTS O8): an operator then starts a newer version there. Nor does one that was
        removed leave its machine to the next by itself."""
        self.injector.mend_versions()
        self.injector.mend_places()
        return self._is_equal()

    def _is_equal(self) -> bool:
        """Undamaged replicas show the same, their whole logs are committed, begin where the newest
        TRIM says, and no client waits."""
        cores = [self.cluster.observer.cores.get(node) for node in self._sound_nodes()]
        if self.workload.unresolved or not self.cluster.is_settled:
            return False
        states = {
            (core.commit, core.last_index, core.persisted, core.visible_lsn, core.log_start.index)
            for core in cores
            if core is not None
        }
        if None in cores or len(states) != 1:
            return False
        commit, last_index, persisted, visible_lsn, start = states.pop()
        if start != self.cluster.ledger.record.highest_start:
            return False
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
                    f"persisted {core.persisted} commit {core.commit} visible {core.visible_lsn} "
                    f"start {core.log_start.index}"
                )
        in_force = self.cluster.ledger.record.newest_committed.configuration
        parts.append(f"{in_force}, lost {list(self.cluster.lost)}")
        return "replicas are not equal: " + "; ".join(parts)

    def _run_for(self, for_ns: int, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Run the world for so long, or until `is_done` or a problem; whether it was done."""
        world, cluster = self.cluster.world, self.cluster
        end_ns = world.now_ns + for_ns
        while world.now_ns < end_ns:
            world.run_until(min(end_ns, world.now_ns + CHECK_NS))
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
        # Only violations from before a lying device lost data count; later ones may follow from it.
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
            faults_injected=dict.fromkeys(self.script.ground.faults, 1) | self.injector.injected,
            reached=cluster.reach.counts(),
            event_hash=cluster.world.fingerprint(),
            error="\n".join(errors),
            excused_ns=max(0, cluster.world.now_ns - until_ns),
        )


@contextmanager
def _without_gc_and_logs() -> Iterator[None]:
    """The garbage collector would traverse the whole world many times; a run is short."""
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
