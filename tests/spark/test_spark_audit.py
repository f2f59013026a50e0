"""Replicas, a lake and copies of folders, compared: what is planted is found, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest
from pyspark.sql import SparkSession

import logstore
from logstore.cli.embedded import EmbeddedCluster
from logstore.cli.main import main
from logstore.errors import InvalidRequest
from logstore.spark import audit as audit_module
from logstore.spark.audit import Audit, run_audit
from logstore.spark.audit_compare import Kind
from logstore.spark.audit_sources import Folder, Lake, Replica, Source
from logstore.spark.lake import data_path, read_manifest
from tests.spark.conftest import small_config
from tests.spark.lakes import append_some, archive_once, damage_payloads, lend
from tests.spark.rows import append
from tests.unit.folder_stage import flip_payload, forget, repeat

SINGLE = b"a payload that is an entry of its own, number %d"
FLIPPED, FORGOTTEN, REPEATED = 5, 9, 13  # of those
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A cluster of its own: the tests stop its replicas and take their folders."""
    with EmbeddedCluster(tmp_path_factory.mktemp("audited"), small_config()) as running:
        running.start_all()
        running.wait_for_leader()
        yield running


@pytest.fixture(scope="module")
def planted(stopped: EmbeddedCluster) -> Iterator[tuple[logstore.LogClient, int]]:
    """The log, and the LSN of the first of twenty payloads that are an entry each."""
    with logstore.connect(stopped.endpoints, timeout=TIMEOUT_S) as log:
        append_some(log)
        with log.producer() as producer:
            found = [
                producer.append(SINGLE % number).result(timeout=TIMEOUT_S).first
                for number in range(20)
            ]
        random = Random(2)
        append(log, *[[random.randbytes(900)] * 3 for _ in range(200)])
        append_some(log)
        yield log, found[0]


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("audited-lake")
    archive_once(spark, stopped, folder, "audited")
    append_some(planted[0])
    return folder


