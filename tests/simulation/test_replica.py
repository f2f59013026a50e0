"""A simulated replica: which processes end together, and in which incarnation they restart (SAFETY
M1, M3)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from actors import topology
from actors.messages import ProcessGone
from actors.raft import RaftActor
from actors.simulation.disk.media_faults import RotKind
from actors.simulation.faults.script import Moment
from actors.simulation.replica import LIVENESS_NS, Replica
from actors.simulation.world.process import Process
from actors.supervisor.restarts import VITAL
from logstore.errors import ReplicaLost
from logstore.format.configuration_body import Configuration, Member
from logstore.format.level import NEW_LOG_LEVEL
from logstore.model import Index, NodeId
from logstore.raft.effects import MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster


def processes_of(replica: Replica) -> dict[str, Process]:
    return dict(replica.processes)


@pytest.fixture
def stage() -> QuietCluster:
    return QuietCluster()


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The processes whose death was reported to a raft."""
    told: list[str] = []
    take = RaftActor._on_message

    def noting(actor: RaftActor, message: Any) -> None:
        if isinstance(message, ProcessGone):
            told.append(message.process)
        take(actor, message)

    monkeypatch.setattr(RaftActor, "_on_message", noting)
    return told


def test_replicas_that_nothing_happens_to_have_one_leader(stage: QuietCluster) -> None:
    assert len(stage.leaders) == 1
    assert {each.incarnation for each in stage.cluster.replicas.values()} == {1}
    assert stage.problems == []


@pytest.mark.parametrize("name", sorted(VITAL))
def test_death_of_a_vital_process_restarts_all_under_a_new_incarnation(
    stage: QuietCluster, name: str
) -> None:
    replica = stage.replica(stage.leaders[0])
    before = processes_of(replica)
    replica.kill_process(name)
    assert not replica.is_running
    assert not any(process.is_alive for process in before.values())
    stage.run_for(3 * SECOND_NS)
    after = processes_of(replica)
    assert replica.incarnation == 2
    assert after.keys() == before.keys()
    assert not any(after[each] is before[each] for each in after)
    assert len(stage.leaders) == 1
    assert stage.problems == []


@pytest.mark.parametrize("name", [topology.EGRESS, "replicator"])
def test_a_replicator_or_egress_restarts_alone_and_raft_gets_a_report(
    stage: QuietCluster, gone: list[str], name: str
) -> None:
    leader = stage.leaders[0]
    name = f"replicator-{stage.follower}" if name == "replicator" else name
    replica = stage.replica(leader)
    before = processes_of(replica)
    replica.kill_process(name)
    assert replica.is_running
    assert name not in replica.processes
    stage.run_for(3 * SECOND_NS)
    after = processes_of(replica)
    assert gone == [name]
    assert replica.incarnation == 1
    assert [each for each in after if after[each] is not before.get(each)] == [name]
    assert stage.leaders == [leader]
    assert stage.problems == []


def test_a_spare_replicator_runs_alone_once_raft_wants_one_and_restarts_alone(
    stage: QuietCluster, gone: list[str]
) -> None:
    leader = stage.leaders[0]
    replica = stage.replica(stage.follower)
    settings = stage.cluster.config.node(leader)
    added = Member(NodeId(9), b"9" * 16, settings.host, settings.port)
    before = processes_of(replica)
    raft: Any = replica._actors[topology.RAFT]
    raft._routes.send(MembersChanged(Index(1), True, Configuration(1, (added,))))
    raft._routes.flush(raft._now_ns)
    stage.run_for(SECOND_NS)
    assert replica.processes.keys() - before.keys() == {"spare-1"}
    spare: Any = replica._actors["spare-1"]
    assert spare.peer == 9
    replica.kill_process("spare-1")
    stage.run_for(3 * SECOND_NS)
    assert gone == ["spare-1"]
    assert replica._actors["spare-1"] is not spare
    assert replica._actors["spare-1"].peer == 9
    replica.kill()
    replica.start()
    stage.run_for(SECOND_NS)
    assert processes_of(replica).keys() == before.keys()
    assert stage.problems == []


def test_a_voter_that_was_removed_while_it_was_away_hears_so_from_the_others() -> None:
    """SAFETY C10: its log still names it, and no member answers anything else that it sends."""
    stage = QuietCluster(new_log_level=NEW_LOG_LEVEL)
    stage.run_for(4 * SECOND_NS)
    [leader], away = stage.leaders, stage.follower
    stage.replica(away).kill()
    raft: Any = stage.replica(leader)._actors[topology.RAFT]
    request = ChangeRequested(1, ChangeKind.REMOVE, node=NodeId(away))
    raft._step(raft._core, request)
    raft._routes.flush(raft._now_ns)
    stage.run_for(4 * SECOND_NS)
    assert [each.number for each in raft._core.configuration.configuration.voters].count(away) == 0
    stage.replica(away).start()
    stage.run_for(3 * SECOND_NS)
    removed: Any = stage.replica(away)._actors[topology.RAFT]
    assert not removed._membership.is_removed, "its own log does not say so"
    stage.run_for(6 * SECOND_NS)
    assert removed._membership.is_removed
    assert "the configuration at entry" in removed._membership.refusal
    assert stage.leaders == [leader]
    assert stage.problems == []


