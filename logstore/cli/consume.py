"""`logstore consume`: committed payloads of the log to stdout.

Without `--follow` it ends where the log ended when it began. The leader says where that was; the
command waits until the replica that it reads has come that far. With `--cursor` it moves that
cursor behind what it has written, so what a crash leaves unwritten is read again.
"""

from __future__ import annotations

import base64
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import IO

import click
import msgspec

from logstore.cli.exit_status import ExitStatus
from logstore.cli.interrupts import Terminated, terminate
from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import STDOUT, Bar, open_output
from logstore.cli.trouble import other_replica_named
from logstore.client.client import LogClient, connect
from logstore.client.consumer import Consumer
from logstore.client.core.operating import Watermarks
from logstore.client.core.start import TIMESTAMP_MAX_NS, AtCursor, AtTime
from logstore.client.records import RecordBatch
from logstore.client.refusal import explain_bounds
from logstore.errors import LogStoreError, NoQuorum, OutOfRange, Unreachable

Write = Callable[[IO[bytes], RecordBatch], None]
COMMIT_EVERY_S = 1.0
LSN_LIMIT = (1 << 64) - 2
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StartType(click.ParamType[int | str | AtTime]):
    """An LSN, earliest, latest or an ISO 8601 time (local time unless it has a zone)."""

    name = "start"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str | AtTime:
        text = str(value)
        if text in ("earliest", "latest"):
            return text
        if text.isascii() and text.isdigit():
            if len(text) > len(str(LSN_LIMIT)) or not 1 <= int(text) <= LSN_LIMIT:
                self.fail(f"LSNs begin at 1 and end at {LSN_LIMIT}", param, ctx)
            return int(text)
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r}: give an LSN, earliest, latest or a time like 2026-01-31T12:00:00+00:00",
                param,
                ctx,
            )
        return start_at(time)


