"""Which peer a message comes from, and how an answer gets back to it (SAFETY M6, W7).

Owns the identity check: a message of this cluster, for this node, of any number, since members
come and go; `peer_table` says which replica a number is. Answers return on the connections that the
peer's own replicator made, so nothing here connects.
"""

from __future__ import annotations

from typing import Any

from actors.ingress.peer_table import NUMBERS_MAX, PeerTable, Speaker
from actors.ingress.replica_info import ZERO_ID, ReplicaInfo
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import InitReceived, JoinReceived, StartReceived, TellJoin, TellStart
from actors.topology import Counter, counter_of
from actors.trace import Stamper
from logstore.errors import FormatError
from logstore.format.configuration_body import NO_UUID
from logstore.format.message import Envelope, decode_message
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    InitCommit,
    InitMessage,
    InitPrepare,
    InitStatusRequest,
    JoinRequest,
    PreVoteRequest,
    Removed,
    RemovedQuestion,
    StartReport,
    TimeoutNow,
    VoteRequest,
)
from logstore.model import NO_INDEX, NO_NODE, NodeId
from logstore.raft.bootstrap import SendInit
from logstore.raft.configuration import members
from logstore.raft.effects import Answer, MembersChanged
from logstore.raft.events import ControlReceived
from transport import link
from transport.ports import Socket

_MESSAGES_PER_WORK = 256
# What a peer originates; its answers come back on the sockets of our own replicator.
_REQUESTS = PreVoteRequest | VoteRequest | Heartbeat | TimeoutNow
_INIT_REQUESTS = InitStatusRequest | InitPrepare | InitCommit
_BULK_ANSWERS = (AppendAccepted, AppendPersisted, AppendReject)


