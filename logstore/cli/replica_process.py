"""A replica's supervisor, seen from another process: start it, recognise it, stop it, kill it.

Owns the identity of such a process: its pid and the kernel's start tick, so that a recycled pid is
never signalled. Must not know what a cluster is. Invariant: a supervisor leads a session and
process group of its own, which has this replica's processes and no others; a signal to that group
reaches nothing else.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from logstore.errors import Unreachable
from logstore.storage.disk import make_folder_durable

LOG_NAME = "log"
SUPERVISOR_LOCK_NAME = "supervisor.lock"  # `held_folder.LOCK_NAME`: slow to import
LOG_TAIL_BYTES = 2_000
REAP_TIMEOUT_S = 10.0


class ReplicaProcess(msgspec.Struct, frozen=True):
    """Which process a supervisor is. `start_tick`: field 22 of /proc/PID/stat; no later process
    with the same pid has the same.
    """

    node: int
    pid: int
    dir: str
    start_tick: int


def start_replica(
    config_path: Path, node: int, folder: Path, *, dies_with_us: bool
) -> ReplicaProcess:
    """Start the supervisor of `node`, detached, its output appended to `folder`/log.

    Args:
      config_path: the TOML file.
      node: the node id.
      folder: its data folder; made if it is missing.
      dies_with_us: whether the kernel kills it when the calling thread ends, for any reason; then
        call from the main thread.
    """
    make_folder_durable(folder)
    command = [sys.executable, "-m", "logstore.cli.detached_replica"]
    command += [str(config_path), str(node), str(folder)]
    if dies_with_us:
        command.append(str(os.getpid()))
    log = str(folder / LOG_NAME)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, each) for each in _inheritable()),
        ],
        setsid=True,
    )
    # Only this process reaps it, and a zombie keeps its entry in /proc: the tick is there even if
    # it died.
    return ReplicaProcess(node, pid, str(folder), start_tick(pid) or 0)


def _inheritable() -> list[int]:
    """Descriptors that a child would inherit. The caller may hold a lock by one of them, and its
    release would be waited for as long as the replica runs."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own, closed by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def start_tick(pid: int) -> int | None:
    """When the process began, in clock ticks since boot; None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; the fields after it are numbers.
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def is_alive(process: ReplicaProcess) -> bool:
    """Whether it runs: it exists, is the one we started, and is no zombie."""
    if start_tick(process.pid) != process.start_tick:
        return False
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] not in (b"Z", b"X")


def supervisors_in(folder: Path) -> list[int]:
    """Pids of the supervisors that work in data folders of a cluster's folder, by the
    kernel's list of locks, also of those that this command did not start."""
    locks = list(folder.glob(f"node-*/{SUPERVISOR_LOCK_NAME}"))
    pids = set()
    with suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, pid, *_ = line.split()
            if kind == "FLOCK" and any(_has_open(int(pid), lock) for lock in locks):
                pids.add(int(pid))
    return sorted(pids)


def _has_open(pid: int, file: Path) -> bool:
    """Numbers of files are unique on one file system only, so the process itself is asked."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if descriptor.samefile(file):
                    return True
    return False


def send_stop(process: ReplicaProcess) -> None:
    """Ask for an orderly stop: SIGTERM to the supervisor, which hands leadership over first."""
    _send(process, signal.SIGTERM)


def kill_replica(process: ReplicaProcess) -> None:
    """SIGKILL every process of the replica; nothing happens if its supervisor is gone (SAFETY M3).

    The children of a dead supervisor are killed by the kernel, so its group needs no signal then.
    """
    if start_tick(process.pid) == process.start_tick:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def signal_replica(process: ReplicaProcess, number: int) -> None:
    """Send a signal, SIGSTOP for example, to every process of the replica."""
    if start_tick(process.pid) == process.start_tick:
        os.killpg(process.pid, number)


def wait_gone(process: ReplicaProcess, timeout_s: float) -> bool:
    """Wait until the supervisor has ended, at most `timeout_s`; whether it has. Reaps our own
    child.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        if start_tick(process.pid) != process.start_tick:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(int(timeout_s * 1_000)):
            return False
        with suppress(ChildProcessError):  # not our child: init reaps it
            os.waitid(os.P_PIDFD, descriptor, os.WEXITED)
        return True
    finally:
        os.close(descriptor)


def finish_stop(process: ReplicaProcess, timeout_s: float) -> bool:
    """Wait for a replica that was asked to stop, SIGKILL its group if it does not go; whether it
    went alone.

    Raises:
      Unreachable: it did not even go after SIGKILL (a process stuck in the kernel).
    """
    if wait_gone(process, timeout_s):
        return True
    kill_replica(process)
    if not wait_gone(process, REAP_TIMEOUT_S):
        raise Unreachable(
            f"process {process.pid} of node {process.node} does not end: it hangs in the kernel, "
            "look at its disk"
        )
    return False


def log_tail(process: ReplicaProcess) -> str:
    """The last lines that the replica wrote, for messages about its end."""
    try:
        with open(Path(process.dir) / LOG_NAME, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
    except OSError:
        return ""


def _send(process: ReplicaProcess, number: int) -> None:
    """Signal through a pidfd: between check and signal the pid cannot change hands."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if start_tick(process.pid) == process.start_tick:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)
