"""How much a cluster takes: one producer, a window, both flushes on, one row of figures.

Owns the course of one run: start, warm up, measure, stop. Rates count what was acknowledged inside
the measured seconds, no earlier and no later. Latencies of a closed loop are of the same payloads;
of an open loop they are of the payloads that were due in these seconds, however late they were
acknowledged: a stall at the end is in them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import psutil

from benchmarks.load import SAMPLE_FIELDS, LoadReport, LoadSpec
from benchmarks.usage import (
    Mark,
    cpu_between,
    disk_bytes_between,
    disk_bytes_per_payload_byte,
    payloads_per_group,
    sent_bytes_between,
    take_mark,
)
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.client.clock import monotonic_ns
from logstore.config import Config
from logstore.errors import NoQuorum, Unreachable

REPLICAS = 3
WARM_UP_S = 2.0
# A new cluster's first gigabyte needs pages of the page cache that later ones find: a load before
# the first one that counts.
FIRST_LOAD_S = 4.0
FIRST_LOAD_WINDOW_MB = 16.0
CLOSE_TIMEOUT_S = 90.0
ATTEMPTS = 3
Samples = npt.NDArray[np.int64]
T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True):
    """One run. `rate` payloads/s; 0: closed loop. `may_pack` as in `LoadSpec`."""

    payload: int
    batch: int
    window_mb: float
    seconds: float
    rate: float = 0.0
    may_pack: bool = True


class Row(msgspec.Struct, frozen=True):
    """The figures of one run; MB are 10**6 payload bytes, rates count acknowledged payloads.

    Attributes:
        leader_sent_mb_per_s: all bytes, of any kind, that the leader's replicators sent to
            followers (`Mark.sent_bytes`); None: unknown.
        leader_disk_mb_per_s: all bytes that the leader's writer handed to `pwrite`.
    """

    payload: int
    batch: int
    window_mb: float
    seconds: float
    rate: float
    may_pack: bool
    payloads_per_s: float
    mb_per_s: float
    p50_ms: float
    p99_ms: float
    payloads_per_group: float
    cpu_s: dict[str, float]
    rss_mb: dict[str, float]
    disk_bytes_per_payload_byte: float
    leader_sent_mb_per_s: float | None
    leader_disk_mb_per_s: float


class Sample(msgspec.Struct, frozen=True):
    """One acknowledged batch. `at_ms` counts from the beginning of the measured seconds."""

    at_ms: float
    latency_ms: float
    payloads: int


def saturate(settings: Settings, folder: Path) -> tuple[Row, list[Sample]]:
    """Run once, with the data in a folder of its own below `folder`.

    Raises:
        LogStoreError: the cluster or the load did not run through.
    """
    config = make_config(REPLICAS, Random(os.urandom(8)))
    with temporary_cluster(folder, config) as cluster:
        cluster.start_all()
        leader = cluster.wait_for_leader()
        return measure_load(settings, cluster, leader, cluster.folder / "samples")


@contextmanager
def temporary_cluster(folder: Path, config: Config) -> Iterator[EmbeddedCluster]:
    """A cluster in a folder of its own below `folder`, no replica started; both go at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="cluster-", dir=folder) as own,
        EmbeddedCluster(Path(own), config) as cluster,
    ):
        yield cluster


