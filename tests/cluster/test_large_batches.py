"""`batch_max` raised to its wall: one batch of 16 MiB goes everywhere that a small one does."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.errors import BatchTooLarge
from logstore.limits import MIB
from logstore.settings import LimitSettings, StorageSettings

pytestmark = pytest.mark.slow
TIMEOUT_S = 60.0
PAYLOADS = [bytes([number]) * MIB for number in range(15)] + [b"", b"the last one"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    config = msgspec.structs.replace(
        make_config(3, Random()),
        storage=StorageSettings(segment="64MiB"),
        limits=LimitSettings(batch_max="16MiB", ring="128MiB", bulk_window="16MiB"),
    )
    with EmbeddedCluster(tmp_path_factory.mktemp("large"), config) as cluster:
        cluster.start_all()
        cluster.wait_for_leader()
        yield cluster


def read(log: logstore.LogClient, lsns: logstore.LsnRange, replica: int) -> list[bytes]:
    found = log.read(lsns.first, lsns.last, replica=replica, min_lsn=lsns.last)
    [batch] = list(found)
    assert batch.is_whole
    return batch.payloads()


@pytest.mark.long
@pytest.mark.promise("P4")
def test_a_batch_of_16_mib_is_on_every_replica_through_a_change_of_leader_and_a_restart(
    cluster: EmbeddedCluster,
) -> None:
    with logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
        assert log.batch_max_bytes() == 16 * MIB
        with log.producer() as producer:
            first = producer.append_batch(PAYLOADS).result(TIMEOUT_S)
            cluster.kill(cluster.wait_for_leader())
            second = producer.append_batch(PAYLOADS[::-1]).result(TIMEOUT_S)
            with pytest.raises(BatchTooLarge):
                producer.append_batch([*PAYLOADS, bytes(MIB)])
        assert second.first == first.last + 1
        cluster.start_all()
        for node in cluster.nodes:
            cluster.wait_until_visible(node, second.last)
            assert read(log, first, node) == PAYLOADS
            assert read(log, second, node) == PAYLOADS[::-1]
        with log.consumer("earliest", end_lsn=second.last) as records:
            assert [record.payload for record in records] == PAYLOADS + PAYLOADS[::-1]
        assert log.admin.verify().is_good
