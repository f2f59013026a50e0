"""Log → lake: rounds of files, each durable with its manifest before the cursor moves.

Owns the plan and the cursor. The lake says where an archive continues; the named cursor in the log
follows it, with a hold, so that nothing is trimmed that the lake does not have. A crash leaves the
cursor at most one round behind its lake, never ahead. The cursor moves only once every file that
the manifest names is there, with its length: a lake with a hole keeps the log from being trimmed.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import msgspec

from logstore.client.client import LogClient
from logstore.errors import (
    CursorMoved,
    InvalidRequest,
    InvariantViolated,
    NotReady,
    OutcomeUnknown,
    OutOfRange,
    WrongCluster,
)
from logstore.limits import MIB
from logstore.spark.jobs import StartSpark, run_tasks
from logstore.spark.lake import LakeWriter, Written, check_files_are_there, make_durable
from logstore.spark.lake_file import write_lake_file
from logstore.spark.lake_manifest import SUFFIX, LakeFile, Manifest
from logstore.spark.lake_proof import check_same_log
from logstore.spark.planning import Bounds, Planner
from logstore.spark.ranges import LsnPartition, read_partition
from logstore.spark.read_options import ReadOptions, parse_read_options
from logstore.storage.disk import write_error

DEFAULT_CURSOR = "archive"
# A second or two of one core: little to do again after a failure, and few files for a manifest.
FILE_BYTES = 128 * MIB


class ArchiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an archive.

    Attributes:
      endpoints: "HOST:PORT[,…]" of replicas.
      replica: whom to read: any (followers first), leader, follower or a node id.
      cursor: the name of the cursor in the log; one for each lake.
      file_bytes: of the log in one file, at least, but in the last one of a pass.
      files_at_once: of one round; what is lost when a round fails, and what runs in parallel; None:
        as many as Spark runs tasks.
      timeout_s: how long the log may not answer.
      adopts: go on with the lake of another cluster, if this one was restored from it.
    """

    endpoints: str
    replica: str = "any"
    cursor: str = DEFAULT_CURSOR
    file_bytes: int = FILE_BYTES
    files_at_once: int | None = None
    timeout_s: float
    adopts: bool = False


