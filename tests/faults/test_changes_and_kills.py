"""Members change while replicas die, forget or come back with what they had: no append fails,
nothing is lost, and the change ends (SAFETY section 12)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

import logstore
from logstore.cli.embedded import poll_until
from logstore.cli.free_ports import find_free_ports
from logstore.cli.replica_process import kill_replica, start_replica, wait_gone
from logstore.cli.trouble import trouble_of
from logstore.config import render_config
from logstore.errors import NotReady
from logstore.limits import MIB
from logstore.settings import NodeSettings
from tests.faults import small_disk
from tests.faults.frequent_snapshots import append_snapshot
from tests.faults.growing_cluster import PATIENCE_S, GrowingCluster, Load, growing_cluster
from tests.faults.held_changes import JOINT, TAKEN, HeldChanges, held_changes
from tests.faults.quick_cluster import RECOVERY_TIMEOUT_S
from tests.faults.test_older_folders import (
    copied,
    status_of,
    wait_until_it_says_why,
    wait_until_others_have_seen,
)

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]
FOUNDERS = [1, 2, 3]
JOINING = 4
DISK_BYTES = 24 * MIB
FILLER, FILLERS = b"f" * 60_000, 200


class Stage:
    """Three founders and a machine that joins and leaves."""

    def __init__(self, cluster: GrowingCluster, held: HeldChanges) -> None:
        self.cluster = cluster
        self.held = held
        assert cluster.add_machine() == JOINING

    def begin(self) -> None:
        """Three members that all run, and a machine with an empty folder that is none."""
        for node in FOUNDERS:
            if not self.cluster.is_running(node):
                self.cluster.start(node)
        if self.cluster.role(JOINING):
            self.remove()
        self.cluster.empty(JOINING)

    def reserve(self, node: int = JOINING) -> None:
        address = self.cluster.address(node)
        self.cluster.change(lambda admin: admin.add_member(node, *address))

    def join(self, node: int = JOINING) -> None:
        self.reserve(node)
        self.cluster.start(node)
        self.cluster.wait_for_role(node, "learner")

    def promote(self, node: int = JOINING) -> None:
        self.cluster.wait_for_role(node, "learner")
        self.cluster.change(lambda admin: admin.promote_member(node))

    def remove(self) -> None:
        self.cluster.change(lambda admin: admin.remove_member(JOINING))

    def row(self, node: int) -> dict[str, Any]:
        return status_of(self.cluster, node)

    def strike(self, victim: str) -> None:
        """Kill leader, joining one or both, and start them again."""
        struck = {
            "leader": [self.cluster.wait_for_leader()],
            "joining": [JOINING],
            "both": [self.cluster.wait_for_leader(), JOINING],
        }[victim]
        for node in dict.fromkeys(struck):
            if self.cluster.is_running(node):
                self.cluster.kill(node)
        for node in dict.fromkeys(struck):
            self.cluster.start(node)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder: Path = tmp_path_factory.mktemp("changes")
    with held_changes(folder) as held, growing_cluster(folder, len(FOUNDERS)) as cluster:
        yield Stage(cluster, held)


# --- a kill in each step ---


def _after_the_reserve(stage: Stage, victim: str) -> None:
    stage.reserve()
    stage.cluster.start(JOINING)
    stage.strike(victim)
    stage.promote()


def _after_the_join(stage: Stage, victim: str) -> None:
    stage.join()
    stage.strike(victim)
    stage.promote()


def _amid_promote(stage: Stage, victim: str) -> None:
    stage.join()
    with (
        stage.cluster.changing(lambda admin: admin.promote_member(JOINING)),
        stage.held.at(TAKEN),
    ):
        stage.held.wait(TAKEN)
        stage.strike(victim)


def _amid_the_joint_configuration(stage: Stage, victim: str) -> None:
    stage.join()
    with (
        stage.cluster.changing(lambda admin: admin.promote_member(JOINING)),
        stage.held.at(JOINT),
    ):
        stage.held.wait(JOINT)
        stage.strike(victim)


def _amid_remove(stage: Stage, victim: str) -> None:
    stage.join()
    stage.promote()
    with (
        stage.cluster.changing(lambda admin: admin.remove_member(JOINING)),
        stage.held.at(JOINT),
    ):
        stage.held.wait(JOINT)
        stage.strike(victim)


@pytest.mark.parametrize("victim", ["leader", "joining", "both"])
@pytest.mark.parametrize(
    "change",
    [
        _after_the_reserve,
        _after_the_join,
        _amid_promote,
        _amid_the_joint_configuration,
        _amid_remove,
    ],
    ids=lambda change: change.__name__.strip("_"),
)
def test_a_change_ends_whoever_is_killed_in_which_step(stage: Stage, change, victim: str) -> None:
    with Load(stage.cluster) as load:
        stage.begin()
        change(stage, victim)
        wanted = "" if change is _amid_remove else "voter"
        stage.cluster.wait_for_role(JOINING, wanted)
        load.more()
    load.check()
    stage.cluster.check_equal()


def test_ten_changes_in_a_row_under_kills(stage: Stage) -> None:
    """Each time another replica, at any moment."""
    random = Random(15)
    stage.begin()
    address = stage.cluster.address(JOINING)
    row = (
        lambda admin: admin.add_member(JOINING, *address),
        lambda admin: admin.promote_member(JOINING),
        lambda admin: admin.remove_member(JOINING),
    )
    with Load(stage.cluster) as load:
        for number in range(10):
            with stage.cluster.changing(row[number % 3]):
                struck = random.choice(FOUNDERS)
                load.more(random.randrange(1, 40))
                stage.cluster.kill(struck)
                load.more(50)
                stage.cluster.start(struck)
            if number % 3 == 0:
                stage.cluster.start(JOINING)
                stage.cluster.wait_for_role(JOINING, "learner")
            elif number % 3 == 2:
                stage.cluster.wait_for_role(JOINING, "")
                stage.cluster.empty(JOINING)
        stage.promote()
    load.check()
    stage.cluster.check_equal()


# --- other trouble ---


def test_a_dead_node_is_removed_while_another_dies_and_comes_back(stage: Stage) -> None:
    cluster = stage.cluster
    with Load(cluster) as load:
        stage.begin()
        dead, other = (each for each in FOUNDERS if each != cluster.wait_for_leader())
        cluster.kill(dead)
        with (
            cluster.changing(lambda admin: admin.remove_member(dead)),
            stage.held.at(JOINT),
        ):
            stage.held.wait(JOINT)
            cluster.kill(other)
            cluster.start(other)
        assert cluster.role(dead) == ""
        load.more()
        cluster.empty(dead)
        stage.join(dead)
        stage.promote(dead)
    load.check()
    cluster.check_equal()


@pytest.fixture
def second(stage: Stage) -> Iterator[Second]:
    """A second replica with the number of the one that joins, at another address."""
    made = Second(stage.cluster)
    yield made
    made.kill()


class Second:
    def __init__(self, cluster: GrowingCluster) -> None:
        (self.port,) = find_free_ports(1, Random())
        own = NodeSettings(node=JOINING, port=self.port)
        nodes = [*(each for each in cluster.config.nodes if each.node != JOINING), own]
        path = cluster.folder / "second.toml"
        config = msgspec.structs.replace(cluster.config, nodes=nodes)
        path.write_text(render_config(config), encoding="utf-8")
        folder = cluster.folder / "second"
        self._process = start_replica(path, JOINING, folder, dies_with_us=True)

    def kill(self) -> None:
        kill_replica(self._process)
        assert wait_gone(self._process, RECOVERY_TIMEOUT_S)

    def trouble(self) -> str:
        """What its own status says is wrong with it."""
        try:
            with logstore.connect([f"127.0.0.1:{self.port}"], timeout=1) as log:
                rows = log.admin.status()["nodes"]
        except logstore.LogStoreError as error:
            return str(error)
        return trouble_of(next(row for row in rows if row["node"] == JOINING))


def test_two_joins_for_one_number_and_the_disk_of_the_one_that_lost_it(
    stage: Stage, second: Second
) -> None:
    """The second one says why it has no place. It gets the number once the first one is removed;
    what was on the first one's disk disturbs nothing."""
    cluster = stage.cluster
    with Load(cluster) as load:
        stage.begin()
        stage.join()
        stage.promote()
        host, port = cluster.address(JOINING)
        words = f"node {JOINING} is at {host}:{port}: join under another number"
        assert poll_until(lambda: words in second.trouble(), PATIENCE_S), second.trouble()
        first = cluster.members().member(JOINING)
        assert first is not None
        cluster.kill(JOINING)
        stage.remove()
        cluster.change(lambda admin: admin.add_member(JOINING, host, second.port))
        cluster.start(JOINING)  # what the number was given away from
        stage.promote()
        assert poll_until(lambda: "is_leader" in cluster.counters(JOINING), PATIENCE_S)
        load.more()
        now = cluster.members().member(JOINING)
        assert now is not None
        assert (now.role, now.port) == ("voter", second.port)
        assert now.uuid != first.uuid
        assert cluster.counters(JOINING)["is_leader"] == 0
        stage.remove()
    load.check()
    cluster.check_equal()


