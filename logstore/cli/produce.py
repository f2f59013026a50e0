"""`logstore produce`: the lines of a file or of stdin into the log.

Streams: at most a window of unacknowledged lines is held. What was acknowledged is counted from the
futures, so that an interrupted run can say how far it came.
"""

from __future__ import annotations

import os
import stat
import sys
from collections import deque
from io import BufferedReader
from typing import Any, get_args

import click

from logstore.cli.exit_status import ExitStatus, exit_status_of
from logstore.cli.interrupts import InterruptibleSource, Interrupts, Terminated
from logstore.cli.lines import read_lines
from logstore.cli.options import IntegerRange, endpoint_option, json_option, timeout_option
from logstore.cli.output import Bar, say, write_json
from logstore.cli.trouble import leaderless_words, troubles_of
from logstore.client.client import connect
from logstore.client.clock import monotonic_ns
from logstore.client.core.producer_statistics import ProducerStatistics
from logstore.client.future import (
    BATCH_OVERHEAD_BYTES,
    PAYLOAD_OVERHEAD_BYTES,
    AppendFuture,
    Provisional,
)
from logstore.client.producer import Producer
from logstore.client.producer_options import Acks, ProducerOptions
from logstore.errors import (
    BatchTooLarge,
    LogStoreError,
    NoQuorum,
    NotCommitted,
    NotReady,
    OutcomeUnknown,
    Overloaded,
)
from logstore.format.codecs import NAMES, NO_COMPRESSION
from logstore.limits import BATCH_MAX_PAYLOADS, MIB

_STALLS = (NoQuorum, NotCommitted, NotReady, OutcomeUnknown, Overloaded)
WINDOW_BYTES = 16 * MIB
# Futures held: an empty line is 4 bytes of window, but its future is about 60 bytes of memory.
FUTURES_MAX = 65_536
INTERRUPT_FLUSH_S = 2.0
# After a failure: how long the replicas may take to say why.
ASK_WHY_S = 2.0
# The default of 5 ms would keep the network thread waiting for the reading one.
SWITCH_INTERVAL_S = 5e-5


