"""A log restored from the batches of another one, on real replicas (P1): through a leader's death
half way, equal to the byte, and then a log like any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config
from logstore.errors import ImportRefused, OutOfRange
from logstore.format.batch import encode_batch

pytestmark = pytest.mark.slow
FORM_TIMEOUT_S = 60.0
FIRST_LSN = 5_001
ROUNDS = 400


def foreign_batches() -> list[bytes]:
    """What a log may hold: many producers, epochs, sizes; about 5 MB."""
    random = Random(11)
    return [
        encode_batch(
            [random.randbytes(random.choice((0, 1, 100, 3_000))) for _ in range(1 + number % 7)],
            producer_id=1 + random.getrandbits(63), producer_epoch=1 + number % 3,
            sequence=random.getrandbits(40), timestamp_ns=number,
        )
        for number in range(ROUNDS * 3)
    ]  # fmt: skip


BATCHES = foreign_batches()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = make_small_config(3, Random())
    cluster_settings = msgspec.structs.replace(config.cluster, auto_init=False)
    config = msgspec.structs.replace(config, cluster=cluster_settings)
    folder: Path = tmp_path_factory.mktemp("importing")
    with EmbeddedCluster(folder, config) as cluster:
        cluster.start_all()
        with logstore.connect(cluster.endpoints) as log:
            log.admin.initialize(first_lsn=FIRST_LSN, timeout_s=FORM_TIMEOUT_S)
        cluster.wait_for_leader()
        yield cluster


@pytest.fixture
def log(cluster: EmbeddedCluster) -> Iterator[logstore.LogClient]:
    with logstore.connect(cluster.endpoints, timeout=FORM_TIMEOUT_S) as log:
        yield log


def digest_of(batches: list[bytes], first_lsn: int) -> logstore.BatchDigest:
    """What the source says: computed without the log."""
    digest = logstore.BatchDigest()
    for data in batches:
        count = int.from_bytes(data[12:16], "little")
        digest.add(first_lsn, count, data)
        first_lsn += count
    return digest


@pytest.mark.promise("P2")
def test_an_import_survives_the_death_of_the_leader_and_is_equal_everywhere(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    killed = 0

    def source() -> Iterator[bytes]:
        nonlocal killed
        for number, batch in enumerate(BATCHES):
            if number == len(BATCHES) // 2:
                killed = cluster.wait_for_leader()
                cluster.kill(killed)
            yield batch

    end = log.admin.import_batches(FIRST_LSN, source())
    expected = digest_of(BATCHES, FIRST_LSN)
    assert end == expected.last_lsn + 1
    assert log.admin.commit_lsn() == expected.last_lsn
    cluster.start(killed)
    cluster.wait_until_visible(killed, expected.last_lsn)
    for node in cluster.nodes:
        found = log.digest(FIRST_LSN, end - 1, replica=node, min_lsn=end - 1)
        assert found.hexdigest() == expected.hexdigest(), f"node {node}"
    assert log.admin.verify().is_good


def test_after_a_restart_of_all_the_import_goes_on_where_it_ended(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    """Begun again from the middle: what is there is compared, the rest is new."""
    end = log.admin.commit_lsn() + 1
    cluster.kill_all()
    cluster.start_all()
    cluster.wait_for_leader()
    half = len(BATCHES) // 2
    middle = digest_of(BATCHES[:half], FIRST_LSN).last_lsn + 1
    assert log.admin.import_batches(middle, [*BATCHES[half:], *BATCHES[:9]]) > end
    expected = digest_of([*BATCHES, *BATCHES[:9]], FIRST_LSN)
    found = log.digest(FIRST_LSN, expected.last_lsn, min_lsn=expected.last_lsn)
    assert found.hexdigest() == expected.hexdigest()
    with pytest.raises(ImportRefused, match="another batch"):
        log.admin.import_batches(FIRST_LSN, BATCHES[1:])
    with pytest.raises(OutOfRange):
        log.admin.import_batches(expected.last_lsn + 2, BATCHES)
    with pytest.raises(OutOfRange):
        log.admin.import_batches(1, BATCHES)


def test_then_it_is_a_log_like_any_other_and_takes_no_import_any_more(
    cluster: EmbeddedCluster, log: logstore.LogClient
) -> None:
    before = log.admin.commit_lsn()
    with log.producer() as producer:
        assert producer.append_batch([b"new", b"life"]).result().first == before + 1
    cluster.stop_all()
    cluster.start_all()
    cluster.wait_for_leader()
    with log.producer() as producer:
        assert producer.append(b"and on").result().first == before + 3
    with pytest.raises(ImportRefused, match="sessions were opened"):
        log.admin.import_batches(before + 4, BATCHES[:1])
    assert log.admin.commit_lsn() == before + 3
    whole = log.digest(FIRST_LSN, before + 3, replica=1, min_lsn=before + 3)
    assert whole.payloads == before + 3 - FIRST_LSN + 1
    assert log.admin.verify().is_good
    records = [record.payload for record in log.consumer(before + 1, end_lsn=before + 3)]
    assert records == [b"new", b"life", b"and on"]