def try_again(run: Callable[[], T], say: Callable[[str], None]) -> tuple[T, int]:
    """What `run` returns, and in which attempt: a run in which leadership changed or a process
    ended is made again, up to ATTEMPTS times in all.

    Raises:
        LogStoreError: as the last attempt.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return run(), attempt
        except (NoQuorum, Unreachable) as error:
            say(f"measured again: {error}")
    return run(), ATTEMPTS


def measure_load(
    settings: Settings, cluster: EmbeddedCluster, leader: int, samples_path: Path
) -> tuple[Row, list[Sample]]:
    """Run once at a cluster that runs already.

    Raises: as `saturate`.
    """
    spec = LoadSpec(
        endpoints=cluster.endpoints,
        payload_bytes=settings.payload,
        batch=settings.batch,
        may_pack=settings.may_pack,
        window_bytes=max(1, int(settings.window_mb * 1e6)),
        rate=settings.rate,
        seconds=WARM_UP_S + settings.seconds + 0.2,  # it must not end before the second mark
        samples=str(samples_path),
        parent_pid=os.getpid(),
    )
    command = [sys.executable, "-m", "benchmarks.load", msgspec.json.encode(spec).decode()]
    before = take_mark(cluster, _all_processes(cluster), leader)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as load:
        try:
            if load.stdout is None or not (line := load.stdout.readline()):
                raise Unreachable("the load ended before it began; what it said is above")
            start_ns = int(line) + int(WARM_UP_S * 1e9)
            processes = {**_all_processes(cluster), "client": psutil.Process(load.pid)}
            marks = []
            for at_ns in (start_ns, start_ns + int(settings.seconds * 1e9)):
                _wait_until(at_ns)
                marks.append(take_mark(cluster, processes, leader))
            _wait_for_outcomes(load)
        finally:
            load.kill()
    # Bytes are compared over the whole run: at its ends nothing is written but not acknowledged.
    after = take_mark(cluster, _all_processes(cluster), leader)
    disk_bytes = disk_bytes_per_payload_byte(before, after)
    rows = np.fromfile(samples_path, dtype=np.int64).reshape(-1, len(SAMPLE_FIELDS))
    return _make_row(settings, marks, rows, start_ns, disk_bytes)


def warm_up(cluster: EmbeddedCluster, say: Callable[[str], None]) -> None:
    """A load of batches on a new cluster, which does not count.

    Raises: as `try_again`.
    """
    settings = Settings(1_024, 64, FIRST_LOAD_WINDOW_MB, FIRST_LOAD_S)
    try_again(lambda: load_equal_replicas(settings, cluster), say)


def load_equal_replicas(
    settings: Settings, cluster: EmbeddedCluster
) -> tuple[Row, list[Sample], float]:
    """A load on replicas that all have everything before it: its row and samples; and for how many
    seconds after its last acknowledgement a follower still lacked some of it.

    Raises: as `saturate`.
    """
    leader = wait_until_equal(cluster)
    row, samples = measure_load(settings, cluster, leader, cluster.folder / "samples")
    ended_ns = monotonic_ns()
    wait_until_equal(cluster)
    return row, samples, round((monotonic_ns() - ended_ns) / 1e9, 3)


def wait_until_equal(cluster: EmbeddedCluster) -> int:
    """Wait until every replica shows what the leader shows; the leader.

    Raises:
        LogStoreError: there is no leader, or a replica does not come in time.
    """
    leader = cluster.wait_for_leader()
    newest = cluster.visible_lsn(leader)
    for node in cluster.nodes:
        cluster.wait_until_visible(node, newest)
    return leader


def _all_processes(cluster: EmbeddedCluster) -> dict[str, psutil.Process]:
    try:
        return cluster.all_processes()
    except psutil.NoSuchProcess as error:
        raise Unreachable(f"process {error.pid} ended before a load") from error


def _wait_for_outcomes(load: subprocess.Popen[bytes]) -> None:
    """Until the load has ended by itself.

    Raises:
        Unreachable: it failed, or payloads were not acknowledged.
    """
    try:
        said, _ = load.communicate(timeout=CLOSE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"the load did not end within {CLOSE_TIMEOUT_S:.0f} s") from error
    if load.returncode:
        raise Unreachable("the load failed; what it said is above")
    report = msgspec.json.decode(said, type=LoadReport)
    if report.errors:
        raise Unreachable(report.error)


def _make_row(
    settings: Settings, marks: list[Mark], rows: Samples, start_ns: int, disk_bytes: float
) -> tuple[Row, list[Sample]]:
    first, second = marks
    end_ns = start_ns + int(settings.seconds * 1e9)
    inside = rows[(rows[:, 0] >= start_ns) & (rows[:, 0] < end_ns)]
    payloads_per_s = int(inside[:, 2].sum()) / settings.seconds
    sent_bytes = sent_bytes_between(first, second)
    timed = inside
    if settings.rate:
        timed = rows[(rows[:, 1] >= start_ns) & (rows[:, 1] < end_ns)]
    latencies_ms = (timed[:, 0] - timed[:, 1]) / 1e6
    row = Row(
        **msgspec.structs.asdict(settings),
        payloads_per_s=round(payloads_per_s, 1),
        mb_per_s=round(payloads_per_s * settings.payload / 1e6, 3),
        p50_ms=weighted_percentile(latencies_ms, timed[:, 2], 0.50),
        p99_ms=weighted_percentile(latencies_ms, timed[:, 2], 0.99),
        payloads_per_group=payloads_per_group(first, second),
        cpu_s=cpu_between(first, second),
        rss_mb=second.rss_mb,
        disk_bytes_per_payload_byte=disk_bytes,
        leader_sent_mb_per_s=None
        if sent_bytes is None
        else round(sent_bytes / 1e6 / settings.seconds, 3),
        leader_disk_mb_per_s=round(disk_bytes_between(first, second) / 1e6 / settings.seconds, 3),
    )
    samples = [
        Sample(round((acknowledged - start_ns) / 1e6, 3), round(latency, 3), payloads)
        for (acknowledged, _, payloads), latency in zip(
            timed.tolist(), latencies_ms.tolist(), strict=True
        )
    ]
    return row, samples


def named_samples(
    figure: str, number: int, samples: Sequence[Sample]
) -> Iterator[dict[str, object]]:
    """Samples of run `number` of a figure, as they are kept."""
    for sample in samples:
        yield {"figure": figure, "pair": number, **msgspec.structs.asdict(sample)}


def thinned(samples: Sequence[Sample], count_max: int) -> list[Sample]:
    """Every n-th, so that at most `count_max` are left. Each stands for those up to the next one,
    with the payloads of all of them."""
    step = max(1, -(-len(samples) // count_max))
    return [
        msgspec.structs.replace(
            samples[at], payloads=sum(each.payloads for each in samples[at : at + step])
        )
        for at in range(0, len(samples), step)
    ]


def weighted_percentile(
    values: npt.NDArray[np.float64], weights: Samples, fraction: float
) -> float:
    """The value below which `fraction` of the weight lies; 0.0 if there is none."""
    return weighted_percentiles(values, weights, [fraction])[0]


def weighted_percentiles(
    values: npt.NDArray[np.float64], weights: Samples, fractions: Sequence[float]
) -> list[float]:
    """The same for several fractions."""
    if not len(values):
        return [0.0] * len(fractions)
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = np.searchsorted(reached, np.array(fractions) * reached[-1])
    return [round(float(each), 3) for each in values[order][np.minimum(at, len(values) - 1)]]


def _wait_until(at_ns: int) -> None:
    left_s = (at_ns - monotonic_ns()) / 1e9
    poll_until(lambda: monotonic_ns() >= at_ns, max(0.0, left_s), look_ms=1_000)
