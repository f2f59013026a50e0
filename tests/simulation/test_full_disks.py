"""A cluster whose disks are full, all or one that is left behind, and the way out of it: a trim
(SAFETY S9, G5).
"""

from __future__ import annotations

from functools import partial

import pytest

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.oracle.reach import Reach
from logstore.client.core.cursor_admin import Cursor, Cursors
from logstore.client.core.operating import trim
from logstore.client.core.steps import Steps
from logstore.errors import OutOfRange
from logstore.format.level import CONFIG_LEVEL, TRIM_LEVEL
from logstore.limits import POSITION_MAX
from tests.simulation.quiet_cluster import SECOND_NS, QuietCluster


class Clearer:
    """Trims to `before`, or as far as the leader allows. A subject."""

    ask_every_ns = SECOND_NS

    def __init__(self, inquirer: Inquirer, before: int = POSITION_MAX) -> None:
        self._inquirer = inquirer
        self._before = before

    def ask(self) -> Steps[None]:
        cluster = self._inquirer.cluster()
        try:
            yield from trim(cluster, self._before)
        except OutOfRange as bounds:
            yield from trim(cluster, bounds.last)


class Archive:
    """Moves its cursor as often as it may, as one that goes on while disks are full. A subject."""

    ask_every_ns = SECOND_NS // 50

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._lsn = 1 << 40  # it is in no trim's way
        self.moves = 0

    def ask(self) -> Steps[None]:
        host, routing, _ = self._inquirer.cluster()
        self._lsn += 1
        cursors = Cursors(host, routing, timeout_s=1)
        yield from cursors.change(Cursor("archive", self._lsn, True), None)
        self.moves += 1


def full_nodes(stage: QuietCluster) -> list[int]:
    cores = stage.cluster.observer.cores
    return [node for node in cores if cores[node]._state.is_disk_full]


def appends(stage: QuietCluster) -> int:
    return stage.workload.appends_acknowledged


def fill(stage: QuietCluster, nodes: list[int]) -> None:
    """Until nothing is acknowledged any more."""
    for node in nodes:
        stage.replica(node).disk.fill()
    before = -1
    while before < appends(stage):
        before = appends(stage)
        stage.run_for(5 * SECOND_NS)
    assert set(full_nodes(stage)) == set(nodes)


@pytest.mark.parametrize("is_leader_full", [True, False])
def test_a_trim_ends_the_state_of_full_disks(is_leader_full: bool) -> None:
    """Nobody else makes space. What followers take until their leader knows that they are full
    leaves room for the TRIM."""
    stage = QuietCluster(segment_bytes=32 << 10, groups_in_flight=1, new_log_level=TRIM_LEVEL)
    stage.workload._add("producer-1", stage.workload._make_producer)
    stage.run_for(3 * SECOND_NS)
    leaders = [] if is_leader_full else stage.leaders
    fill(stage, [node for node in stage.cluster.nodes if node not in leaders])
    before = appends(stage)
    stage.workload._add_inquirer("trimmer-1", Clearer)
    stage.run_for(20 * SECOND_NS)
    assert appends(stage) > before + 40
    assert stage.problems == []


@pytest.mark.long
@pytest.mark.parametrize("level", [TRIM_LEVEL, CONFIG_LEVEL])
@pytest.mark.parametrize("is_leader_full", [True, False])
def test_a_trim_is_taken_however_long_an_archive_goes_on_with_full_disks(
    is_leader_full: bool, level: int
) -> None:
    """One replica is down, so the other two must have room for the TRIM, however much more of it
    the leader has; and for a CONFIG, where the newest one is the first entry of the log."""
    stage = QuietCluster(segment_bytes=32 << 10, groups_in_flight=1, new_log_level=level)
    stage.workload._add("producer-1", stage.workload._make_producer)
    stage.run_for(3 * SECOND_NS)
    down = stage.follower
    stage.replica(down).kill(for_good=True)
    spared = [down] if is_leader_full else [down, *stage.leaders]
    fill(stage, [node for node in stage.cluster.nodes if node not in spared])
    archives: list[Archive] = []
    stage.workload._add_inquirer("keeper-1", partial(begin, archives))
    stage.run_for(20 * SECOND_NS)
    (archive,) = archives
    moves = archive.moves
    assert moves > 4
    stage.run_for(10 * SECOND_NS)
    assert archive.moves == moves, "what is left is for a TRIM"
    before = appends(stage)
    stage.workload._add_inquirer("trimmer-1", Clearer)
    stage.run_for(20 * SECOND_NS)
    # until the disk is full again: which segments the TRIM frees is drawn (9 and 39 were seen)
    assert appends(stage) > before + 5
    assert stage.problems == []


def begin(archives: list[Archive], inquirer: Inquirer) -> Archive:
    archives.append(Archive(inquirer))
    return archives[-1]


@pytest.mark.long
@pytest.mark.parametrize(("share", "is_kept"), [(0.3, True), (0.6, True), (2.0, False)])
def test_a_full_follower_that_is_far_behind_follows_the_log_start(
    share: float, *, is_kept: bool
) -> None:
    """It has no room to reach the TRIM. Where the log start lies within what it has, it keeps what
    follows; it drops a log that ends below. Either way it goes on."""
    stage = QuietCluster(segment_bytes=32 << 10, groups_in_flight=1, new_log_level=TRIM_LEVEL)
    for number in range(4):
        stage.workload._add(f"producer-{number}", stage.workload._make_producer)
    stage.run_for(30 * SECOND_NS)
    node, cores = stage.follower, stage.cluster.observer.cores
    stage.replica(node).disk.fill()
    stage.run_for(20 * SECOND_NS)
    shown = cores[node].visible_lsn or 0
    stage.run_for(20 * SECOND_NS)
    assert (cores[node].visible_lsn, full_nodes(stage)) == (shown, [node])
    assert (cores[stage.leaders[0]].visible_lsn or 0) > 1.5 * shown
    stage.workload._add_inquirer("trimmer-1", partial(Clearer, before=int(shown * share) + 1))
    stage.run_for(6 * SECOND_NS)
    starts = {core.log_start for core in cores.values()}
    assert [start.next_lsn > shown * share * 0.9 for start in starts] == [True]
    assert (cores[node].visible_lsn or 0) > 1.2 * shown
    reached = stage.cluster.reach.counts()
    assert (Reach.START_TAKEN_WHILE_FULL.name in reached) == is_kept
    assert (Reach.LOG_INSTALLED.name in reached) != is_kept
    assert stage.problems == []
