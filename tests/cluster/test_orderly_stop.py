"""SIGTERM under load: the leader hands over before it goes, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import Load
from tests.faults.quick_cluster import quick_cluster, quick_config

pytestmark = pytest.mark.slow


def test_a_stopped_leader_has_handed_over_before_it_is_gone(tmp_path: Path) -> None:
    with quick_cluster(tmp_path, quick_config()) as cluster:
        with Load(cluster) as load:
            leader = cluster.wait_for_leader()
            assert cluster.stop(leader), "the stop needed SIGKILL"
            # Another one leads already: nobody had to wait for an election timeout.
            assert cluster.leader() not in (0, leader)
            load.wait_for_progress(20)
            cluster.start(leader)
        load.assert_kept()
        assert cluster.stop_all(), "a stop needed SIGKILL"
