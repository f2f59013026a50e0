"""The supervisor on real processes: who is restarted, who is told, and that nobody is left
behind."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from logstore.cli.embedded import poll_until
from tests.unit import supervisor_stage
from tests.unit.supervisor_stage import CHILDREN, CONFIG, CONFIG_NAME
from transport.counters import read_counters

PATIENCE_S = 60.0
pytestmark = pytest.mark.slow


class Stage:
    """A running supervisor whose children tell what they see, one line an event."""

    def __init__(self, folder: Path, inside: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [*inside, sys.executable, supervisor_stage.__file__, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._stdout = self.process.stdout.fileno()
        self._text = b""
        self.lines: list[list[str]] = []

    def next_line(self) -> list[str] | None:
        """The next event, waited for; None at the end of all processes' output."""
        deadline = time.monotonic() + PATIENCE_S
        while b"\n" not in self._text:
            ready, _, _ = select.select([self._stdout], [], [], deadline - time.monotonic())
            assert ready, f"nothing came in {PATIENCE_S} s after {self.lines[-5:]}"
            piece = os.read(self._stdout, 4096)
            if not piece:
                return None
            self._text += piece
        line, self._text = self._text.split(b"\n", 1)
        self.lines.append(line.decode().split())
        return self.lines[-1]

    def wait_for(self, *words: str) -> list[str]:
        while (line := self.next_line()) is not None:
            if line[: len(words)] == list(words):
                return line
        raise AssertionError(f"the output ended before {words}: {self.lines}")

    def wait_line(self, *words: str) -> list[str]:
        """The event, also if it came before."""
        found = [line for line in self.lines if line[: len(words)] == list(words)]
        return found[0] if found else self.wait_for(*words)

    def wait_started(self, *names: str) -> dict[str, tuple[int, int]]:
        """Wait until all children of an incarnation told that they run: name to (pid,
        incarnation)."""
        started: dict[str, tuple[int, int]] = {}
        while set(started) != set(names or CHILDREN):
            _, name, pid, incarnation = self.wait_for("started")
            started[name] = (int(pid), int(incarnation))
        return started

    def finish(self) -> tuple[int, str]:
        """Wait for the end; (exit status, what was logged)."""
        while self.next_line() is not None:
            pass
        assert self.process.stderr is not None
        return self.process.wait(PATIENCE_S), self.process.stderr.read().decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    running = Stage(tmp_path)
    yield running
    running.close()


