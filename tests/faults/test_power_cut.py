"""All three replicas lose power under load, again and again: nothing acknowledged is lost
(FAULTS P3, D1).

kill -9 keeps the page cache; these cuts do not. Half of them come right after a kill and a
restart, when the page cache holds bytes that the disk may not (SAFETY section 4, step 3).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_config
from logstore.config import Config
from logstore.errors import LogStoreError, OutOfRange
from logstore.limits import MIB
from logstore.settings import LimitSettings, RaftSettings, RetentionSettings, StorageSettings
from tests.faults import power
from tests.faults.unflushed import skip_data_flushes

CUTS = 10
ACKNOWLEDGED_PER_ROUND = 60
_PATIENCE = logstore.ProducerOptions(append_timeout_s=3, delivery_timeout_s=3)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(280),
    pytest.mark.skipif(bool(power.why_not()), reason=power.why_not()),
]


class Load:
    """A producer that appends numbered payloads in batches until it is told to stop, in a
    thread.
    """

    def __init__(self, endpoints: list[str], start: int, *, megabytes: int = 0) -> None:
        self.acknowledged: dict[int, bytes] = {}  # LSN: payload
        self._payload_bytes = 10_000 if megabytes else 300
        self._wanted = max(ACKNOWLEDGED_PER_ROUND, megabytes * MIB // self._payload_bytes)
        self._endpoints = endpoints
        self._next = start
        self._stop = threading.Event()
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for_acknowledgements(self, timeout_s: float) -> None:
        assert self._enough.wait(timeout_s), "the cluster acknowledged too little in time"

    def stop(self) -> int:
        """Returns the number of the next payload."""
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self._next

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with (
                    logstore.connect(self._endpoints, timeout=3) as log,
                    log.producer(_PATIENCE) as producer,
                ):
                    while not self._stop.is_set():
                        self._append(producer)
            except LogStoreError:
                self._stop.wait(0.2)  # the power is gone, or a slow machine took too long

    def _append(self, producer: logstore.Producer) -> None:
        sent = []
        for size in (1, 3, 40):
            payloads = [
                b"payload %d " % (self._next + n) + b"." * self._payload_bytes for n in range(size)
            ]
            self._next += size
            sent.append((payloads, producer.append_batch(payloads)))
        for payloads, future in sent:
            lsns = future.result(30)
            for lsn, payload in zip(range(lsns.first, lsns.last + 1), payloads, strict=True):
                self.acknowledged[lsn] = payload
            if len(self.acknowledged) > self._wanted:
                self._enough.set()


def _config(retention: RetentionSettings) -> Config:
    small = make_config(3, Random(7))
    return msgspec.structs.replace(
        small,
        retention=retention,
        raft=RaftSettings(heartbeat="60ms", election_timeout="400ms"),
        storage=StorageSettings(segment="4MiB", segment_records=4_096),
        limits=LimitSettings(
            batch_max="512KiB", group_max="256KiB", ring="16MiB", bulk_window="2MiB"
        ),
    )


class Site:
    """A cluster whose replicas each have a disk that can lose its power."""

    def __init__(
        self, folder: Path, undo: ExitStack, retention: RetentionSettings | None = None
    ) -> None:
        config = _config(retention or RetentionSettings())
        self.cluster = undo.enter_context(EmbeddedCluster(folder, config))
        self.disks: list[power.PowerDisk] = []
        for node in self.cluster.nodes:
            disk = power.PowerDisk(folder, self.cluster.node_folder(node))
            undo.callback(disk.close)
            undo.callback(self.cluster.kill_all)
            self.disks.append(disk)
        self.expected: dict[int, bytes] = {}
        self.log_start = 1  # of the replica that keeps least
        self._next = 0

    def run_until_cut(self, *, is_restarted_first: bool, megabytes: int = 0) -> None:
        """One life: load, so much of it at least, then (perhaps a kill -9 and a restart, then) the
        power goes everywhere."""
        self.cluster.start_all()
        self.cluster.wait_for_leader()
        load = Load(self.cluster.endpoints, self._next, megabytes=megabytes)
        try:
            load.wait_for_acknowledgements(60)
            if is_restarted_first:
                self.cluster.kill_all()
                self.cluster.start_all()
                self.cluster.wait_for_leader()
            for disk in self.disks:
                disk.cut()
        finally:
            self.cluster.kill_all()
            self._next = load.stop()
        self.expected |= load.acknowledged
        for disk in self.disks:
            disk.restore()

    def losses(self, *, patience_s: float = 60) -> list[int]:
        """LSNs of acknowledged payloads that a replica does not give back, or gives back otherwise.
        What a replica's retention gave up is not lost."""
        self.cluster.start_all()
        self.cluster.wait_for_leader(patience_s)
        lost: list[int] = []
        with logstore.connect(self.cluster.endpoints, timeout=30) as log:
            last = log.admin.watermarks(linearizable=True).visible_lsn
            for node in self.cluster.nodes:
                self.cluster.wait_until_visible(node, last, patience_s)
                lost += self._losses_on(log, node, last)
            if not lost:
                verification = log.admin.verify()
                assert verification.chains_equal
                assert not any(replica.faulty for replica in verification.replicas)
        return lost

    def _losses_on(self, log: logstore.LogClient, node: int, last: int) -> list[int]:
        found: dict[int, bytes] = {}
        try:
            for batch in log.read(self._start(log, node), last, replica=node):
                found |= dict(enumerate(batch.payloads(), batch.first_lsn))
        except OutOfRange as gone:  # retention goes on meanwhile
            assert gone.first <= self._start(log, node)
            return self._losses_on(log, node, last)
        except LogStoreError:
            pass  # damage: what lies behind it was not given back
        start = self._start(log, node)
        kept = ((lsn, payload) for lsn, payload in self.expected.items() if lsn >= start)
        return [lsn for lsn, payload in kept if found.get(lsn) != payload]

    def _start(self, log: logstore.LogClient, node: int) -> int:
        start = log.admin.watermarks(replica=node).log_start_lsn
        self.log_start = max(self.log_start, start)
        return start


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as undo:
        yield Site(tmp_path, undo)


@pytest.mark.long
@pytest.mark.promise("P5")
def test_ten_power_cuts_of_all_replicas_lose_nothing_acknowledged(site: Site) -> None:
    for cut in range(CUTS):
        site.run_until_cut(is_restarted_first=cut % 2 == 1)
    assert len(site.expected) > CUTS * ACKNOWLEDGED_PER_ROUND
    assert site.losses() == []
    assert site.log_start == 1


@pytest.mark.long
def test_the_power_cut_check_fails_when_the_data_flush_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_data_flushes(tmp_path, monkeypatch)
    with ExitStack() as undo:
        site = Site(tmp_path, undo)
        site.run_until_cut(is_restarted_first=False)
        assert site.expected
        monkeypatch.delenv("PYTHONPATH")
        try:
            losses = site.losses(patience_s=15)
        except LogStoreError:
            losses = sorted(site.expected)  # no replica could even lead: everything is gone
        assert losses
