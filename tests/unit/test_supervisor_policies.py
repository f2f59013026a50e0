"""The supervisor's pure parts: restarts, liveness, who may run a folder."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from actors.supervisor.child_process import describe_status
from actors.supervisor.held_folder import LOCK_NAME, sole_supervisor
from actors.supervisor.liveness import START_TIMEOUT_NS, TIMEOUT_NS, LivenessMonitor
from actors.supervisor.restarts import (
    STEADY_NS,
    RestartPolicy,
    is_stall_fatal,
    is_vital,
    reports_of_death,
)
from actors.supervisor.start_wait import StartWait
from logstore.config import parse_config
from logstore.errors import ConfigError, FolderInUse, FolderRefused
from logstore.storage.meta_store import META_NAMES
from tests.unit.supervisor_stage import CONFIG, NODE

SECOND_NS = 1_000_000_000


def test_back_off_of_a_child_doubles_from_a_tenth_to_five_seconds_with_jitter() -> None:
    """SAFETY M3."""
    policy = RestartPolicy(Random(7))
    waits = [policy.child_restart_at("egress", now_ns=0, lived_ns=0) for _ in range(12)]
    longest = [min(5.0, 0.1 * 2**deaths) for deaths in range(1, 13)]
    for wait_ns, longest_s in zip(waits, longest, strict=True):
        assert max(0.1, longest_s / 2) <= wait_ns / SECOND_NS <= longest_s
    assert len(set(waits)) == len(waits)


def test_back_off_begins_anew_after_a_steady_life() -> None:
    policy = RestartPolicy(Random(7))
    for _ in range(6):
        policy.child_restart_at("egress", now_ns=0, lived_ns=0)
    assert policy.child_restart_at("egress", now_ns=0, lived_ns=STEADY_NS) <= 0.2 * SECOND_NS


def test_each_child_has_a_back_off_of_its_own() -> None:
    policy = RestartPolicy(Random(7))
    for _ in range(6):
        policy.child_restart_at("egress", now_ns=0, lived_ns=0)
    assert policy.child_restart_at("replicator-2", now_ns=0, lived_ns=0) <= 0.2 * SECOND_NS


@pytest.mark.parametrize(
    ("actors", "is_fatal", "is_killed"),
    [
        (("raft",), True, True),
        (("writer",), True, False),
        (("raft", "ingress", "egress", "replicator-2"), True, True),
        (("writer", "egress"), True, False),
        (("egress", "replicator-2"), False, True),
    ],
)
def test_what_a_group_runs_decides_what_follows_from_its_death_and_its_stall(
    actors: tuple[str, ...], is_fatal: bool, is_killed: bool
) -> None:
    """SAFETY M3."""
    assert is_vital(actors) is is_fatal
    assert is_stall_fatal(actors) is is_killed
    assert [each.process for each in reports_of_death(actors)] == list(actors)


def test_the_first_replica_restart_is_at_once_and_the_sixth_in_a_minute_is_refused() -> None:
    """SAFETY M3: more than 5 replica restarts in 60 s."""
    policy = RestartPolicy(Random(7))
    assert policy.try_replica_restart_at(now_ns=SECOND_NS) == SECOND_NS
    for second in range(2, 6):
        at_ns = policy.try_replica_restart_at(now_ns=second * SECOND_NS)
        assert at_ns is not None
        assert at_ns > second * SECOND_NS
    assert policy.try_replica_restart_at(now_ns=6 * SECOND_NS) is None


def test_restarts_that_lie_apart_are_never_a_crash_loop() -> None:
    policy = RestartPolicy(Random(7))
    for number in range(100):
        now_ns = number * 13 * SECOND_NS
        assert policy.try_replica_restart_at(now_ns=now_ns) is not None


def test_a_loop_that_stands_still_for_five_seconds_is_stalled() -> None:
    """SAFETY M3."""
    monitor = LivenessMonitor()
    for second in range(6):
        assert monitor.stalled({"raft": 9, "egress": second + 1}, now_ns=second * SECOND_NS) == []
    now_ns = TIMEOUT_NS + SECOND_NS
    assert monitor.stalled({"raft": 9, "egress": 7}, now_ns=now_ns) == ["raft"]


def test_a_start_may_take_longer_than_a_loop() -> None:
    monitor = LivenessMonitor()
    seconds = START_TIMEOUT_NS // SECOND_NS
    for second in range(seconds + 1):
        assert monitor.stalled({"raft": 0}, now_ns=second * SECOND_NS) == []
    assert monitor.stalled({"raft": 0}, now_ns=(seconds + 1) * SECOND_NS) == ["raft"]


def test_a_pause_of_the_supervisor_is_no_evidence_against_a_child() -> None:
    """FAULTS P4: SIGSTOP of a whole replica, then SIGCONT."""
    monitor = LivenessMonitor()
    assert monitor.stalled({"raft": 9}, now_ns=0) == []
    assert monitor.stalled({"raft": 9}, now_ns=60 * SECOND_NS) == []
    assert monitor.stalled({"raft": 9}, now_ns=61 * SECOND_NS) == []


def test_a_new_process_under_an_old_name_has_its_whole_allowance() -> None:
    monitor = LivenessMonitor()
    for second in range(6):
        monitor.stalled({"egress": 9}, now_ns=second * SECOND_NS)
    monitor.forget("egress")
    assert monitor.stalled({"egress": 9}, now_ns=7 * SECOND_NS) == []


def test_a_folder_has_one_supervisor_at_a_time(tmp_path: Path) -> None:
    """FAULTS P16."""
    with (
        sole_supervisor(tmp_path),
        pytest.raises(FolderInUse, match="stop it, or take another"),
        sole_supervisor(tmp_path),
    ):
        raise AssertionError("two supervisors hold one folder")
    with sole_supervisor(tmp_path):
        pass


def test_a_folder_where_no_lock_can_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "supervisor.lock").mkdir()
    with (
        pytest.raises(FolderRefused, match=r"supervisor\.lock cannot be made: .*; free some space"),
        sole_supervisor(tmp_path),
    ):
        raise AssertionError("there is no lock")


@pytest.mark.parametrize("is_new", [True, False])
def test_a_refused_replica_leaves_no_folder_that_was_made_for_it(
    tmp_path: Path, *, is_new: bool
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(ConfigError), sole_supervisor(folder, is_new=is_new):
        raise ConfigError("no room for the rings")
    assert folder.exists() != is_new


def test_a_folder_that_is_gone_is_told_from_one_that_is_there(tmp_path: Path) -> None:
    """SAFETY M2."""
    folder, aside = tmp_path / "data", tmp_path / "aside"
    folder.mkdir()
    with sole_supervisor(folder) as held:
        assert held.loss() == ""
        folder.rename(aside)
        assert f"is not at {folder} any more: it was moved" in held.loss()
        folder.mkdir()  # as where a file system was unmounted
        assert f"is not at {folder} any more: it was moved" in held.loss()
        folder.rmdir()
        aside.rename(folder)
        assert held.loss() == ""
        (folder / META_NAMES[1]).touch()
        (folder / LOCK_NAME).unlink()
        assert held.loss() == "", "the log is whole: an operator took the lock for a stale one"
        with pytest.raises(FolderInUse), sole_supervisor(folder):
            raise AssertionError("it was locked again")
        (folder / LOCK_NAME).unlink()
        with sole_supervisor(folder):
            assert "another start has that folder now" in held.loss()
        (folder / LOCK_NAME).unlink()
        (folder / META_NAMES[1]).unlink()
        assert f"the data folder {folder} was removed, or emptied" in held.loss()
        folder.rmdir()
        assert f"the data folder {folder} was removed, or emptied" in held.loss()


def test_a_replica_that_does_not_get_ready_says_once_whom_it_looks_for() -> None:
    wait = StartWait(parse_config(CONFIG), NODE)
    said = [wait.look(is_ready=False, now_ns=second * SECOND_NS) for second in range(1, 10)]
    assert [bool(each) for each in said] == [False] * 5 + [True] + [False] * 3
    assert "Looking for node 2 at 127.0.0.1:7310; `logstore status` says who" in said[5]
    by_hand = CONFIG.replace('name = "stage"', 'name = "stage"\nauto_init = false')
    wait = StartWait(parse_config(by_hand), NODE)
    wait.look(is_ready=False, now_ns=SECOND_NS)
    assert "and `logstore init` was called" in wait.look(is_ready=False, now_ns=9 * SECOND_NS)


def test_a_replica_that_is_ready_in_time_or_alone_says_nothing() -> None:
    wait = StartWait(parse_config(CONFIG), NODE)
    assert not wait.look(is_ready=True, now_ns=SECOND_NS)
    assert not wait.look(is_ready=False, now_ns=99 * SECOND_NS)
    alone = StartWait(parse_config(CONFIG.replace("[[nodes]]\nnode = 2\nport = 7310\n", "")), NODE)
    assert not alone.look(is_ready=False, now_ns=SECOND_NS)
    assert not alone.look(is_ready=False, now_ns=99 * SECOND_NS)


def test_a_death_is_told_in_words() -> None:
    assert describe_status(1) == "exited with status 1"
    assert describe_status(-9) == "was killed by SIGKILL"
    assert describe_status(-200) == "was killed by signal 200"
