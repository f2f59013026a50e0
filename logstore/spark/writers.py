"""Writing to the log: tasks gather rows, the driver appends them once all tasks have succeeded.

Nothing is in the log before the driver's commit, so an abort has nothing to undo; and it must undo
nothing, for Spark calls it, too, when a commit came through and only its answer was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logstore.errors import ConfigError, InvalidRequest, Unreachable
from logstore.spark.connections import client_of
from logstore.spark.sink_commit import commit_rows
from logstore.spark.task_rows import PAYLOAD, TaskRows, collect_task, join_payloads
from logstore.spark.write_options import WriteOptions

_LOG = logging.getLogger(__name__)
_TYPES = ("binary", "string")


def check_sink(fields: Iterable[tuple[str, str]], *, is_overwrite: bool) -> None:
    """Whether rows of these columns (name, Spark's simple type) can be appended.

    Raises:
      ConfigError: they cannot; says what to do.
    """
    if is_overwrite:
        raise ConfigError(
            'a log is never overwritten: use mode("append"), and of streams outputMode("append")'
        )
    found = dict(fields)
    others = [name for name in found if name != PAYLOAD]
    advice = (
        "select it alone, or make payloads of other columns with logstore.spark.json_payloads(…)"
    )
    if PAYLOAD not in found:
        raise ConfigError(f"schema: no column payload among {', '.join(others)}: {advice}")
    if others:
        raise ConfigError(f"schema: only payload is appended, not {', '.join(others)}: {advice}")
    if found[PAYLOAD] not in _TYPES:
        raise ConfigError(
            f"schema: column payload is {found[PAYLOAD].upper()}, not BINARY or STRING: {advice}"
        )


def ask_batch_max(options: WriteOptions) -> int:
    """What the replicas take in one batch, so that tasks need not gather more.

    Raises:
      Unreachable: no replica answered in time.
    """
    client = client_of(options.endpoints, timeout_s=options.commit_timeout_s)
    try:
        return client.batch_max_bytes()
    except Unreachable as error:
        raise Unreachable(
            f"{error} (option endpoints: {options.endpoints}; waited commitTimeoutMs = "
            f"{options.commit_timeout_ms})"
        ) from None


class LogBatchWriter(DataSourceArrowWriter):
    """`df.write`: one atomic append, named by txnAppId and txnVersion where they are given."""

    def __init__(self, options: WriteOptions, batch_max_bytes: int) -> None:
        self._options = options
        self._batch_max_bytes = batch_max_bytes

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return collect_task(
            iterator, batch_max_bytes=self._batch_max_bytes, is_atomic=self._options.is_atomic
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        rows, wanted = _rows_of(messages), self._options.expected_rows
        found = sum(each.count for each in rows)
        if wanted is not None and found != wanted:
            raise InvalidRequest(
                f"option expectedRows: {wanted}, and the query gave {found}; nothing was written"
            )
        sequence = self._options.txn_version or 0
        _commit(self._options, rows, self._options.txn_app_id, sequence)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing was written."""


class LogStreamWriter(DataSourceStreamArrowWriter):
    """`writeStream`: a micro-batch is one atomic append, named by the query and the batch id."""

    def __init__(self, options: WriteOptions, batch_max_bytes: int) -> None:
        self._options = options
        self._batch_max_bytes = batch_max_bytes

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return collect_task(
            iterator, batch_max_bytes=self._batch_max_bytes, is_atomic=self._options.is_atomic
        )

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's
    ) -> None:
        rows = _rows_of(messages)
        if not rows:
            return
        name = self._options.txn_app_id or rows[0].query_id
        if not name:
            raise InvalidRequest("Spark does not tell the query's id here: give option txnAppId")
        _commit(self._options, rows, name, batchId)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's
    ) -> None:
        """The batch is there, or it is not: if it comes again, the log knows."""


def _rows_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    return [each for each in messages if isinstance(each, TaskRows) and each.count]


def _commit(
    options: WriteOptions, rows: Sequence[TaskRows], name: str | None, sequence: int
) -> None:
    if not rows:
        return
    found = commit_rows(options, join_payloads(rows), name=name, sequence=sequence)
    _LOG.info("%s: batch %d is in the log as LSNs %s", name, sequence, found)
