"""What a log that forgets costs: producers while segments are removed, producers while a follower
starts over at the log start, and how quick that follower is on an idle cluster.

Owns these figures, their rounds and targets. With and without take turns in one go; medians decide.
A load comes before the first one that counts, since the first gigabyte of a cluster is quicker
where the kernel has to ask a host for the page cache's memory. For the same reason removals begin
with either kind in turn, and an install is held against a load before it and one after it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import msgspec

import logstore
from benchmarks.saturate import REPLICAS, Row, Settings, measure_load
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.errors import LogStoreError, OutOfRange, Unreachable
from logstore.limits import MIB
from logstore.settings import RetentionSettings, StorageSettings
from logstore.storage.disk import RealDisk

SEGMENT_BYTES = 64 * MIB
KEPT = RetentionSettings(bytes=f"{2 * SEGMENT_BYTES // MIB}MiB")
SEGMENTS_REMOVED_MIN = 3  # in a run that is to show what their removal costs
INSTALLED_BYTES = 1_024 * MIB
INSTALLED_BESIDE_OFFERED_BYTES = 3 * INSTALLED_BYTES  # for longer than a load of five seconds
PIECE_BYTES = 4 * MIB  # that the flushed writer flushes at once
BATCH_BYTES = 256 * 1_024
TIMEOUT_S = 120.0
LOOK_MS = 5
FULL = Settings(payload=1_024, batch=64, window_mb=16.0, seconds=0)
OFFERED = Settings(payload=1_024, batch=50, window_mb=16.0, seconds=0, rate=5_000.0)


class Figure(msgspec.Struct, frozen=True):
    """One ratio, of which `target` is wanted at least."""

    name: str
    target: float


REMOVED = Figure("saturated, while segments are removed", 0.97)
FULL_BESIDE = Figure("saturated, while a follower installs", 0.90)
OFFERED_BESIDE = Figure("5,000/s offered, while a follower installs", 0.99)
ALONE = Figure("install over min(fetch, flushed writer), idle", 0.70)
FIGURES = (REMOVED, FULL_BESIDE, OFFERED_BESIDE, ALONE)


class Turn(msgspec.Struct, frozen=True):
    """One round of one figure. `with_it` and `without`: payloads/s, or MB/s of an install. `facts`
    with `was_over` above 0: the follower had come back before the load ended, which says little of
    what producers lose beside it."""

    figure: str
    round: int
    with_it: float
    without: float
    facts: dict[str, float]

    @property
    def ratio(self) -> float:
        return self.with_it / self.without

    @property
    def says_something(self) -> bool:
        return not self.facts.get("was_over")


def measure_forgetting(
    folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> list[Turn]:
    """All figures, `rounds` times.

    Raises:
      LogStoreError: a run failed, or too few segments were removed in it to say anything.
    """
    turns: list[Turn] = []
    for number in range(1, rounds + 1):
        turns.append(_removals(number, folder, seconds))
        turns += _installs(number, folder, seconds)
        for turn in turns[-len(FIGURES) :]:
            say(f"{turn.figure}, round {number} of {rounds}: {turn.ratio:.3f}")
    return turns


def summarise(turns: list[Turn]) -> dict[str, Any]:
    """Per figure the median ratio, all of them, and whether the target is reached, by the rounds
    that say something."""
    summary: dict[str, Any] = {}
    for figure in FIGURES:
        mine = [turn for turn in turns if turn.figure == figure.name]
        telling = [turn for turn in mine if turn.says_something]
        ratio = median(turn.ratio for turn in telling or mine)
        summary[figure.name] = {
            "median_ratio": round(ratio, 3),
            "ratios": [round(turn.ratio, 3) for turn in mine],
            "target": figure.target,
            "rounds_that_say_something": len(telling),
            "is_reached": bool(telling) and ratio >= figure.target,
            "median_with": median(turn.with_it for turn in mine),
            "median_without": median(turn.without for turn in mine),
        }
    return summary


# --- segments are removed ---


def _removals(number: int, folder: Path, seconds: float) -> Turn:
    settings = msgspec.structs.replace(FULL, seconds=seconds)
    rates: dict[bool, float] = {}
    facts: dict[str, float] = {}
    for is_removing in (number % 2 == 0, number % 2 == 1):
        with _cluster(folder, KEPT if is_removing else None) as cluster:
            _load(cluster, settings)
            first_lsn = _log_start_lsn(cluster)
            rates[is_removing] = _load(cluster, settings).payloads_per_s
            if is_removing:
                removed = (_log_start_lsn(cluster) - first_lsn) * settings.payload / SEGMENT_BYTES
                facts["segments"] = round(removed, 1)
    if facts["segments"] < SEGMENTS_REMOVED_MIN:
        raise LogStoreError(f"{facts['segments']} segments were removed only: give more --seconds")
    return Turn(REMOVED.name, number, rates[True], rates[False], facts)


def _log_start_lsn(cluster: EmbeddedCluster) -> int:
    return cluster.counters(cluster.wait_for_leader())["log_start_lsn"]


def _load(cluster: EmbeddedCluster, settings: Settings) -> Row:
    samples = cluster.folder / "samples"
    row, _ = measure_load(settings, cluster, cluster.wait_for_leader(), samples)
    return row


@contextmanager
def _cluster(folder: Path, kept: RetentionSettings | None = None) -> Iterator[EmbeddedCluster]:
    config = msgspec.structs.replace(
        make_config(REPLICAS, Random(os.urandom(8))),
        storage=StorageSettings(segment=f"{SEGMENT_BYTES // MIB}MiB"),
        retention=kept or RetentionSettings(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="forgetting-", dir=folder) as own,
        EmbeddedCluster(Path(own), config) as cluster,
    ):
        cluster.start_all()
        cluster.wait_for_leader()
        yield cluster


# --- a follower installs ---


def _installs(number: int, folder: Path, seconds: float) -> list[Turn]:
    """On one cluster: the loads without and with an installing follower, and an install alone."""
    with _cluster(folder) as cluster, logstore.connect(cluster.endpoints, timeout=TIMEOUT_S) as log:
        turns = []
        _load(cluster, msgspec.structs.replace(FULL, seconds=seconds))
        for figure, settings, size_bytes in (
            (FULL_BESIDE, FULL, INSTALLED_BYTES),
            (OFFERED_BESIDE, OFFERED, INSTALLED_BESIDE_OFFERED_BYTES),
        ):
            spec = msgspec.structs.replace(settings, seconds=seconds)
            before = _load(cluster, spec)
            node, _ = _leave_behind(cluster, log, size_bytes)
            _begin_install(cluster, node)
            with_it = _load(cluster, spec)
            is_done = _has_all(cluster, node)
            _wait(cluster, node)
            without = [row.payloads_per_s for row in (before, _load(cluster, spec))]
            facts = {"was_over": float(is_done), "before": without[0], "after": without[1]}
            turns.append(Turn(figure.name, number, with_it.payloads_per_s, sum(without) / 2, facts))
        node, first_lsn = _leave_behind(cluster, log, INSTALLED_BYTES)
        install = _install_mb_per_s(cluster, node)
        other = next(each for each in _followers(cluster) if each != node)
        fetch = _fetch_mb_per_s(log, other, first_lsn)
        writer = flushed_mb_per_s(cluster.folder)
        facts = {"fetch": fetch, "flushed_writer": writer}
        return [*turns, Turn(ALONE.name, number, install, min(fetch, writer), facts)]


def _followers(cluster: EmbeddedCluster) -> list[int]:
    leader = cluster.wait_for_leader()
    return [node for node in cluster.nodes if node != leader]


def _leave_behind(
    cluster: EmbeddedCluster, log: logstore.LogClient, size_bytes: int
) -> tuple[int, int]:
    """Stop a follower, trim past all that it has, and append what it will need; node, log start.

    Raises:
      LogStoreError: an append or the trim failed, or the follower would need no install.
    """
    node = _followers(cluster)[0]
    cluster.kill(node)
    has_lsn = log.admin.commit_lsn()
    _append(log, SEGMENT_BYTES)
    try:
        first_lsn = log.admin.trim(log.admin.commit_lsn())
    except OutOfRange as bounds:  # the follower that has just come back is still waited for
        first_lsn = log.admin.trim(bounds.last)
    if first_lsn <= has_lsn + 1:
        raise LogStoreError(f"the log begins at LSN {first_lsn}, node {node} may have {has_lsn}")
    _append(log, size_bytes)
    return node, first_lsn


def _append(log: logstore.LogClient, size_bytes: int) -> None:
    batch = [os.urandom(1_024) for _ in range(BATCH_BYTES // 1_024)]
    with log.producer() as producer:
        count = size_bytes // BATCH_BYTES
        for future in [producer.append_batch(batch) for _ in range(count)]:
            future.result(TIMEOUT_S)


def _begin_install(cluster: EmbeddedCluster, node: int) -> None:
    """Start it, and wait until its log has been dropped and begins where the leader's does."""
    wanted = cluster.counters(cluster.wait_for_leader())["log_start_lsn"]
    cluster.start(node)
    if not poll_until(
        lambda: cluster.counters(node).get("log_start_lsn") == wanted, TIMEOUT_S, look_ms=LOOK_MS
    ):
        raise Unreachable(f"node {node} does not begin at LSN {wanted} within {TIMEOUT_S} s")


