"""A stream in and out under kills: two clusters, a driver, and a list of what is killed when.

Rows go into the source while the stream copies them into the target. Both logs begin empty, so
row n has LSN n + 1 in either of them, whatever was killed: anything else is a violation.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import psutil

import logstore
from logstore.cli.embedded import EmbeddedCluster, make_small_config, poll_until
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.client.future import AppendFuture
from logstore.client.producer_options import ProducerOptions
from tests.spark.chaos.content import CHUNK_ROWS, Comparison, chunk, compare
from tests.spark.chaos.copier import Copier
from tests.spark.chaos.driver import Copy
from tests.spark.chaos.plan import Kill, Kind, records_a_batch
from tests.spark.standalone import StandaloneSpark

STALL_TIMEOUT_S = 300.0  # without a row in the target: some restarts of everything
DELIVERY_TIMEOUT_S = 240.0
LOOK_MS = 50
AHEAD_BATCHES = 3  # so that the stream never comes to its end before a kill


class Killed(msgspec.Struct):
    """One kill that was made: rows in the target then, and seconds until there were more."""

    kind: Kind
    row: int
    recovery_s: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it.

    Attributes:
      killed: every kill in order.
      drivers: started, the first one included.
      failures: last line of drivers that ended by themselves, and were started again.
      batches: micro-batches that were committed, each counted once.
      replays: commits of a batch that a sink had committed before.
      violations: in words; none is what is wanted.
    """

    rows: int
    killed: list[Killed]
    drivers: int
    failures: list[str]
    batches: int
    replays: int
    records_a_batch: int
    source: Comparison
    target: Comparison
    wall_s: float
    violations: list[str]


