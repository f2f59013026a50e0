"""Trims while something breaks: the leader dies at each step of one, its clock is wrong, all
replicas lose power (SAFETY G1, G2, G4)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

import logstore
from actors.ingress.retention import LOOK_EVERY_NS
from logstore.cli.embedded import poll_until
from logstore.errors import LogStoreError
from logstore.settings import RetentionSettings
from tests.faults import power
from tests.faults.ledger import Load
from tests.faults.patched_processes import patched
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)
from tests.faults.test_power_cut import Site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PAYLOADS = 10_000  # of PAYLOAD: five segments
PAYLOAD = b"x" * 1_000
LOOKS_S = 2 * LOOK_EVERY_NS / 1e9
HOUR_NS = 3_600 * 10**9
CUTS = 4

# The writer whose supervisor's pid is in the file with a step's name dies with its replica there.
STEPS = {
    "committed": ("Trims._read", "before"),
    "before META": ("Trims._save", "before"),
    "after META": ("Folder.save_log_start", "after"),
    "one pair is gone": ("LogWriter.remove_pairs", "after"),
    "all pairs are gone": ("Trims._moved", "before"),
}
_KILLER = """
import os
import signal

from actors.writer.folder import Folder
from actors.writer.trims import Trims
from logstore.storage.log_writer import LogWriter

FOLDER = {folder!r}
OWNERS = {{"Trims": Trims, "Folder": Folder, "LogWriter": LogWriter}}


def strike(step):
    path = os.path.join(FOLDER, step)
    try:
        with open(path) as flag:
            pid = int(flag.read() or 0)
    except FileNotFoundError:
        return
    if pid == os.getppid():
        os.unlink(path)
        os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def struck(call, step, when):
    def work(*arguments):
        if when == "before":
            strike(step)
        result = call(*arguments)
        if when == "after":
            strike(step)
        return result

    return work


for step, (target, when) in {steps!r}.items():
    owner, name = target.split(".")
    setattr(OWNERS[owner], name, struck(getattr(OWNERS[owner], name), step, when))
"""
_CLOCK = """
import os

from actors.real_clock import RealClock

FOLDER = {folder!r}
read_clock = RealClock.wall_ns


def wall_ns(clock):
    try:
        with open(os.path.join(FOLDER, str(os.getppid()))) as offset:
            return read_clock(clock) + int(offset.read() or 0)
    except FileNotFoundError:
        return read_clock(clock)


RealClock.wall_ns = wall_ns
"""


def append(log: logstore.LogClient, payloads: int = PAYLOADS) -> None:
    with log.producer() as producer:
        for _ in range(payloads):
            producer.append(PAYLOAD)


def starts(cluster: QuickCluster) -> list[int]:
    """The first LSN of each replica's log, as its counters have it."""
    return [cluster.counters(node).get("log_start_lsn", 0) for node in cluster.nodes]


def data_files(cluster: QuickCluster, node: int) -> int:
    return len(list(cluster.node_folder(node).glob("*.data")))


def check_log(cluster: QuickCluster, log: logstore.LogClient, first: int) -> None:
    """Every replica begins there, gives its segments back, and has all that follows."""
    last = cluster.visible_everywhere()
    assert poll_until(lambda: starts(cluster) == [first] * 3, RECOVERY_TIMEOUT_S), starts(cluster)
    for node in cluster.nodes:
        read = sum(len(batch) for batch in log.read(first, last, replica=node))
        assert read == last - first + 1
    assert log.admin.verify().is_good


@pytest.fixture(scope="module")
def deadly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[QuickCluster, Path]]:
    """A cluster, and the folder in which its flags are."""
    folder = tmp_path_factory.mktemp("deadly")
    lines = _KILLER.format(folder=str(folder), steps=STEPS)
    with patched("killer", lines, folder), quick_cluster(folder, quick_config()) as cluster:
        yield cluster, folder


@pytest.mark.long
@pytest.mark.parametrize("step", STEPS)
def test_a_leader_that_dies_amid_a_trim_loses_nothing_and_ends_it_later(
    deadly: tuple[QuickCluster, Path], step: str
) -> None:
    cluster, folder = deadly
    flag = folder / step
    with logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        append(log)
        last = cluster.visible_everywhere()
        leader = cluster.wait_for_leader()
        before = data_files(cluster, leader)
        with Load(cluster) as load:
            flag.write_text(str(cluster.session(leader)))
            with suppress(LogStoreError):
                log.admin.trim(last)
            assert poll_until(lambda: not cluster.is_running(leader), RECOVERY_TIMEOUT_S)
            assert not flag.exists()
            load.wait_for_progress(20)
            cluster.start(leader)
            first = log.admin.trim(last)
            assert last - 1_000 < first <= last
        load.assert_kept()
        check_log(cluster, log, first)
        assert poll_until(lambda: data_files(cluster, leader) <= before - 2, RECOVERY_TIMEOUT_S)


@pytest.mark.long
def test_nothing_is_given_up_for_its_age_while_the_leader_s_clock_is_wrong(tmp_path: Path) -> None:
    clocks = tmp_path / "clocks"
    clocks.mkdir()
    config = msgspec.structs.replace(quick_config(), retention=RetentionSettings(age="1s"))
    with (
        patched("clock", _CLOCK.format(folder=str(clocks)), tmp_path),
        quick_cluster(tmp_path, config) as cluster,
        logstore.connect(cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log,
    ):
        leader = cluster.wait_for_leader()
        offset = clocks / str(cluster.session(leader))
        offset.write_text(str(HOUR_NS))

        def is_off() -> bool:
            return bool(cluster.counters(leader)["age_trims_off"])

        assert poll_until(is_off, RECOVERY_TIMEOUT_S)
        append(log)
        time.sleep(LOOKS_S)  # what there is gets older than 1 s
        append(log, 10)
        time.sleep(LOOKS_S)
        assert is_off()
        assert starts(cluster) == [1, 1, 1]
        offset.unlink()
        assert poll_until(lambda: not is_off(), RECOVERY_TIMEOUT_S)
        append(log, 10)
        assert poll_until(lambda: min(starts(cluster)) > PAYLOADS // 2, RECOVERY_TIMEOUT_S)
        assert log.admin.verify().is_good


@pytest.fixture
def forgetful_site(tmp_path: Path) -> Iterator[Site]:
    """Its log keeps two segments of 4 MiB; each disk can lose its power."""
    with ExitStack() as undo:
        yield Site(tmp_path, undo, RetentionSettings(bytes="8MiB"))


@pytest.mark.long
@pytest.mark.skipif(bool(power.why_not()), reason=power.why_not())
def test_power_cuts_of_all_replicas_amid_trims_lose_nothing_that_is_kept(
    forgetful_site: Site,
) -> None:
    site = forgetful_site
    highest = 0
    for cut in range(CUTS):
        site.run_until_cut(is_restarted_first=cut % 2 == 1, megabytes=12)
        assert site.losses() == []
        assert site.log_start >= highest
        highest = site.log_start
    with logstore.connect(site.cluster.endpoints, timeout=RECOVERY_TIMEOUT_S) as log:
        # a leader looks once a second, and takes a snapshot first: a life may be shorter
        assert poll_until(
            lambda: log.admin.watermarks().log_start_lsn > len(site.expected) // 2,
            RECOVERY_TIMEOUT_S,
        )
    assert site.losses() == []
