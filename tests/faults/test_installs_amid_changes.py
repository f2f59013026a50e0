"""The log start moves, and a follower that it has passed begins there, while a joint configuration
is under way; and a cluster that grows without a restart, whose rings are for fewer peers, is
written to as fast as it takes (SAFETY C7, G1, G5, W7)."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from logstore.cli.embedded import poll_until
from tests.faults.frequent_snapshots import append_snapshot
from tests.faults.growing_cluster import PATIENCE_S, GrowingCluster, Load, growing_cluster
from tests.faults.held_changes import JOINT, held_changes
from tests.faults.test_older_folders import status_of

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]
JOINING = 4
PAYLOAD_BYTES = 30_000


def trim(cluster: GrowingCluster, lsn: int) -> int:
    with cluster.connect() as log:
        return log.admin.trim(lsn)


def test_a_trim_and_an_install_while_a_joint_configuration_is_under_way(tmp_path: Path) -> None:
    """The follower that was away begins at a log start below the joint CONFIG, gets that after it,
    and counts by it. A trim above that CONFIG waits until the change is done."""
    with (
        held_changes(tmp_path) as held,
        growing_cluster(tmp_path, 3) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        assert cluster.add_machine() == JOINING
        with cluster.connect() as log:
            log.admin.add_member(JOINING, *cluster.address(JOINING))
        cluster.start(JOINING)
        cluster.wait_for_role(JOINING, "learner")
        away = cluster.followers()[0]
        cluster.kill(away)
        with cluster.connect() as log:
            for _ in range(2):
                append_snapshot(log)
            first = log.admin.commit_lsn()
            append_snapshot(log)
        waiting: Future[int]
        with Load(cluster) as load:
            with (
                cluster.changing(lambda admin: admin.promote_member(JOINING)),
                held.at(JOINT),
            ):
                held.wait(JOINT)
                assert cluster.members().is_joint
                assert trim(cluster, first) == first
                cluster.start(away)
                assert poll_until(
                    lambda: status_of(cluster, away).get("log_start_lsn") == first, PATIENCE_S
                ), cluster.said()
                cluster.wait_until_caught_up(away)
                members = status_of(cluster, away)["members"]
                assert members["is_joint"], members
                with cluster.connect() as log:
                    above = log.admin.commit_lsn()
                    append_snapshot(log)
                waiting = pool.submit(trim, cluster, above)
                load.more()
                assert status_of(cluster, cluster.wait_for_leader())["log_start_lsn"] == first
            begins = waiting.result(PATIENCE_S)  # with the group that has `above`, or right there
            assert first < begins <= above
            cluster.wait_for_role(JOINING, "voter")
            load.more()
            for node in (1, 2, 3, JOINING):
                assert poll_until(
                    lambda node=node: status_of(cluster, node).get("log_start_lsn") == begins,
                    PATIENCE_S,
                ), node
        assert load.error is None, load.error
        assert len(load.lsns) == load.appended
        cluster.check_equal()


def test_a_cluster_that_grew_from_one_to_five_without_a_restart_takes_all_that_comes(
    tmp_path: Path,
) -> None:
    """The ring of the founder is for no peer, each later one's for those that its file names."""
    with growing_cluster(tmp_path, 1) as cluster:
        founder = cluster.config.ring_bytes
        with Load(cluster) as grows:
            for _ in range(4):
                cluster.join(cluster.add_machine())
        window = cluster.config.limits.bulk_window_bytes
        assert cluster.config.ring_bytes >= founder + 4 * window, "of one that starts now"
        with Load(cluster, payload_bytes=PAYLOAD_BYTES) as load:
            load.more(1_000)
            cluster.kill(5)
            load.more(500)
            cluster.start(5)
            load.more(500)
        for each in (grows, load):
            each.check()
        cluster.check_equal()