class Chaos:
    """One run. `show` is told the rows in the target and the kills done."""

    def __init__(
        self,
        folder: Path,
        spark: StandaloneSpark,
        *,
        seed: int,
        rows: int,
        kills: list[Kill],
        show: Callable[[int, int], None] = lambda _rows, _kills: None,
    ) -> None:
        self._folder = folder
        self._spark = spark
        self._seed = seed
        self._rows = rows
        self._kills = kills
        self._show = show
        self._random = Random(f"{seed}/victims")
        self._batch = records_a_batch(len(kills), rows=rows)
        self._futures: deque[AppendFuture] = deque()
        self._fed = 0
        self._feed_limit = 0
        self._killed: list[Killed] = []
        self._killed_at = 0.0
        self._violations: list[str] = []

    def run(self) -> Outcome:
        begun = time.monotonic()
        with ExitStack() as stack:
            self._source = self._start_cluster("source", stack)
            self._target = self._start_cluster("target", stack)
            self._logs = [
                stack.enter_context(logstore.connect(each.endpoints, timeout=60))
                for each in (self._source, self._target)
            ]
            self._producer = stack.enter_context(
                self._logs[0].producer(ProducerOptions(delivery_timeout_s=DELIVERY_TIMEOUT_S))
            )
            self._copier = stack.enter_context(Copier(self._copy()))
            self._copier.start()
            for kill in self._kills:
                self._feed_limit = kill.at_row + AHEAD_BATCHES * self._batch
                self._wait(lambda row=kill.at_row: self._copied() >= row)
                time.sleep(kill.delay_s)
                self._kill(kill.kind)
            self._feed_limit = self._rows
            self._wait(lambda: self._copied() >= self._rows)
            self._require(self._copier.stop() == 0, "the last driver did not stop in order")
            return self._outcome(time.monotonic() - begun)

    # --- the course ---

    def _wait(self, is_true: Callable[[], bool]) -> None:
        """Until it is, feeding the source and starting drivers again that ended by themselves.

        Raises:
          TimeoutError: nothing came into the target for STALL_TIMEOUT_S.
        """
        newest, deadline_ns = -1, 0

        def look() -> bool:
            nonlocal newest, deadline_ns
            self._feed()
            self._copier.start_again_if_it_ended()
            copied = self._copied()
            if copied > newest:
                newest, deadline_ns = copied, seconds_from_now(STALL_TIMEOUT_S)
                self._show(copied, len(self._killed))
                self._note_recovery(copied)
            return is_true() or not milliseconds_until(deadline_ns)

        while not poll_until(look, STALL_TIMEOUT_S, look_ms=LOOK_MS):
            pass
        if not is_true():
            raise TimeoutError(f"row {newest} was the last; the driver said {self._copier.tail()}")

    def _note_recovery(self, copied: int) -> None:
        if self._killed and not self._killed[-1].recovery_s and copied > self._killed[-1].row:
            self._killed[-1].recovery_s = round(time.monotonic() - self._killed_at, 1)

    def _copied(self) -> int:
        return max(self._target.visible_lsn(node) for node in self._target.nodes)

    def _feed(self) -> None:
        """Append what may be appended now, and look at what was."""
        while self._futures and self._futures[0].done():
            self._futures.popleft().result()
        while self._fed < min(self._feed_limit, self._rows) and len(self._futures) < 100:
            payloads = chunk(self._seed, self._fed // CHUNK_ROWS)[: self._rows - self._fed]
            self._futures.append(self._producer.append_batch(payloads))
            self._fed += len(payloads)

    def _kill(self, kind: Kind) -> None:
        match kind:
            case Kind.DRIVER_BETWEEN:
                self._kill_between()
            case Kind.DRIVER_JVM:
                self._note_kill(kind)
                self._copier.kill_jvm_and_start()
            case Kind.EXECUTOR:
                self._kill_one(kind, self._spark.executors)
            case Kind.PYTHON:
                self._kill_one(kind, self._python_processes)
            case Kind.SOURCE_LEADER:
                self._kill_leader(kind, self._source)
            case Kind.TARGET_LEADER:
                self._kill_leader(kind, self._target)

    def _note_kill(self, kind: Kind) -> None:
        self._killed.append(Killed(kind, self._copied(), 0.0))
        self._killed_at = time.monotonic()

    def _kill_between(self) -> None:
        """Wait until the sink has committed and Spark knows nothing of it, then kill the driver."""
        self._copier.hold()
        self._feed_limit = self._rows
        self._wait(lambda: self._copier.held_batch() is not None)
        batch = self._copier.held_batch()
        assert batch is not None
        self._note_kill(Kind.DRIVER_BETWEEN)
        self._copier.kill()
        self._require(
            self._copier.is_logged(batch, log="offsets")
            and not self._copier.is_logged(batch, log="commits"),
            f"the driver was not between the commits of batch {batch}",
        )
        self._copier.start()

    def _kill_one(self, kind: Kind, victims: Callable[[], list[psutil.Process]]) -> None:
        """Kill one of them, drawn; wait for one if there is none just now."""
        found: list[psutil.Process] = []

        def is_there() -> bool:
            found[:] = victims()
            return bool(found)

        self._wait(is_there)
        victim = self._random.choice(sorted(found, key=lambda each: each.pid))
        self._note_kill(kind)
        victim.kill()

    def _kill_leader(self, kind: Kind, cluster: EmbeddedCluster) -> None:
        """SIGKILL all processes of whoever leads; once another one does, start it again."""
        leader = cluster.wait_for_leader()
        self._note_kill(kind)
        cluster.kill(leader)
        cluster.wait_for_leader(other_than=leader)
        cluster.start(leader)

    def _python_processes(self) -> list[psutil.Process]:
        """Daemons and workers; a worker is the more likely the more there are."""
        return [
            each
            for executor in self._spark.executors()
            for each in executor.children(recursive=True)
        ]

    # --- what came of it ---

    def _outcome(self, wall_s: float) -> Outcome:
        while self._futures:
            self._futures.popleft().result(timeout=DELIVERY_TIMEOUT_S)
        source, target = (compare(_rows_of(log), self._seed, self._rows) for log in self._logs)
        for name, found in (("source", source), ("target", target)):
            for problem in found.problems:
                self._violations.append(f"{name}: {problem}")
        self._require(source.checksum == target.checksum, "the logs' checksums differ")
        for log, cluster in zip(self._logs, (self._source, self._target), strict=True):
            self._require(_agree(log, cluster, self._rows), "replicas of one cluster differ")
        batches = self._copier.batches()
        replays = len(batches) - len(set(batches))
        between = sum(each.kind == Kind.DRIVER_BETWEEN for each in self._killed)
        self._require(replays >= between, f"{replays} replays after {between} kills between")
        commits = self._logs[1].admin.session_commits(self._copier.query_id())
        self._require(
            commits is not None and commits.commits[-1].sequence == max(batches),
            f"the log's last batch of the query is not {max(batches)}: {commits}",
        )
        return Outcome(
            rows=self._rows,
            killed=self._killed,
            drivers=self._copier.starts,
            failures=self._copier.failures,
            batches=len(set(batches)),
            replays=replays,
            records_a_batch=self._batch,
            source=source,
            target=target,
            wall_s=round(wall_s, 1),
            violations=self._violations,
        )

    def _require(self, is_true: bool, otherwise: str) -> None:
        if not is_true:
            self._violations.append(otherwise)

    # --- what takes part ---

    def _start_cluster(self, name: str, stack: ExitStack) -> EmbeddedCluster:
        folder = self._folder / name
        folder.mkdir()
        cluster = stack.enter_context(EmbeddedCluster(folder, make_small_config(3, Random())))
        cluster.start_all()
        cluster.wait_for_leader()
        return cluster

    def _copy(self) -> Copy:
        folder = self._folder / "driver"
        folder.mkdir()
        return Copy(
            master=self._spark.url,
            source=",".join(self._source.endpoints),
            target=",".join(self._target.endpoints),
            folder=str(folder),
            records=self._batch,
        )


def _rows_of(log: logstore.LogClient) -> Iterator[tuple[int, bytes]]:
    last = log.admin.commit_lsn()
    for batch in log.read(1, last, min_lsn=last):
        yield from enumerate(batch.payloads(), batch.first_lsn)


def _agree(log: logstore.LogClient, cluster: EmbeddedCluster, last_lsn: int) -> bool:
    """Whether every replica has the same batches."""
    for node in cluster.nodes:
        cluster.wait_until_visible(node, last_lsn)
    return len({log.digest(1, last_lsn, replica=node).hexdigest() for node in cluster.nodes}) == 1
