"""Three replicas with short timeouts and small segments, and the proof that they leave nothing
behind.

Every replica's supervisor leads a session of its own, and children stay in it: a process that
outlives the cluster is found by its session, whatever it calls itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import msgspec

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.config import Config
from logstore.settings import LimitSettings, ProcessSettings, RaftSettings, StorageSettings
from tests.cluster.one_cluster import left_in_shared_memory
from transport.shm import SHARED_MEMORY_FOLDER

ELECTION_TIMEOUT_S = 0.4
# Python processes on two shared cores: a restarted replica is back within seconds, not at once, and
# much later while the machine has much else to do.
RECOVERY_TIMEOUT_S = 60.0
GONE_TIMEOUT_S = 30.0
LAG_MAX = 500  # payloads: a few groups


def quick_config(
    *,
    segment: str = "2MiB",
    ring: str = "8MiB",
    process: ProcessSettings | None = None,
) -> Config:
    """Elections within a second; a segment is full after a few hundred small groups. `process`: for
    tests that are about a layout; else as the environment says."""
    config = make_config(3, Random())
    return msgspec.structs.replace(
        config,
        raft=RaftSettings(heartbeat="60ms", election_timeout="400ms"),
        storage=StorageSettings(segment=segment, segment_records=2_048),
        limits=LimitSettings(batch_max="256KiB", group_max="128KiB", ring=ring, bulk_window="1MiB"),
        process=process or config.process,
    )


class QuickCluster(EmbeddedCluster):
    """An embedded cluster that remembers which sessions it ever started."""

    def __init__(self, folder: Path, config: Config) -> None:
        super().__init__(folder, config)
        self.sessions: set[int] = set()

    def start(self, node: int) -> None:
        super().start(node)
        self.sessions.add(self._running[node].pid)

    def followers(self) -> list[int]:
        leader = self.wait_for_leader()
        return [node for node in self.nodes if node != leader]

    def session(self, node: int) -> int:
        """The session, and process group, of a running replica: its supervisor's pid."""
        return self._running[node].pid

    def said(self) -> str:
        """The last words of each replica, for messages about a failure."""
        return self._logs()

    def wait_until_caught_up(self, node: int) -> None:
        """As an operator does before the next one: the replica shows almost all of a moving log."""

        def has_caught_up() -> bool:
            newest = max(self.visible_lsn(other) for other in self.nodes)
            return self.visible_lsn(node) >= newest - LAG_MAX

        assert poll_until(has_caught_up, RECOVERY_TIMEOUT_S), self.said()

    def visible_everywhere(self, nodes: list[int] | None = None) -> int:
        """Wait until every replica runs and those of `nodes` (None: all) show all that is
        committed; the last LSN.
        """
        self.start_all()
        self.wait_for_leader(RECOVERY_TIMEOUT_S)
        with logstore.connect(self.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
            last = log.admin.commit_lsn()
        for node in nodes or self.nodes:
            self.wait_until_visible(node, last, RECOVERY_TIMEOUT_S)
        return last

    def wait_for_first_configuration(self) -> None:
        """A new log has one soon after its level is raised; its entries have bytes, too."""
        with logstore.connect(self.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
            assert poll_until(lambda: log.admin.members().id > 0, RECOVERY_TIMEOUT_S), self.said()

    def has_level(self, node: int, level: int) -> bool:
        return self.counters(node).get("format_level") == level

    def wait_for_level(self, level: int) -> None:
        """A new log is raised soon after its first leader has heard of every replica's version."""

        def is_there(node: int) -> bool:
            return self.counters(node).get("format_level", 0) >= level

        for node in self.nodes:
            assert poll_until(partial(is_there, node), RECOVERY_TIMEOUT_S), self.said()


def members(session: int) -> list[int]:
    """Processes of a session that still run; zombies do not."""
    return [pid for pid in _all_pids() if _session_of(pid) == session]


@contextmanager
def quick_cluster(folder: Path, config: Config) -> Iterator[QuickCluster]:
    """Three replicas with a leader, killed at the end, with nothing left behind."""
    names_before = set(os.listdir(SHARED_MEMORY_FOLDER))
    with QuickCluster(folder, config) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        yield cluster
    alive: list[int] = []

    def is_gone() -> bool:
        alive[:] = [pid for session in cluster.sessions for pid in members(session)]
        return not alive

    assert poll_until(is_gone, GONE_TIMEOUT_S), f"processes left behind: {alive}"
    assert poll_until(lambda: not left_in_shared_memory(names_before), GONE_TIMEOUT_S), (
        "left behind in shared memory"
    )


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session_of(pid: int) -> int:
    """0 for a process that is gone, or only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    state, _, _, session = stat[stat.rindex(b")") + 2 :].split()[:4]
    return 0 if state in (b"Z", b"X") else int(session)
