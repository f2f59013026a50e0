"""Random changes of the members amid loss, crashes and partitions: every promise holds, and the
cluster heals."""

from __future__ import annotations

from itertools import pairwise

import pytest

from logstore.raft.configuration import is_joint
from tests.paper.member_cluster import MemberCluster, majorities_meet

STEPS = 6_000


@pytest.mark.parametrize("seed", range(12))
def test_promises_hold_while_members_change(seed: int) -> None:
    cluster = MemberCluster(seed)
    cluster.run(STEPS)
    cluster.heal_and_settle()
    check_configurations(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 116))
def test_promises_hold_while_members_change_for_longer(seed: int) -> None:
    cluster = MemberCluster(seed)
    cluster.run(4 * STEPS)
    cluster.heal_and_settle()
    check_configurations(cluster)


def check_configurations(cluster: MemberCluster) -> None:
    """I18: one after another, and the majorities of two that follow each other meet."""
    committed = cluster.committed_configurations()
    assert [each.id for each in committed] == list(range(1, len(committed) + 1))
    for before, after in pairwise(committed):
        assert majorities_meet(before, after)
        assert not (is_joint(before) and is_joint(after))
