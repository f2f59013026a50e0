"""A soak: minutes of load on a log that forgets, with consumers on all replicas, an archive that
holds what it does not have yet, and a follower that is killed again and again.

Owns its course, its samples, and what is made of them. The loads check every payload, and the audit
compares replicas and lake in the end: a soak that found something wrong has no figures.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median

import msgspec
import psutil

import logstore
from benchmarks.soak_load import LoadResult, LoadSpec
from benchmarks.usage import allocated_bytes
from logstore.cli.embedded import EmbeddedCluster, make_config, poll_until
from logstore.cli.exit_status import ExitStatus
from logstore.client.clock import monotonic_ns
from logstore.config import Config
from logstore.errors import LogStoreError, NoQuorum, Unreachable
from logstore.limits import MIB
from logstore.settings import RetentionSettings, StorageSettings

REPLICAS = 3
CATCH_UP_TIMEOUT_S = 300.0
END_TIMEOUT_S = 300.0
# Spark starts within some 20 s on a busy machine, and the audit reads all there is.
LAKE_TIMEOUT_S = 3_600.0
_TRIM_SAMPLES = 2  # so long a trim may come after the cursor that held it
_PARTS = 4  # the second part of the samples is compared with the last one


class SoakSettings(msgspec.Struct, frozen=True):
    """What happens. Times in seconds; `rate` counts payloads a second. `lake`: with an archive."""

    seconds: float = 2_700.0
    rate: float = 5_000.0
    payload_bytes: int = 1_024
    batch: int = 50
    retention_bytes: int = 2_048 * MIB
    segment_bytes: int = 256 * MIB
    kill_every_s: float = 60.0
    down_s: float = 5.0
    sample_every_s: float = 5.0
    archive_every_s: float = 30.0
    has_lake: bool = True


class Sample(msgspec.Struct, frozen=True):
    """One look. `disk_mb` by node: blocks of its folder. Memory and descriptors by process, as
    "1.writer". LSNs are the highest that any replica shows. `removed_open`: how many removed files
    the processes of all replicas have open, so that their blocks are still taken; and since when
    the first of them, in seconds. `held_lsn`: the first one that a cursor holds."""

    at_s: float
    running: list[int]
    visible_lsn: int
    log_start_lsn: int
    disk_mb: dict[str, float]
    rss_mb: dict[str, float]
    descriptors: dict[str, int]
    removed_open: int
    removed_open_s: float
    held_lsn: int = 0


class Soak(msgspec.Struct, frozen=True):
    """What came of it. `returns_s`: from each start of a killed follower until it showed what the
    others did at that moment. `disk_over_max`: the fullest replica over what it had to keep then.
    `growth`: the median of the last quarter over that of the second one, of the samples in which
    all replicas ran."""

    settings: SoakSettings
    payloads: int
    checked: dict[str, int]
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    kills: int
    returns_s: list[float]
    trims: int
    log_start_lsn: int
    disk_mb_max: float
    disk_over_max: float
    removed_open_max: int
    removed_open_max_s: float
    growth: dict[str, float]


def soak(
    settings: SoakSettings,
    folder: Path,
    *,
    say: Callable[[str], None],
    beside: Callable[[EmbeddedCluster], AbstractContextManager[object]] = nullcontext,
) -> tuple[Soak, list[Sample]]:
    """Run once, with the data in a folder of its own below `folder`. `beside`: what else uses the
    cluster meanwhile; it is left before the cluster ends.

    Raises:
      LogStoreError: a load found something wrong or ended early, a replica did not come back,
        nothing was trimmed, the archive failed, or the audit found a difference.
    """
    with tempfile.TemporaryDirectory(prefix="soak-", dir=folder) as own, ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(Path(own), _config(settings)))
        cluster.start_all()
        cluster.wait_for_leader()
        with logstore.connect(cluster.endpoints) as client:
            first_lsn = client.admin.commit_lsn() + 1
        loads = _Loads(stack, cluster, settings, first_lsn)
        lake = _LakeOf(Path(own) / "lake", cluster, settings) if settings.has_lake else None
        archive = stack.enter_context(lake.followed()) if lake else None
        stack.enter_context(beside(cluster))
        course = _Course(settings, cluster, [*loads.processes, *([archive] if archive else [])])
        course.run(say)
        produced, consumed = loads.end()
        with logstore.connect(cluster.endpoints) as client:
            _check_counts(client.admin.commit_lsn() + 1 - first_lsn, produced, consumed)
        if lake and archive:
            lake.finish(archive)
        course.end()
        return _result(settings, course, produced, consumed), course.samples


def _check_counts(held: int, produced: LoadResult, consumed: dict[str, LoadResult]) -> None:
    counts = {
        "in the log": held,
        **{f"read from node {n}": c.payloads for n, c in consumed.items()},
    }
    if set(counts.values()) != {produced.payloads}:
        raise LogStoreError(f"{produced.payloads} payloads were acknowledged, but {counts}")


def _config(settings: SoakSettings) -> Config:
    return msgspec.structs.replace(
        make_config(REPLICAS, Random(os.urandom(8))),
        storage=StorageSettings(segment=f"{settings.segment_bytes // MIB}MiB"),
        retention=RetentionSettings(bytes=f"{settings.retention_bytes // MIB}MiB"),
    )


class _Loads:
    """The producer and a consumer on each node."""

    def __init__(
        self, stack: ExitStack, cluster: EmbeddedCluster, settings: SoakSettings, first_lsn: int
    ) -> None:
        self._first_lsn = first_lsn
        spec = LoadSpec(
            role="producer",
            endpoints=cluster.endpoints,
            node=0,
            payload_bytes=settings.payload_bytes,
            batch=settings.batch,
            rate=settings.rate,
            seconds=settings.seconds,
            first_lsn=first_lsn,
            parent_pid=os.getpid(),
        )
        self._consumers = {
            str(node): stack.enter_context(
                _started(msgspec.structs.replace(spec, role="consumer", node=node))
            )
            for node in cluster.nodes
        }
        self._producer = stack.enter_context(_started(spec))

    @property
    def processes(self) -> list[subprocess.Popen[str]]:
        """Those that do not end by themselves."""
        return list(self._consumers.values())

    def end(self) -> tuple[LoadResult, dict[str, LoadResult]]:
        """Wait for what was appended, then for its consumers."""
        produced = _result_of(self._producer, "")
        end_lsn = self._first_lsn + produced.payloads - 1
        return produced, {
            node: _result_of(consumer, f"{end_lsn}\n") for node, consumer in self._consumers.items()
        }


@contextmanager
def _started(spec: LoadSpec) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.soak_load", msgspec.json.encode(spec).decode()]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _result_of(process: subprocess.Popen[str], told: str) -> LoadResult:
    said, _ = process.communicate(told, timeout=END_TIMEOUT_S)
    if process.returncode:
        raise LogStoreError("a load failed; what it said is above")
    return msgspec.json.decode(said, type=LoadResult)


class _LakeOf:
    """An archive in a process of its own, as an operator runs it; its cursor holds the log."""

    def __init__(self, folder: Path, cluster: EmbeddedCluster, settings: SoakSettings) -> None:
        self._folder = str(folder)
        self._endpoints = ",".join(cluster.endpoints)
        self._every = f"{settings.archive_every_s:g}s"

    @contextmanager
    def followed(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(self._command("archive", "--every", self._every), text=True) as work:
            try:
                yield work
            finally:
                work.kill()

    def finish(self, work: subprocess.Popen[str]) -> None:
        """Archive the rest, then compare the lake with every replica."""
        work.send_signal(signal.SIGINT)
        if (status := work.wait(END_TIMEOUT_S)) != ExitStatus.INTERRUPTED:
            raise LogStoreError(f"the archive ended with {status}; what it said is above")
        lake = ("--lake", self._folder, "--endpoint", self._endpoints)
        for command in (self._command("archive", "--once"), _logstore("pipeline", "audit", *lake)):
            if subprocess.run(command, timeout=LAKE_TIMEOUT_S, check=False).returncode:
                raise LogStoreError(f"{' '.join(command[3:6])} failed; what it said is above")

    def _command(self, word: str, *options: str) -> list[str]:
        more = ("--endpoint", self._endpoints, *options)
        return _logstore("pipeline", word, self._folder, *more)


def _logstore(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "logstore.cli.main", *arguments]


class _Course:
    """Kills, starts and samples until the time is over."""

    def __init__(
        self,
        settings: SoakSettings,
        cluster: EmbeddedCluster,
        others: list[subprocess.Popen[str]],
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._others = others
        self._held_lsn = 1
        self.samples: list[Sample] = []
        self.returns_s: list[float] = []
        self.kills = 0
        self._removed_since_s: dict[tuple[int, str], float] = {}
        self._began_ns = monotonic_ns()

    @property
    def _now_s(self) -> float:
        return (monotonic_ns() - self._began_ns) / 1e9

    def run(self, say: Callable[[str], None]) -> None:
        settings = self._settings
        nodes = cycle(self._cluster.nodes)
        kill_at_s = settings.kill_every_s / 2
        while self._now_s < settings.seconds:
            if self._now_s >= kill_at_s:
                kill_at_s += settings.kill_every_s
                self._kill_and_return(next(nodes), next(nodes), say)
            self._wait(settings.sample_every_s)

    def end(self) -> None:
        """The last sample, when the archive is done: a slow one has held the whole log so far."""
        first_lsn, cluster = self.samples[0].log_start_lsn, self._cluster
        poll_until(
            lambda: _log_start_lsn(map(cluster.counters, cluster.nodes)) > first_lsn, END_TIMEOUT_S
        )
        self.samples.append(self._sample())

    def _kill_and_return(self, node: int, other: int, say: Callable[[str], None]) -> None:
        cluster = self._cluster
        node = other if node == cluster.wait_for_leader() else node
        cluster.kill(node)
        self.kills += 1
        self._wait(self._settings.down_s)
        wanted = max(cluster.visible_lsn(each) for each in cluster.nodes)
        started_s = self._now_s
        cluster.start(node)
        if not self._wait_until(lambda: cluster.visible_lsn(node) >= wanted, CATCH_UP_TIMEOUT_S):
            raise Unreachable(f"node {node} does not show LSN {wanted} in {CATCH_UP_TIMEOUT_S} s")
        self.returns_s.append(round(self._now_s - started_s, 1))
        say(f"{self._now_s:.0f} s: node {node} is back after {self.returns_s[-1]} s")

    def _wait(self, seconds: float) -> None:
        self._wait_until(lambda: False, seconds)

    def _wait_until(self, is_true: Callable[[], bool], timeout_s: float) -> bool:
        """Sample meanwhile."""
        end_s = self._now_s + timeout_s
        while (left_s := end_s - self._now_s) > 0:
            if poll_until(is_true, min(left_s, self._settings.sample_every_s), look_ms=100):
                return True
            self.samples.append(self._sample())
            for other in self._others:
                if other.poll() is not None:
                    raise LogStoreError("a consumer or the archive ended; what it said is above")
        return False

    def _sample(self) -> Sample:
        cluster = self._cluster
        rss_mb: dict[str, float] = {}
        descriptors: dict[str, int] = {}
        now_s = self._now_s
        removed: dict[tuple[int, str], float] = {}
        for node in cluster.nodes:
            for name, pid in cluster.processes(node).items():
                try:
                    process = psutil.Process(pid)
                    rss_mb[f"{node}.{name}"] = round(process.memory_info().rss / 1e6, 1)
                    files = open_files(pid)
                    descriptors[f"{node}.{name}"] = len(files)
                    for file in removed_files(files, cluster.node_folder(node)):
                        removed[pid, file] = self._removed_since_s.get((pid, file), now_s)
                except psutil.NoSuchProcess:  # it ended meanwhile
                    continue
        self._removed_since_s = removed
        self._note_held_lsn()
        counters = {node: cluster.counters(node) for node in cluster.nodes}
        return Sample(
            at_s=round(now_s, 1),
            running=[node for node, found in counters.items() if found.get("visible")],
            visible_lsn=max(cluster.visible_lsn(node) for node in cluster.nodes),
            log_start_lsn=_log_start_lsn(counters.values()),
            disk_mb={
                str(node): round(allocated_bytes(cluster.node_folder(node)) / 1e6, 1)
                for node in cluster.nodes
            },
            rss_mb=rss_mb,
            descriptors=descriptors,
            removed_open=len(removed),
            removed_open_s=round(now_s - min(removed.values(), default=now_s), 1),
            held_lsn=self._held_lsn,
        )

    def _note_held_lsn(self) -> None:
        """While no leader answers, it stands where it did."""
        with suppress(Unreachable, NoQuorum), logstore.connect(self._cluster.endpoints) as client:
            held = [cursor.lsn for cursor in client.admin.cursors() if cursor.hold]
            self._held_lsn = min(held, default=client.admin.commit_lsn() + 1)


def open_files(pid: int) -> list[str]:
    """What the descriptors of a process refer to.

    Raises:
      NoSuchProcess: it has ended.
    """
    folder = f"/proc/{pid}/fd"
    files = []
    try:
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):  # closed meanwhile
                files.append(os.readlink(f"{folder}/{name}"))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return files


def _log_start_lsn(counters: Iterable[Mapping[str, int]]) -> int:
    return max(found.get("log_start_lsn", 0) for found in counters)


def removed_files(files: list[str], folder: Path) -> set[str]:
    """Those of them that are files of `folder` and were removed."""
    below = f"{os.path.realpath(folder)}/"  # as the kernel names it
    return {file for file in files if file.startswith(below) and file.endswith(" (deleted)")}


def _result(
    settings: SoakSettings, course: _Course, produced: LoadResult, consumed: dict[str, LoadResult]
) -> Soak:
    samples = course.samples
    trims = len({sample.log_start_lsn for sample in samples}) - 1
    if not trims:
        raise LogStoreError("nothing was trimmed: give more --minutes, or less --retention")
    return Soak(
        settings=settings,
        payloads=produced.payloads,
        checked={node: each.payloads for node, each in consumed.items()},
        p50_ms=produced.p50_ms,
        p99_ms=produced.p99_ms,
        slowest_ms=produced.slowest_ms,
        kills=course.kills,
        returns_s=course.returns_s,
        trims=trims,
        log_start_lsn=samples[-1].log_start_lsn,
        disk_mb_max=max(max(sample.disk_mb.values()) for sample in samples),
        disk_over_max=disk_over_max(settings, samples),
        removed_open_max=max(sample.removed_open for sample in samples),
        removed_open_max_s=max(sample.removed_open_s for sample in samples),
        growth=growth(samples),
    )


def disk_over_max(settings: SoakSettings, samples: list[Sample]) -> float:
    """What the fullest replica took over what it had to keep at that time: what retention or a
    cursor kept a moment before, up to two segments more, one that is open, one that is prepared."""
    found = 0.0
    for at, sample in enumerate(samples):
        held_lsn = min(each.held_lsn for each in samples[max(0, at - _TRIM_SAMPLES) : at + 1])
        held_bytes = (sample.visible_lsn + 1 - held_lsn) * settings.payload_bytes
        kept_bytes = max(settings.retention_bytes, held_bytes) + 4 * settings.segment_bytes
        found = max(found, *(each * 1e6 / kept_bytes for each in sample.disk_mb.values()))
    return round(found, 3)


def growth(samples: list[Sample]) -> dict[str, float]:
    """Disk, memory and descriptors of all replicas together: late over early. 0: too few
    samples."""
    whole = [sample for sample in samples if len(sample.running) == REPLICAS]
    size = len(whole) // _PARTS
    early, late = whole[size : 2 * size], whole[len(whole) - size :]

    def ratio(what: Callable[[Sample], float]) -> float:
        if not size:
            return 0.0
        return round(median(map(what, late)) / median(map(what, early)), 3)

    return {
        "disk": ratio(lambda sample: sum(sample.disk_mb.values())),
        "memory": ratio(lambda sample: sum(sample.rss_mb.values())),
        "descriptors": ratio(lambda sample: sum(sample.descriptors.values())),
    }
