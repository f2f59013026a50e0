"""Named cursors on real replicas: through the death of their leader, a restart of all, and the
command line; two archives of one name do not overtake each other.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import logstore
from logstore.errors import CursorMoved
from tests.cluster.one_cluster import run_cli
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


@pytest.mark.long
def test_cursors_outlive_their_leader_and_a_restart_of_all(tmp_path: Path) -> None:
    with quick_cluster(tmp_path, quick_config()) as cluster:
        with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
            admin = log.admin
            assert admin.set_cursor("archive", 7, hold=True, expected_lsn=0) == 0
            assert admin.set_cursor("gone", 1) == 0
            assert admin.delete_cursor("gone", expected_lsn=1) == 1
            with pytest.raises(CursorMoved) as caught:
                admin.set_cursor("archive", 9, expected_lsn=3)
            assert caught.value.lsn == 7

            leader = cluster.wait_for_leader()
            cluster.kill(leader)
            assert admin.cursors() == [logstore.Cursor("archive", 7, True)]
            assert admin.set_cursor("archive", 9, hold=True, expected_lsn=7) == 7
            cluster.start(leader)

            cluster.kill_all()
            cluster.start_all()
            cluster.wait_for_leader(RECOVERY_TIMEOUT_S)
            assert admin.cursors() == [logstore.Cursor("archive", 9, True)]
            assert admin.set_cursor("replay", 1) == 0

        assert run_cli(cluster, "cursor", "set", "archive", "12", "--expect", "9").returncode == 0
        assert run_cli(cluster, "cursor", "set", "archive", "15", "--expect", "9").returncode == 4
        listed = run_cli(cluster, "cursor", "list", "--json", "-")
        assert json.loads(listed.stdout) == {
            "cursors": [
                {"name": "archive", "lsn": 12, "hold": False},
                {"name": "replay", "lsn": 1, "hold": False},
            ]
        }
        assert run_cli(cluster, "cursor", "delete", "replay").returncode == 0
        assert run_cli(cluster, "cursor", "delete", "replay").returncode == 1
