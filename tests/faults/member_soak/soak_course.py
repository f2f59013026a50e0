"""A cluster under load whose disks are lost and whose nodes are replaced, one after the other, with
kills between.

Owns the course, and the proof that nothing was lost. Invariant: nothing else breaks before every
member is whole again, so no append has a reason to fail.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import getpid
from pathlib import Path
from random import Random

import msgspec

import logstore
from benchmarks.soak_load import POLL_S, TIMEOUT_S, LoadResult, LoadSpec, Payloads
from logstore.cli.embedded import make_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.config import Config
from logstore.settings import RetentionSettings, StorageSettings
from tests.faults.growing_cluster import GrowingCluster

REPLICAS = 3
WHOLE_TIMEOUT_S = 300.0
END_TIMEOUT_S = 300.0
LOAD_MODULE = "benchmarks.soak_load"
BATCH = 20
# What a lost disk has to be filled with again, and what the log keeps of hours.
RETENTION, SEGMENT = "256MiB", "64MiB"


class SoakSettings(msgspec.Struct, frozen=True):
    """What happens. `rate` counts payloads a second, `change_every_s` and `kill_every_s` seconds
    from one to the next."""

    seconds: float = 1_800.0
    rate: float = 2_000.0
    payload_bytes: int = 1_024
    seed: int = 1
    change_every_s: float = 120.0
    kill_every_s: float = 20.0


class Event(msgspec.Struct, frozen=True):
    """What broke, how long after the beginning, and after how long all members were whole again."""

    kind: str
    node: int
    at_s: float
    whole_after_s: float


class Outcome(msgspec.Struct, frozen=True):
    """`load`: of all appends, `slowest_ms` the longest from append to acknowledgement. `read`:
    payloads that were read back and found right. `configuration`: the id of the last one."""

    events: list[Event]
    load: LoadResult
    read: int
    configuration: int
    are_equal: bool
    seconds: float


def soak_config() -> Config:
    return msgspec.structs.replace(
        make_config(REPLICAS, Random()),
        storage=StorageSettings(segment=SEGMENT),
        retention=RetentionSettings(bytes=RETENTION),
    )


class Reader:
    """Reads every payload in a thread, from whichever replica, and compares it with what has to be
    there."""

    def __init__(self, endpoints: list[str], first_lsn: int, payload_bytes: int) -> None:
        self.next_lsn = self.first_lsn = first_lsn
        self.error: BaseException | None = None
        self._endpoints = endpoints
        self._payloads = Payloads(payload_bytes)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)

    def wait_until(self, last_lsn: int) -> None:
        """It has read that far, or failed."""
        poll_until(lambda: self.next_lsn > last_lsn or bool(self.error), END_TIMEOUT_S)
        if self.error is not None:
            raise self.error
        assert self.next_lsn == last_lsn + 1, f"read up to LSN {self.next_lsn - 1} of {last_lsn}"

    def _run(self) -> None:
        try:
            with (
                logstore.connect(self._endpoints, timeout=TIMEOUT_S) as log,
                log.consumer(self.first_lsn) as consumer,
            ):
                while not self._stop.is_set():
                    for batch in consumer.poll(POLL_S):
                        assert batch.first_lsn == self.next_lsn, f"{batch.first_lsn} came"
                        self._payloads.check(batch, self.next_lsn - self.first_lsn)
                        self.next_lsn += len(batch)
        except BaseException as error:
            self.error = error


class Course:
    """One soak in `folder`. `show` gets each event when its members are whole again."""

    def __init__(
        self, folder: Path, settings: SoakSettings, show: Callable[[Event], None] = lambda _: None
    ) -> None:
        self._settings = settings
        self._random = Random(settings.seed)
        self._show = show
        self._cluster = GrowingCluster(folder, soak_config())
        self._events: list[Event] = []
        self._began_ns = 0

    def run(self) -> Outcome:
        """Raises:
        AssertionError, LogStoreError, WrongPayload: an append failed, the log is not what was
          appended, or members do not get whole.
        """
        with self._cluster as cluster:
            cluster.begin()
            with cluster.connect() as log:
                first_lsn = log.admin.commit_lsn() + 1
            endpoints, size = list(cluster.endpoints), self._settings.payload_bytes
            self._began_ns = monotonic_ns()
            with (
                self._producer(first_lsn) as producer,
                Reader(endpoints, first_lsn, size) as reader,
            ):
                self._break_things(lambda: producer.poll() is not None or reader.error is not None)
                load = _result_of(producer)
                reader.wait_until(first_lsn + load.payloads - 1)
                read = reader.next_lsn - first_lsn
            seconds = self._passed_s()
            cluster.check_equal()
            members = cluster.members()
            assert len(members.members) == REPLICAS, members
            return Outcome(self._events, load, read, members.id, True, seconds)

    def _break_things(self, has_ended: Callable[[], bool]) -> None:
        """Until the appends end, or fail; then `has_ended` holds."""
        settings = self._settings
        change_s, kill_s = settings.change_every_s / 2, settings.kill_every_s
        while True:
            next_s = min(change_s, kill_s)
            if poll_until(has_ended, max(0.0, next_s - self._passed_s())):
                return
            if next_s == change_s:
                change_s += settings.change_every_s
                kind = self._random.choice(("disk lost", "node replaced"))
            else:
                kill_s = max(kill_s, self._passed_s()) + settings.kill_every_s
                kind = "killed"
            self._break(kind)

    def _break(self, kind: str) -> None:
        cluster, at_s = self._cluster, self._passed_s()
        node = self._random.choice(cluster.nodes)
        if kind == "killed":
            cluster.kill(node)
            cluster.start(node)
        elif kind == "disk lost":
            cluster.lose_disk(node)
        else:
            new = cluster.add_machine()
            host, port = cluster.address(new)
            cluster.change(lambda admin: admin.replace_member(node, f"{host}:{port}"))
            cluster.start(new)
            cluster.wait_for_role(node, "")
            cluster.retire(node)
        self._wait_until_whole(kind, node)
        event = Event(kind, node, round(at_s, 1), round(self._passed_s() - at_s, 1))
        self._events.append(event)
        self._show(event)

    def _wait_until_whole(self, kind: str, node: int) -> None:
        """Every machine runs, votes and has almost all of the log."""
        cluster = self._cluster

        def is_whole() -> bool:
            found = cluster.members()
            voters = [each.number for each in found.members if each.is_voter]
            return found.is_committed and sorted(voters) == sorted(cluster.nodes)

        assert poll_until(is_whole, WHOLE_TIMEOUT_S), f"{kind} {node}: {cluster.said()}"
        for each in cluster.nodes:
            cluster.wait_until_caught_up(each)

    @contextmanager
    def _producer(self, first_lsn: int) -> Iterator[subprocess.Popen[str]]:
        settings = self._settings
        spec = LoadSpec(
            role="producer",
            endpoints=list(self._cluster.endpoints),
            node=0,
            payload_bytes=settings.payload_bytes,
            batch=BATCH,
            rate=settings.rate,
            seconds=settings.seconds,
            first_lsn=first_lsn,
            parent_pid=getpid(),
        )
        command = [sys.executable, "-m", LOAD_MODULE, msgspec.json.encode(spec).decode()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def _passed_s(self) -> float:
        return (monotonic_ns() - self._began_ns) / 1e9


def _result_of(process: subprocess.Popen[str]) -> LoadResult:
    said, _ = process.communicate(timeout=END_TIMEOUT_S)
    assert process.returncode == 0, "the producer failed; what it said is above"
    return msgspec.json.decode(said, type=LoadResult)