def start_at(time: datetime) -> AtTime:
    """The start at a time, local unless it has a zone. One before 1970 is before every payload.

    Raises:
      OutOfRange: no payload can have a stamp so late.
    """
    try:
        zoned = time.astimezone()
    except (OverflowError, OSError, ValueError):  # the first and last days there are
        zoned = time.replace(tzinfo=UTC)
    stamp_ns = max(0, (zoned - EPOCH) // timedelta(microseconds=1) * 1_000)
    if stamp_ns > TIMESTAMP_MAX_NS:
        raise OutOfRange(
            f"no payload can be as late as {time}: stamps end in July 2554", first=0, last=0
        )
    return AtTime(stamp_ns)


@click.command()
@click.option(
    "--from",
    "start",
    type=StartType(),
    default="earliest",
    show_default=True,
    metavar="LSN|earliest|latest|TIME",
    help="where to begin",
)
@click.option("--to", "to_lsn", type=IntegerRange(1, LSN_LIMIT), help="the last LSN to read")
@click.option(
    "--cursor",
    metavar="NAME",
    help="begin where this cursor stands (at --from if there is none), and move it along",
)
@click.option("--follow", is_flag=True, help="go on with what is committed from now on")
@click.option(
    "--replica", type=IntegerRange(1), metavar="NODE", help="read this replica and no other"
)
@click.option("--raw", is_flag=True, help="payloads bare, without a line feed after each")
@endpoint_option
@timeout_option
@json_option
def consume(
    start: int | str | AtTime,
    to_lsn: int | None,
    cursor: str | None,
    follow: bool,
    replica: int | None,
    raw: bool,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Write committed payloads to stdout, each with a line feed after it.

    With --json each payload is an object on a line of its own: lsn, timestamp_ns and payload, or
    payload_base64 where it is no UTF-8. With --cursor every payload is written at least once,
    however often the command is interrupted and begun again: the cursor moves once what lies before
    it is written, every second and at the end, also where an error ends it.
    """
    signal.signal(signal.SIGTERM, terminate)
    if to_lsn is not None and isinstance(start, int) and to_lsn < start:
        raise click.UsageError(f"--to {to_lsn} lies before --from {start}")
    if raw and json_path is not None:
        raise click.UsageError("--raw and --json are two forms of one output: name one of them")
    write: Write = _write_raw if raw else _write_lines
    if json_path is not None:
        write = _write_json_lines
    try:
        named = other_replica_named(replica, "--replica")
        with named, connect(endpoints, timeout=timeout_s) as client:
            if cursor is not None:
                end_lsn = to_lsn if follow or to_lsn is not None else _end_of_log(client)
                at_cursor = AtCursor(cursor, absent=start)
                with client.consumer(at_cursor, end_lsn=end_lsn, replica=replica) as consumer:
                    _copy_and_commit(consumer, cursor, json_path or STDOUT, write)
            elif follow:
                batches = client.consumer(start, end_lsn=to_lsn, replica=replica).batches()
                _copy(batches, json_path or STDOUT, write, is_live=True)
            else:
                _consume_bounded(client, start, to_lsn, replica, json_path or STDOUT, write)
    except Terminated:
        sys.exit(ExitStatus.TERMINATED)
    except KeyboardInterrupt:
        sys.exit(ExitStatus.INTERRUPTED)


def _consume_bounded(
    client: LogClient,
    start: int | str | AtTime,
    to_lsn: int | None,
    replica: int | None,
    path: str,
    write: Write,
) -> None:
    """Read from the start to `to_lsn`, or to the leader's commit LSN of now."""
    end_lsn = _end_of_log(client) if to_lsn is None else to_lsn
    try:
        marks = client.admin.watermarks(replica=replica, min_lsn=end_lsn)
    except Unreachable as error:
        if to_lsn is None:
            raise
        marks = client.admin.watermarks(replica=replica)
        raise OutOfRange(
            f"LSN {to_lsn} is not committed; the log ends at {marks.visible_lsn} (--follow waits)",
            first=marks.log_start_lsn,
            last=marks.visible_lsn,
        ) from error
    if to_lsn is not None and to_lsn < marks.log_start_lsn:
        bounds = OutOfRange("", first=marks.log_start_lsn, last=marks.visible_lsn)
        raise explain_bounds(to_lsn, bounds)
    first_lsn = _first_lsn(client, start, marks, end_lsn)
    if first_lsn == end_lsn + 1:
        _copy(iter(()), path, write, is_live=False)
        return
    if first_lsn > end_lsn:
        raise OutOfRange(
            f"LSN {first_lsn} is not committed; the log ends at {end_lsn} (--follow waits)",
            first=marks.log_start_lsn,
            last=end_lsn,
        )
    batches = _read(client, first_lsn, end_lsn, replica, is_earliest=start == "earliest")
    with Bar("reading", None) as bar:
        _copy(batches, path, write, is_live=False, bar=bar)


def _read(
    client: LogClient, first_lsn: int, end_lsn: int, replica: int | None, *, is_earliest: bool
) -> Iterator[RecordBatch]:
    """[first_lsn, end_lsn]. The log start may rise before anything is read: then that is the
    earliest."""
    while first_lsn <= end_lsn:
        try:
            for batch in client.read(first_lsn, end_lsn, replica=replica, min_lsn=end_lsn):
                is_earliest = False
                yield batch
            return
        except OutOfRange as bounds:
            if not is_earliest or bounds.first <= first_lsn:
                raise
            first_lsn = bounds.first


def _end_of_log(client: LogClient) -> int:
    try:
        return client.admin.commit_lsn()
    except NoQuorum as error:
        raise NoQuorum(
            f"{error}; only a leader knows where the log ends: --to LSN reads up to there from any "
            "replica"
        ) from error


def _first_lsn(
    client: LogClient,
    start: int | str | AtTime,
    marks: Watermarks,
    end_lsn: int,
) -> int:
    if isinstance(start, int):
        return start
    if isinstance(start, AtTime):
        # Of the replica that shows `end_lsn`: one that lags may answer with where its own log ends.
        return min(client.admin.lsn_at(start, replica=marks.node), end_lsn + 1)
    return marks.log_start_lsn if start == "earliest" else end_lsn + 1


def _copy(
    batches: Iterator[RecordBatch],
    path: str,
    write: Write,
    *,
    is_live: bool,
    bar: Bar | None = None,
) -> None:
    """Write every batch; at once where somebody waits for it."""
    written = 0
    with open_output(path) as output:
        for batch in batches:
            write(output, batch)
            written += batch.payload_bytes
            if is_live:
                output.flush()
            if bar is not None:
                bar.set(written)


def _copy_and_commit(consumer: Consumer, cursor: str, path: str, write: Write) -> None:
    """Write what comes, and move the cursor behind what has left this process. At an error, too:
    who begins again before a batch that cannot be read writes nothing twice for it."""
    next_lsn = written_lsn = committed_lsn = consumer.position
    committed_s = time.monotonic()
    with open_output(path) as output:
        try:
            while not consumer.is_at_end:
                batches = consumer.poll(COMMIT_EVERY_S)
                for batch in batches:
                    write(output, batch)
                    written_lsn = batch.last_lsn + 1
                output.flush()
                next_lsn = written_lsn
                if time.monotonic() - committed_s >= COMMIT_EVERY_S:
                    consumer.commit(cursor, position=next_lsn)
                    committed_lsn, committed_s = next_lsn, time.monotonic()
        except KeyboardInterrupt:
            consumer.commit(cursor, position=next_lsn)
            raise
        except LogStoreError:
            output.flush()
            if written_lsn != committed_lsn:
                with suppress(LogStoreError):  # the first error says more
                    consumer.commit(cursor, position=written_lsn)
            raise
        consumer.commit(cursor, position=next_lsn)


def _write_lines(output: IO[bytes], batch: RecordBatch) -> None:
    output.write(b"\n".join(batch.payloads()) + b"\n")


def _write_raw(output: IO[bytes], batch: RecordBatch) -> None:
    output.write(batch.plain()[int(batch.offsets[0]) : int(batch.offsets[-1])])


def _write_json_lines(output: IO[bytes], batch: RecordBatch) -> None:
    for record in batch.records():
        row: dict[str, int | str] = {"lsn": record.lsn, "timestamp_ns": record.timestamp_ns}
        try:
            row["payload"] = record.payload.decode()
        except UnicodeDecodeError:
            row["payload_base64"] = base64.b64encode(record.payload).decode()
        output.write(msgspec.json.encode(row) + b"\n")
