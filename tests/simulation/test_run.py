"""Whole seeds on the real product, and on one with a rule switched off."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.simulation import run
from actors.simulation.checkers.facts import LogRead
from actors.simulation.checkers.final_logs import FinalLogs
from actors.simulation.cluster import make_limits
from actors.simulation.faults.draw import draw_script
from actors.simulation.faults.draw_ground import LEVEL_MAX
from actors.simulation.faults.script import Fault, FaultKind, Script
from actors.simulation.oracle.reach import Reach
from actors.simulation.replica import Replica
from actors.simulation.run import read_committed, run_seed
from actors.simulation.shrink import shrink
from actors.topology import EGRESS, INGRESS, RAFT, WRITER
from actors.writer import WriterActor
from logstore.cli.main import main
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL
from logstore.limits import ReplicaLimits
from logstore.raft import election, replication
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster, quiet_script

SEEDS = range(1, 5)
# A broken rule that any schedule shows is found within so many seeds.
FEW_SEEDS = range(1, 7)


def one_vote_is_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "has_won", lambda state: bool(state.campaign.granted))


def one_replica_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replication, "commit_candidate", lambda voters, matches: max(matches.values())
    )


def all_replicas_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replication, "commit_candidate", lambda voters, matches: min(matches.values())
    )


def first_failing(seeds: range) -> Script:
    for seed in seeds:
        if run_seed(seed).has_failed:
            return draw_script(seed, replicas=None, classes=None)
    raise AssertionError(f"nothing was found in seeds {seeds}")


# --- the product as it is ---


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_is_faults_appends_and_no_violation(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    on_log = FinalLogs.on_log

    @wraps(on_log)  # and reads the same
    def noting(logs: FinalLogs, read: LogRead) -> None:
        compared.append(read.node)
        on_log(logs, read)

    monkeypatch.setattr(FinalLogs, "on_log", noting)
    result = run_seed(seed)
    replicas = draw_script(seed, replicas=None, classes=None).ground.replicas
    assert result.first_complaint == ""
    assert result.appends_acknowledged > 0
    assert sum(result.faults_injected.values()) > 0
    assert len(set(compared)) == len(compared) >= replicas // 2 + 1


@pytest.mark.slow
def test_without_faults_every_replica_is_compared_and_most_appends_are_acknowledged() -> None:
    result = run_seed(1, script=quiet_script())
    assert result.first_complaint == ""
    assert result.faults_injected == {}
    assert result.appends_acknowledged >= 20 * 12 // 2


def test_a_replica_of_a_run_meets_smaller_limits_than_a_real_one() -> None:
    ground = draw_script(1, replicas=None, classes=()).ground
    small = msgspec.structs.asdict(make_limits(ground))
    assert small["snapshot_every_batches"] == ground.snapshot_every_batches
    real = msgspec.structs.asdict(ReplicaLimits())
    assert all(small[name] <= limit for name, limit in real.items())
    quiet = QuietCluster()
    limits = make_limits(quiet.cluster.script.ground)
    actors: dict[str, Any] = {
        name: process.actor for name, process in quiet.replica(1).processes.items()
    }
    assert all(actors[name]._station.limits == limits for name in (RAFT, INGRESS, EGRESS))
    assert actors[WRITER]._work._group_entries_max == limits.flush_entries_max


# --- the product with a rule switched off ---


@pytest.mark.parametrize("break_rule", [one_vote_is_a_majority, one_replica_commits])
def test_a_broken_rule_is_found_within_a_few_seeds(
    break_rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    assert first_failing(FEW_SEEDS).faults


@pytest.mark.slow
def test_an_append_that_needs_all_replicas_fails_the_liveness_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faults end for a majority only; a leader that waits for the others makes no progress."""
    all_replicas_commit(monkeypatch)
    result = run_seed(1, script=quiet_script(safety_ns=2 * SECOND_NS))
    assert [each.invariant for each in result.violations] == ["I13"]
    assert "no append was acknowledged" in result.first_complaint