class Archive:
    """Adds to one lake. Used by one thread."""

    def __init__(self, spark: StartSpark, writer: LakeWriter, options: ArchiveOptions) -> None:
        self._spark = spark
        self._writer = writer
        self._options = options
        self._read = parse_read_options(
            {
                "endpoints": options.endpoints,
                "replica": options.replica,
                "fetchTimeoutMs": str(int(options.timeout_s * 1_000)),
            },
            is_streaming=False,
        )
        self._cluster_id = ""
        self._cursor_lsn, self._is_held = 0, False

    def begin(self) -> Manifest:
        """Find where the lake ends, or make it, and let the cursor stand there. An empty
        lake without a cursor is made again: nothing held the log, which may have been trimmed.

        Raises:
          WrongCluster: the lake is another cluster's.
          CursorMoved: the cursor is ahead of the lake, or there is one and no lake.
          CorruptData: a file of the lake is gone or cut; nothing was moved.
          OutOfRange: what comes next was trimmed, or the log ends before the lake does.
          NotReady: the replica that was asked does not show yet what the lake has.
          Unreachable, NoQuorum: no replica answered in time, or no majority.
        """
        planner = Planner(self._read)
        self._cluster_id = planner.cluster_id
        bounds = planner.bounds()
        self._cursor_lsn, self._is_held = _standing(planner.client, self._options.cursor)
        manifest = self._writer.manifest
        if manifest is None:
            self._refuse_cursor(next_lsn=0)
            return self._first(planner.cluster_id, bounds.log_start_lsn, planner.client)
        if manifest.newest_cluster_id != planner.cluster_id:
            if not self._options.adopts:
                raise WrongCluster(
                    f"{self._writer.folder} is a lake of cluster {manifest.newest_cluster_id}; "
                    f"{planner.cluster_id} answers at {self._options.endpoints}: give its "
                    "endpoints, or another lake, or --adopt for a cluster restored from this one"
                )
            check_same_log(planner.client, self._writer.folder, manifest)
        if self._writer.is_empty and not self._cursor_lsn:
            return self._first(manifest.cluster_id, bounds.log_start_lsn, planner.client)
        self._refuse_cursor(next_lsn=manifest.next_lsn)
        self._refuse_gap(planner, bounds, manifest.next_lsn)
        check_files_are_there(self._writer.folder, manifest.files)
        try:
            self._move_cursor(planner.client, manifest.next_lsn)
        except OutOfRange as error:  # trimmed meanwhile, or the replica that was asked lags
            last_lsn = planner.client.admin.commit_lsn()
            raise _gap(manifest.next_lsn, first_lsn=error.first, last_lsn=last_lsn) from error
        # Only now is it sure that the log has what these files may have, and keeps it.
        self._writer.remove_unnamed()
        return manifest

    def _refuse_gap(self, planner: Planner, bounds: Bounds, next_lsn: int) -> None:
        """What a replica shows is no verdict: it may lag. What a majority has committed is."""
        last_lsn = bounds.visible_lsn
        if next_lsn > last_lsn + 1:
            last_lsn = planner.client.admin.commit_lsn()
            if next_lsn <= last_lsn + 1:
                raise NotReady(
                    f"the lake ends before LSN {next_lsn}, and the replica that was asked shows "
                    f"the log up to {bounds.visible_lsn} only: begin again when it has caught up"
                )
        if not bounds.log_start_lsn <= next_lsn <= last_lsn + 1:
            raise _gap(next_lsn, first_lsn=bounds.log_start_lsn, last_lsn=last_lsn)

    def head_lsn(self) -> int:
        """The last LSN of the log now."""
        return self._planner().bounds().visible_lsn

    def pending_bytes(self, last_lsn: int) -> int:
        """About how much there is from the lake's end to `last_lsn`."""
        next_lsn = self._manifest.next_lsn
        if next_lsn > last_lsn:
            return 0
        return self._planner().spans(next_lsn, last_lsn, limit=1).size_bytes

    def rounds(self, last_lsn: int) -> Iterator[list[LakeFile]]:
        """Archive up to `last_lsn`; the files of each round, once they are durable and the cursor
        is after them.

        Raises:
          CursorMoved: another client moves the cursor; the lake is whole, and one round ahead.
          WrongCluster: another cluster answers by now; nothing of it was taken.
          CorruptData: a file of the lake is gone or cut; the cursor is before this round.
          LogStoreError: the log cannot be read, or the lake not be written; begin again.
        """
        while (next_lsn := self._manifest.next_lsn) <= last_lsn:
            planner = self._planner()
            tasks = self._plan(planner, next_lsn, last_lsn)
            work = partial(archive_file, self._read, self._writer.incoming)
            written = run_tasks(self._spark, work, tasks)
            manifest = self._writer.add(self._manifest, written)
            check_files_are_there(self._writer.folder, manifest.files)
            self._move_cursor(planner.client, manifest.next_lsn)
            yield list(manifest.files[-len(written) :])

    # --- inside ---

    @property
    def _manifest(self) -> Manifest:
        if self._writer.manifest is None:
            raise InvariantViolated("an archive that has not begun")
        return self._writer.manifest

    def _planner(self) -> Planner:
        """Of the cluster that this began with: another one may be formed at its endpoints, even one
        restored from this lake."""
        planner = Planner(self._read)
        if planner.cluster_id != self._cluster_id:
            raise WrongCluster(
                f"cluster {planner.cluster_id} answers at {self._options.endpoints} by now; "
                f"{self._cluster_id} did when this archive began: begin again"
            )
        return planner

    def _plan(self, planner: Planner, first_lsn: int, last_lsn: int) -> list[LsnPartition]:
        """One task a file; all borders are those of entries, so of batches."""
        spans = planner.some_spans(
            first_lsn,
            last_lsn,
            size_bytes=self._options.file_bytes,
            limit=self._options.files_at_once or self._spark().sparkContext.defaultParallelism,
        )
        return [
            LsnPartition(
                first_lsn=span.first_lsn,
                last_lsn=span.last_lsn,
                number=number,
                leader=planner.leader,
                cluster_id=planner.cluster_id,
                endpoints=planner.endpoints,
            )
            for number, span in enumerate(spans)
        ]

    def _first(self, cluster_id: str, first_lsn: int, client: LogClient) -> Manifest:
        """The lake before its first file. The manifest comes before the cursor: a cursor without a
        lake is always another lake's."""
        manifest = self._writer.make(cluster_id=cluster_id, first_lsn=first_lsn)
        try:
            self._move_cursor(client, first_lsn)
        except OutOfRange as bounds:
            # The log start has risen since it was asked for, and nothing held it then.
            return self._first(cluster_id, bounds.first, client)
        return manifest

    def _refuse_cursor(self, *, next_lsn: int) -> None:
        if self._cursor_lsn > next_lsn:
            name, folder = self._options.cursor, self._writer.folder
            where = f"ends before LSN {next_lsn}" if next_lsn else "is no lake yet"
            raise CursorMoved(
                f"cursor {name!r} stands at LSN {self._cursor_lsn}, and {folder} {where}: it is "
                "another lake's cursor, or this is not the folder it was (is its disk mounted?); "
                f"give another --cursor, or delete this one: logstore cursor delete {name}",
                lsn=self._cursor_lsn,
            )

    def _move_cursor(self, client: LogClient, lsn: int) -> None:
        if lsn == self._cursor_lsn and self._is_held:
            return
        name = self._options.cursor
        try:
            client.admin.set_cursor(name, lsn, hold=True, expected_lsn=self._cursor_lsn)
        except OutcomeUnknown:
            # The lake's lock keeps other archives out: if the cursor is there, this one moved it.
            if _standing(client, name) != (lsn, True):
                raise
        self._cursor_lsn, self._is_held = lsn, True


