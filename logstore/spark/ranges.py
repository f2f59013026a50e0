"""Reading one range of LSNs for one task: from which replica, and what if it fails.

Owns the order of the replicas and when to try the next. What was handed on is never read again:
another replica continues where the last one stopped, and all replicas hold the same at an LSN.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from pyspark.sql.datasource import InputPartition

from logstore.client.client import LogClient
from logstore.client.clock import milliseconds_until, seconds_from_now
from logstore.client.records import RecordBatch
from logstore.client.refusal import TRANSIENT
from logstore.errors import (
    ConfigError,
    CorruptData,
    FormatError,
    LogStoreError,
    NoQuorum,
    OutOfRange,
    Unreachable,
    WrongCluster,
)
from logstore.limits import MIB
from logstore.spark.connections import connected
from logstore.spark.read_options import ReadOptions

_LOG = logging.getLogger(__name__)
FETCH_BYTES = 2 * MIB
# How long one replica may take in the first round; twice that in the next, and so on.
TRY_S = 2.0
PAUSE_S = 0.05
# How long a leader is looked for where reading can continue without one.
LEADER_WAIT_S = 2.0


class LsnPartition(InputPartition):
    """What one task reads: [first_lsn, last_lsn] of this cluster.

    Attributes:
      number: its place in the plan; tasks begin at different followers.
      leader: node id of the leader when this was planned; 0: none was known.
      endpoints: of the members then, "HOST:PORT[,…]": a worker that is new need not reach any of
        those in the options, from which the cluster may have moved away; empty: not known.
    """

    def __init__(
        self,
        *,
        first_lsn: int,
        last_lsn: int,
        number: int,
        leader: int,
        cluster_id: str,
        endpoints: str = "",
    ) -> None:
        super().__init__((first_lsn, last_lsn))
        self.first_lsn = first_lsn
        self.last_lsn = last_lsn
        self.number = number
        self.leader = leader
        self.cluster_id = cluster_id
        self.endpoints = endpoints


def try_leader(client: LogClient) -> int:
    """Node id of the leader; 0: there is none now."""
    try:
        return client.admin.leader(timeout=LEADER_WAIT_S)
    except (NoQuorum, Unreachable):
        return 0


def replica_order(client: LogClient, replica: str | int, *, number: int, leader: int) -> list[int]:
    """Node ids in the order a task tries them, never none.

    Raises:
      ConfigError: the cluster has no such replica.
      Unreachable: no replica says which nodes there are.
    """
    nodes = sorted(client.nodes())
    if isinstance(replica, int):
        if replica not in nodes:
            raise ConfigError(f"option replica: no node {replica}; the cluster has {nodes}")
        return [replica]
    if replica == "leader":
        return [leader or client.admin.leader()]
    followers = [node for node in nodes if node != leader]
    start = number % len(followers) if followers else 0
    followers = followers[start:] + followers[:start]
    if replica == "follower":
        if not followers:
            raise ConfigError("option replica: the cluster has no follower; give any or leader")
        return followers
    return [*followers, leader] if leader in nodes else followers


def lost_records(first_lsn: int, last_lsn: int, log_start_lsn: int) -> OutOfRange:
    """The error for LSNs below the log start."""
    return OutOfRange(
        f"LSNs {first_lsn} to {min(last_lsn, log_start_lsn - 1)} are below the log start, "
        f"{log_start_lsn}: they were trimmed. Read them from an archive, begin at "
        f"{log_start_lsn}, or leave them out with failOnDataLoss=false",
        first=log_start_lsn,
        last=last_lsn,
    )


def without_lost(options: ReadOptions, first_lsn: int, last_lsn: int, log_start_lsn: int) -> int:
    """Where reading [first_lsn, last_lsn] begins in a log that begins at `log_start_lsn`: above
    `first_lsn` only where records may be left out, above `last_lsn` where all of them are.

    Raises:
      OutOfRange: they may not.
    """
    if first_lsn >= log_start_lsn or first_lsn > last_lsn:
        return first_lsn
    if options.fails_on_data_loss:
        raise lost_records(first_lsn, last_lsn, log_start_lsn)
    return min(log_start_lsn, last_lsn + 1)


def log_lost(lost: range) -> None:
    """Say which LSNs are left out, if any are."""
    if lost:
        text = "LSNs %d to %d, %d records, were trimmed before they were read: left out"
        _LOG.warning(text, lost[0], lost[-1], len(lost))


def read_partition(options: ReadOptions, partition: LsnPartition) -> Iterator[RecordBatch]:
    """The batches of a partition, in order, none left out.

    Raises:
      Unreachable: no replica served it for `fetchTimeoutMs`.
      OutOfRange: some of it was trimmed meanwhile, and failOnDataLoss says to fail.
      CorruptData: the disks of all replicas that may be read are damaged there.
      WrongCluster: another cluster answers at the endpoints by now.
    """
    endpoints = partition.endpoints or options.endpoints
    found = connected(endpoints, timeout_s=options.fetch_timeout_s)
    if found.cluster_id != partition.cluster_id:
        raise WrongCluster(
            f"cluster {found.cluster_id} answers at {endpoints}; the query was planned at "
            f"cluster {partition.cluster_id}"
        )
    return _Reading(found.client, options, partition).run()


class _Reading:
    """One partition's way through the replicas."""

    def __init__(self, client: LogClient, options: ReadOptions, partition: LsnPartition) -> None:
        self._client = client
        self._options = options
        self._partition = partition
        self._next_lsn = partition.first_lsn
        self._damaged: set[int] = set()
        self._deadline_ns = 0

    def run(self) -> Iterator[RecordBatch]:
        leader = self._partition.leader
        try_s = TRY_S
        self._extend_deadline()
        while True:
            nodes = replica_order(
                self._client, self._options.replica, number=self._partition.number, leader=leader
            )
            for node in nodes:
                trouble: LogStoreError | None = None
                try:
                    yield from self._read(node, try_s)
                except LogStoreError as error:
                    trouble = error
                if trouble is not None:
                    self._consider(node, nodes, trouble)
                if self._next_lsn > self._partition.last_lsn:
                    return
            time.sleep(PAUSE_S)
            leader = try_leader(self._client)
            try_s = min(2 * try_s, self._options.fetch_timeout_s)

    def _read(self, node: int, try_s: float) -> Iterator[RecordBatch]:
        last_lsn = self._partition.last_lsn
        with self._client.reader(
            replica=node, timeout=try_s, max_bytes=FETCH_BYTES, reads_ahead=True
        ) as reader:
            for batch in reader.read(self._next_lsn, last_lsn, min_lsn=last_lsn):
                self._go_on_at(batch.last_lsn + 1)
                yield batch
                self._extend_deadline()

    def _go_on_at(self, lsn: int) -> None:
        self._next_lsn = lsn
        self._damaged.clear()  # a replica that is damaged below may have all from here on

    def _extend_deadline(self) -> None:
        self._deadline_ns = seconds_from_now(self._options.fetch_timeout_s)

    def _consider(self, node: int, nodes: list[int], error: LogStoreError) -> None:
        """Return if another try may help, here or elsewhere; else raise what tells most."""
        last_lsn = self._partition.last_lsn
        if isinstance(error, OutOfRange):
            if self._next_lsn < error.first:
                first_lsn, start_lsn = self._next_lsn, error.first
                self._go_on_at(without_lost(self._options, first_lsn, last_lsn, start_lsn))
                log_lost(range(first_lsn, self._next_lsn))
                return
        elif isinstance(error, CorruptData | FormatError):
            self._damaged.add(node)
            if self._damaged.issuperset(nodes):
                raise error
        elif error.code not in TRANSIENT:
            raise error
        if not milliseconds_until(self._deadline_ns):
            raise Unreachable(
                f"LSNs {self._next_lsn} to {last_lsn}: no replica of {nodes} (option replica: "
                f"{self._options.replica}) served them within fetchTimeoutMs = "
                f"{self._options.fetch_timeout_ms}; node {node} said: {error}"
            ) from error