def wait_gone(pid: int) -> None:
    """Until the process is dead, by its pidfd."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
        assert ready, f"process {pid} lives"
    finally:
        os.close(descriptor)


def test_an_orderly_stop_asks_raft_first_and_leaves_nobody(stage: Stage) -> None:
    started = stage.wait_started()
    stage.process.send_signal(signal.SIGTERM)
    status, log = stage.finish()
    assert status == 0, log
    events = [line[0] for line in stage.lines]
    assert events.index("stop-requested") < events.index("closed")
    assert sorted(line[1] for line in stage.lines if line[0] == "closed") == sorted(CHILDREN)
    assert not [pid for pid, _ in started.values() if psutil.pid_exists(pid)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda each: each.name)
def test_a_terminal_that_stops_the_whole_group_stops_it_in_order(
    stage: Stage, number: signal.Signals
) -> None:
    """It interrupts or hangs up with a signal to every process; only the supervisor acts on it."""
    stage.wait_started()
    os.killpg(stage.process.pid, number)
    status, log = stage.finish()
    assert status == 0, log
    assert ["stop-requested"] in stage.lines
    assert sorted(words[1] for words in stage.lines if words[0] == "closed") == sorted(CHILDREN)


def test_a_replica_under_nohup_outlives_the_terminal(tmp_path: Path) -> None:
    running = Stage(tmp_path, inside=("nohup",))
    try:
        before = running.wait_started()
        running.process.send_signal(signal.SIGHUP)
        os.kill(before["egress"][0], signal.SIGKILL)
        assert running.wait_for("started")[1] == "egress"
        running.process.send_signal(signal.SIGTERM)
        status, log = running.finish()
    finally:
        running.close()
    assert status == 0, log


@pytest.mark.parametrize("mode", ["processes", "shared"])
def test_a_spare_replicator_runs_alone_once_raft_wants_it_and_again_after_its_death(
    tmp_path: Path, mode: str
) -> None:
    """SAFETY M3, in any layout; raft may use its rings when it hears so."""
    text = CONFIG.replace('mode = "processes"', f'mode = "{mode}"\ncpus = {{}}')
    (tmp_path / CONFIG_NAME).write_text(text)
    (tmp_path / "wanted").write_text("spare-3 spare-3")
    running = Stage(tmp_path)
    try:
        pid = running.wait_started(*CHILDREN, "spare-3")["spare-3"][0]
        running.wait_line("replicator-started", "spare-3")
        os.kill(pid, signal.SIGKILL)
        running.wait_line("gone", "spare-3")
        again = int(running.wait_for("started", "spare-3")[2])
        assert again != pid
        counters = read_counters(tmp_path / "counters")
        assert counters["spare-3.pid"] == again
        assert counters["spare-1.pid"] == 0
        assert counters["child_restarts"] == 1
        assert counters["replica_restarts"] == 0
        running.process.send_signal(signal.SIGTERM)
        status, log = running.finish()
    finally:
        running.close()
    assert status == 0, log
    assert ["closed", "spare-3"] in running.lines
    assert running.lines.count(["replicator-started", "spare-3"]) == 1
    assert not psutil.pid_exists(again)


def test_death_of_a_vital_process_begins_a_new_incarnation(stage: Stage) -> None:
    """SAFETY M3, for each of the three, one after the other."""
    before = stage.wait_started()
    for restarts, victim in enumerate(("raft", "writer", "ingress"), start=1):
        os.kill(before[victim][0], signal.SIGKILL)
        after = stage.wait_started()
        assert {incarnation for _, incarnation in after.values()} == {before[victim][1] + 1}
        assert not {pid for pid, _ in before.values()} & {pid for pid, _ in after.values()}
        for pid, _ in before.values():
            wait_gone(pid)
        counters = read_counters(stage.folder / "counters")
        assert counters["replica_restarts"] == restarts
        assert counters["raft.pid"] == after["raft"][0]
        before = after


@pytest.mark.skipif(os.geteuid() != 0, reason="a small /dev/shm of its own needs root")
def test_a_new_incarnation_takes_its_memory_after_the_old_one_gave_it_back(tmp_path: Path) -> None:
    """A shared memory of 30 MiB holds the rings of this replica once, not twice."""
    small = 'mount -t tmpfs -o size=30m tmpfs /dev/shm && exec "$@"'
    running = Stage(tmp_path, inside=("unshare", "-m", "sh", "-c", small, "sh"))
    try:
        before = running.wait_started()
        os.kill(before["writer"][0], signal.SIGKILL)
        after = running.wait_started()
        assert after["writer"][1] == before["writer"][1] + 1
    finally:
        running.close()


def test_replicators_and_egress_come_back_alone_after_raft_was_told(stage: Stage) -> None:
    """SAFETY M3."""
    before = stage.wait_started()
    for restarts, victim in enumerate(("egress", "replicator-2"), start=1):
        os.kill(before[victim][0], signal.SIGKILL)
        assert stage.wait_for("gone")[1] == victim
        name, pid, incarnation = stage.wait_for("started")[1:]
        assert (name, int(incarnation)) == (victim, before[victim][1])
        # The child may be quicker than the supervisor, which counts it once it has started it.
        assert poll_until(
            lambda restarts=restarts: (
                read_counters(stage.folder / "counters")["child_restarts"] == restarts
            ),
            PATIENCE_S,
        )
        counters = read_counters(stage.folder / "counters")
        assert counters["replica_restarts"] == 0
        assert counters[f"{victim}.pid"] == int(pid)
        assert counters["raft.pid"] == before["raft"][0]


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / CONFIG_NAME).write_text(
        CONFIG.replace('mode = "processes"', 'mode = "custom"')
        + 'groups = {core = ["ingress", "raft"], senders = ["replicator", "egress"]}\n'
    )
    running = Stage(tmp_path)
    yield running
    running.close()


def test_a_group_without_a_vital_actor_comes_back_alone_after_raft_was_told_of_each(
    grouped: Stage,
) -> None:
    """SAFETY M3."""
    before = grouped.wait_started()
    assert before["egress"] == before["replicator-2"]
    os.kill(before["egress"][0], signal.SIGKILL)
    assert [grouped.wait_for("gone")[1] for _ in range(2)] == ["egress", "replicator-2"]
    back = [grouped.wait_for("started")[1:] for _ in range(2)]
    assert [(name, int(incarnation)) for name, _, incarnation in back] == [
        ("egress", before["egress"][1]),
        ("replicator-2", before["egress"][1]),
    ]

    def restarts() -> tuple[int, int]:
        found = read_counters(grouped.folder / "counters")
        return found["child_restarts"], found["replica_restarts"]

    # the supervisor counts it after the start, of which the child has told already
    assert poll_until(lambda: restarts() == (1, 0), PATIENCE_S), restarts()
    counters = read_counters(grouped.folder / "counters")
    assert counters["senders.pid"] == int(back[0][1]) == int(back[1][1])
    assert counters["core.pid"] == before["raft"][0] == before["ingress"][0]
    assert "egress.pid" not in counters


def test_a_group_with_a_vital_actor_takes_the_replica_with_it(grouped: Stage) -> None:
    """SAFETY M3."""
    before = grouped.wait_started()
    os.kill(before["ingress"][0], signal.SIGKILL)
    after = grouped.wait_started()
    assert {incarnation for _, incarnation in after.values()} == {before["raft"][1] + 1}
    grouped.process.send_signal(signal.SIGTERM)
    status, log = grouped.finish()
    assert status == 0, log
    assert "core was killed by SIGKILL; the replica is restarted" in log


def test_no_orphan_survives_kill_9_of_the_supervisor(stage: Stage) -> None:
    """FAULTS P13: PDEATHSIG, and the lifeline where that cannot be had."""
    started = stage.wait_started()
    stage.process.kill()
    for pid, _ in started.values():
        wait_gone(pid)


def test_a_replica_that_keeps_dying_ends_with_status_70_and_the_reason(tmp_path: Path) -> None:
    """SAFETY M3, FAULTS P15: more than 5 restarts in 60 s."""
    (tmp_path / "writer.status").write_text("3")
    stage = Stage(tmp_path)
    try:
        status, log = stage.finish()
    finally:
        stage.close()
    assert status == 70
    assert "writer exited with status 3; more than 5 restarts in 60 s, giving up" in log
    assert sum(1 for line in stage.lines if line == ["leaving", "writer"]) == 6


def test_a_child_that_says_restarting_cannot_help_is_believed(tmp_path: Path) -> None:
    (tmp_path / "writer.status").write_text("78")
    stage = Stage(tmp_path)
    try:
        status, log = stage.finish()
    finally:
        stage.close()
    assert status == 78
    assert "starting it again cannot help" in log


@pytest.mark.parametrize("is_writer_dead", [False, True])
def test_a_replica_whose_folder_was_removed_ends_and_says_so(
    stage: Stage, *, is_writer_dead: bool
) -> None:
    """SAFETY M2: noticed within a second, or by what a process dies of; it is not started again."""
    started = stage.wait_started()
    shutil.rmtree(stage.folder)
    if is_writer_dead:
        os.kill(started["writer"][0], signal.SIGKILL)
    status, log = stage.finish()
    assert status == 78
    assert f"the data folder {stage.folder} was removed, or emptied" in log
    assert "restarted" not in log
    assert not stage.folder.exists()
    for pid, _ in started.values():
        wait_gone(pid)


@pytest.mark.parametrize("process", ["raft", "writer"])
def test_a_replica_that_must_not_go_on_stays_up_and_every_process_knows_why(
    tmp_path: Path, process: str
) -> None:
    """SAFETY L6."""
    (tmp_path / f"{process}.status").write_text("79")
    (tmp_path / f"{process}.words").write_text("nothing is left of entry 3")
    stage = Stage(tmp_path)
    try:
        told: dict[str, str] = {}
        while set(told) != set(CHILDREN):
            _, actor, *words = stage.wait_for("damaged")
            told[actor] = " ".join(words)
        assert set(told.values()) == {"nothing is left of entry 3"}
        started = [line for line in stage.lines if line[:2] == ["started", "writer"]]
        os.kill(int(started[-1][2]), signal.SIGKILL)
        stage.wait_for("damaged", "writer")  # in the next incarnation, too
        stage.process.send_signal(signal.SIGTERM)
        status, log = stage.finish()
    finally:
        stage.close()
    assert status == 0, log
    assert f"{process} exited with status 79: this replica must not go on" in log


def test_a_crash_loop_of_a_replicator_is_no_reason_to_exit(tmp_path: Path) -> None:
    """SAFETY M3: a status, never an exit."""
    (tmp_path / "replicator-2.status").write_text("1")
    stage = Stage(tmp_path)
    try:
        for _ in range(3):
            stage.wait_for("leaving", "replicator-2")
        (tmp_path / "replicator-2.status").unlink()
        stage.wait_for("started", "replicator-2")
        stage.process.send_signal(signal.SIGTERM)
        status, log = stage.finish()
    finally:
        stage.close()
    assert status == 0, log


def test_a_process_that_cannot_be_forked_now_is_tried_again_alone(stage: Stage) -> None:
    """SAFETY M3: the others go on, for as long as the machine has no room for it."""
    before = stage.wait_started()
    (stage.folder / "forks-left").write_text("0")
    os.kill(before["egress"][0], signal.SIGKILL)
    for _ in range(2):
        stage.wait_for("fork-refused")
    (stage.folder / "forks-left").unlink()
    name, _, incarnation = stage.wait_for("started")[1:]
    assert (name, int(incarnation)) == ("egress", before["egress"][1])
    assert read_counters(stage.folder / "counters")["child_restarts"] == 1
    stage.process.send_signal(signal.SIGTERM)
    status, log = stage.finish()
    assert status == 0, log
    assert "egress cannot be started: " in log


def test_a_spare_that_cannot_be_started_is_tried_again_and_the_others_go_on(stage: Stage) -> None:
    """SAFETY M3."""
    before = stage.wait_started()
    (stage.folder / "forks-left").write_text("0")
    (stage.folder / "wanted").write_text("spare-1")
    os.kill(before["egress"][0], signal.SIGKILL)
    stage.wait_for("gone", "egress")
    for _ in range(4):  # of egress and the spare, each at least once
        stage.wait_for("fork-refused")
    (stage.folder / "forks-left").unlink()
    stage.wait_line("started", "spare-1")
    stage.wait_line("replicator-started", "spare-1")
    stage.process.send_signal(signal.SIGTERM)
    status, log = stage.finish()
    assert status == 0, log
    assert "spare-1 cannot be started: " in log
    assert {line[3] for line in stage.lines if line[0] == "started"} == {str(before["raft"][1])}


def test_a_supervisor_without_descriptors_goes_on(stage: Stage) -> None:
    """It samples its children every second, and may have no descriptor to do it."""
    before = stage.wait_started()

    def loops() -> int:
        return read_counters(stage.folder / "counters")["supervisor.loops"]

    assert poll_until(lambda: loops() >= 2, PATIENCE_S)
    limits = resource.prlimit(stage.process.pid, resource.RLIMIT_NOFILE)
    taken = {int(name) for name in os.listdir(f"/proc/{stage.process.pid}/fd")}
    first_free = min(set(range(limits[0])) - taken)
    resource.prlimit(stage.process.pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
    begun = loops()
    assert poll_until(lambda: loops() >= begun + 3, PATIENCE_S)
    os.kill(before["egress"][0], signal.SIGKILL)
    stage.wait_for("gone")
    resource.prlimit(stage.process.pid, resource.RLIMIT_NOFILE, limits)
    assert stage.wait_for("started")[1] == "egress"
    stage.process.send_signal(signal.SIGTERM)
    status, log = stage.finish()
    assert status == 0, log


def test_a_replica_that_cannot_be_forked_as_a_whole_now_is_tried_again(stage: Stage) -> None:
    before = stage.wait_started()
    (stage.folder / "forks-left").write_text("2")
    os.kill(before["raft"][0], signal.SIGKILL)
    for _ in range(2):
        stage.wait_for("fork-refused")
    (stage.folder / "forks-left").unlink()
    after = stage.wait_started()
    assert {incarnation for _, incarnation in after.values()} == {before["raft"][1] + 3}
    stage.process.send_signal(signal.SIGTERM)
    status, log = stage.finish()
    assert status == 0, log


def test_a_second_stop_signal_does_not_wait_for_anybody(stage: Stage) -> None:
    started = stage.wait_started()
    os.kill(started["raft"][0], signal.SIGSTOP)
    stage.process.send_signal(signal.SIGTERM)
    stage.process.send_signal(signal.SIGINT)
    stage.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    status, log = stage.finish()
    assert status == 0, log
    assert time.monotonic() - began < 3.0 + 5.0, "it waited for its deadlines"


def test_children_share_the_supervisors_group_and_inherit_no_foreign_descriptor(
    stage: Stage,
) -> None:
    started = stage.wait_started()
    for name, (pid, _) in started.items():
        assert os.getpgid(pid) == stage.process.pid, name
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        # Only its own two, the lifeline and that for last words, and the output that a test reads.
        assert sum(link.startswith("pipe:") for link in links) <= 4, (name, links)
