"""The fetch port: ranges, watermarks, time lookups, spans and verification.

One request, one reply. A request that must wait (for `min_lsn`, for a ReadIndex round) is kept,
bounded, until its deadline. Every refusal is an `ErrorReply` with a code.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable
from typing import Any

import msgspec

from actors.egress.credit import AnswerCredit
from actors.egress.reads import Bounds, DamagedEntry, read_pieces, verify_slice
from actors.egress.spans_from_records import read_spans
from actors.messages import Identity
from actors.topology import Counter, counter_of
from logstore.errors import CorruptData, ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    FetchReply,
    FetchRequest,
    SpansRequest,
    TimeLookupReply,
    TimeLookupRequest,
    VerifyReply,
    VerifyRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.client_request import BadRequest, RequestPort, Silence, read_request
from logstore.format.message import Envelope, encode_message
from logstore.limits import FETCH_WAIT_MAX_MS, KIB, ReplicaLimits
from logstore.model import NO_NODE, Index, Lsn, NodeId
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.storage.log_reader import BelowLogStart, LogReader
from transport import link
from transport.ports import AnsweringSocket

# Requests that wait at once; beyond it the newest is refused as Overloaded.
WAITING_MAX = 1_024
# … of one client, which could otherwise take every place: it has two or three under way.
WAITING_PER_CLIENT_MAX = 64
# Requests read, and answered, per do_work: 16 x 4 MiB from the page cache are about 20 ms.
SERVED_MAX = 16
# Answers queued for one client that does not read: 16 x 4 MiB, then they are dropped and counted.
ANSWERS_QUEUED_MAX = 16
READ_INDEX_WAIT_NS = 5_000_000_000
_MS_NS = 1_000_000
# A request whose client has too many answers under way is looked at again this often, and refused
# after so long.
HELD_LOOK_NS = 5_000_000
HELD_MAX_NS = 10_000_000_000
# An answer other than a fetch has up to 64 spans or damaged entries.
SMALL_ANSWER_BYTES = 32 * KIB
NEVER_NS = 1 << 62


class Waiting(msgspec.Struct):
    """A request that cannot be answered yet."""

    client: bytes
    envelope: Envelope
    request: Any
    min_lsn: Lsn
    deadline_ns: int
    read_index: int  # request id of the ReadIndex round still awaited; 0: none
    held_since_ns: int = 0  # since when its client has no room for the answer; 0: it has


class Requests:
    """Everything that arrives on the fetch port."""

    def __init__(
        self,
        socket: AnsweringSocket,
        slots: memoryview,
        *,
        node: NodeId,
        fetch_max_bytes: int,
        replica_limits: ReplicaLimits,
        ask_read_index: Callable[[ReadIndexRequested], None],
        report_rot: Callable[[Index], None],
    ) -> None:
        self._socket = socket
        self._credit = AnswerCredit(
            socket,
            slots,
            per_client_bytes=replica_limits.answers_per_client_bytes,
            total_max_bytes=replica_limits.answers_bytes_max,
        )
        self._waiting_of: Counts[bytes] = Counts()
        self._now_ns = 0
        self._slots = slots
        self._node = node
        self._fetch_max_bytes = fetch_max_bytes
        self._ask_read_index = ask_read_index
        self._report_rot = report_rot
        self._waiting: list[Waiting] = []
        self._last_read_index = 0
        self.identity: Identity | None = None

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits for something to become visible, or for a quorum."""
        return bool(self._waiting)

    @property
    def next_timer_ns(self) -> int:
        look_ns = self._now_ns + HELD_LOOK_NS
        timers = (look_ns if each.held_since_ns else each.deadline_ns for each in self._waiting)
        return min(timers, default=NEVER_NS)

    def do_work(self, now_ns: int, log: LogReader | None, bounds: Bounds | None) -> int:
        self._now_ns = now_ns
        work = 0
        while work < SERVED_MAX and (frames := link.try_receive(self._socket)) is not None:
            work += 1
            self._take(frames, now_ns)
        if self._waiting:
            work += self._serve_waiting(now_ns, log, bounds)
        return work

    def on_read_index(self, answer: ReadIndexAnswered) -> None:
        for waiting in self._waiting:
            if waiting.read_index == answer.request_id:
                waiting.read_index = 0
                waiting.min_lsn = max(waiting.min_lsn, answer.lsn)
                if not answer.is_leader:
                    self._waiting.remove(waiting)
                    self._done(waiting)
                    self._refuse(
                        waiting, ErrorCode.NOT_LEADER, "only the leader reads linearizably"
                    )
                return

    def _take(self, frames: list[Any], now_ns: int) -> None:
        """Read one request and queue it; serving happens from the queue, in order."""
        client = bytes(frames[0])
        self._credit.asked_by(client)
        found = read_request(frames[1:], RequestPort.FETCH)
        if isinstance(found, Silence):
            self._slots[counter_of(found)] += 1
            return
        envelope, request = (found.envelope, None) if isinstance(found, BadRequest) else found
        waiting = Waiting(client, envelope, request, Lsn(0), now_ns, 0)
        if self._is_foreign(envelope):
            self._refuse_foreign(waiting)
            return
        if isinstance(found, BadRequest):
            self._slots[Counter.REQUESTS_INVALID] += 1
            self._refuse(waiting, found.code, found.text)
            return
        if len(self._waiting) >= WAITING_MAX or self._waiting_of[client] >= WAITING_PER_CLIENT_MAX:
            self._refuse(waiting, ErrorCode.OVERLOADED, "too many requests wait here; retry later")
            return
        if isinstance(request, FetchRequest | WatermarksRequest):
            waiting.min_lsn = request.min_lsn
            waiting.deadline_ns = now_ns + min(request.wait_ms, FETCH_WAIT_MAX_MS) * _MS_NS
            if request.is_linearizable:
                # Above all ids of an earlier process: an answer to one of those would be a read
                # index from before this request (V5).
                self._last_read_index = max(self._last_read_index + 1, now_ns)
                waiting.read_index = self._last_read_index
                waiting.deadline_ns = max(waiting.deadline_ns, now_ns + READ_INDEX_WAIT_NS)
                self._ask_read_index(ReadIndexRequested(self._last_read_index))
        self._waiting.append(waiting)
        self._waiting_of[client] += 1

    def _serve_waiting(self, now_ns: int, log: LogReader | None, bounds: Bounds | None) -> int:
        """Answer what can be answered, refuse what has waited too long; a bounded number."""
        kept: list[Waiting] = []
        served = 0
        for waiting in self._waiting:
            is_foreign = self._is_foreign(waiting.envelope)
            must_wait = not is_foreign and _must_wait(waiting, now_ns, bounds)
            if must_wait or served == SERVED_MAX or self._is_held(waiting, now_ns):
                kept.append(waiting)
                continue
            served += 1
            self._done(waiting)
            if is_foreign:
                self._refuse_foreign(waiting)
            elif waiting.held_since_ns:
                text = f"what you asked before waits for {HELD_MAX_NS // 10**9} s: read it first"
                self._refuse(waiting, ErrorCode.OVERLOADED, text)
            elif waiting.read_index:
                self._refuse(waiting, ErrorCode.NO_QUORUM, "no majority confirmed leadership")
            elif log is None or bounds is None:
                self._refuse(waiting, ErrorCode.NOT_READY, self._why_not_ready())
            else:
                self._serve(waiting, log, bounds)
        self._waiting = kept
        return served

    def _why_not_ready(self) -> str:
        if self._slots[Counter.VISIBLE]:
            return "the log cannot be read now: ask again"
        if self._slots[Counter.DISK_FULL]:
            # Where all disks are full, no leader can commit the no-op of its term (S9).
            return "no commit index heard yet, and this replica's disk is full: free some space"
        return "no commit index heard yet"

    def _is_held(self, waiting: Waiting, now_ns: int) -> bool:
        """Whether the client must first receive earlier answers; it waits for HELD_MAX_NS at
        most."""
        request = waiting.request
        size_bytes = SMALL_ANSWER_BYTES
        if isinstance(request, FetchRequest):
            size_bytes = min(request.max_bytes, self._fetch_max_bytes)
        if self._credit.has_room(waiting.client, size_bytes, now_ns):
            waiting.held_since_ns = 0
            return False
        waiting.held_since_ns = waiting.held_since_ns or now_ns
        return now_ns - waiting.held_since_ns < HELD_MAX_NS

    def _done(self, waiting: Waiting) -> None:
        """It waits no more."""
        self._waiting_of[waiting.client] -= 1
        if not self._waiting_of[waiting.client]:
            del self._waiting_of[waiting.client]

    def _is_foreign(self, envelope: Envelope) -> bool:
        """Whether the request is for another cluster. A replica that does not know its own yet is
        only not ready."""
        ours = self.identity.cluster_id if self.identity else bytes(16)
        return any(ours) and envelope.cluster_id not in (bytes(16), ours)

    def _serve(self, waiting: Waiting, log: LogReader, bounds: Bounds) -> None:
        """Answer it. The log start may move while files are read; then the reader knows it, and
        the request is decided again."""
        for _ in range(2):
            try:
                self._answer(waiting, log, bounds)
                return
            except BelowLogStart:
                bounds = msgspec.structs.replace(bounds, log_start_lsn=log.start.next_lsn)
            except OSError as error:  # no descriptor is left, say: other requests go on
                text = f"the log cannot be read now, {error.strerror}: ask again"
                self._refuse(waiting, ErrorCode.NOT_READY, text)
                return
        # What is asked for may be there: OUT_OF_RANGE would be final.
        self._refuse(waiting, ErrorCode.NOT_READY, "the log start moves: ask again")

    def _answer(self, waiting: Waiting, log: LogReader, bounds: Bounds) -> None:
        request = waiting.request
        try:
            if bounds.visible_lsn < waiting.min_lsn:
                self._refuse(
                    waiting, ErrorCode.TIMED_OUT, "this replica lags behind min_lsn", bounds
                )
            elif isinstance(request, FetchRequest):
                self._fetch(waiting, request, log, bounds)
            elif isinstance(request, WatermarksRequest):
                self._reply(waiting, WatermarksReply(bounds.log_start_lsn, bounds.visible_lsn))
            elif isinstance(request, TimeLookupRequest):
                self._reply(waiting, TimeLookupReply(_lsn_of_time(log, bounds, request)))
            elif isinstance(request, SpansRequest):
                if self._is_within(waiting, request, bounds):
                    self._reply(waiting, read_spans(log, bounds, request))
            elif isinstance(request, VerifyRequest):
                self._verify(waiting, request, log, bounds)
        except DamagedEntry as damage:
            self._report_rot(damage.index)
            text = str(damage).encode()
            reply = ErrorReply(ErrorCode.CORRUPT_DATA, 0, damage.first_lsn, damage.last_lsn, text)
            self._reply(waiting, reply)
        except CorruptData as damage:
            # a search met the damage: the LSNs that it concerns are not known
            self._refuse(waiting, ErrorCode.CORRUPT_DATA, str(damage))

    def _fetch(
        self, waiting: Waiting, request: FetchRequest, log: LogReader, bounds: Bounds
    ) -> None:
        if not self._is_within(waiting, request, bounds):
            return
        pieces = read_pieces(
            log,
            bounds,
            first_lsn=request.first_lsn,
            last_lsn=request.last_lsn,
            max_bytes=min(request.max_bytes, self._fetch_max_bytes),
        )
        self._slots[Counter.FETCHES] += 1
        self._slots[Counter.FETCH_BYTES] += pieces.size_bytes
        reply = FetchReply(bounds.log_start_lsn, bounds.visible_lsn, pieces.next_lsn, pieces.count)
        self._reply(waiting, reply, b"".join(pieces.buffers))

    def _is_within(
        self, waiting: Waiting, request: FetchRequest | SpansRequest, bounds: Bounds
    ) -> bool:
        """Whether the range can be served; a refusal is sent if not."""
        first = request.first_lsn
        # one past the end is not an error: it is where a consumer that has everything stands
        if bounds.log_start_lsn <= first <= bounds.visible_lsn + 1 and request.last_lsn >= first:
            return True
        text = (
            f"LSNs [{first}, {request.last_lsn}] asked, "
            f"[{bounds.log_start_lsn}, {bounds.visible_lsn}] are here"
        )
        self._refuse(waiting, ErrorCode.OUT_OF_RANGE, text, bounds)
        return False

    def _verify(
        self, waiting: Waiting, request: VerifyRequest, log: LogReader, bounds: Bounds
    ) -> None:
        if request.first_index > bounds.visible_index + 1:  # read, it would look like damage
            text = f"index {request.first_index} asked, {bounds.visible_index} is the last here"
            self._refuse(waiting, ErrorCode.OUT_OF_RANGE, text, bounds)
            return
        found = verify_slice(
            log,
            bounds,
            first_index=Index(max(1, request.first_index)),
            max_bytes=min(request.max_bytes, self._fetch_max_bytes),
        )
        for row in found.faulty:
            self._report_rot(Index(int(row["first_index"])))
        reply = VerifyReply(
            found.last_index, bounds.visible_index, found.chain, found.payloads, found.size_bytes,
            found.last_lsn, msgspec.json.encode(found.faulty),
        )  # fmt: skip
        self._reply(waiting, reply)

    def _refuse_foreign(self, waiting: Waiting) -> None:
        self._slots[Counter.FRAMES_FOREIGN] += 1
        self._refuse(waiting, ErrorCode.WRONG_CLUSTER, "this is another cluster")

    def _refuse(
        self, waiting: Waiting, code: ErrorCode, text: str, bounds: Bounds | None = None
    ) -> None:
        first, last = (bounds.log_start_lsn, bounds.visible_lsn) if bounds else (0, 0)
        self._reply(waiting, ErrorReply(code, 0, first, last, text.encode()))

    def _reply(self, waiting: Waiting, reply: Any, *more: bytes) -> None:
        identity = self.identity
        frame = encode_message(
            reply,
            cluster_id=identity.cluster_id if identity else bytes(16),
            sender_uuid=identity.replica_uuid if identity else bytes(16),
            sender=self._node,
            target=NO_NODE,
            correlation=waiting.envelope.correlation,
        )
        if not link.try_send(self._socket, [waiting.client, frame, *more]):
            self._slots[Counter.SENDS_DROPPED] += 1
            return
        size_bytes = len(frame) + sum(map(len, more))
        self._credit.answered(waiting.client, size_bytes, self._now_ns)


def _must_wait(waiting: Waiting, now_ns: int, bounds: Bounds | None) -> bool:
    """Whether what this request needs may still come in time."""
    if now_ns >= waiting.deadline_ns:
        return False
    return waiting.read_index != 0 or bounds is None or bounds.visible_lsn < waiting.min_lsn


def _lsn_of_time(log: LogReader, bounds: Bounds, request: TimeLookupRequest) -> Lsn:
    """The LSN of that time, or the log start if that is higher.

    While a log starts over, the log start is above all that is shown.
    """
    index = log.index_of_time(request.timestamp_ns, last_index=bounds.visible_index)
    if index > bounds.visible_index:
        found = Lsn(bounds.visible_lsn + 1)
    else:
        found = log.row(index).header.first_lsn
    return max(bounds.log_start_lsn, log.start.next_lsn, found)