@pytest.fixture(scope="module")
def folder(stopped: EmbeddedCluster, lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the data folder of a follower that was stopped in between."""
    leader = stopped.wait_for_leader()
    node = next(each for each in stopped.nodes if each != leader)
    stopped.stop(node)
    copy = tmp_path_factory.mktemp("copies") / "whole"
    shutil.copytree(stopped.node_folder(node), copy, ignore=shutil.ignore_patterns("counters"))
    stopped.start(node)
    return copy


def replicas(cluster: EmbeddedCluster) -> list[Source]:
    return [Replica(",".join(cluster.endpoints), node, TIMEOUT_S) for node in cluster.nodes]


def audit(spark: SparkSession, *sources: Source, **changes: int | None) -> Audit:
    settings: dict[str, int | None] = {"first_lsn": None, "last_lsn": None, "bucket": 50}
    told: list[tuple[int, int]] = []
    found = run_audit(
        lambda: spark, sources, **(settings | changes), on_tasks=lambda *of: told.append(of)
    )  # type: ignore[arg-type]
    assert told[-1][0] == told[-1][1]
    return found


def wrong(found: Audit) -> list[tuple[str, Kind, int, int]]:
    return [(each.source, each.kind, each.first_lsn, each.last_lsn) for each in found.findings]


def status_of(call: list[str]) -> int:
    try:
        return main(call)
    except SystemExit as exit_:
        return int(exit_.code or 0)


def copy_of(folder: Path, tmp_path: Path, name: str = "copy") -> Path:
    return Path(shutil.copytree(folder, tmp_path / name))


def test_whole_replicas_lakes_and_folders_agree(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
) -> None:
    """They are of different lengths, and of none too short to be looked at."""
    found = audit(spark, *replicas(stopped), Lake(str(lake)), Folder(str(folder)))
    assert (found.findings, found.unanswered) == ([], {})
    last = planted[0].admin.commit_lsn()
    assert [(each.first_lsn, each.last_lsn) for each in found.verdicts[:3]] == [(1, last)] * 3
    assert len({each.digest for each in found.verdicts[:3]}) == 1
    assert [each.payloads for each in found.verdicts[:3]] == [last] * 3
    seam = read_manifest(str(lake)).next_lsn - 1
    assert found.verdicts[3].last_lsn == found.verdicts[3].payloads == seam
    assert seam < found.verdicts[4].last_lsn <= last


def test_one_flipped_byte_one_missing_and_one_doubled_lsn_are_found_and_nothing_else(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    first = planted[1]
    copies = [copy_of(folder, tmp_path, name) for name in ("flipped", "missing", "doubled")]
    flip_payload(copies[0], first + FLIPPED, SINGLE % FLIPPED)
    forget(copies[1], first + FORGOTTEN)
    repeat(copies[2], first + REPEATED)
    sources = [*replicas(stopped), Lake(str(lake)), *map(Folder, map(str, copies))]
    found = audit(spark, *sources)
    flipped, missing, doubled = (f"folder {copy}" for copy in copies)
    assert wrong(found) == [
        (flipped, Kind.DAMAGED, first + FLIPPED, first + FLIPPED),
        (flipped, Kind.PAYLOAD, first + FLIPPED, first + FLIPPED),
        (missing, Kind.MISSING, first + FORGOTTEN, first + FORGOTTEN),
        (doubled, Kind.DOUBLED, first + REPEATED, first + REPEATED),
    ]
    assert found.is_damaged
    assert ".data at byte" in found.findings[0].words


def test_all_three_in_one_folder_against_the_lake_alone(
    spark: SparkSession,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    """Of two there is no majority: where they differ both are named."""
    first, copy = planted[1], copy_of(folder, tmp_path)
    forget(copy, first + FORGOTTEN)
    repeat(copy, first + REPEATED)
    flip_payload(copy, first + FLIPPED, SINGLE % FLIPPED)
    found = audit(spark, Lake(str(lake)), Folder(str(copy)))
    assert wrong(found) == [
        (f"lake {lake}", Kind.PAYLOAD, first + FLIPPED, first + FLIPPED),
        (f"folder {copy}", Kind.DAMAGED, first + FLIPPED, first + FLIPPED),
        (f"folder {copy}", Kind.PAYLOAD, first + FLIPPED, first + FLIPPED),
        (f"folder {copy}", Kind.MISSING, first + FORGOTTEN, first + FORGOTTEN),
        (f"folder {copy}", Kind.DOUBLED, first + REPEATED, first + REPEATED),
    ]


def test_a_range_leaves_the_rest_alone_even_if_it_cuts_batches(
    spark: SparkSession,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
    tmp_path: Path,
) -> None:
    first, copy = planted[1], copy_of(folder, tmp_path)
    forget(copy, first + FORGOTTEN)
    sources = Lake(str(lake)), Folder(str(copy))
    assert wrong(audit(spark, *sources, last_lsn=first + FORGOTTEN - 1)) == []
    assert wrong(audit(spark, *sources, first_lsn=first + FORGOTTEN + 1)) == []
    assert wrong(audit(spark, *sources, first_lsn=2, last_lsn=first - 2)) == []
    assert len(wrong(audit(spark, *sources, first_lsn=2, last_lsn=first + FORGOTTEN))) == 1


def test_a_damaged_lake_file_is_a_row(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    tmp_path: Path,
) -> None:
    copy = copy_of(lake, tmp_path)
    file = read_manifest(str(copy)).files[1]
    path = Path(data_path(str(copy), file))
    damage_payloads(path)
    found = audit(spark, *replicas(stopped), Lake(str(copy)))
    assert wrong(found) == [(f"lake {copy}", Kind.DAMAGED, file.first_lsn, file.last_lsn)]
    (copy / "manifest.jsonl").write_bytes(b"?\n")
    found = audit(spark, *replicas(stopped), Lake(str(copy)))
    assert wrong(found) == [(f"lake {copy}", Kind.DAMAGED, 0, 0)]


def test_too_many_differing_buckets_are_told_and_not_listed(
    spark: SparkSession,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_module, "LISTED_LSNS_MAX", 3)
    first, copy = planted[1], copy_of(folder, tmp_path)
    for number in (FLIPPED, FORGOTTEN):
        flip_payload(copy, first + number, SINGLE % number)
    found = audit(spark, Lake(str(lake)), Folder(str(copy)), bucket=2)
    assert [each[1] for each in wrong(found)].count(Kind.PAYLOAD) == 2
    [rest] = [each for each in wrong(found) if each[1] == Kind.MORE]
    assert rest[2] <= first + FORGOTTEN <= rest[3]


def test_one_source_is_no_audit(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(InvalidRequest, match="two at least"):
        audit(spark, Lake(str(lake)))
    with pytest.raises(InvalidRequest, match="no source has any"):
        audit(spark, Lake(str(lake)), Lake(str(lake)), first_lsn=1 << 40)


def test_the_command_tells_by_its_exit_status(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    lake: Path,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(monkeypatch, spark, ["audit"])
    monkeypatch.delenv("LOGSTORE_ENDPOINT", raising=False)
    first = planted[1]
    copies = [copy_of(folder, tmp_path, name) for name in ("missing", "flipped")]
    forget(copies[0], first + FORGOTTEN)
    flip_payload(copies[1], first + FLIPPED, SINGLE % FLIPPED)
    call = ["pipeline", "audit", "--lake", str(lake)]
    assert status_of([*call, "--data", str(folder)]) == 0
    assert "all agree" in capsys.readouterr().err
    assert status_of([*call, "--data", str(copies[0])]) == 1
    assert f"LSN {first + FORGOTTEN} to {first + FORGOTTEN}: missing" in capsys.readouterr().err
    assert status_of([*call, "--data", str(copies[1]), "--json", "-"]) == 5
    told = msgspec.json.decode(capsys.readouterr().out)
    assert [each["kind"] for each in told["findings"]].count("damaged") == 1
    assert status_of(call) == 2


def test_a_replica_that_does_not_answer_is_told_and_the_others_compared(
    spark: SparkSession,
    stopped: EmbeddedCluster,
    planted: tuple[logstore.LogClient, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lend(monkeypatch, spark, ["audit"])
    leader = stopped.wait_for_leader()
    node = next(each for each in stopped.nodes if each != leader)
    stopped.stop(node)
    endpoint = stopped.endpoint(leader)
    call = ["pipeline", "audit", "--endpoint", endpoint, "--timeout", "3", "--json", "-"]
    assert status_of(call) == 3
    told = msgspec.json.decode(capsys.readouterr().out)
    assert list(told["unanswered"]) == [f"node {node}"]
    assert len(told["verdicts"]) == 2
    assert told["findings"] == []
    stopped.start(node)
    stopped.wait_until_visible(node, planted[0].admin.commit_lsn())


def test_a_running_replica_whose_disk_is_damaged_is_named(
    spark: SparkSession, stopped: EmbeddedCluster, planted: tuple[logstore.LogClient, int]
) -> None:
    """Its bytes are not served: the LSNs are told by the refusal, and the rest is read on."""
    leader = stopped.wait_for_leader()
    node = next(each for each in stopped.nodes if each != leader)
    lsn = planted[1] + FLIPPED
    flip_payload(stopped.node_folder(node), lsn, SINGLE % FLIPPED)
    found = audit(spark, *replicas(stopped))
    assert wrong(found) == [(f"node {node}", Kind.DAMAGED, lsn, lsn)]
    payloads = {each.source: each.payloads for each in found.verdicts}
    assert payloads[f"node {node}"] == payloads[f"node {leader}"] - 1
