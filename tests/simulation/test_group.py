"""Several actors in one simulated process: who works in a turn, what they share, how they end
(SAFETY M3, M7)."""

from __future__ import annotations

from random import Random

import pytest

from actors import topology
from actors.messages import ProcessGone
from actors.raft import RaftActor
from actors.simulation.replica import LIVENESS_NS
from actors.simulation.world.group import Group
from actors.simulation.world.process import Process
from actors.simulation.world.world import World
from tests.simulation.process_stage import MILLISECOND_NS, RecordingSupervisor, ScriptedActor
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster

GROUPS = {"core": ("raft", "ingress"), "out": ("egress", "replicator")}


class _Member(ScriptedActor):
    full_turn = 1

    def on_close(self) -> None:
        """Nothing is open."""


class TwoActors:
    """A process whose two actors have run until they had nothing more to do."""

    def __init__(self) -> None:
        self.world = World(Random(1))
        supervisor = RecordingSupervisor(self.world)
        self.actors: dict[str, _Member] = {}
        self.ended: list[str] = []
        self.busy_ns = 0
        self.process = Process(self.world, supervisor, node=1, name="1.two", make=self._make)
        self.process.rung_ns = {"first": [], "second": []}
        self.process.wake()
        self.run_for(MILLISECOND_NS)

    def run_for(self, for_ns: int) -> None:
        for actor in self.actors.values():
            actor.runs.clear()
        self.world.run_until(self.world.now_ns + for_ns)

    @property
    def runs(self) -> list[int]:
        return [len(actor.runs) for actor in self.actors.values()]

    def _make(self, process: Process) -> Group:
        self.actors = {name: _Member(process, self._work) for name in self.process.rung_ns}
        return Group(process, self.actors, {"second": lambda: self.ended.append("second")})

    def _work(self, process: Process) -> int:
        process.charge(self.busy_ns)
        return 0


def test_an_actor_works_when_its_bell_rings_and_the_others_do_not() -> None:
    stage = TwoActors()
    stage.process.ring("second", stage.world.now_ns)
    stage.run_for(MILLISECOND_NS)
    assert stage.runs == [0, 1]


def test_the_end_of_an_actors_work_is_heard_and_of_no_others() -> None:
    """What a full ring refused may wait for the sender's own next turn (seed 1371)."""
    stage = TwoActors()
    stage.ended.clear()
    for name in ("first", "second", "first"):
        stage.process.ring(name, stage.world.now_ns)
        stage.run_for(MILLISECOND_NS)
    assert stage.ended == ["second"]


def test_a_bell_rung_before_its_process_began_is_not_lost() -> None:
    stage = TwoActors()
    stage.process.ring("first", stage.world.now_ns + MILLISECOND_NS)
    stage.run_for(MILLISECOND_NS // 2)
    assert stage.runs == [0, 0]
    stage.run_for(MILLISECOND_NS)
    assert stage.runs == [1, 0]


def test_an_actor_works_when_its_own_timer_is_due() -> None:
    stage = TwoActors()
    stage.actors["first"].timer_ns = stage.world.now_ns + 3 * MILLISECOND_NS
    stage.process.ring("first", stage.world.now_ns)  # it says when it wants to run again
    stage.run_for(MILLISECOND_NS)
    stage.actors["first"].timer_ns = 1 << 62
    stage.run_for(3 * MILLISECOND_NS)
    assert stage.runs == [1, 0]


def test_the_actors_of_a_process_share_its_time() -> None:
    stage = TwoActors()
    stage.busy_ns = 5 * MILLISECOND_NS
    for name in stage.process.rung_ns:
        stage.process.ring(name, stage.world.now_ns)
    began_ns = stage.world.now_ns
    stage.run_for(MILLISECOND_NS)
    assert stage.runs == [1, 1]
    assert stage.process.free_at_ns >= began_ns + 2 * stage.busy_ns


@pytest.fixture
def quiet() -> QuietCluster:
    return QuietCluster(groups=GROUPS)


def test_a_grouped_cluster_has_a_leader_and_takes_appends() -> None:
    quiet = QuietCluster(has_clients=True, groups=GROUPS)
    quiet.run_for(2 * SECOND_NS)
    assert set(quiet.replica(1).processes) == {"writer", "core", "out"}
    assert len(quiet.leaders) == 1
    assert quiet.cluster.observer.cores[quiet.leaders[0]].commit > 10
    assert quiet.problems == []


def test_a_group_without_a_vital_actor_restarts_alone_and_raft_hears_of_each(
    quiet: QuietCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    take = RaftActor._on_message

    def noting(actor: RaftActor, message: object) -> None:
        if isinstance(message, ProcessGone):
            told.append(message.process)
        take(actor, message)  # type: ignore[arg-type]

    monkeypatch.setattr(RaftActor, "_on_message", noting)
    leader = quiet.leaders[0]
    replica = quiet.replica(leader)
    before = dict(replica.processes)
    replica.kill_process(topology.EGRESS)
    quiet.run_for(3 * SECOND_NS)
    assert told == list(replica.layout["out"])
    assert len(told) == 3
    assert replica.incarnation == 1
    after = replica.processes
    assert [each for each in after if after[each] is not before[each]] == ["out"]
    assert quiet.leaders == [leader]
    assert quiet.problems == []


def test_a_group_with_a_vital_actor_takes_the_replica_with_it(quiet: QuietCluster) -> None:
    replica = quiet.replica(quiet.leaders[0])
    replica.kill_process(topology.INGRESS)
    assert not replica.is_running
    quiet.run_for(3 * SECOND_NS)
    assert replica.incarnation == 2
    assert len(quiet.leaders) == 1
    assert quiet.problems == []


@pytest.mark.parametrize(("beside", "incarnation"), [("ingress", 2), ("writer", 1)])
def test_a_process_that_runs_the_writer_is_not_killed_when_it_stands_still(
    beside: str, incarnation: int
) -> None:
    quiet = QuietCluster(groups={"core": ("raft", beside)})
    replica = quiet.replica(quiet.follower)
    replica.pause(topology.RAFT, LIVENESS_NS + SECOND_NS)
    quiet.run_for(LIVENESS_NS + SECOND_NS)
    assert replica.incarnation == incarnation


def test_what_one_actor_of_a_process_stores_another_sees_at_once() -> None:
    quiet = QuietCluster(groups=GROUPS, ring_delay_ns=MILLISECOND_NS, counters_lag=True)
    process = quiet.replica(quiet.leaders[0]).processes["core"]
    stations = {each.actor: each for each in process.on_worked.args[1]}  # type: ignore[attr-defined]
    slot = stations["raft"].slot("fetches")
    stations["raft"].slots[slot] = 7
    assert stations["ingress"].slots[slot] == 7
    stations["raft"].outbox(topology.INGRESS).send(ProcessGone("test"))
    assert stations["ingress"].inbox(topology.RAFT).receive() == [ProcessGone("test")]
