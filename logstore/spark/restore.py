"""Lake → a fresh cluster: the same batches at the same LSNs, proved by digest.

Owns the order: the lake's files are checked whole, the cluster is formed where the lake's part
begins, the batches are imported in order, and then every replica's digests are compared with the
lake's. What is there already is not sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from logstore.client.client import LogClient, connect
from logstore.errors import CorruptData, InvariantViolated, OutOfRange
from logstore.spark.connections import connected
from logstore.spark.jobs import StartSpark, run_tasks
from logstore.spark.lake import data_path
from logstore.spark.lake_file import read_lake_file
from logstore.spark.lake_manifest import LakeFile, Manifest
from logstore.spark.lake_proof import check_lake_files, lake_digest

OnBytes = Callable[[int], None]


class Restored(msgspec.Struct, frozen=True):
    """What the cluster holds of the lake, on all of its replicas: LSNs [first_lsn, last_lsn].

    `imported_batches`: how many of them this call has added.
    """

    first_lsn: int
    last_lsn: int
    imported_batches: int
    nodes: tuple[int, ...]


class _Proof(msgspec.Struct, frozen=True):
    """A task: one replica's digest of the LSNs of one file."""

    endpoints: str
    node: int
    first_lsn: int
    last_lsn: int
    digest: str
    timeout_s: float


class Restore:
    """Restores from `first_lsn` on: the first LSN of a batch of the lake."""

    def __init__(self, folder: str, manifest: Manifest, first_lsn: int) -> None:
        self.first_lsn = batch_start(folder, manifest, first_lsn)
        self._folder = folder
        self._files = manifest.overlapping(self.first_lsn, manifest.next_lsn - 1)
        self._next_lsn = manifest.next_lsn
        self._batches = 0

    @property
    def size_bytes(self) -> int:
        return sum(file.batch_bytes for file in self._files)

    def run(
        self, spark: StartSpark, endpoints: str, *, timeout_s: float, on_bytes: OnBytes
    ) -> Restored:
        """Raises:
        CorruptData: a file of the lake is damaged, or a replica holds something else in the end.
        OutOfRange: the cluster's log was trimmed: it does not begin with the lake's part any more.
        InvalidRequest: the cluster's log began elsewhere.
        ImportRefused: the cluster is not fresh: it has sessions, or other batches.
        Unreachable, NoQuorum: nothing went on in time; call again.
        """
        check_lake_files(spark, self._folder, self._files)
        with connect(endpoints, timeout=timeout_s) as client:
            client.admin.initialize(first_lsn=self.first_lsn)
            start_lsn = max(self.first_lsn, client.admin.commit_lsn() + 1)
            self._refuse_trimmed(client)
            if start_lsn < self._next_lsn:
                batches = self._data(start_lsn, on_bytes)
                client.admin.import_batches(start_lsn, batches)
            nodes = tuple(sorted(client.nodes()))
            tasks = self._proofs(endpoints, nodes, timeout_s)
        run_tasks(spark, _prove, tasks)
        return Restored(self.first_lsn, self._next_lsn - 1, self._batches, nodes)

    def _refuse_trimmed(self, client: LogClient) -> None:
        marks = client.admin.watermarks()
        if marks.log_start_lsn > self.first_lsn:
            raise OutOfRange(
                f"the log of this cluster was trimmed: it begins at LSN {marks.log_start_lsn}, not "
                f"at {self.first_lsn}: restore into a new cluster",
                first=marks.log_start_lsn,
                last=marks.visible_lsn,
            )

    def _data(self, start_lsn: int, on_bytes: OnBytes) -> Iterator[memoryview]:
        """The batches from `start_lsn` on."""
        done_bytes = 0
        for file in self._files:
            if file.last_lsn >= start_lsn:
                for batch in read_lake_file(data_path(self._folder, file), file):
                    if batch.first_lsn < start_lsn <= batch.last_lsn:
                        raise InvariantViolated(f"the log ends amid the batch at {batch.first_lsn}")
                    if batch.first_lsn >= start_lsn:
                        self._batches += 1
                        yield batch.data
            done_bytes += file.batch_bytes
            on_bytes(done_bytes)

    def _proofs(self, endpoints: str, nodes: tuple[int, ...], timeout_s: float) -> list[_Proof]:
        found = []
        for file in self._files:
            first_lsn, digest = file.first_lsn, file.digest
            if first_lsn < self.first_lsn:
                part = lake_digest(self._folder, file, self.first_lsn)
                first_lsn, digest = part.first_lsn, part.hexdigest()
            for node in nodes:
                found.append(_Proof(endpoints, node, first_lsn, file.last_lsn, digest, timeout_s))
        return found


def batch_start(folder: str, manifest: Manifest, lsn: int) -> int:
    """The first LSN of the batch that holds `lsn`.

    Raises:
      OutOfRange: the lake does not have it.
    """
    for file in manifest.overlapping(lsn, lsn):
        return _start_in(folder, file, lsn)
    last = manifest.next_lsn - 1
    raise OutOfRange(
        f"LSN {lsn} is not in the lake, which has LSNs {manifest.first_lsn} to {last}",
        first=manifest.first_lsn,
        last=last,
    )


def _start_in(folder: str, file: LakeFile, lsn: int) -> int:
    if lsn == file.first_lsn:
        return lsn
    batches = read_lake_file(data_path(folder, file), file)
    return next(batch.first_lsn for batch in batches if batch.last_lsn >= lsn)


def _prove(task: _Proof) -> None:
    found = (
        connected(task.endpoints, timeout_s=task.timeout_s)
        .client.digest(task.first_lsn, task.last_lsn, replica=task.node, min_lsn=task.last_lsn)
        .hexdigest()
    )
    if found != task.digest:
        raise CorruptData(
            f"node {task.node}, LSNs {task.first_lsn} to {task.last_lsn}", 0,
            expected=f"batches of digest {task.digest}", got=found,
        )  # fmt: skip
