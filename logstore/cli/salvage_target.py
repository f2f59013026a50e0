"""The cluster that a log is salvaged into: fresh, or with nothing but the beginning of that log.

Owns what is asked of it before the first batch is sent, and what an operator is told to do if it is
not fresh (SAFETY L8). Batches that are there already are compared byte for byte by the import
itself, so a salvage that was broken off goes on, and another log is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logstore.client.client import LogClient
from logstore.errors import BatchTooLarge, ImportRefused, InvalidRequest
from logstore.format.batch import batch_size, batch_sizes, read_batch_header
from logstore.storage.folder_log import FolderLog
from logstore.storage.whole_entries import WholeBatch


class Imported(msgspec.Struct, frozen=True):
    """What a cluster holds of the log now; `present_lsn`: up to which LSN it was there before."""

    endpoints: str
    present_lsn: int
    last_lsn: int


class SalvageTarget:
    """One cluster, at `endpoints`, for one log."""

    def __init__(self, client: LogClient, endpoints: str, log: FolderLog) -> None:
        self._admin = client.admin
        self._endpoints = endpoints
        self._log = log
        self._largest_bytes = 0

    def fill(self, batches: Iterator[WholeBatch]) -> Imported:
        """Form the cluster if it is not formed yet, and import what `batches` gives.

        Raises:
          ImportRefused: it holds something else, or may, or its log begins elsewhere.
          BatchTooLarge: its batch_max is too small for this log.
          LevelRefused: its format level is too low for compressed batches.
          Unreachable, NoQuorum: no progress in time: run it again.
        """
        present_lsn = self._prepare()
        first_lsn = self._log.first_lsn
        try:
            end_lsn = self._admin.import_batches(first_lsn, self._counted(batches))
        except BatchTooLarge as error:
            raise BatchTooLarge(
                f"a batch of this log is too large for {self._endpoints}: give its replicas a "
                f"[limits] batch_max of {self._largest_bytes} bytes at least, what the old "
                f"cluster had, and run this again ({error})"
            ) from error
        except ImportRefused as error:
            raise self._refusal(str(error)) from error
        if present_lsn >= max(end_lsn, first_lsn):
            raise self._refusal(
                f"it holds this log up to LSN {end_lsn - 1}, and goes on to LSN {present_lsn}, "
                "which this folder does not have"
            )
        return Imported(self._endpoints, min(present_lsn, end_lsn - 1), end_lsn - 1)

    def _prepare(self) -> int:
        """Check that the cluster is fresh, or holds what may be this log; its last LSN."""
        if self._admin.status()["cluster_id"] == self._log.cluster_id.hex():
            raise self._refusal("it is the cluster that this folder is of")
        first_lsn = self._log.first_lsn
        try:
            self._admin.initialize(first_lsn=first_lsn)
        except InvalidRequest as error:
            raise self._refusal(str(error)) from error
        last_lsn = self._admin.commit_lsn()  # waits for a leader, which a new cluster elects
        marks = self._admin.watermarks(min_lsn=last_lsn, linearizable=True)
        if marks.log_start_lsn != first_lsn:
            raise self._refusal(
                f"its log was trimmed and begins at LSN {marks.log_start_lsn}, this one at LSN "
                f"{first_lsn}"
            )
        if next(self._admin.sessions(), None) is not None:
            raise self._refusal("producers have opened sessions in it")
        if self._admin.cursors():
            raise self._refusal("it has cursors")
        return last_lsn

    def _counted(self, batches: Iterator[WholeBatch]) -> Iterator[memoryview]:
        for batch in batches:
            sizes = batch_sizes(batch.data, 0, read_batch_header(batch.data))
            plain_bytes = batch_size(sizes.count, sizes.plain_bytes)  # which the limit is about
            self._largest_bytes = max(self._largest_bytes, plain_bytes)
            yield batch.data

    def _refusal(self, why: str) -> ImportRefused:
        first_lsn = self._log.first_lsn
        return ImportRefused(
            f"{self._endpoints} is no fresh cluster for this log: {why}. Form another one whose "
            f"log begins at LSN {first_lsn}: on this machine with `logstore cluster up --dir NEW "
            f"--first-lsn {first_lsn}`; elsewhere start replicas with empty folders and auto_init "
            "= false, which this command then forms"
        )
