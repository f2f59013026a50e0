"""Members of a real cluster come and go under load: nothing is lost, and no append fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from logstore import Members
from logstore.cli.embedded import poll_until
from logstore.errors import LevelRefused
from tests.faults.growing_cluster import (
    PATIENCE_S,
    GrowingCluster,
    Load,
    growing_cluster,
    growing_config,
)
from tests.faults.quick_cluster import GONE_TIMEOUT_S, members

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def voters(cluster: GrowingCluster) -> list[int]:
    return sorted(each.number for each in cluster.members().members if each.role == "voter")


@pytest.mark.long
def test_one_replica_grows_to_three_and_five_and_shrinks_to_three(tmp_path: Path) -> None:
    with growing_cluster(tmp_path, 1) as cluster:
        with Load(cluster) as load:
            for size in (2, 3, 4, 5):
                cluster.join(cluster.add_machine())
                load.more()
                assert voters(cluster) == list(range(1, size + 1))
            for _ in range(2):
                leader = cluster.members().leader
                with cluster.connect() as log:
                    log.admin.remove_member(leader)
                load.more()
                cluster.wait_for_role(leader, "")
                cluster.stop(leader)
                load.more()
            assert len(voters(cluster)) == 3
        load.check()


@pytest.mark.long
def test_a_lost_disk_is_replaced_without_an_operator(tmp_path: Path) -> None:
    with growing_cluster(tmp_path, 3) as cluster:
        with Load(cluster) as load:
            before = cluster.members()
            lost = next(each.number for each in before.members if each.number != before.leader)
            load.more()
            cluster.lose_disk(lost)
            known = before.member(lost)
            assert known is not None

            def is_replaced() -> bool:
                member = cluster.members().member(lost)
                return member is not None and member.role == "voter" and member.uuid != known.uuid

            assert poll_until(is_replaced, PATIENCE_S), cluster.said()
            load.more()
            other = next(each for each in (1, 2, 3) if each not in (lost, cluster.members().leader))
            cluster.kill(other)  # the new one counts now
            load.more()
            cluster.start(other)
        load.check()


@pytest.mark.long
@pytest.mark.promise("P1", "P3")
def test_a_replica_whose_folder_is_removed_ends_and_comes_back_as_a_new_one(tmp_path: Path) -> None:
    """SAFETY M2, FAULTS D21: nothing that it flushes counts in a majority any more."""
    with growing_cluster(tmp_path, 3) as cluster:
        with Load(cluster) as load:
            before = cluster.members()
            node = next(each.number for each in before.members if each.number != before.leader)
            session = cluster.session(node)
            load.more()
            with (cluster.node_folder(node) / "log").open() as said:  # it goes with the folder
                shutil.rmtree(cluster.node_folder(node))
                assert poll_until(lambda: not cluster.is_running(node), GONE_TIMEOUT_S)
                assert f"the data folder {cluster.node_folder(node)} was removed" in said.read()
            assert poll_until(lambda: not members(session), GONE_TIMEOUT_S)
            load.more()
            cluster.start(node)
            known = before.member(node)
            assert known is not None

            def is_new(found: Members) -> bool:
                member = found.member(node)
                return member is not None and member.role == "voter" and member.uuid != known.uuid

            cluster.wait_for(is_new)
            load.more()
        load.check()
        cluster.check_equal()


@pytest.mark.long
def test_a_cluster_moves_to_other_ports_replica_by_replica(tmp_path: Path) -> None:
    with growing_cluster(tmp_path, 3) as cluster:
        with Load(cluster) as load:
            for old in (1, 2, 3):
                new = cluster.add_machine()
                host, port = cluster.address(new)
                with cluster.connect() as log:
                    log.admin.replace_member(old, f"{host}:{port}")
                cluster.start(new)
                cluster.wait_for_role(old, "")
                assert cluster.role(new) == "voter"
                cluster.stop(old)
                load.more()
            assert voters(cluster) == [4, 5, 6]
        load.check()


@pytest.mark.long
def test_an_old_disk_that_returns_disturbs_nothing(tmp_path: Path) -> None:
    with growing_cluster(tmp_path, 3) as cluster:
        with Load(cluster) as load:
            load.more()
            lost = next(each for each in (1, 2, 3) if each != cluster.members().leader)
            cluster.kill(lost)
            old = tmp_path / "old"
            shutil.copytree(cluster.node_folder(lost), old, symlinks=True)
            shutil.rmtree(cluster.node_folder(lost))
            cluster.start(lost)
            cluster.wait_for(lambda found: found.id >= 5 and len(voters(cluster)) == 3)
            cluster.kill(lost)
            shutil.rmtree(cluster.node_folder(lost))
            old.rename(cluster.node_folder(lost))
            cluster.start(lost)
            load.more(2_000)
            found = cluster.members().member(lost)
            assert found is not None
        load.check()


def test_below_the_level_of_configurations_members_stay_who_they_are(tmp_path: Path) -> None:
    with GrowingCluster(tmp_path, growing_config(1)) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        with cluster.connect() as log, pytest.raises(LevelRefused, match="upgrade"):
            log.admin.add_member(2, "127.0.0.1", 9_000)