class Peers:
    """The two lanes' senders and return routes."""

    def __init__(
        self,
        control: Socket,
        bulk: Socket,
        replica: ReplicaInfo,
        *,
        slots: memoryview,
        answered: Stamper,
        election_timeout_ns: int,
        configured: frozenset[NodeId],
    ) -> None:
        self._answered = answered
        self._control = control
        self._bulk = bulk
        self._replica = replica
        self._slots = slots
        self._configured = configured
        self._table = PeerTable(election_timeout_ns, configured)
        self._members: MembersChanged | None = None  # whose uuids the table knows
        # Of messages that come before a number has a replica of this cluster: of the bootstrap,
        # and of one that asks to join, by its uuid; the newest ones.
        self._init_routes: dict[NodeId, tuple[bytes, bytes]] = {}

    def begin_turn(self, now_ns: int) -> None:
        """Before messages are read."""
        self._table.begin_turn(now_ns, is_leading=self._replica.is_leading)
        if self._members is not self._replica.members:
            self._members = self._replica.members
            self._name_members(self._members)

    def _name_members(self, changed: MembersChanged | None) -> None:
        if changed is None or not changed.configuration.id:
            self._table.name({}, self._configured)
            return
        found = members(changed.configuration)
        uuids = {each.number: each.uuid for each in found if each.uuid != NO_UUID}
        self._table.name(uuids, frozenset(each.number for each in found))

    def decode(
        self, routing_id: bytes, frame: bytes | memoryview, *, is_bulk: bool
    ) -> tuple[Envelope, Any] | None:
        """The message, if it comes from a replica of this cluster, is meant for this node, and no
        other replica speaks under its number; remembers its route."""
        try:
            envelope, message = decode_message(frame)
        except FormatError as error:
            self._slots[counter_of(error)] += 1
            return None
        if isinstance(message, InitMessage | JoinRequest):
            is_init = isinstance(message, InitMessage)
            if self._takes_init(envelope) if is_init else self._takes_join(envelope):
                self._remember_init(envelope, routing_id)
                return envelope, message
        elif isinstance(message, RemovedQuestion):
            if self._takes_join(envelope):
                self._answer_if_removed(envelope, message, routing_id)
                return None
        elif (speaker := self._speaker_of(envelope)) is not None:
            if is_bulk:
                speaker.bulk_route = routing_id
            else:
                speaker.control_route = routing_id
            return envelope, message
        self._slots[Counter.FRAMES_FOREIGN] += 1
        return None

    def _is_for_us(self, envelope: Envelope) -> bool:
        node = self._replica.node
        return envelope.target == node and envelope.sender not in (node, NO_NODE)

    def _takes_init(self, envelope: Envelope) -> bool:
        """Before bootstrap there is no cluster id, and a wiped node has a new uuid."""
        ours = self._replica.identity.cluster_id
        return self._is_for_us(envelope) and (
            envelope.cluster_id in (ZERO_ID, ours) or ours == ZERO_ID
        )

    def _takes_join(self, envelope: Envelope) -> bool:
        """The sender is not yet who speaks under its number (L4)."""
        identity = self._replica.identity
        is_of_cluster = envelope.cluster_id == identity.cluster_id != ZERO_ID
        is_other = envelope.sender_uuid != identity.replica_uuid
        return self._is_for_us(envelope) and is_of_cluster and is_other

    def _answer_if_removed(
        self, envelope: Envelope, asked: RemovedQuestion, routing_id: bytes
    ) -> None:
        """To the replica that asks, whatever replica speaks under its number (C10): nothing else of
        one that was removed is heard where there is a cluster. Said once, lost as any message."""
        sender, replica = envelope.sender, self._replica
        index = replica.removed_at(sender, envelope.sender_uuid, asked.config_index)
        if index == NO_INDEX:
            return
        boot = replica.identity.boot
        frame = replica.encode(Removed(index), target=sender, correlation=boot)
        if not _try_send(self._control, routing_id, frame):
            self._slots[Counter.SENDS_DROPPED] += 1

    def _remember_init(self, envelope: Envelope, routing_id: bytes) -> None:
        self._init_routes.pop(envelope.sender, None)
        self._init_routes[envelope.sender] = envelope.sender_uuid, routing_id
        if len(self._init_routes) > NUMBERS_MAX:
            del self._init_routes[next(iter(self._init_routes))]

    def _speaker_of(self, envelope: Envelope) -> Speaker | None:
        identity, uuid = self._replica.identity, envelope.sender_uuid
        if not self._is_for_us(envelope) or uuid == identity.replica_uuid:
            return None
        if envelope.cluster_id != identity.cluster_id or envelope.cluster_id == ZERO_ID:
            return None
        return self._table.take(envelope.sender, uuid)

    def answer(self, answer: Answer | SendInit | TellStart | TellJoin) -> None:
        """Send raft's answer over the connection that the peer's messages come on; a send that the
        socket refuses is only counted.

        A route is known once a message came over it, and a leader with a full window sends nothing
        over a new bulk connection. So AppendPersisted goes over the control lane, where heartbeats
        come, if the bulk lane does not take it: it is what opens the window again.
        """
        message = answer.message
        is_bulk = isinstance(message, _BULK_ANSWERS)
        if isinstance(message, AppendPersisted):
            self._answered.stamp_through(message.index)
        frame = self._replica.encode(
            message, target=answer.peer, correlation=self._replica.identity.boot
        )
        control_route, bulk_route = self._routes_of(answer)
        is_sent = is_bulk and _try_send(self._bulk, bulk_route, frame)
        if not is_sent and (not is_bulk or isinstance(message, AppendPersisted)):
            is_sent = _try_send(self._control, control_route, frame)
        if not is_sent:
            self._slots[Counter.SENDS_DROPPED] += 1

    def _routes_of(
        self, answer: Answer | SendInit | TellStart | TellJoin
    ) -> tuple[bytes | None, ...]:
        """Of the control and the bulk lane to the replica that is meant; None: it has none now."""
        if isinstance(answer, SendInit | TellJoin):
            uuid, route = self._init_routes.get(answer.peer, (b"", None))
            is_meant = isinstance(answer, SendInit) or answer.uuid == uuid
            return route if is_meant else None, None
        speaker = self._table.speaker(answer.peer)
        wanted = answer.uuid if isinstance(answer, Answer) else b""
        if speaker is None or wanted not in (b"", speaker.uuid):
            return None, None
        return speaker.control_route, speaker.bulk_route


def _try_send(socket: Socket, routing_id: bytes | None, frame: bytes) -> bool:
    return routing_id is not None and link.try_send(socket, (routing_id, frame))


class PeerControl:
    """The control lane: votes, heartbeats, commit news. Read first in every do_work (W7)."""

    def __init__(self, socket: Socket, peers: Peers, to_raft: ToRaft, slots: memoryview) -> None:
        self._socket = socket
        self._peers = peers
        self._to_raft = to_raft
        self._slots = slots

    def do_work(self) -> int:
        work = 0
        while work < _MESSAGES_PER_WORK and (frames := link.try_receive(self._socket)) is not None:
            work += 1
            if len(frames) != 2:
                self._slots[Counter.FRAMES_DROPPED] += 1
            elif (found := self._peers.decode(frames[0], frames[1], is_bulk=False)) is not None:
                self._pass_to_raft(*found)
        return work

    def _pass_to_raft(self, envelope: Envelope, message: Any) -> None:
        sender, uuid, boot = envelope.sender, envelope.sender_uuid, envelope.correlation
        if isinstance(message, _REQUESTS):
            self._to_raft.send(ControlReceived(sender, boot, message, uuid))
        elif isinstance(message, _INIT_REQUESTS):
            self._to_raft.send(InitReceived(sender, uuid, message))
        elif isinstance(message, StartReport):
            self._to_raft.send(StartReceived(sender, uuid, boot, message))
        elif isinstance(message, JoinRequest):
            self._to_raft.send(JoinReceived(envelope.sender, envelope.sender_uuid, message))
        else:
            self._slots[Counter.FRAMES_DROPPED] += 1
