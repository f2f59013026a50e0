"""What a child of the supervisor keeps of it, and what never reaches it (SAFETY M3).

Each test runs a script in a process of its own: a fork is refused where there are other threads,
and a test runner may have some.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap

import pytest

from actors.child import EXIT_PARENT_GONE

pytestmark = pytest.mark.slow

PREFACE = """
import logging, os, select, signal, socket, sys, threading
from actors.supervisor.fork import fork_child
from actors.supervisor.signals import StopSignals

lifeline, ours = os.pipe2(os.O_CLOEXEC)

def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


def run(script: str) -> tuple[list[str], str]:
    """The lines that parent and child wrote, and what is on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", PREFACE + textwrap.dedent(script)],
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.splitlines(), done.stderr


def test_a_child_has_the_descriptors_that_it_was_given_and_no_others() -> None:
    said, errors = run("""
        listener = socket.create_server(("127.0.0.1", 0))
        refused, given, also_refused = (os.eventfd(0) for _ in range(3))

        def body():
            numbers = {int(each) for each in os.listdir("/proc/self/fd")}
            opened = {each for each in numbers if os.path.exists(f"/proc/self/fd/{each}")}
            tell(opened == {0, 1, 2, given}, os.readlink("/proc/self/fd/0").split(":")[0])

        tell(wait(fork_child(body, lifeline=lifeline, descriptors=(given,))))
    """)
    assert said == ["True pipe", "0"], errors


def test_the_lifeline_of_a_child_ends_with_the_parent_although_it_has_a_sibling() -> None:
    said, errors = run("""
        def wait_for_the_end():
            tell("read", os.read(0, 1))

        def sibling():
            os.read(0, 1)

        other, other_ours = os.pipe2(os.O_CLOEXEC)
        first = fork_child(wait_for_the_end, lifeline=lifeline, descriptors=())
        second = fork_child(sibling, lifeline=other, descriptors=())
        os.close(ours)
        tell(wait(first))
        os.kill(second, signal.SIGKILL)
        tell(wait(second))
    """)
    assert said == ["read b''", "0", "-9"], errors


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("pass", 0, ""),
        ("sys.exit(78)", 78, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_a_child_ends_with_the_status_of_its_body_and_runs_nothing_of_its_parent(
    body: str, status: int, error: str
) -> None:
    said, errors = run(f"""
        import atexit
        atexit.register(tell, "exit handler")

        def body():
            {body}

        print("once")
        try:
            pid = fork_child(body, lifeline=lifeline, descriptors=())
        finally:
            tell("parent")
        tell(wait(pid))
    """)
    assert said == ["once", "parent", str(status), "exit handler"], errors
    assert re.search(re.escape(error) + "$", errors.strip()), errors


@pytest.mark.parametrize(
    ("body", "status"),
    [("print('lost')", 0), ("sys.exit(78)", 78), ("sys.exit('no')", 1), ("1 / 0", 1)],
)
def test_output_that_cannot_be_written_keeps_nobody_from_forking_or_from_ending(
    body: str, status: int
) -> None:
    """A log on a full disk, or a pipe whose reader went."""
    said, _ = run(f"""
        full = os.open("/dev/full", os.O_WRONLY)
        told = os.dup(1)

        def tell(*words):
            os.write(told, (" ".join(map(str, words)) + "\\n").encode())

        os.dup2(full, 1)
        os.dup2(full, 2)

        def body():
            logging.error("lost, too")
            {body}

        print("never written")
        try:
            pid = fork_child(body, lifeline=lifeline, descriptors=(told,))
        except BaseException as error:
            tell("raised", type(error).__name__)
            os._exit(0)
        tell(wait(pid))
        os._exit(0)
    """)
    assert said == [str(status)]


def test_output_that_is_closed_keeps_a_child_from_running_the_code_of_its_parent() -> None:
    said, _ = run("""
        told = os.dup(1)

        def body():
            sys.stdout.close()
            sys.exit(78)

        try:
            pid = fork_child(body, lifeline=lifeline, descriptors=(told,))
        finally:
            os.write(told, b"parent\\n")
        os.write(told, b"%d\\n" % wait(pid))
    """)
    assert said == ["parent", "78"]


def test_a_stop_signal_amid_the_fork_ends_the_child_and_is_none_for_its_parent() -> None:
    """The child has its parent's handlers for a moment, and they write into its parent's pipe."""
    said, errors = run("""
        os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
        with StopSignals() as signals:
            pid = fork_child(lambda: tell("ran"), lifeline=lifeline, descriptors=())
            tell(wait(pid), signals.count())
            os.kill(os.getpid(), signal.SIGTERM)
            tell(signals.count())
    """)
    assert said == ["-15 0", "1"], errors


def test_a_stop_signal_of_the_parent_amid_the_fork_is_not_lost() -> None:
    said, errors = run("""
        os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGTERM))
        with StopSignals() as signals:
            pid = fork_child(lambda: tell("ran"), lifeline=lifeline, descriptors=())
            tell(wait(pid), signals.count())
    """)
    assert said == ["ran", "0 1"], errors


def test_a_child_whose_parent_died_before_it_could_ask_for_its_signal_ends() -> None:
    """FAULTS P13. A third process sees how it ends, as the orphan is then its child."""
    said, errors = run("""
        import ctypes

        def outlive():
            parent = os.getppid()
            descriptor = os.pidfd_open(parent)
            os.kill(parent, signal.SIGKILL)
            select.select([descriptor], [], [])

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        parent = os.fork()
        if parent == 0:
            os.register_at_fork(after_in_child=outlive)
            fork_child(lambda: tell("ran"), lifeline=lifeline, descriptors=())
            signal.pause()
        tell(wait(parent))
        tell(wait(-1))
    """)
    assert said == ["-9", str(EXIT_PARENT_GONE)], errors


def test_children_that_came_and_went_leave_nothing_in_their_parent() -> None:
    """FAULTS P18."""
    said, errors = run("""
        import gc
        from actors.child import ChildSpec
        from actors.supervisor.child_process import ChildProcess
        from logstore.config_placement import Placement

        spec = ChildSpec("egress", 1, "", "", 1, {}, 3, "", 4, {}, Placement())

        def live_and_die():
            return ChildProcess(lambda _: None, spec, (), now_ns=0).reap()

        live_and_die()
        opened, objects = os.listdir("/proc/self/fd"), len(gc.get_objects()) + gc.get_freeze_count()
        statuses = {live_and_die() for _ in range(200)}
        tell(statuses, os.listdir("/proc/self/fd") == opened)
        tell(len(gc.get_objects()) + gc.get_freeze_count() - objects < 100)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            tell("no child")
    """)
    assert said == ["{0} True", "True", "no child"], errors


def test_a_process_with_another_thread_forks_no_child() -> None:
    said, errors = run("""
        ends = threading.Event()
        thread = threading.Thread(target=ends.wait)
        thread.start()
        try:
            fork_child(lambda: tell("ran"), lifeline=lifeline, descriptors=())
        except Exception as error:
            tell(type(error).__name__, error)
        ends.set()
    """)
    assert said == ["InvariantViolated a fork with 2 threads: the supervisor has one (M3)"], errors