@pytest.mark.slow
def test_logs_are_read_only_while_all_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator whose first request had no answer asks again, seconds later. A no-op of the new
    leader that one replica lacks yet is nothing that it lost."""

    def audit(this: Any, within_ns: int) -> None:
        world = this.cluster.world
        this.workload.transfer(0)
        end_ns = world.now_ns + within_ns
        cores = this.cluster.observer.cores
        while len({each.commit for each in cores.values()}) == 1 and world.now_ns < end_ns:
            world.run_until(world.now_ns + SECOND_NS // 10_000)
        were_equal.append(this._is_equal())

    were_equal: list[bool] = []
    monkeypatch.setattr(run._Run, "_audit", audit)
    assert run_seed(1, script=quiet_script(safety_ns=2 * SECOND_NS)).first_complaint == ""
    assert were_equal == [False]


@pytest.mark.slow
def test_a_replica_set_back_as_the_faults_end_gets_a_newer_version() -> None:
    """A level that its last answer allowed may be raised later than that (FAULTS O8)."""
    this = run._Run(quiet_script(safety_ns=SECOND_NS, newest_levels=(LEVEL_MAX,) * 3), None)
    this.cluster.start()
    this.workload.start()
    this._inject_faults()
    level = this.cluster.ledger.record.entries.newest_level
    this.cluster.replicas[2].newest_level = FIRST_LEVEL
    this._is_equal_after_mending()
    assert this.cluster.replicas[2].newest_level == level > FIRST_LEVEL


def with_a_changed_byte_on_node_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first entry in the second half of the log that has a body."""

    def changed(replica: Replica, commit: int) -> Iterator[tuple[Any, bytes]]:
        is_due = replica.node == 2
        for header, body in read_committed(replica, commit):
            is_other = is_due and header.index >= commit // 2 and bool(body)
            is_due = is_due and not is_other
            yield header, body[:-1] + bytes([body[-1] ^ 1]) if is_other else body

    monkeypatch.setattr(run, "read_committed", changed)


@pytest.mark.slow
def test_logs_that_differ_in_a_byte_at_the_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_changed_byte_on_node_2(monkeypatch)
    result = run_seed(1, script=quiet_script(safety_ns=5 * SECOND_NS))
    assert result.has_failed


@pytest.mark.slow
def test_after_a_power_cut_of_a_lying_device_nothing_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What follows may be amnesia, which looks like never having had the entry (FAULTS D33)."""
    with_a_changed_byte_on_node_2(monkeypatch)
    lie = Fault(1 * SECOND_NS, FaultKind.LYING_FLUSH, node=3, for_ns=3 * SECOND_NS)
    cut = Fault(3 * SECOND_NS, FaultKind.POWER_CUT, nodes=(3,), for_ns=SECOND_NS // 2)
    ground = {"safety_ns": 5 * SECOND_NS}
    assert not run_seed(1, script=quiet_script(lie, cut, **ground)).has_failed
    assert run_seed(1, script=quiet_script(cut, **ground)).has_failed


def test_an_error_that_no_condition_explains_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(actor: WriterActor, now_ns: int) -> int:
        raise ValueError("no such thing")

    monkeypatch.setattr(WriterActor, "do_work", broken)
    result = run_seed(1, script=quiet_script(safety_ns=2 * SECOND_NS))
    assert result.violations == ()
    assert "writer: ValueError: no such thing" in result.error


# --- what follows from a failing seed ---


@pytest.mark.slow
def test_a_failing_seed_prints_one_line_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_replica_commits(monkeypatch)
    monkeypatch.chdir(tmp_path)
    seed = first_failing(FEW_SEEDS).seed

    def simulate(*words: str) -> tuple[int, str]:
        status = main(["simulate", *words])
        said = capsys.readouterr()
        return status, said.out + said.err

    status, said = simulate("--first-seed", str(seed), "--seeds", "1", "--jobs", "1", "--no-shrink")
    (line,) = [each for each in said.splitlines() if "--replay" in each]
    assert status == 1
    program, command, *words = shlex.split(line, comments=True)
    assert (program, command) == ("logstore", "simulate")
    status, said = simulate(*words)
    assert status == 1
    assert f"event hash {run_seed(seed).event_hash}" in said


@pytest.mark.slow
def test_a_failing_seed_shrinks_to_the_faults_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two leaders of one term, or a leader without committed entries: that takes a replica that
    does not hear the first leader."""
    one_vote_is_a_majority(monkeypatch)
    script = first_failing(FEW_SEEDS)
    runs = 0

    def fails(candidate: Script) -> bool:
        nonlocal runs
        runs += 1
        return run_seed(script.seed, script=candidate).has_failed

    smallest = shrink(script, fails, deadline=lambda: runs >= 8)
    assert len(smallest.faults) < len(script.faults)
    assert run_seed(script.seed, script=smallest).has_failed


# --- lost disks ---


@pytest.mark.slow
@pytest.mark.parametrize("is_lost_replaced", [True, False])
def test_a_lost_voter_is_replaced_by_itself_or_by_an_operator(is_lost_replaced: bool) -> None:
    lost = Fault(3 * SECOND_NS, FaultKind.LOST_DISK, node=2, for_ns=SECOND_NS // 10)
    ground = {"safety_ns": 6 * SECOND_NS, "new_log_level": CONFIG_LEVEL}
    result = run_seed(1, script=quiet_script(lost, is_lost_replaced=is_lost_replaced, **ground))
    assert result.first_complaint == ""
    assert result.reached.get(Reach.REPLACED_AFTER_LOSS.name)
    assert bool(result.reached.get(Reach.REPLACED_BY_OPERATOR.name)) is not is_lost_replaced