def archive_file(options: ReadOptions, folder: str, partition: LsnPartition) -> Written:
    """A task: the partition's batches as a file in `folder`, flushed.

    Raises:
      DiskFull, WriteFailed: the file cannot be written; nothing is left of it.
      LogStoreError: the log cannot be read.
    """
    path = os.path.join(folder, f"{partition.first_lsn:019d}-{uuid.uuid4().hex}{SUFFIX}")
    try:
        batches = read_partition(options, partition)
        file = write_lake_file(path, batches, cluster_id=partition.cluster_id)
        if (file.first_lsn, file.last_lsn) != (partition.first_lsn, partition.last_lsn):
            raise InvariantViolated(f"LSNs {partition.value} were planned, {file} came")
        make_durable(path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise write_error("writing", path, error) from error
        raise
    return Written(path, file)


def _gap(next_lsn: int, *, first_lsn: int, last_lsn: int) -> OutOfRange:
    return OutOfRange(
        f"the lake ends before LSN {next_lsn}, the log has LSNs {first_lsn} to {last_lsn}: "
        "what is between is lost; begin another lake",
        first=first_lsn,
        last=last_lsn,
    )


def _standing(client: LogClient, name: str) -> tuple[int, bool]:
    """Where a cursor stands, 0 if there is none, and whether it holds what follows."""
    found = (each for each in client.admin.cursors() if each.name == name)
    return next(((each.lsn, each.hold) for each in found), (0, False))


def check_file_bytes(size_bytes: int) -> int:
    """A size that files may have.

    Raises:
      InvalidRequest: it is none.
    """
    if not MIB <= size_bytes <= 4_096 * MIB:
        raise InvalidRequest(f"files of {size_bytes} bytes of the log: give 1MiB to 4GiB")
    return size_bytes