class _Source(click.File):
    """A file to read; Python has no stdin where the command was started with `<&-`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("stdin is closed: name a file, or give it something to read", param, ctx)
        return super().convert(value, param, ctx)


class Tally:
    """What was acknowledged so far, from futures in the order of their appends. Without
    `is_provisional` an append whose outcome is unknown is a failure; with it, it is counted."""

    def __init__(self, patience_s: float, interrupts: Interrupts, *, is_provisional: bool) -> None:
        self._patience_s = patience_s
        self._is_provisional = is_provisional
        self._interrupts = interrupts
        self._waiting: deque[tuple[AppendFuture, int]] = deque()  # and how many payloads
        self.appended_payloads = self.appended_bytes = 0
        self.payloads = self.first_lsn = self.last_lsn = 0
        self.provisional = 0  # payloads: nothing is known of their LSNs
        self.unanswered = 0  # payloads, not provisional: the leader changed before it answered

    def add(self, future: AppendFuture, payloads: int, size_bytes: int) -> None:
        """Remember an append; waits for the oldest while there are too many. Errors as `settle`."""
        self._waiting.append((future, payloads))
        self.appended_payloads += payloads
        self.appended_bytes += size_bytes
        if len(self._waiting) > FUTURES_MAX:
            self._settle_oldest()

    def settle(self) -> None:
        """Count the futures that are done.

        Raises:
          LogStoreError: the oldest append failed.
        """
        while self._waiting and self._waiting[0][0].done():
            self._settle_oldest()

    def settle_all(self) -> None:
        """Wait for every append. Errors as `settle`."""
        while self._waiting:
            self._settle_oldest()

    def salvage(self) -> None:
        """After a failure: count what was acknowledged nevertheless."""
        while self._waiting:
            future, payloads = self._waiting.popleft()
            if future.done() and (future.exception(0) is None or self._is_unanswered(future)):
                self._count(future, payloads)

    def _settle_oldest(self) -> None:
        future, payloads = self._waiting[0]
        if not future.done():
            with self._interrupts.allowed():
                future.exception(self._patience_s)
        if not self._is_unanswered(future):
            future.result(self._patience_s)
        self._waiting.popleft()
        self._count(future, payloads)

    def _is_unanswered(self, future: AppendFuture) -> bool:
        """Whether a settled append may be lost, and the producer goes on without it."""
        return self._is_provisional and isinstance(future.exception(0), OutcomeUnknown)

    def _count(self, future: AppendFuture, payloads: int) -> None:
        if self._is_unanswered(future):
            self.unanswered += payloads
            return
        lsns = future.result(0)
        if isinstance(lsns, Provisional):
            self.provisional += payloads
            return
        self.payloads += payloads
        self.first_lsn = self.first_lsn or lsns.first
        self.last_lsn = max(self.last_lsn, lsns.last)


@click.command()
@click.argument("source", metavar="[FILE|-]", default="-", type=_Source("rb"))
@click.option(
    "--batch",
    "batch_lines",
    type=IntegerRange(1, BATCH_MAX_PAYLOADS),
    help="append so many lines at a time, each time as one atomic batch",
)
@click.option(
    "--acks",
    type=click.Choice(get_args(Acks)),
    default="quorum",
    show_default=True,
    help="what a line waits for: a majority's disks, the leader's disk, or nothing; with leader "
    "and none what was on its way may be lost when another node leads",
)
@click.option(
    "--compression",
    type=click.Choice(NAMES),
    default=NO_COMPRESSION,
    show_default=True,
    help="of the lines of each batch; needs the package of the codec, and format level 3",
)
@endpoint_option
@timeout_option
@json_option
def produce(
    source: BufferedReader,
    batch_lines: int | None,
    acks: Acks,
    compression: str,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Append each line of FILE, or of stdin, as a payload.

    A line is what stands between two line feeds: a carriage return is part of it, and a last line
    without a line feed counts. Returns when all are committed; with --acks leader and none when
    all are provisional or had no answer, and says how many may be lost. Losses at a change of
    leader leave the exit status 0; it is another one if the producer ended, fenced for example.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    interrupts = Interrupts()
    tally = Tally(timeout_s + INTERRUPT_FLUSH_S, interrupts, is_provisional=acks != "quorum")
    started_ns = monotonic_ns()
    failure = ""
    status = ExitStatus.DONE
    options = ProducerOptions(
        acks=acks,
        window_bytes=WINDOW_BYTES,
        append_timeout_s=timeout_s,
        delivery_timeout_s=timeout_s,
        compression=compression,
    )
    told: ProducerStatistics | None = None
    try:
        with connect(endpoints, timeout=timeout_s) as client:
            producer = client.producer(options)
            try:
                with interrupts:
                    stream = InterruptibleSource(source, interrupts)
                    with Bar("appending", _size_of(source)) as bar:
                        _append_all(stream, producer, tally, batch_lines, bar)
                producer.close()
                if producer.ending is not None:
                    raise producer.ending
            except BaseException:
                producer.close(INTERRUPT_FLUSH_S)
                tally.salvage()
                raise
            finally:
                told = producer.statistics()
    except Terminated:
        failure, status = "ended by SIGTERM", ExitStatus.TERMINATED
    except KeyboardInterrupt:
        failure, status = "interrupted", ExitStatus.INTERRUPTED
    except (LogStoreError, TimeoutError) as error:
        failure = "; ".join(filter(None, (str(error), _why_stalled(error, endpoints, timeout_s))))
        status = _status_of(error)
    _report(tally, told, failure, (monotonic_ns() - started_ns) / 1e9, json_path)
    sys.exit(status)


def _status_of(error: LogStoreError | TimeoutError) -> ExitStatus:
    """Of a producer that ended for a refused batch, that of the refusal."""
    cause = error.__cause__
    if isinstance(error, NotCommitted) and isinstance(cause, LogStoreError):
        return exit_status_of(cause)
    return exit_status_of(error) if isinstance(error, LogStoreError) else ExitStatus.UNREACHABLE


def _why_stalled(error: Exception, endpoints: str, timeout_s: float) -> str:
    """What is wrong with the replicas, where nothing went on: a full disk for example, or too few
    that answer."""
    if not isinstance(error, (*_STALLS, TimeoutError)):
        return ""
    try:
        with connect(endpoints, timeout=min(timeout_s, ASK_WHY_S)) as client:
            status = client.admin.status()
            return "; ".join(filter(None, (leaderless_words(status), troubles_of(status))))
    except LogStoreError:
        return ""


def _append_all(
    source: InterruptibleSource,
    producer: Producer,
    tally: Tally,
    batch_lines: int | None,
    bar: Bar,
) -> None:
    """Append every line, then wait for every acknowledgement."""
    payloads_bytes_max = producer.session.batch_max_bytes - BATCH_OVERHEAD_BYTES
    line_bytes_max = payloads_bytes_max - PAYLOAD_OVERHEAD_BYTES
    batch: list[bytes] = []
    for lines in read_lines(source, line_bytes_max=line_bytes_max):
        if batch_lines is None:
            for line in lines:
                tally.add(producer.append(line), 1, len(line))
        else:
            batch += lines
            full = len(batch) - len(batch) % batch_lines
            for start in range(0, full, batch_lines):
                _append_batch(producer, tally, batch[start : start + batch_lines])
            del batch[:full]
            _check_pending(batch, payloads_bytes_max)
        tally.settle()
        bar.set(tally.appended_bytes + tally.appended_payloads)
    if batch:
        _append_batch(producer, tally, batch)
    tally.settle_all()


def _append_batch(producer: Producer, tally: Tally, batch: list[bytes]) -> None:
    tally.add(producer.append_batch(batch), len(batch), sum(map(len, batch)))


def _check_pending(batch: list[bytes], size_max: int) -> None:
    """Lines of a batch that is not full yet must fit, or memory would grow with the input."""
    size = sum(map(len, batch)) + PAYLOAD_OVERHEAD_BYTES * len(batch)
    if size > size_max:
        raise BatchTooLarge(
            f"{len(batch)} lines of a batch have {size} bytes already, at most {size_max}: "
            "give a smaller --batch"
        )


def _size_of(source: BufferedReader) -> int | None:
    """Bytes of a regular file; None for what has no end yet."""
    try:
        facts = os.fstat(source.fileno())
    except OSError:
        return None
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def _report(
    tally: Tally,
    told: ProducerStatistics | None,
    failure: str,
    seconds: float,
    json_path: str | None,
) -> None:
    """How many payloads are committed, and under which LSNs; or provisional, and what may be
    lost."""
    possibly_lost = told.possibly_lost_payloads if told is not None else 0
    document = {
        "payloads": tally.payloads,
        "first_lsn": tally.first_lsn or None,
        "last_lsn": tally.last_lsn or None,
        "provisional": tally.provisional,
        "unanswered": tally.unanswered,
        "possibly_lost": possibly_lost,
        "appended": tally.appended_payloads,
        "appended_bytes": tally.appended_bytes,
        "seconds": round(seconds, 3),
        "payloads_per_s": round((tally.payloads + tally.provisional) / seconds, 1),
        "error": failure or None,
    }
    if json_path is not None:
        write_json(document, json_path)
    place = f", LSN {tally.first_lsn} to {tally.last_lsn}" if tally.payloads else ""
    count = f"{tally.payloads} payloads"
    loss = ""
    is_provisional = bool(tally.provisional or tally.unanswered)
    if is_provisional:
        count = f"{tally.provisional} payloads"
        unanswered = f", {tally.unanswered} had no answer" if tally.unanswered else ""
        loss = f"{unanswered}; of all that was sent {possibly_lost} may be lost"
    if failure:
        say(f"error: {failure}")
        known = tally.payloads + tally.provisional + tally.unanswered
        others = tally.appended_payloads - known
        doubt = f"; the other {others} may or may not be in the log" if others else ""
        what = "provisional" if is_provisional else "acknowledged"
        say(f"{count} are {what}{loss}{place}{doubt}")
    elif json_path is None:
        what = "provisional" if is_provisional else "committed"
        say(f"{count} {what} in {seconds:.2f} s{loss}{place}")