def test_after_a_kill_it_stays_dead_until_it_is_started(stage: QuietCluster) -> None:
    replica = stage.replica(stage.follower)
    replica.kill()
    stage.run_for(5 * SECOND_NS)
    assert not replica.is_running
    assert replica.node not in stage.cluster.observer.cores
    replica.start()
    stage.run_for(2 * SECOND_NS)
    assert replica.incarnation == 2
    assert replica.node in stage.cluster.observer.cores


def test_starting_what_runs_changes_nothing(stage: QuietCluster) -> None:
    replica = stage.replica(1)
    before = processes_of(replica)
    replica.start()
    assert processes_of(replica) == before
    assert replica.incarnation == 1


def test_killed_for_good_a_planned_restart_is_dropped(stage: QuietCluster) -> None:
    replica = stage.replica(stage.follower)
    replica.kill_process(topology.RAFT)
    replica.kill(for_good=True)
    stage.run_for(20 * SECOND_NS)
    assert not replica.is_running
    assert replica.incarnation == 1
    replica.start()
    assert replica.incarnation == 2


def test_doom_strikes_inside_the_disk_call_that_it_counts_to() -> None:
    """FAULTS P8."""
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    calls: list[str] = []
    counted = replica._views[topology.WRITER].on_call

    def noting(what: str, path: str) -> None:
        counted(what, path)
        calls.append(what)

    replica._views[topology.WRITER].on_call = noting
    struck: list[int] = []
    replica.kill_at_call(topology.WRITER, 5, lambda: struck.append(len(calls)))
    stage.run_for(SECOND_NS)
    assert struck == [4]  # the fifth never happened
    assert len(calls) == 4
    assert replica.incarnation == 2
    assert stage.problems == []


def test_doom_of_a_whole_replica_is_carried_out_by_the_process_that_makes_the_call() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    replica.kill_at_call("", 3, replica.kill)
    stage.run_for(3 * SECOND_NS)
    assert not replica.is_running
    assert replica.processes == {}
    assert stage.problems == []


@pytest.mark.long
def test_doom_of_a_roll_counts_from_the_header_of_the_next_segment() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    view = replica._views[topology.WRITER]
    calls: list[tuple[str, str]] = []
    counted = view.on_call

    def noting(what: str, path: str) -> None:
        counted(what, path)
        calls.append((what, path[-5:]))

    view.on_call = noting
    replica.kill_at_call_from(Moment.ROLL, 5, replica.kill)
    stage.run_for(20 * SECOND_NS)
    assert not replica.is_running
    assert len(calls) >= 8  # a group before it
    headers = [("write", ".raft"), ("flush", ".raft"), ("write", ".data"), ("flush", ".data")]
    assert calls[-4:] == headers
    segments = stage.cluster.durability.places(replica.node)
    assert segments.segments_with_one_header() == []
    replica.start()
    stage.run_for(3 * SECOND_NS)
    assert stage.problems == []


def test_doom_of_a_first_group_counts_from_the_first_frames_of_a_segment() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    view = replica._views[topology.WRITER]
    calls: list[tuple[str, str]] = []
    counted = view.on_call

    def noting(what: str, path: str) -> None:
        counted(what, path)
        calls.append((what, path))

    view.on_call = noting
    replica.kill_at_call_from(Moment.FIRST_GROUP, 2, replica.kill)
    stage.run_for(20 * SECOND_NS)
    assert not replica.is_running
    what, path = calls[-1]
    assert (what, path[-5:]) == ("write", ".data")
    of_segment = [what for what, each in calls if each == path and what in ("write", "flush")]
    assert of_segment[-3:] == ["write", "flush", "write"]  # the header, and frames


@pytest.mark.long
def test_a_pair_that_was_half_opened_is_known_and_completed() -> None:
    """FAULTS P9."""
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    replica.kill_at_call_from(Moment.ROLL, 3, lambda: replica.power_cut(Random(1), garble=False))
    stage.run_for(20 * SECOND_NS)
    assert len(stage.cluster.durability.places(replica.node).segments_with_one_header()) == 1
    replica.start()
    stage.run_for(3 * SECOND_NS)
    assert stage.cluster.durability.places(replica.node).segments_with_one_header() == []
    assert stage.problems == []


