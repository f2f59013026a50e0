"""What changes of the members cost: appends that are in flight while one commits, and how long a
replica whose disk was wiped takes until it votes again, under load.

Owns both stages and their targets. Changes are of both kinds: places that are reserved and given
up, which are one CONFIG each, and a learner that becomes a voter and leaves, which are two.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import click
import msgspec
import psutil

import logstore
from benchmarks.forgetting import flushed_mb_per_s
from benchmarks.load_process import run_load
from benchmarks.measurement import Measured, Measurement, Site, option
from benchmarks.medians import at_most, spread
from benchmarks.member_changes import MODULE, ChangesSpec
from benchmarks.usage import device_busy_s
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.errors import LogStoreError, Unreachable
from logstore.format.level import CONFIG_LEVEL
from logstore.limits import MIB

VOTERS = 3
PAYLOAD = bytes(1_024)
BATCH = 50  # payloads of one append of the load beside a wiped disk
EVERY_S = 0.002
UNDISTURBED_S = 5.0
# Appends in flight while a change commits, against those while nothing changes.
P99_TARGET = 2.0
_TIMEOUT_S = 120.0
_FILL_IN_FLIGHT = 64


class ChangeRow(msgspec.Struct, frozen=True):
    """One round: percentiles of appends that nothing disturbed, and of those that were in flight
    while a change was asked for and committed."""

    round: int
    undisturbed: int
    undisturbed_p50_ms: float
    undisturbed_p99_ms: float
    beside: int
    beside_p50_ms: float
    beside_p99_ms: float
    changes: int
    change_p50_ms: float


class WipeRow(msgspec.Struct, frozen=True):
    """One wiped disk. Seconds from the start of the empty replica on; `mb_per_s`: of what it
    lacked, from its place as a learner to its vote; `cores`: processors that each process used in
    that time, "NODE.PROCESS" or "load"; `disk_busy`: the share of it in which the disk of all
    replicas had requests in flight, None: unknown; `new_node`: the replica on the empty disk;
    `processors`: of the machine. `lost`: appends of the load that failed."""

    log_mib: int
    rate: int
    learner_s: float
    voter_s: float
    mb_per_s: float
    flushed_writer_mb_per_s: float
    appended: int
    lost: int
    leader: int
    new_node: int
    processors: int
    cores: dict[str, float]
    disk_busy: float | None


def _measure(site: Site, *, rounds: int, changes: int, mib: int, rate: int) -> Measured:
    rows = [_changes(site, number, changes) for number in range(1, rounds + 1)]
    wipe = _wipe(site, mib, rate)
    return Measured([*rows, wipe], _summary(rows, wipe))


def _summary(rows: list[ChangeRow], wipe: WipeRow) -> dict[str, Any]:
    ratios = [row.beside_p99_ms / row.undisturbed_p99_ms for row in rows]
    summary: dict[str, Any] = {
        "p99 beside a change over undisturbed": at_most(P99_TARGET, ratios),
        "change_ms": spread([row.change_p50_ms for row in rows]),
        "wiped disk": msgspec.to_builtins(wipe),
    }
    plain: dict[str, Any] = msgspec.to_builtins(summary)
    return plain


# --- appends beside changes ---


def _changes(site: Site, number: int, changes: int) -> ChangeRow:
    with _cluster(site, VOTERS + 1) as cluster, _connect(cluster) as log:
        learner = VOTERS + 1
        host, port = _address(cluster, learner)
        log.admin.add_member(learner, host, port)
        cluster.start(learner)
        _wait_for_role(log, learner, "learner")
        sent: list[tuple[float, float]] = []
        undisturbed_from = time.monotonic()
        spec = ChangesSpec(cluster.endpoints[:VOTERS], learner, changes)
        with _appending(cluster, sent):
            threading.Event().wait(UNDISTURBED_S)
            undisturbed_to = time.monotonic()
            command = ["-m", MODULE, msgspec.json.encode(spec).decode()]
            spans = run_load("changes of the members", command, timeout_s=10 * _TIMEOUT_S)
        quiet = [
            end - begin for begin, end in sent if undisturbed_from < begin < end < undisturbed_to
        ]
        beside = [
            end - begin
            for begin, end in sent
            if any(begin < until and end > since for since, until in spans)
        ]
        row = ChangeRow(
            number,
            len(quiet), _percentile(quiet, 0.5), _percentile(quiet, 0.99),
            len(beside), _percentile(beside, 0.5), _percentile(beside, 0.99),
            len(spans), _percentile([until - since for since, until in spans], 0.5),
        )  # fmt: skip
        site.say(
            f"changes, round {number}: p99 {row.beside_p99_ms} over {row.undisturbed_p99_ms} ms"
        )
        return row


@contextmanager
def _appending(cluster: EmbeddedCluster, sent: list[tuple[float, float]]) -> Iterator[None]:
    """Appends of one payload, one in flight, each a moment after the one before."""
    stop = threading.Event()

    def run() -> None:
        with _connect(cluster) as log, log.producer() as producer:
            while not stop.wait(EVERY_S):
                began = time.monotonic()
                producer.append(PAYLOAD).result(_TIMEOUT_S)
                sent.append((began, time.monotonic()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_TIMEOUT_S)


def _percentile(seconds: list[float], share: float) -> float:
    """In ms.

    Raises:
      LogStoreError: there is none.
    """
    if not seconds:
        raise LogStoreError("no append was in flight: give more --changes")
    ordered = sorted(seconds)
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)


# --- a wiped disk ---


def _wipe(site: Site, mib: int, rate: int) -> WipeRow:
    with _cluster(site, VOTERS) as cluster, _connect(cluster) as log:
        _fill(log, mib)
        members = log.admin.members()
        node = next(each.number for each in members.members if each.number != members.leader)
        held = members.member(node)
        load = _Load(cluster, rate)
        with load:
            cluster.kill(node)
            shutil.rmtree(cluster.node_folder(node))
            began = time.monotonic()
            cluster.start(node)
            learner_s = _wait_for_other(log, node, "" if held is None else held.uuid, "learner")
            used, busy_s = _cpu_s(cluster), device_busy_s(cluster.folder)
            voter_s = _wait_for_other(log, node, "" if held is None else held.uuid, "voter")
            used = {name: end_s - used.get(name, 0.0) for name, end_s in _cpu_s(cluster).items()}
            busy_s = None if busy_s is None else (device_busy_s(cluster.folder) or 0.0) - busy_s
            copied_s = max(0.001, voter_s - learner_s)
            learner_s, voter_s = learner_s - began, voter_s - began
        lacked_mb = (mib * MIB + load.appended * len(PAYLOAD)) / 1e6
        row = WipeRow(
            mib, rate, round(learner_s, 2), round(voter_s, 2),
            round(lacked_mb / copied_s, 1),
            flushed_mb_per_s(cluster.folder), load.appended, load.lost,
            log.admin.members().leader, node, len(os.sched_getaffinity(0)),
            {name: round(cpu_s / copied_s, 3) for name, cpu_s in sorted(used.items())},
            None if busy_s is None else round(busy_s / copied_s, 3),
        )  # fmt: skip
        site.say(f"a wiped disk with {mib} MiB: votes again after {row.voter_s} s")
        return row


def _cpu_s(cluster: EmbeddedCluster) -> dict[str, float]:
    """Processor seconds of each process so far; the load runs in this one."""
    used: dict[str, float] = {}
    for name, process in (cluster.all_processes() | {"load": psutil.Process()}).items():
        with suppress(psutil.NoSuchProcess):  # it ended
            times = process.cpu_times()
            used[name] = times.user + times.system
    return used


def _fill(log: logstore.LogClient, mib: int) -> None:
    batch = [os.urandom(len(PAYLOAD)) for _ in range(256)]
    batch_bytes = len(batch) * len(PAYLOAD)
    with log.producer() as producer:
        waiting = []
        for _ in range(mib * MIB // batch_bytes):
            waiting.append(producer.append_batch(batch))
            if len(waiting) >= _FILL_IN_FLIGHT:
                waiting.pop(0).result(_TIMEOUT_S)
        for future in waiting:
            future.result(_TIMEOUT_S)


class _Load:
    """A producer at `rate` payloads/s, in batches, while it is entered."""

    def __init__(self, cluster: EmbeddedCluster, rate: int) -> None:
        self._cluster = cluster
        self._every_s = BATCH / rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.appended = 0
        self.lost = 0

    def _run(self) -> None:
        batch = [PAYLOAD] * BATCH
        with _connect(self._cluster) as log, log.producer() as producer:
            futures = []
            due = time.monotonic()
            while not self._stop.wait(max(0.0, due - time.monotonic())):
                due += self._every_s
                futures.append(producer.append_batch(batch))
            for future in futures:
                try:
                    future.result(_TIMEOUT_S)
                    self.appended += BATCH
                except LogStoreError:
                    self.lost += BATCH

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_TIMEOUT_S)


# --- a cluster with a first configuration ---


@contextmanager
def _cluster(site: Site, replicas: int) -> Iterator[EmbeddedCluster]:
    """Of VOTERS replicas at the level of configurations; the configuration names `replicas`."""
    config = make_config(replicas, Random(os.urandom(8)))
    founders = msgspec.structs.replace(config, nodes=config.nodes[:VOTERS])
    with (
        tempfile.TemporaryDirectory(prefix="members-", dir=site.folder) as own,
        EmbeddedCluster(Path(own), founders) as cluster,
    ):
        cluster.start_all()
        cluster.wait_for_leader()
        cluster.name_nodes(config)
        with _connect(cluster) as log:
            level = log.admin.format_levels().level
            for each in range(level + 1, CONFIG_LEVEL + 1):
                log.admin.raise_level(each)
            if not poll_until(lambda: log.admin.members().id > 0, _TIMEOUT_S):
                raise Unreachable("the log has no configuration yet")
        yield cluster


def _connect(cluster: EmbeddedCluster) -> logstore.LogClient:
    return logstore.connect(cluster.endpoints[:VOTERS], timeout=_TIMEOUT_S)


def _address(cluster: EmbeddedCluster, node: int) -> tuple[str, int]:
    settings = cluster.config.node(node)
    return settings.host, settings.port


def _wait_for_role(log: logstore.LogClient, node: int, role: str) -> None:
    def has_role() -> bool:
        member = log.admin.members().member(node)
        return member is not None and member.role == role

    if not poll_until(has_role, _TIMEOUT_S):
        raise Unreachable(f"node {node} is no {role} within {_TIMEOUT_S} s")


def _wait_for_other(log: logstore.LogClient, node: int, uuid: str, role: str) -> float:
    """When the node's new replica is seen to have the role, on the monotonic clock."""

    def has_role() -> bool:
        member = log.admin.members().member(node)
        is_other = member is not None and member.uuid not in ("", uuid)
        return is_other and member is not None and member.role in (role, "voter")

    if not poll_until(has_role, 10 * _TIMEOUT_S):
        raise Unreachable(f"node {node} is no {role} within {10 * _TIMEOUT_S} s")
    return time.monotonic()


MEMBERS = Measurement(
    "members",
    "What do changes of the members cost appends, and how long is a wiped disk away?",
    6,
    _measure,
    [
        option("--rounds", type=click.IntRange(1, 99), default=3),
        option("--changes", type=click.IntRange(1, 10_000), default=100),
        option("--mib", type=click.IntRange(1, 1 << 20), default=2_048),
        option("--rate", type=click.IntRange(1, 1_000_000), default=5_000),
    ],
    {"rounds": 1, "changes": 5, "mib": 64, "rate": 1_000},
)
