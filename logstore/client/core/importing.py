"""Imports batches of another log into a log without sessions, byte for byte at their LSNs.

Owns an import to its end, through changes of leader. Batches that are there already are read and
compared, the others are pushed. The log takes a batch only where the log ends, so a batch that is
sent twice changes nothing. The ack feed may lose messages: after an error the log is asked how far
it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.connection import AppendLinks
from logstore.client.core.operating import Cluster, commit_lsn
from logstore.client.core.range_machine import RangeMachine, RangeWalk
from logstore.client.core.requests import NO_UUID
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Host, Steps
from logstore.client.endpoint import Endpoint
from logstore.client.records import raw_batches_of
from logstore.client.refusal import LEVEL_PATIENCE_S, RETRIED, error_of
from logstore.errors import (
    ErrorCode,
    FormatError,
    ImportRefused,
    InvalidRequest,
    LogStoreError,
    OutcomeUnknown,
    OutOfRange,
    Unreachable,
)
from logstore.format.batch import read_batch_header, verify_batch
from logstore.format.client_messages import ACK_ROW, Acks, ImportRequest
from logstore.format.message import encode_message
from logstore.limits import MESSAGE_MAX_BYTES, MIB, POSITION_MAX
from logstore.model import NO_NODE, Lsn

# What is in flight at a time: enough for the log's groups in flight, small beside its ring.
WINDOW_BYTES = 8 * MIB
WINDOW_BATCHES = 4_096
# After so long without an acknowledgement the leader is looked for again.
ACK_TIMEOUT_S = 2.0


class Unsettled(msgspec.Struct, frozen=True, gc=False):
    """A whole batch that is not known to be in the log yet."""

    first_lsn: int
    last_lsn: int
    data: bytes


class Window:
    """The batches of the import that are in flight, the oldest first; bounded."""

    def __init__(self, first_lsn: int, batches: Iterable[bytes | memoryview]) -> None:
        self._source: Iterator[bytes | memoryview] | None = iter(batches)
        self._next_lsn = first_lsn
        self._size_bytes = 0
        self.unsettled: deque[Unsettled] = deque()
        # What the source raised. It ends the import even if its code is one after which the log is
        # asked again: a generator that has raised looks like one that has ended.
        self.source_error: LogStoreError | None = None

    @property
    def first_lsn(self) -> int:
        """Of the oldest unsettled batch; where the import ends once there is none."""
        return self.unsettled[0].first_lsn if self.unsettled else self._next_lsn

    def fill(self) -> list[Unsettled]:
        """Take batches from the source while there is room. If `unsettled` is empty after it, the
        import is complete.

        Raises:
          InvalidBatch, BatchTooLarge, FormatError: the source gave something else than a batch.
          Exception: what the source itself raises.
        """
        taken = []
        while (
            self._source is not None
            and self._size_bytes < WINDOW_BYTES
            and len(self.unsettled) < WINDOW_BATCHES
        ):
            try:
                data = next(self._source, None)
            except LogStoreError as error:
                self.source_error = error
                raise
            if data is None:
                self._source = None
                break
            batch = self._check(bytes(data))
            taken.append(batch)
            self.unsettled.append(batch)
            self._size_bytes += len(batch.data)
            self._next_lsn = batch.last_lsn + 1
        return taken

    def _check(self, data: bytes) -> Unsettled:
        header = read_batch_header(data)
        first_lsn, last_lsn = self._next_lsn, self._next_lsn + header.count - 1
        if header.size != len(data):
            raise FormatError(
                f"the batch for LSN {first_lsn} has {len(data)} bytes, not {header.size}"
            )
        verify_batch(data, 0, header, batch_max_bytes=MESSAGE_MAX_BYTES)
        if not 1 <= first_lsn <= last_lsn < POSITION_MAX:
            raise InvalidRequest(f"LSNs {first_lsn} to {last_lsn}: give 1 to {POSITION_MAX - 1}")
        return Unsettled(first_lsn, last_lsn, data)

    def settle(self, last_lsn: int) -> bool:
        """Everything up to `last_lsn` is in the log; whether that settled anything."""
        before = len(self.unsettled)
        while self.unsettled and self.unsettled[0].last_lsn <= last_lsn:
            self._size_bytes -= len(self.unsettled.popleft().data)
        return len(self.unsettled) < before


class Push:
    """One connection to the node that is believed to lead. Its own importer id keeps the answers to
    others away."""

    def __init__(self, host: Host, routing: Routing, endpoint: Endpoint) -> None:
        self._host = host
        self._routing = routing
        self._importer = host.random.getrandbits(64)
        self._links = AppendLinks(
            host, endpoint, topic=self._importer, cluster_id=routing.cluster_id
        )
        self._unsent: deque[Unsettled] = deque()

    def close(self) -> None:
        self._links.close()

    def push(self, window: Window) -> Steps[None]:
        """Push until the import is complete.

        Raises:
          LogStoreError: this connection is of no more use; what was settled stays settled.
        """
        host, links = self._host, self._links
        deadline_ns = host.deadline_ns(ACK_TIMEOUT_S)
        yield from links.wait_for_welcome(deadline_ns=deadline_ns)
        self._unsent.extend(window.unsettled)
        is_news = True
        while True:
            taken = window.fill()
            if not window.unsettled:
                return
            self._unsent.extend(taken)
            self._routing.check_endpoints_now()
            if taken or is_news:
                deadline_ns = host.deadline_ns(ACK_TIMEOUT_S)
            self._send()
            yield links.wait(deadline_ns)
            is_news = self._take_acks(window)
            if not is_news and (links.is_lost() or host.clock.monotonic_ns() >= deadline_ns):
                raise Unreachable(f"{links.endpoint} does not acknowledge what is imported")

    def _send(self) -> None:
        """Send until the link has no room."""
        while self._unsent:
            batch = self._unsent[0]
            request = ImportRequest(self._importer, Lsn(batch.first_lsn), batch.data)
            frame = encode_message(
                request,
                cluster_id=self._routing.cluster_id,
                sender_uuid=NO_UUID,
                sender=NO_NODE,
                target=NO_NODE,
                correlation=0,
            )
            if not self._links.try_push(frame):
                return
            self._unsent.popleft()

    def _take_acks(self, window: Window) -> bool:
        """Whether something was settled.

        Raises:
          LogStoreError: a batch was refused.
        """
        is_news = False
        for message in self._links.messages():
            if not isinstance(message, Acks) or message.producer_id != self._importer:
                continue
            for _, first_lsn, count, code, detail in ACK_ROW.iter_unpack(message.rows):
                if code != ErrorCode.OK:
                    raise error_of(code, detail=detail)
                if first_lsn > window.first_lsn:
                    # The answer before it was lost, or another import's batch is there.
                    raise OutcomeUnknown(f"LSN {window.first_lsn} was not acknowledged")
                is_news = window.settle(first_lsn + count - 1) or is_news
        return is_news


def import_batches(cluster: Cluster, window: Window) -> Steps[int]:
    """Import everything that the window gives; the LSN after it. As `Admin.import_batches`."""
    host, routing, timeout_s = cluster
    reader = RangeMachine(host, routing, replica=None, timeout_s=timeout_s)
    pauses = Backoff(host)
    # Until when errors without progress are retried, and refusals for the level; 0: there is none.
    deadline_ns = level_ns = 0
    try:
        while window.fill() or window.unsettled:
            before_lsn = window.first_lsn
            try:
                last_lsn = yield from commit_lsn(cluster)
                yield from _settle_what_is_there(reader, window, last_lsn)
                if window.unsettled:
                    yield from _push(cluster, window)
                deadline_ns = level_ns = 0
                pauses.reset()
                continue
            except LogStoreError as error:
                is_level = error.code == ErrorCode.LEVEL_REFUSED
                if not (is_level or error.code in RETRIED) or error is window.source_error:
                    raise
                if window.first_lsn > before_lsn:
                    deadline_ns = level_ns = 0
                if is_level:
                    level_ns = until_ns = level_ns or host.deadline_ns(LEVEL_PATIENCE_S)
                else:
                    deadline_ns = until_ns = deadline_ns or host.deadline_ns(timeout_s)
                if host.clock.monotonic_ns() >= until_ns:
                    raise
            yield pauses.wait(deadline_ns=until_ns)
        return window.first_lsn
    finally:
        reader.close()


def _push(cluster: Cluster, window: Window) -> Steps[None]:
    deadline_ns = cluster.host.deadline_ns(cluster.timeout_s)
    _, endpoint = yield from cluster.routing.find_leader(deadline_ns=deadline_ns)
    push = Push(cluster.host, cluster.routing, endpoint)
    try:
        yield from push.push(window)
    finally:
        push.close()


def _settle_what_is_there(reader: RangeMachine, window: Window, last_lsn: int) -> Steps[None]:
    """Compare the window with the log, which ends at `last_lsn` or later."""
    first_lsn = window.first_lsn
    if first_lsn > last_lsn + 1:
        raise OutOfRange(
            f"the log ends at LSN {last_lsn}: import from LSN {last_lsn + 1} on, not from "
            f"{first_lsn}",
            first=last_lsn + 1,
            last=last_lsn + 1,
        )
    if first_lsn > last_lsn:
        return
    last_lsn = min(last_lsn, window.unsettled[-1].last_lsn)
    walk = RangeWalk(
        reader, raw_batches_of, first_lsn, last_lsn, min_lsn=last_lsn, is_linearizable=False
    )
    while not walk.is_at_end:
        for found in (yield from walk.next_batches()):
            batch = window.unsettled[0]
            if found.first_lsn != batch.first_lsn or bytes(found.data) != batch.data:
                raise ImportRefused(
                    f"the log holds another batch at LSN {batch.first_lsn} than the import: it is "
                    "another log's, or was imported from one"
                )
            window.settle(batch.last_lsn)
