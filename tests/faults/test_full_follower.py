"""A follower whose disk is full and who is far behind, when the log start moves (SAFETY G5, S9)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.errors import OutOfRange
from tests.faults import small_disk
from tests.faults.ledger import read_all
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S, QuickCluster
from tests.faults.test_disk_full import PAYLOAD, Site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(150),
    pytest.mark.skipif(bool(small_disk.why_not()), reason=small_disk.why_not()),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as undo:
        yield Site(tmp_path_factory.mktemp("full"), undo)


@pytest.mark.long
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_full_follower_that_is_far_behind_gives_back_what_a_trim_frees(
    site: Site, *, is_killed: bool
) -> None:
    """It has no room to reach the TRIM. It keeps what the trim left of its log, and catches up from
    there. One that is killed is told of the log start again."""
    cluster = site.cluster
    with logstore.connect(cluster.endpoints, timeout=30) as log:
        first = log.admin.trim(append(log, 1))  # of what other tests left
        append(log, 300)
        cluster.visible_everywhere()
        full = cluster.followers()[0]
        site.disks[full].fill()
        for _ in range(10):
            if full not in site.full_nodes():
                last = append(log, 20)
                assert poll_until(
                    partial(_shows_or_is_full, site, full, last), RECOVERY_TIMEOUT_S
                ), cluster.said()
        assert site.full_nodes() == [full]
        end = append(log, 80)  # with what it missed before, less than the trim frees
        has, newest = cluster.visible_lsn(full), pair_files(cluster, full)[-1]
        assert has <= end - 60, "it may still take some of the first"
        kept = log.admin.trim((first + has) // 2)
        if is_killed:
            cluster.kill(full)
            cluster.start(full)
        assert poll_until(lambda: not site.full_nodes(), RECOVERY_TIMEOUT_S), cluster.said()
        cluster.visible_everywhere()
        assert newest in pair_files(cluster, full), "it started over"
        assert len(read_all(log, full, first_lsn=kept, last_lsn=end).lsns) == end - kept + 1
        with pytest.raises(OutOfRange):
            read_all(log, full, first_lsn=first, last_lsn=kept - 1)
        site.make_space([full])


def _shows_or_is_full(site: Site, node: int, lsn: int) -> bool:
    return node in site.full_nodes() or site.cluster.visible_lsn(node) >= lsn


def append(log: logstore.LogClient, count: int) -> int:
    """The LSN of the last of so many payloads, acknowledged."""
    with log.producer() as producer:
        futures = [producer.append(PAYLOAD) for _ in range(count)]
        return [future.result(30).first for future in futures][-1]


def pair_files(cluster: QuickCluster, node: int) -> list[str]:
    """The data files of a replica's segments, the newest last."""
    return sorted(path.name for path in cluster.node_folder(node).rglob("*.data"))
