"""A cluster whose log does not begin at LSN 1 (P1): bounds, reads, verification, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.cli.exit_status import ExitStatus
from logstore.errors import InvalidRequest, OutOfRange
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from tests.cluster.one_cluster import run_cli

pytestmark = pytest.mark.slow
FIRST_LSN = 7_001
FORM_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = make_small_config(3, Random())
    cluster_settings = msgspec.structs.replace(config.cluster, auto_init=False)
    config = msgspec.structs.replace(config, cluster=cluster_settings)
    with EmbeddedCluster(tmp_path_factory.mktemp("first-lsn"), config) as cluster:
        cluster.start_all()
        with logstore.connect(cluster.endpoints) as log:
            log.admin.initialize(first_lsn=FIRST_LSN, timeout_s=FORM_TIMEOUT_S)
        cluster.wait_for_leader()
        yield cluster


@pytest.fixture
def log(cluster: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=30.0) as log:
        yield log


@pytest.mark.promise("P1")
def test_p1_an_empty_log_begins_where_it_was_told_to(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    assert log.admin.commit_lsn() == FIRST_LSN - 1
    for node in cluster.nodes:
        marks = log.admin.watermarks(replica=node)
        assert (marks.log_start_lsn, marks.visible_lsn) == (FIRST_LSN, FIRST_LSN - 1)
    with pytest.raises(OutOfRange) as refused:
        list(log.read(1, 10))
    assert (refused.value.first, refused.value.last) == (FIRST_LSN, FIRST_LSN - 1)
    with log.consumer("earliest") as consumer:
        assert consumer.position == FIRST_LSN
        assert consumer.poll(0.2) == []
    with log.consumer(1) as consumer, pytest.raises(OutOfRange):
        consumer.poll(10.0)
    assert log.admin.verify().is_good


def test_asking_again_changes_nothing_and_asking_for_another_one_is_refused(
    log: logstore.LogClient,
) -> None:
    log.admin.initialize(first_lsn=FIRST_LSN)
    with pytest.raises(InvalidRequest, match=f"begins at LSN {FIRST_LSN}, not at 1"):
        log.admin.initialize()


@pytest.mark.promise("P1")
def test_appends_reads_and_restarts_go_on_from_there(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    with log.producer() as producer:
        firsts = [producer.append_batch([b"a", b"b"]).result().first for _ in range(3)]
    assert firsts == [FIRST_LSN, FIRST_LSN + 2, FIRST_LSN + 4]
    cluster.kill_all()
    cluster.start_all()
    cluster.wait_for_leader()
    last = log.admin.commit_lsn()
    assert last == FIRST_LSN + 5
    for node in cluster.nodes:
        records = [
            (record.lsn, record.payload)
            for batch in log.read(FIRST_LSN, last, replica=node, min_lsn=last)
            for record in batch.records()
        ]
        assert records == [(FIRST_LSN + at, b"ab"[at % 2 :][:1]) for at in range(6)]
    found = log.admin.verify()
    assert found.is_good
    assert {row.payloads for row in found.replicas} == {6}
    status = log.admin.status()
    assert (status["log_start_lsn"], status["commit_lsn"]) == (FIRST_LSN, last)


def test_people_see_it_too(cluster: EmbeddedCluster) -> None:
    with logstore.connect(cluster.endpoints) as log, log.producer() as producer:
        lsn = producer.append(b"seen").result().first
    done = run_cli(cluster, "consume", "--from", "earliest")
    assert done.returncode == ExitStatus.DONE, done.stderr
    assert done.stdout.splitlines()[-1] == b"seen"
    assert len(done.stdout.splitlines()) == lsn - FIRST_LSN + 1
    done = run_cli(cluster, "consume", "--from", "1")
    assert done.returncode == ExitStatus.REFUSED, done.stdout
    assert str(FIRST_LSN).encode() in done.stderr
    meta = run_cli(None, "inspect", "meta", str(cluster.node_folder(2) / "meta.a"), "--json", "-")
    assert meta.returncode == ExitStatus.DONE, meta.stderr
    assert msgspec.json.decode(meta.stdout)["log_start_next_lsn"] == FIRST_LSN
    segment = min(cluster.node_folder(2).glob("*.raft"))
    assert segment.stat().st_size > SEGMENT_HEADER_SIZE
    done = run_cli(None, "inspect", "segment", str(segment), "--json", "-")
    assert msgspec.json.decode(done.stdout)["first_lsn"] == FIRST_LSN
