"""The control port: sessions, cursors, metadata, status, transfer, format level, bootstrap
(SAFETY E8, E9). The produce port's requests, too.

Owns what is done for each request. Answers at once where it can; the other requests wait in
`pending_requests` for raft's answer or for the commit of their entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors.ingress.admission import Admission
from actors.ingress.changes import Change, ChangeKind, Changes, refusal
from actors.ingress.conversations import Conversations
from actors.ingress.cursor_requests import decide_cursor, list_cursors, would_hold
from actors.ingress.documents import metadata_document, status_document, trace_document
from actors.ingress.groups import HeldAnswer, Route
from actors.ingress.linearizable_reads import LinearizableReads, ReadKind
from actors.ingress.member_requests import MemberRequests
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.pending_trims import PendingTrims
from actors.ingress.replica_info import ZERO_ID, ReplicaInfo
from actors.ingress.session_requests import decide_end, list_sessions, look_up, state_reply
from actors.ingress.sockets_and_rings import ToRaft
from actors.ingress.trim_bounds import TrimBounds
from actors.ingress.waiting_producers import WaitingProducers
from actors.messages import InitAnswered, InitRequested, StatusReported, StatusRequested
from actors.station import Station
from actors.topology import Counter, counter_of
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    CursorsRequest,
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    InitializeRequest,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    OpenSessionRequest,
    RaiseLevelRequest,
    SessionLookupRequest,
    SessionsRequest,
    SessionStateRequest,
    SetCursorRequest,
    StatusReply,
    StatusRequest,
    TraceReply,
    TraceRequest,
    TransferRequest,
    TrimRequest,
)
from logstore.format.client_request import BadRequest, RequestPort, Silence, read_request
from logstore.format.cursor_entries import NO_LSN, Hold
from logstore.format.first_lsn import unpack_first_lsn
from logstore.format.member_messages import MemberChangeRequest
from logstore.format.message import Envelope
from logstore.limits import HELD_ANSWERS_MAX, POSITION_MAX
from logstore.model import NO_NODE, AckLevel, EntryKind, Lsn, NodeId
from logstore.raft.effects import ChangeAnswered, LevelAnswered, TransferAnswered
from logstore.raft.events import LevelRequested, TransferRequested
from logstore.session.session import Refused, Session
from logstore.session.table import OpenRequest, SessionTable
from transport import link
from transport.ports import Socket

# A trace has some 7,000 stamps, and takes milliseconds; `logstore explain` asks twice a second.
_TRACE_EVERY_NS = 100_000_000
_REQUESTS_PER_WORK = 64

_READS: dict[type, ReadKind] = {
    CursorsRequest: ReadKind(list_cursors, sees=EntryKind.CURSOR),
    SessionsRequest: ReadKind(list_sessions, sees=None),
    SessionLookupRequest: ReadKind(look_up, sees=None),
}
# The entries that end a session, by what its producer is told.
_ENDED_BY = {ErrorCode.UNKNOWN_PRODUCER: EntryKind.EXPIRE, ErrorCode.FENCED: EntryKind.OPEN}


class ControlPort:
    """Serves the control socket."""

    def __init__(
        self,
        socket: Socket,
        requests: Requests,
        admission: Admission,
        bounds: TrimBounds,
        reads: LinearizableReads,
        replica: ReplicaInfo,
        conversations: Conversations,
        *,
        station: Station,
        to_raft: ToRaft,
        random_u64: Callable[[], int],
    ) -> None:
        config = station.config
        self._socket = socket
        self._requests = requests
        self._admission = admission
        self._reads = reads
        self._conversations = conversations
        self._changes = Changes(admission, requests, reads, bounds.full_disks)
        self._trims = PendingTrims(admission, bounds, requests, reads)
        self._members = MemberRequests(requests, reads, replica, to_raft)
        self._change_kinds: dict[type, ChangeKind] = {
            SetCursorRequest: ChangeKind(self._decide_cursor, sees=EntryKind.CURSOR),
            EndSessionRequest: ChangeKind(decide_end, sees=None),
        }
        self._replica = replica
        self._layout = station.layout
        self._config = config
        self._nodes = tuple(NodeId(each.node) for each in config.nodes)
        self._batch_max_bytes = config.limits.batch_max_bytes
        self._slots = station.slots
        self._to_raft = to_raft
        self._random_u64 = random_u64
        self._read_stamps = station.read_stamps
        self._waiting = WaitingProducers()
        self._traced: TraceReply | None = None
        self._traced_ns = 0

    def do_work(self, now_ns: int) -> int:
        expired = self._requests.expire(now_ns)
        work = 0
        while work < _REQUESTS_PER_WORK and (frames := link.try_receive(self._socket)) is not None:
            work += 1
            self._receive(self._socket, RequestPort.CONTROL, frames, now_ns)
        return work + expired + self._trims.do_work() + self._answer_waiting(now_ns)

    @property
    def next_timer_ns(self) -> int:
        return min(self._requests.next_timer_ns, self._waiting.next_timer_ns)

    def take_produce_request(self, socket: Socket, frames: list[bytes], now_ns: int) -> None:
        """Serve a request that came to the produce port."""
        self._receive(socket, RequestPort.PRODUCE, frames, now_ns)

    def _receive(self, socket: Socket, port: RequestPort, frames: list[bytes], now_ns: int) -> None:
        request = read_request(frames[1:], port)
        if isinstance(request, Silence):
            self._slots[counter_of(request)] += 1
            return
        envelope = request.envelope if isinstance(request, BadRequest) else request[0]
        caller = Caller(frames[0], envelope.correlation, socket)
        if self._is_foreign(envelope):
            self._slots[Counter.FRAMES_FOREIGN] += 1
            text = f"this is cluster {self._replica.identity.cluster_id.hex()}: check the endpoints"
            self._requests.refuse(caller, ErrorCode.WRONG_CLUSTER, text)
        elif isinstance(request, BadRequest):
            self._slots[Counter.REQUESTS_INVALID] += 1
            self._requests.refuse(caller, request.code, request.text)
        else:
            self._serve(caller, request[1], now_ns)

    def _why_nothing_holds(self, lsn: Lsn) -> ErrorReply | None:
        """The answer for a cursor that is to hold what is gone."""
        start_lsn = Lsn(self._slots[Counter.LOG_START_LSN])
        if not NO_LSN < lsn < start_lsn:
            return None
        text = f"LSN {lsn} is gone, the log begins at {start_lsn}: nothing can hold it"
        bounds = start_lsn, Lsn(POSITION_MAX)
        return ErrorReply(ErrorCode.OUT_OF_RANGE, NO_NODE, *bounds, text.encode())

    def _decide_cursor(self, table: SessionTable, request: SetCursorRequest) -> Change | Refused:
        """As `decide_cursor`. In the log the change comes after a TRIM that is under way, which may
        have been proposed while raft confirmed that the change was refused (G1)."""
        lsn = request.lsn
        if would_hold(table, request):
            if gone := self._why_nothing_holds(lsn):
                return Refused(ErrorCode.OUT_OF_RANGE, gone.first, gone.text.decode())
            if NO_LSN < lsn < self._admission.trimmed_lsn:
                text = f"LSN {lsn} goes with a trim that is under way: ask again"
                return Refused(ErrorCode.NOT_READY, 0, text)
        return decide_cursor(table, request)

    def _is_foreign(self, envelope: Envelope) -> bool:
        """Whether the request is for another cluster. A replica that belongs to none (it lost its
        disk or META, for example) still answers: an operator may ask for its state.
        """
        ours = self._replica.identity.cluster_id
        return ours != ZERO_ID and envelope.cluster_id not in (ZERO_ID, ours)

    def _serve(self, caller: Caller, message: Any, now_ns: int) -> None:
        if isinstance(message, SetCursorRequest) and message.hold == Hold.HELD:
            if refusal := self._why_nothing_holds(message.lsn):
                self._requests.reply(caller, refusal)
                return
        if (read := _READS.get(type(message))) is not None:
            self._reads.ask(caller, read, message, now_ns)
            return
        if (change := self._change_kinds.get(type(message))) is not None:
            self._changes.ask(caller, change, message, now_ns)
            return
        match message:
            case SessionStateRequest():
                self._answer_session_state(caller, message, now_ns)
            case OpenSessionRequest():
                self._open_session(caller, message, now_ns)
            case MetadataRequest():
                document = metadata_document(self._replica, self._config)
                self._requests.reply(caller, MetadataReply(document))
            case StatusRequest():
                if request_id := self._requests.add(caller, now_ns):
                    self._to_raft.send(StatusRequested(request_id))
            case TraceRequest():
                self._requests.reply(caller, self._trace(now_ns))
            case TransferRequest():
                self._transfer(caller, message, now_ns)
            case RaiseLevelRequest():
                self._raise_level(caller, message, now_ns)
            case TrimRequest():
                self._trims.ask(caller, message, now_ns)
            case MemberChangeRequest():
                self._members.ask(caller, message, now_ns)
            case InitializeRequest():
                self._initialize(caller, message, now_ns)

    # --- sessions ---

    def _open_session(self, caller: Caller, request: OpenSessionRequest, now_ns: int) -> None:
        opening = OpenRequest(
            request.producer_id, request.mode, request.ack_level, request.window, request.name
        )
        entry = self._admission.decide_open(opening, self._random_u64, now_ns)
        if isinstance(entry, Refused):
            self._requests.refuse_request(caller, entry)
        elif request_id := self._requests.add(caller, now_ns):
            session, group = self._admission.take_open(entry, now_ns)
            reply = OpenSessionReply(
                producer_id=session.producer_id,
                producer_epoch=session.producer_epoch,
                window=session.window_max,
                window_bytes=session.window_bytes,
                batch_max_bytes=self._batch_max_bytes,
                next_sequence=session.next_sequence,
            )
            lost = "the session may be open, or be opened yet: ask again"
            group.request = HeldAnswer(request_id, reply, lost)

    def _answer_session_state(
        self, caller: Caller, request: SessionStateRequest, now_ns: int
    ) -> None:
        """The authority on what is committed (E9). Batches that are not committed yet will be
        acknowledged under the request's round, or, at the produce port, to its connection."""
        admission = self._admission
        table = admission.table
        if table is None or not admission.is_ready or not admission.takes_batches:
            if not (self._may_be_ready_soon and self._waiting.try_add(caller, request, now_ns)):
                self._requests.refuse_as_not_leading(caller)
            return
        session = table.state_of(request.producer_id, request.producer_epoch)
        if isinstance(session, Refused):
            self._deny_session(caller, session, now_ns)
            return
        admission.heard_of(session.producer_id, now_ns)
        route: Route = request.round if caller.socket is self._socket else caller.routing_id
        if session.ack_level == AckLevel.QUORUM:  # the others hear of no commit (E10)
            for row in session.rows.values():
                if not row.is_committed(table.commit):
                    origin = session.producer_id, session.producer_epoch, route, row
                    admission.retries.await_commit(origin)
        if not session.is_dense:
            self._open_conversation(session, route)
        self._requests.reply(caller, state_reply(session, table.commit))

    def _open_conversation(self, session: Session, route: Route) -> None:
        """E11: a round of the ack feed, or a connection of the produce port."""
        gen = self._admission.proposals.gen
        numbers = session.producer_id, session.producer_epoch
        if isinstance(route, int):
            self._conversations.open_round(gen, *numbers, route)
        else:
            self._conversations.open(gen, *numbers, route)

    @property
    def _may_be_ready_soon(self) -> bool:
        return self._replica.is_leading and not self._slots[Counter.DISK_FULL]

    def _answer_waiting(self, now_ns: int) -> int:
        """Answer the producers that wait, once this leader is ready or leads no more. A window of
        4,096 rows takes 3 ms: a thousand at once would stand still until raft stepped down (V6)."""
        if not self._waiting:
            return 0
        expired = self._waiting.take_expired(now_ns)
        for caller in expired:
            self._requests.refuse_as_not_leading(caller)
        admission = self._admission
        if self._may_be_ready_soon and not (admission.is_ready and admission.takes_batches):
            return len(expired)
        taken = self._waiting.take(_REQUESTS_PER_WORK)
        for caller, request in taken:
            self._answer_session_state(caller, request, now_ns)
        return len(expired) + len(taken)

    def _deny_session(self, caller: Caller, refused: Refused, now_ns: int) -> None:
        """The session is over once the entry that ended it is committed. Before that it may go on
        under another leader. While nothing is committed, thousands of producers may ask again and
        again: they must leave room for an operator's requests."""
        group = self._admission.proposals.newest_pending(_ENDED_BY[refused.code])
        if group is None:
            self._requests.refuse(caller, refused.code, refused.text)
        elif len(group.readers) >= HELD_ANSWERS_MAX:
            text = "that this session is over is not committed yet: ask later"
            self._requests.refuse(caller, ErrorCode.NOT_READY, text)
        elif request_id := self._requests.add(caller, now_ns):
            self._requests.hold_at(group, request_id, refusal(refused))

    # --- operators ---

    def _transfer(self, caller: Caller, request: TransferRequest, now_ns: int) -> None:
        if not self._replica.is_leading:
            self._requests.refuse_as_not_leading(caller)
        elif request.target and request.target not in (nodes := self._replica_numbers):
            text = f"no node {request.target} in this cluster; there are {nodes}"
            self._requests.refuse(caller, ErrorCode.INVALID_REQUEST, text)
        elif request_id := self._requests.add(caller, now_ns):
            self._to_raft.send(TransferRequested(request_id, NodeId(request.target)))

    @property
    def _replica_numbers(self) -> tuple[NodeId, ...]:
        """Of the members that there are; without a configuration those of the file."""
        members = self._replica.present_members
        return self._nodes if members is None else tuple(each.number for each, _ in members)

    def _trace(self, now_ns: int) -> TraceReply:
        """A new one every _TRACE_EVERY_NS at most: asking in a loop keeps nobody from appending."""
        if self._traced is None or now_ns - self._traced_ns >= _TRACE_EVERY_NS:
            in_flight_max = self._admission.proposals.in_flight_max
            self._traced_ns = now_ns
            self._traced = TraceReply(
                trace_document(
                    self._replica,
                    self._layout,
                    self._nodes,
                    self._slots,
                    self._read_stamps(),
                    groups_in_flight_max=in_flight_max,
                    now_ns=now_ns,
                )
            )
        return self._traced

    def _raise_level(self, caller: Caller, request: RaiseLevelRequest, now_ns: int) -> None:
        if not self._replica.is_leading:
            self._requests.refuse_as_not_leading(caller)
        elif request_id := self._requests.add(caller, now_ns):
            self._to_raft.send(LevelRequested(request_id, request.level))

    def _initialize(self, caller: Caller, request: InitializeRequest, now_ns: int) -> None:
        """The raft process runs the bootstrap and answers how it ended (L2)."""
        try:
            first_lsn = unpack_first_lsn(request.first_lsn)
        except FormatError as error:
            self._requests.refuse(caller, ErrorCode.INVALID_REQUEST, str(error))
            return
        if request_id := self._requests.add(caller, now_ns):
            self._to_raft.send(InitRequested(request_id, first_lsn))

    def on_transfer(self, answered: TransferAnswered) -> None:
        code = ErrorCode.OK if answered.is_done else ErrorCode.TRANSFER_FAILED
        self._answer(answered.request_id, code, answered.reason)

    def on_level(self, answered: LevelAnswered) -> None:
        self._answer(answered.request_id, answered.code, answered.reason, value=answered.level)

    def on_change(self, answered: ChangeAnswered) -> None:
        self._answer(answered.request_id, answered.code, answered.reason)

    def on_init(self, answered: InitAnswered) -> None:
        self._answer(answered.request_id, answered.code, answered.reason)

    def _answer(self, request_id: int, code: ErrorCode, reason: str, *, value: int = 0) -> None:
        caller = self._requests.take(request_id)
        if caller is None:
            return
        if code is ErrorCode.OK:
            self._requests.reply(caller, DoneReply(value))
        else:
            self._requests.refuse(caller, code, reason)

    def on_status(self, reported: StatusReported) -> None:
        caller = self._requests.take(reported.request_id)
        if caller is not None:
            document = status_document(reported.document, self._layout, self._nodes, self._slots)
            self._requests.reply(caller, StatusReply(document))
