"""The consumer: every committed payload from a place on, in order, none twice, none left out
(SAFETY V8).

Owns the position. The tail feed makes it quick and may lose anything; fetches make it whole:
subscribe → welcome → fetch up to what the replica shows → splice. Whatever shows an LSN above the
expected one makes it fetch. A replica that dies is left for another one, or waited for when it is
pinned; the position stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from logstore.client.clock import milliseconds_until, monotonic_ns, seconds_from_now
from logstore.client.link import TAIL_QUEUE_MAX_MESSAGES, Context, Feed, Frame, Waiter
from logstore.client.records import Record, RecordBatch, batches_of
from logstore.client.replica_reader import ANSWER_TIMEOUT_S, ReplicaReader, replica_wait_ms
from logstore.client.requests import NO_CLUSTER
from logstore.client.routing import Routing
from logstore.client.turn import Turn
from logstore.errors import FormatError, InvalidRequest, OutOfRange, Unreachable, WrongCluster
from logstore.format.client_messages import (
    LSN_MAX,
    FetchReply,
    FetchRequest,
    TailGroup,
    TailNotice,
    TimeLookupReply,
    TimeLookupRequest,
    Tip,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
    iterate_pieces,
)
from logstore.format.message import decode_message
from logstore.limits import MIB
from logstore.model import Lsn

FETCH_BYTES = 1 * MIB
# A Tip comes every second (V8): three missed ones, and the replica is held for dead.
SILENCE_S = 3.5
TIMESTAMP_MAX_NS = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AtTime(msgspec.Struct, frozen=True):
    """A start: the first payload whose group is not older than this, ns since the Unix epoch."""

    timestamp_ns: int

    def request(self) -> TimeLookupRequest:
        """What asks a replica for it.

        Raises:
          InvalidRequest: no stamp can be of this time.
        """
        if not 0 <= self.timestamp_ns <= TIMESTAMP_MAX_NS:
            raise InvalidRequest("the time to start at lies before 1970, or after July 2554")
        return TimeLookupRequest(self.timestamp_ns)


Start = int | str | datetime | AtTime


class Consumer:
    """Reads committed payloads in order. Used by one thread; close it, from any thread, or use it
    as a context manager."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        start: Start,
        *,
        end_lsn: int | None,
        replica: int | None,
        timeout_s: float,
    ) -> None:
        self._context = context
        self._routing = routing
        self._timeout_s = timeout_s
        self._replica = ReplicaReader(context, routing, replica=replica, timeout_s=timeout_s)
        self._feed: Feed | None = None
        self._feed_node = 0
        self._heard_ns = monotonic_ns()  # when the replica last said anything
        self._answered_ns = monotonic_ns()  # when any replica did
        self._shown_lsn = 0  # what the replica is known to show
        self._turn = Turn("consumer", self._close_sockets)
        try:
            self._next_lsn = self._locate(start)
        except BaseException:
            self._replica.close()
            raise
        self._end_lsn = LSN_MAX - 1 if end_lsn is None else end_lsn

    @property
    def next_lsn(self) -> int:
        """The position: the LSN of the payload that comes next."""
        return self._next_lsn

    @property
    def node(self) -> int:
        """The replica that is read now."""
        return self._replica.node

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `end_lsn` was handed on."""
        return self._next_lsn > self._end_lsn

    @property
    def is_closed(self) -> bool:
        return self._turn.is_closed

    def close(self) -> None:
        """Close it. Where another thread is amid a call, that call raises `Closed` as soon as it
        wakes, a second later at most while the replica lives."""
        self._turn.close()

    def _close_sockets(self) -> None:
        self._close_feed()
        self._replica.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch.records()

    def batches(self) -> Iterator[RecordBatch]:
        """Batches as they are committed, up to `end_lsn`, else for ever.

        Raises: as `poll`.
        """
        while not self.is_at_end:
            yield from self.poll(self._timeout_s)

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches, at least one unless nothing came within `timeout_s` or the end is
        reached.

        Raises:
          OutOfRange: the position lies below the log's start: what was there is gone.
          Unreachable: no replica said anything for longer than the client's timeout.
          CorruptData: every replica asked is damaged there.
          WrongCluster: the replica belongs to another cluster.
          Closed: the consumer or its client was closed, maybe while this call waited. It is an
            error and no quiet end: who reads up to `end_lsn` must not take it for the end.
        """
        deadline_ns = seconds_from_now(timeout_s)
        with self._turn:
            while not self.is_at_end:
                batches = self._step(deadline_ns)
                if batches:
                    self._next_lsn = batches[-1].last_lsn + 1
                    return batches
                if not milliseconds_until(deadline_ns):
                    break
        return []

    # --- one step ---

    def _step(self, deadline_ns: int) -> list[RecordBatch]:
        """Take one message of the feed, fetch, or wait for either."""
        self._turn.check()
        self._routing.check_endpoints(deadline_ns=0)
        feed = self._ensure_feed()
        frames = feed.try_receive()
        if frames is not None:
            return self._on_feed(frames)
        if self._shown_lsn >= self._next_lsn:
            return self._fetch()
        now_ns = monotonic_ns()
        silent_ns = self._heard_ns + int(SILENCE_S * 1e9)
        if now_ns >= silent_ns:
            self._on_silence(now_ns)
        else:
            Waiter(feed).wait(milliseconds_until(min(deadline_ns, silent_ns)))
        return []

    def _on_feed(self, frames: list[Frame]) -> list[RecordBatch]:
        """What a feed message brings: contiguous batches, or news of what there is to fetch."""
        try:
            envelope, message = decode_message(frames[0])
        except FormatError:
            return []  # the next Tip shows what was in it
        if envelope.cluster_id not in (NO_CLUSTER, self._routing.cluster_id):
            raise WrongCluster(
                f"node {self.node} belongs to cluster {envelope.cluster_id.hex()}, not to "
                f"{self._routing.cluster_id.hex()}: check the endpoints"
            )
        self._heard_ns = self._answered_ns = monotonic_ns()
        if isinstance(message, TailGroup) and len(frames) == 2:
            return self._on_group(frames[1])
        if isinstance(message, TailNotice):
            self._shown_lsn = max(self._shown_lsn, message.last_lsn)
        elif isinstance(message, Tip | Welcome):
            self._shown_lsn = max(self._shown_lsn, message.visible_lsn)
        return []

    def _on_group(self, frame: Frame) -> list[RecordBatch]:
        try:
            (piece,) = iterate_pieces(frame)
            if piece.first_lsn <= self._next_lsn:
                return self._batches(frame)
            self._shown_lsn = max(self._shown_lsn, piece.first_lsn + piece.count - 1)
        except ValueError:
            pass  # damaged on its way: the next message or Tip makes it a fetch
        return []

    def _fetch(self) -> list[RecordBatch]:
        """Fetch from the position up to what the replica shows."""
        last_lsn = min(self._shown_lsn, self._end_lsn)
        request = FetchRequest(Lsn(self._next_lsn), Lsn(last_lsn), Lsn(0), FETCH_BYTES, 0, False)
        try:
            reply, frame = self._replica.request(request, FetchReply, timeout_s=self._timeout_s)
        except OutOfRange as bounds:
            if self._next_lsn < bounds.first:
                raise
            self._shown_lsn = bounds.last  # another replica, which lags behind the last one
            return []
        self._answered_ns = monotonic_ns()
        self._shown_lsn = max(reply.visible_lsn, self._shown_lsn if reply.pieces else 0)
        batches = self._batches(frame)
        _check_contiguous(batches, self._next_lsn)
        return batches

    def _batches(self, frame: Frame) -> list[RecordBatch]:
        """What is new in a frame of pieces, up to the end."""
        first_lsn, last_lsn = self._next_lsn, self._end_lsn
        return [
            batch
            for piece in iterate_pieces(frame)
            for batch in batches_of(frame, piece, first_lsn=first_lsn, last_lsn=last_lsn)
        ]

    # --- the feed ---

    def _ensure_feed(self) -> Feed:
        """The feed of the replica that is read now; fetches may have moved to another one."""
        if self._feed is not None and self._feed_node == self._replica.node:
            return self._feed
        self._close_feed()
        endpoint = self._replica.endpoint()
        self._feed = Feed(self._context, endpoint.tail, b"", TAIL_QUEUE_MAX_MESSAGES)
        self._feed_node = self._replica.node
        self._heard_ns = monotonic_ns()
        self._shown_lsn = 0
        return self._feed

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _on_silence(self, now_ns: int) -> None:
        """The replica is dead or cut off: move on, unless nobody has answered for too long."""
        if now_ns - self._answered_ns > int(max(self._timeout_s, 2 * SILENCE_S) * 1e9):
            raise Unreachable(
                f"no replica has said anything for {max(self._timeout_s, 2 * SILENCE_S)} s"
            )
        self._close_feed()
        self._replica.move()

    # --- where to begin ---

    def _locate(self, start: Start) -> int:
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise InvalidRequest(f"{start}: give the time with its time zone")
            microseconds = (start - _EPOCH) // timedelta(microseconds=1)
            start = AtTime(microseconds * 1_000)
        if isinstance(start, AtTime):
            found, _ = self._replica.request(
                start.request(), TimeLookupReply, timeout_s=self._timeout_s
            )
            return int(found.lsn)
        if isinstance(start, int):
            if not 1 <= start < LSN_MAX:
                raise InvalidRequest(f"LSN {start}: the first payload has LSN 1")
            self._replica.endpoint()
            return start
        if start not in ("earliest", "latest"):
            raise InvalidRequest(f"start {start!r}: give an LSN, 'earliest', 'latest' or a time")
        wait_ms = replica_wait_ms(min(self._timeout_s, ANSWER_TIMEOUT_S))
        marks, _ = self._replica.request(
            WatermarksRequest(Lsn(0), wait_ms, False), WatermarksReply, timeout_s=self._timeout_s
        )
        return int(marks.log_start_lsn if start == "earliest" else marks.visible_lsn + 1)


def _check_contiguous(batches: list[RecordBatch], next_lsn: int) -> None:
    for batch in batches:
        if batch.first_lsn != next_lsn:
            raise FormatError(f"LSN {batch.first_lsn} came where {next_lsn} is due")
        next_lsn = batch.last_lsn + 1