def _has_all(cluster: EmbeddedCluster, node: int) -> bool:
    return cluster.visible_lsn(node) >= max(map(cluster.visible_lsn, cluster.nodes))


def _wait(cluster: EmbeddedCluster, node: int) -> None:
    if not poll_until(lambda: _has_all(cluster, node), TIMEOUT_S, look_ms=LOOK_MS):
        raise Unreachable(f"node {node} has not caught up within {TIMEOUT_S} s")


def _install_mb_per_s(cluster: EmbeddedCluster, node: int) -> float:
    """From the log start's arrival to the last byte, of the payloads in between."""
    _begin_install(cluster, node)
    began_s = time.monotonic()
    _wait(cluster, node)
    return round(INSTALLED_BYTES / 1e6 / (time.monotonic() - began_s), 1)


def _fetch_mb_per_s(log: logstore.LogClient, node: int, first_lsn: int) -> float:
    """A consumer's reader, of the same LSNs, without looking at the payloads."""
    last_lsn = log.admin.commit_lsn()
    began_s = time.monotonic()
    read = sum(batch.data.nbytes for batch in log.read_batches(first_lsn, last_lsn, replica=node))
    return round(read / 1e6 / (time.monotonic() - began_s), 1)


def flushed_mb_per_s(folder: Path) -> float:
    """One writer that flushes each piece into a file whose space is allocated."""
    disk, path, piece = RealDisk(), str(folder / "flushed"), os.urandom(PIECE_BYTES)
    handle = disk.create(path)
    try:
        disk.allocate(handle, INSTALLED_BYTES)
        began_s = time.monotonic()
        for offset in range(0, INSTALLED_BYTES, PIECE_BYTES):
            disk.write(handle, offset, [piece])
            disk.flush(handle)
        return round(INSTALLED_BYTES / 1e6 / (time.monotonic() - began_s), 1)
    finally:
        disk.close(handle)
        disk.unlink(path)