def test_an_older_copy_of_a_folder_is_put_back_amid_a_change(stage: Stage, tmp_path: Path) -> None:
    """Its replica takes no further part, and the change ends without it. With an empty folder it
    gets its place again."""
    cluster = stage.cluster
    with Load(cluster) as load:
        stage.begin()
        stage.join()
        forgets = next(each for each in FOUNDERS if each != cluster.wait_for_leader())
        folder = cluster.node_folder(forgets)
        assert cluster.stop(forgets)
        kept = copied(folder, tmp_path / "kept")
        cluster.start(forgets)
        cluster.wait_until_caught_up(forgets)
        wait_until_others_have_seen(cluster, forgets)
        with (
            cluster.changing(lambda admin: admin.promote_member(JOINING)),
            stage.held.at(JOINT),
        ):
            stage.held.wait(JOINT)
            cluster.empty(forgets)
            copied(kept, folder)
            cluster.start(forgets)
            wait_until_it_says_why(cluster, forgets)
        assert cluster.role(JOINING) == "voter"
        before = cluster.members().member(forgets)
        assert before is not None
        cluster.lose_disk(forgets)

        def is_replaced(found: logstore.Members) -> bool:
            member = found.member(forgets)
            return member is not None and member.is_voter and member.uuid != before.uuid

        cluster.wait_for(is_replaced)
    load.check()
    cluster.check_equal()


