"""SIGTERM under load: the leader hands over before it goes, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.ledger import stop_the_leader_under_load
from tests.faults.quick_cluster import quick_cluster, quick_config

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_stopped_leader_has_handed_over_before_it_is_gone(tmp_path: Path) -> None:
    with quick_cluster(tmp_path, quick_config()) as cluster:
        stop_the_leader_under_load(cluster)
        assert cluster.stop_all(), "a stop needed SIGKILL"