def test_a_write_over_bytes_that_are_there_is_reported() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.follower)
    path = next(each for each in replica.disk.paths() if each.endswith(".data"))
    view = replica._views[topology.WRITER]
    handle = view.open_write(path)
    view.write(handle, 4096, [b"again"])
    told = [each.text for each in stage.cluster.ledger.violations]
    where = f"{path} at byte 4096, over other bytes"
    assert f"node {replica.node} writes {where}" in told


def test_a_process_that_is_spared_dies_in_no_call() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(stage.leaders[0])
    replica.kill_at_call(topology.WRITER, 5, lambda: pytest.fail("it was spared"))
    replica.cancel_kills_and_stops()
    stage.run_for(SECOND_NS)
    assert replica.incarnation == 1


def test_a_power_cut_kills_it_and_leaves_what_was_flushed() -> None:
    stage = QuietCluster(has_clients=True)
    stage.run_for(2 * SECOND_NS)
    replica = stage.replica(stage.leaders[0])
    committed = stage.cluster.observer.cores[replica.node].commit
    replica.power_cut(Random(1), garble=True)
    assert not replica.is_running
    replica.start()
    stage.run_for(2 * SECOND_NS)
    assert committed > 0
    assert stage.cluster.observer.cores[replica.node].last_index >= committed
    assert stage.problems == []


def test_an_orderly_stop_hands_leadership_over_before_it_ends(stage: QuietCluster) -> None:
    leader = stage.leaders[0]
    replica = stage.replica(leader)
    stopped: list[list[int]] = []
    replica.stop_orderly(lambda: stopped.append(stage.leaders))
    stage.run_for(2 * SECOND_NS)
    assert len(stopped) == 1
    assert len(stopped[0]) == 1
    assert leader not in stopped[0]
    assert not replica.is_running


def test_a_paused_replica_goes_on_in_the_same_incarnation(stage: QuietCluster) -> None:
    leader = stage.leaders[0]
    replica = stage.replica(leader)
    replica.pause("", 3 * SECOND_NS)
    stage.run_for(2 * SECOND_NS)
    assert any(node != leader for node in stage.leaders)
    stage.run_for(4 * SECOND_NS)
    assert replica.incarnation == 1
    assert len(stage.leaders) == 1
    assert stage.problems == []


def test_a_process_that_stands_still_too_long_is_killed(stage: QuietCluster) -> None:
    replica = stage.replica(stage.follower)
    replica.pause(topology.INGRESS, LIVENESS_NS + SECOND_NS)
    stage.run_for(LIVENESS_NS - SECOND_NS)
    assert replica.incarnation == 1
    stage.run_for(2 * SECOND_NS)
    assert replica.incarnation == 2


def test_a_lost_replica_need_not_show_its_log() -> None:
    stage = QuietCluster(has_clients=True)
    replica = stage.replica(2)
    stage.run_for(SECOND_NS)
    hit = replica.disk.rot(Random(1), RotKind.ZEROED, lambda path: True, is_cached_too=True)
    assert hit
    replica.pause("", SECOND_NS)
    stage.workload.audit([2])
    stage.run_for(SECOND_NS // 100)
    assert not stage.workload.has_audited
    lost = ReplicaLost("nothing is left of entry 1")
    replica.on_unexpected_error(replica.processes[topology.RAFT], lost)
    assert stage.workload.has_audited
    assert not replica.is_running
    assert stage.problems == []


def test_a_lost_replica_stays_up_says_why_and_takes_no_part_until_it_is_started_again() -> None:
    """SAFETY L6."""
    stage = QuietCluster()
    replica = stage.replica(stage.follower)
    hit = replica.disk.rot(Random(1), RotKind.ZEROED, lambda path: True, is_cached_too=False)
    assert hit
    lost = ReplicaLost("nothing is left of entry 1")
    replica.on_unexpected_error(replica.processes[topology.RAFT], lost)
    stage.run_for(SECOND_NS)
    assert replica.is_running
    assert replica.incarnation == 2
    assert replica.processes[topology.RAFT].is_alive
    assert stage.follower not in stage.cluster.observer.cores
    stage.run_for(2 * SECOND_NS)
    assert replica.incarnation == 3
    assert stage.follower in stage.cluster.observer.cores
    assert stage.problems == []


def test_after_more_than_five_restarts_in_a_minute_an_operator_starts_it(
    stage: QuietCluster,
) -> None:
    """The restart policy of the product: it gives up, and an operator comes after a while."""
    replica = stage.replica(stage.follower)
    waited_ns = []
    for _ in range(7):
        replica.kill_process(topology.WRITER)
        died_ns = stage.world.now_ns
        while not replica.is_running:
            stage.run_for(SECOND_NS // 100)
        waited_ns.append(stage.world.now_ns - died_ns)
        stage.run_for(SECOND_NS // 5)
    assert waited_ns[0] <= SECOND_NS // 50
    assert waited_ns[-1] >= 2 * SECOND_NS
    assert replica.incarnation == 8
