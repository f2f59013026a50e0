"""The consumer: every committed payload from a place on, in order, none twice, none left out
(SAFETY V8).

Owns the position. The tail feed is fast and may lose any message; fetches fill the gaps: subscribe
→ welcome → fetch up to what the replica shows → join the two. Any message that shows an LSN above
the expected one leads to a fetch. When a replica dies, or stands still while others go on, the
consumer moves to another one, or waits for it if it is pinned; the position stays.
"""

from __future__ import annotations

from datetime import datetime

from logstore.client.core.committed_cursors import CommittedCursors
from logstore.client.core.range_machine import Decode
from logstore.client.core.replica_reader import ANSWER_TIMEOUT_S, ReplicaReader, replica_wait_ms
from logstore.client.core.requests import NO_CLUSTER
from logstore.client.core.routing import Routing
from logstore.client.core.start import AtCursor, AtTime, Start, at_datetime
from logstore.client.core.steps import FeedLink, Frame, Host, Steps, Wait, nanoseconds
from logstore.client.records import RecordBatch
from logstore.client.refusal import explain_bounds
from logstore.errors import (
    Closed,
    FormatError,
    InvalidRequest,
    LogStoreError,
    OutOfRange,
    Unreachable,
    WrongCluster,
)
from logstore.format.client_messages import (
    LSN_MAX,
    FetchReply,
    FetchRequest,
    TailGroup,
    TailNotice,
    TimeLookupReply,
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
# A Tip comes every second (V8): after three missed ones the replica counts as dead.
SILENCE_S = 3.5
SILENCE_NS = int(SILENCE_S * 1e9)
# Tail groups are at most 256 KiB: 128 of them bound a slow consumer's queue to 32 MiB.
TAIL_QUEUE_MAX_MESSAGES = 128
# How long a replica may show nothing new before another one is asked whether it has more: one that
# is cut off from its leader, or has a full disk, still answers. Each waits longer by up to a half.
STILL_S = 30.0
STILL_JITTER = 0.5
LOOK_TIMEOUT_S = 1.0
# A paused consumer looks this often whether it is to go on.
PAUSED_LOOK_NS = 100_000_000
# What a consumer does that falls below the log start: raise, go on there, or go on at the end.
ON_OUT_OF_RANGE = ("error", "earliest", "latest")


class ConsumerMachine:
    """Reads committed payloads in order; `locate` comes first."""

    def __init__(
        self,
        host: Host,
        routing: Routing,
        decode: Decode[RecordBatch],
        *,
        end_lsn: int | None,
        replica: int | None,
        timeout_s: float,
        fetch_bytes: int = FETCH_BYTES,
        on_out_of_range: str = "error",
    ) -> None:
        if on_out_of_range not in ON_OUT_OF_RANGE:
            words = ", ".join(ON_OUT_OF_RANGE)
            raise InvalidRequest(f"on_out_of_range {on_out_of_range!r}: give one of {words}")
        if end_lsn is not None and not isinstance(end_lsn, int):
            raise InvalidRequest(f"end_lsn {end_lsn!r}: give an LSN, or None to go on for ever")
        self._host = host
        self._routing = routing
        self._decode = decode
        self._timeout_s = timeout_s
        self._fetch_bytes = fetch_bytes
        self._replica = ReplicaReader(host, routing, replica=replica, timeout_s=timeout_s)
        self._feed: FeedLink | None = None
        self._feed_node = 0
        self._heard_ns = host.clock.monotonic_ns()  # when the replica last sent anything
        # Since when no replica has sent anything; 0: one has. Set when a poll first notices it:
        # nothing is read between two polls.
        self._all_silent_since_ns = 0
        self._shown_lsn = 0  # what the replica is known to show
        self._is_pinned = replica is not None
        self._look_ns = 0  # when another one is asked whether it has more; 0: nothing is awaited
        self._next_lsn = 0
        self._is_at_earliest = False  # nothing was handed on, and reading is to begin at log start
        self._not_before_ns = 0  # of a start by time, until something as late is handed on
        self._on_out_of_range = on_out_of_range
        self._skipped_payloads = 0
        self._trimmed_payloads = 0
        self.is_paused = False  # a poll hands nothing on
        self._committed = CommittedCursors(host, routing, timeout_s=timeout_s)
        self._end_lsn = LSN_MAX - 1 if end_lsn is None else end_lsn

    @property
    def next_lsn(self) -> int:
        """The position: the LSN of the payload that comes next."""
        return self._next_lsn

    @property
    def skipped_payloads(self) -> int:
        """How many were left out: trimmed before they were read, or passed over to go on at the
        end."""
        return self._skipped_payloads

    @property
    def trimmed_payloads(self) -> int:
        """How many of them were trimmed."""
        return self._trimmed_payloads

    @property
    def node(self) -> int:
        """The replica that is read now."""
        return self._replica.node

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `end_lsn` was handed on."""
        return self._next_lsn > self._end_lsn

    def close(self) -> None:
        self._close_feed()
        self._replica.close()

    def poll(self, timeout_s: float) -> Steps[list[RecordBatch]]:
        """The next batches, at least one unless nothing came within `timeout_s` or the end is
        reached.

        Raises:
          OutOfRange: the position lies below the log start: what was there is gone. Only if
            `on_out_of_range` is "error".
          Unreachable: no replica sent anything for longer than the client's timeout.
          CorruptData: every replica asked is damaged there.
          WrongCluster: the replica belongs to another cluster.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        while self.is_paused or not self.is_at_end:
            batches = yield from self._step(deadline_ns)
            if batches:
                self._next_lsn = batches[-1].last_lsn + 1
                self._is_at_earliest = False
                self._look_ns = 0
                if self._not_before_ns:
                    batches = self._not_older(batches)
            if batches:
                return batches
            if self._host.clock.monotonic_ns() >= deadline_ns:
                break
        return []

    def move(self) -> Steps[None]:
        """Leave this replica for another one, or connect to a pinned one anew; the position stays.

        Raises:
          Unreachable: no replica tells who the nodes are.
        """
        self._close_feed()
        yield from self._replica.move()

    # --- one step ---

    def _step(self, deadline_ns: int) -> Steps[list[RecordBatch]]:
        """Handle one message of the feed, else fetch, else wait."""
        self._routing.check_endpoints_now()
        if self.is_paused:
            self._close_feed()  # it would drop what nobody reads
            yield Wait(min(deadline_ns, self._host.clock.monotonic_ns() + PAUSED_LOOK_NS))
            return []
        feed = yield from self._ensure_feed()
        frames = feed.try_receive()
        if frames is not None:
            return self._on_feed(frames)
        if self._shown_lsn >= self._next_lsn:
            return (yield from self._fetch())
        now_ns = self._host.clock.monotonic_ns()
        silent_ns = self._heard_ns + SILENCE_NS
        if now_ns >= silent_ns:
            yield from self._on_silence(now_ns)
        elif now_ns >= self._next_look_ns(now_ns):
            yield from self._look_elsewhere()
        else:
            yield Wait(min(deadline_ns, silent_ns, self._look_ns), (feed,))
        return []

    def _on_feed(self, frames: list[Frame]) -> list[RecordBatch]:
        """The contiguous batches in a feed message. Other messages may show that there is more to
        fetch."""
        try:
            envelope, message = decode_message(frames[0])
        except FormatError:
            return []  # the next Tip shows that something is missing
        mine = self._routing.cluster_id  # unknown, if none was formed when the replicas were asked
        if mine != NO_CLUSTER and envelope.cluster_id not in (NO_CLUSTER, mine):
            raise WrongCluster(
                f"node {self.node} belongs to cluster {envelope.cluster_id.hex()}, not to "
                f"{mine.hex()}: check the endpoints"
            )
        self._heard_ns = self._host.clock.monotonic_ns()
        self._all_silent_since_ns = 0
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
            pass  # damaged on its way: the next message or Tip leads to a fetch
        return []

    def _fetch(self) -> Steps[list[RecordBatch]]:
        """Fetch from the position up to what the replica shows."""
        last_lsn = min(self._shown_lsn, self._end_lsn)
        first_lsn, max_bytes = Lsn(self._next_lsn), self._fetch_bytes
        request = FetchRequest(first_lsn, Lsn(last_lsn), Lsn(0), max_bytes, 0, False)
        try:
            reply, frame = yield from self._replica.request(
                request, FetchReply, timeout_s=self._timeout_s
            )
        except OutOfRange as bounds:
            self._shown_lsn = bounds.last  # if not below: a replica which lags behind the last one
            if self._next_lsn < bounds.first:
                self._on_below_log_start(bounds)
            return []
        self._all_silent_since_ns = 0
        self._shown_lsn = max(reply.visible_lsn, self._shown_lsn if reply.pieces else 0)
        batches = self._batches(frame)
        _check_contiguous(batches, self._next_lsn)
        return batches

    def _on_below_log_start(self, bounds: OutOfRange) -> None:
        """Move the position to where reading goes on.

        Raises:
          OutOfRange: nothing may be left out.
        """
        if not self._is_at_earliest and self._on_out_of_range == "error":
            raise explain_bounds(self._next_lsn, bounds) from None
        next_lsn = bounds.first
        if not self._is_at_earliest:
            if self._on_out_of_range == "latest":
                next_lsn = max(next_lsn, bounds.last + 1)
            next_lsn = min(next_lsn, self._end_lsn + 1)
            self._skipped_payloads += next_lsn - self._next_lsn
            self._trimmed_payloads += min(next_lsn, bounds.first) - self._next_lsn
        self._next_lsn = next_lsn

    def _batches(self, frame: Frame) -> list[RecordBatch]:
        """What is new in a frame of pieces, up to the end."""
        first_lsn, last_lsn = self._next_lsn, self._end_lsn
        return [
            batch
            for piece in iterate_pieces(frame)
            for batch in self._decode(frame, piece, first_lsn=first_lsn, last_lsn=last_lsn)
        ]

    def _not_older(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        """Those from the time on at which reading begins. A replica that lags names the LSN after
        its last one, where older payloads may come."""
        batches = [each for each in batches if each.timestamp_ns >= self._not_before_ns]
        if batches:  # stamps never go back (G2)
            self._not_before_ns = 0
        return batches

    # --- the feed ---

    def _ensure_feed(self) -> Steps[FeedLink]:
        """The feed of the replica that is read now. A fetch may have moved to another replica."""
        if self._feed is not None and self._feed_node == self._replica.node:
            return self._feed
        self._close_feed()
        endpoint = yield from self._replica.endpoint()
        feed = self._host.links.feed(endpoint.tail, b"", queue_max=TAIL_QUEUE_MAX_MESSAGES)
        self._feed, self._feed_node = feed, self._replica.node
        self._heard_ns = self._host.clock.monotonic_ns()
        self._shown_lsn = self._look_ns = 0
        return feed

    def _close_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def _on_silence(self, now_ns: int) -> Steps[None]:
        """The replica is dead or cut off: move to another one.

        Raises:
          Unreachable: no replica has sent anything for too long; the next poll tries each again.
        """
        if not self._all_silent_since_ns:
            self._all_silent_since_ns = now_ns - SILENCE_NS
        limit_s = max(self._timeout_s, 2 * SILENCE_S)
        if now_ns - self._all_silent_since_ns > nanoseconds(limit_s):
            self._all_silent_since_ns = 0
            raise Unreachable(f"no replica has said anything for {limit_s} s")
        yield from self.move()

    def _next_look_ns(self, now_ns: int) -> int:
        """When to look for a replica that has more. Called while this one has nothing new."""
        if not self._look_ns:
            wait_s = STILL_S * (1 + self._host.random.uniform(0, STILL_JITTER))
            self._look_ns = now_ns + nanoseconds(wait_s)
        return self._look_ns

    def _look_elsewhere(self) -> Steps[None]:
        """Ask one of the other replicas what it shows, and read that one if it has more."""
        self._look_ns = 0
        if self._is_pinned:
            return
        nodes = yield from self._routing.replicas(timeout_s=LOOK_TIMEOUT_S)
        others = [each for each in nodes if each != self.node]
        if not others:
            return
        node = self._host.random.choice(others)
        reader = ReplicaReader(self._host, self._routing, replica=node, timeout_s=LOOK_TIMEOUT_S)
        try:
            marks, _ = yield from reader.request(
                WatermarksRequest(Lsn(0), 0, False), WatermarksReply, timeout_s=LOOK_TIMEOUT_S
            )
        except Closed:
            raise
        except LogStoreError:
            return  # it has left, or does not answer now
        finally:
            reader.close()
        if marks.visible_lsn > self._shown_lsn:
            self._close_feed()
            self._replica.move_to(node)

    # --- where to begin ---

    def commit(self, name: str, position: int) -> Steps[None]:
        """Set the cursor `name` before `position`; see `CommittedCursors.commit`."""
        return self._committed.commit(name, position)

    def locate(self, start: Start) -> Steps[None]:
        """Find the position that `start` means.

        Raises:
          Unreachable, NoQuorum: no replica, or of a cursor no leader, answered in time.
          InvalidRequest: there is no such start, or no such replica.
        """
        cursor, cursor_lsn = "", 0
        if isinstance(start, AtCursor):
            cursor = start.name
            start, cursor_lsn = yield from self._committed.find(start)
        if isinstance(start, datetime):
            start = at_datetime(start)
        not_before_ns = 0
        if isinstance(start, AtTime):
            found, _ = yield from self._replica.request(
                start.request(), TimeLookupReply, timeout_s=self._timeout_s
            )
            next_lsn = int(found.lsn)
            not_before_ns = start.timestamp_ns
        elif isinstance(start, int):
            if not 1 <= start < LSN_MAX:
                raise InvalidRequest(f"LSN {start}: the first payload has LSN 1")
            yield from self._replica.endpoint()
            next_lsn = start
        elif start in ("earliest", "latest"):
            wait_ms = replica_wait_ms(min(self._timeout_s, ANSWER_TIMEOUT_S))
            request = WatermarksRequest(Lsn(0), wait_ms, False)
            marks, _ = yield from self._replica.request(
                request, WatermarksReply, timeout_s=self._timeout_s
            )
            next_lsn = marks.log_start_lsn if start == "earliest" else Lsn(marks.visible_lsn + 1)
        else:
            raise InvalidRequest(
                f"start {start!r}: give an LSN, 'earliest', 'latest', a time or AtCursor(name)"
            )
        self._next_lsn = int(next_lsn)
        self._not_before_ns = not_before_ns
        self._is_at_earliest = start == "earliest"
        if cursor:
            self._committed.began_at(cursor, cursor_lsn)


def _check_contiguous(batches: list[RecordBatch], next_lsn: int) -> None:
    for batch in batches:
        if batch.first_lsn != next_lsn:
            raise FormatError(f"LSN {batch.first_lsn} came where {next_lsn} is due")
        next_lsn = batch.last_lsn + 1