def test_a_member_whose_limits_differ_is_named_and_stops_nothing(stage: Stage) -> None:
    cluster = stage.cluster
    limits = msgspec.structs.replace(cluster.config.limits, batch_max="192KiB")
    with Load(cluster) as load:
        stage.begin()
        stage.reserve()
        cluster.start_with(JOINING, msgspec.structs.replace(cluster.config, limits=limits))
        stage.promote()

        def is_named() -> bool:
            return stage.row(cluster.wait_for_leader())["other_limits"] == [JOINING]

        assert poll_until(is_named, PATIENCE_S)
        assert f"node {JOINING}" in trouble_of(stage.row(cluster.wait_for_leader()))
        load.more()
        stage.strike("leader")
        load.more()
    load.check()
    cluster.check_equal()


def test_a_replica_joins_while_the_log_start_moves_above_its_place(stage: Stage) -> None:
    """The log start stays below the newest CONFIG, so the trim commits the members once more
    first. The joining replica begins at the log start."""
    cluster = stage.cluster
    stage.begin()
    stage.reserve()
    before = cluster.members()
    with cluster.connect() as log:
        for _ in range(2):
            append_snapshot(log)
        first = log.admin.commit_lsn()
        append_snapshot(log)
        with Load(cluster) as load:
            load.more()
            assert log.admin.trim(first) == first
            renewed = cluster.members()
            assert renewed.id == before.id + 1
            assert [(each.number, each.role) for each in renewed.members] == [
                (each.number, each.role) for each in before.members
            ]
            cluster.start(JOINING)
            cluster.wait_for_role(JOINING, "learner")
            cluster.wait_until_caught_up(JOINING)
            assert stage.row(JOINING)["log_start_lsn"] == first
            stage.promote()
        load.check()
    cluster.check_equal()


@pytest.mark.skipif(bool(small_disk.why_not()), reason=small_disk.why_not())
def test_a_learner_whose_disk_is_full_stays_one_and_can_be_removed(stage: Stage) -> None:
    cluster = stage.cluster
    stage.begin()
    with ExitStack() as undo:
        disk = small_disk.SmallDisk(cluster.node_folder(JOINING), DISK_BYTES)
        undo.callback(disk.close)
        undo.callback(lambda: cluster.is_running(JOINING) and cluster.kill(JOINING))
        with Load(cluster) as load:
            stage.join()
            disk.fill()
            with cluster.connect() as log, log.producer() as producer:
                for _ in range(FILLERS):
                    producer.append(FILLER)
                producer.flush(PATIENCE_S)
                assert poll_until(
                    lambda: bool(cluster.counters(JOINING).get("disk_full")), PATIENCE_S
                )
                with pytest.raises(NotReady, match=f"node {JOINING} reports a full disk"):
                    log.admin.promote_member(JOINING, timeout=2)
            load.more()
            assert cluster.role(JOINING) == "learner"
            stage.remove()
            load.more()
        load.check()
        cluster.check_equal()
