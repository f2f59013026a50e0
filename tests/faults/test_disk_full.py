"""A full disk is a state, not a crash: the leader lets go, reads go on, and appends too when there
is space (SAFETY S9).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import DiskFull, OutcomeUnknown, OutOfRange
from logstore.format.level import NEW_LOG_LEVEL
from logstore.limits import MIB
from tests.cluster.document_blocks import needs_curl, run_step, steps_of
from tests.faults import small_disk
from tests.faults.ledger import Load, read_all
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.skipif(bool(small_disk.why_not()), reason=small_disk.why_not()),
]
DISK_BYTES = 48 * MIB
UNKNOWN_MAX = 10
RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbooks" / "full-disk.md"
PAYLOAD = b"p" * 60_000
SHORT = logstore.ProducerOptions(append_timeout_s=2, delivery_timeout_s=2)


class Site:
    """A cluster whose replicas each have a small disk."""

    def __init__(self, folder: Path, undo: ExitStack) -> None:
        self.disks: dict[int, small_disk.SmallDisk] = {}
        for node in (1, 2, 3):
            disk = small_disk.SmallDisk(folder / f"node-{node}", DISK_BYTES)
            undo.callback(disk.close)
            self.disks[node] = disk
        config = quick_config(segment="1MiB")
        self.cluster: QuickCluster = undo.enter_context(quick_cluster(folder, config))
        self.cluster.wait_for_level(NEW_LOG_LEVEL)  # trims need it

    def full_nodes(self) -> list[int]:
        return [node for node in self.disks if self.cluster.counters(node).get("disk_full")]

    def fill_until_full(self, nodes: list[int], count: int) -> None:
        """Somebody fills the disks; appends use up what was prepared, until `count` are full."""
        for node in nodes:
            self.disks[node].fill()
        assert poll_until(lambda: len(self.full_nodes()) >= count, RECOVERY_TIMEOUT_S)

    def fill_until_full_by_appends(self, log: logstore.LogClient, count: int) -> None:
        """As `fill_until_full` on all nodes, where nobody else appends."""
        for disk in self.disks.values():
            disk.fill()
        with suppress(logstore.LogStoreError):
            _append_until_refused(log.producer(SHORT))
        assert poll_until(lambda: len(self.full_nodes()) >= count, RECOVERY_TIMEOUT_S)

    def make_space(self, nodes: list[int]) -> None:
        for node in nodes:
            self.disks[node].empty()
        assert poll_until(lambda: not self.full_nodes(), RECOVERY_TIMEOUT_S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as undo:
        yield Site(tmp_path_factory.mktemp("full"), undo)


@pytest.mark.long
def test_a_leader_whose_disk_is_full_hands_over_and_comes_back(site: Site) -> None:
    cluster = site.cluster
    with Load(cluster) as load, logstore.connect(cluster.endpoints, timeout=20) as log:
        full = cluster.wait_for_leader()
        incarnation = cluster.pid_of(full, "writer")
        site.fill_until_full([full], 1)
        assert poll_until(lambda: cluster.leader() not in (0, full), RECOVERY_TIMEOUT_S)
        load.wait_for_progress(20)
        shown = cluster.visible_lsn(full)
        delivered = read_all(log, full, first_lsn=1, last_lsn=shown)
        assert len(delivered.lsns) == shown
        rows = {row["node"]: row for row in log.admin.status()["nodes"]}
        assert rows[full]["is_disk_full"]
        assert rows[full]["role"] == "follower"
        site.make_space([full])
        load.wait_for_progress(20)
    load.assert_kept()
    assert cluster.pid_of(full, "writer") == incarnation, "a full disk is no crash"


@pytest.mark.long
def test_when_a_majority_is_full_appends_fail_in_time_and_go_on_with_space(site: Site) -> None:
    """Two full disks are no quorum, whoever leads."""
    cluster = site.cluster
    with Load(cluster) as load:
        site.fill_until_full(cluster.nodes, 2)
        with (
            logstore.connect(cluster.endpoints, timeout=20) as log,
            logstore.connect(cluster.endpoints, timeout=2) as hasty,
        ):
            # a leader hears with the next heartbeats that its followers are full
            assert poll_until(lambda: is_refused(hasty), RECOVERY_TIMEOUT_S)
            rows = log.admin.status()["nodes"]
            assert sum(row["is_disk_full"] for row in rows) >= 2
            for node in cluster.nodes:
                shown = cluster.visible_lsn(node)
                assert len(read_all(log, node, first_lsn=1, last_lsn=shown).lsns) == shown
        site.make_space(cluster.nodes)
        load.wait_for_progress(20)
    load.assert_kept()


@pytest.mark.long
@pytest.mark.runbook("full-disk")
@needs_curl
def test_the_runbook_ends_full_disks(site: Site, tmp_path: Path) -> None:
    """docs/runbooks/full-disk.md as it stands, with an LSN of this log. Nobody else makes space. A
    replica whose newest entries no leader has stays full: to truncate them it would need another
    segment."""
    cluster = site.cluster
    with (
        logstore.connect(cluster.endpoints, timeout=30) as log,
        logstore.connect(cluster.endpoints, timeout=2) as hasty,
    ):
        with log.producer() as producer:
            for future in [producer.append(PAYLOAD) for _ in range(100)]:
                lsn = future.result(30).first
        log.admin.set_cursor("archive", lsn - 50, hold=True)
        site.fill_until_full_by_appends(log, 2)
        assert poll_until(lambda: is_refused(hasty), RECOVERY_TIMEOUT_S)
        text = RUNBOOK.read_text(encoding="utf-8").replace("5000000", str(lsn))
        steps = steps_of(text)
        assert len(steps) == 8
        assert all(step.lines for step in steps)
        for step in steps:
            run_step(tmp_path, cluster.config, step)
        assert poll_until(lambda: len(site.full_nodes()) <= 1, RECOVERY_TIMEOUT_S)
        end = log.producer().append(PAYLOAD).result(30).first
        site.make_space(cluster.nodes)
        for node in cluster.nodes:
            assert len(read_all(log, node, first_lsn=lsn, last_lsn=end).lsns) == end - lsn + 1
            with pytest.raises(OutOfRange):
                read_all(log, node, first_lsn=1, last_lsn=10)


@pytest.mark.long
def test_a_single_replica_with_a_full_disk_says_so_to_its_producers(tmp_path: Path) -> None:
    with ExitStack() as undo:
        disk = small_disk.SmallDisk(tmp_path / "node-1", DISK_BYTES)
        undo.callback(disk.close)
        config = quick_config(segment="1MiB")
        alone = msgspec.structs.replace(config, nodes=config.nodes[:1])
        cluster = undo.enter_context(quick_cluster(tmp_path, alone))
        with (
            logstore.connect(cluster.endpoints, timeout=20) as log,
            logstore.connect(cluster.endpoints, timeout=6) as hasty,
        ):
            producer = log.producer(SHORT)
            disk.fill()
            with pytest.raises(logstore.LogStoreError, match="disk is full"):
                _append_until_refused(producer)
            with pytest.raises(DiskFull, match="free some space"):
                hasty.producer(SHORT)
            shown = cluster.visible_lsn(1)
            assert len(read_all(log, 1, first_lsn=1, last_lsn=shown).lsns) == shown
            disk.empty()
            assert log.producer().append(PAYLOAD).result(30).first > shown


def is_refused(log: logstore.LogClient) -> bool:
    """Whether a producer is refused."""
    try:
        log.producer(SHORT).close()
    except logstore.LogStoreError:
        return True
    return False


def _append_until_refused(producer: logstore.Producer) -> None:
    """What was accepted just before the disk was full may end unknown: the next one is told."""
    unknown = 0
    for _ in range(DISK_BYTES // len(PAYLOAD)):
        try:
            producer.append(PAYLOAD).result(30)
        except OutcomeUnknown as error:
            unknown += 1
            if "disk is full" in str(error) or unknown == UNKNOWN_MAX:
                raise
