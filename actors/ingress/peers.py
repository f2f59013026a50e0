"""Which peer a message comes from, and how an answer gets back to it (SAFETY M6, W7).

Owns the identity check and the newest routing id of each peer and lane: answers return on the
connections that the peer's own replicator made, so nothing here connects. A peer's uuid is the one
first seen in this incarnation; another one means a copied folder or a lost disk, and its messages
are dropped (L1, L3).
"""

from __future__ import annotations

from typing import Any

from actors.ingress.replica_info import ZERO_ID, ReplicaInfo
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import InitReceived, StartReceived, TellStart
from actors.topology import Counter, counter_of
from actors.trace import Stamper
from logstore.errors import FormatError
from logstore.format.message import Envelope, decode_message
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    ControlMessage,
    InitMessage,
    StartMessage,
)
from logstore.model import NodeId
from logstore.raft.bootstrap import SendInit
from logstore.raft.effects import Answer
from logstore.raft.events import ControlReceived
from transport import link
from transport.ports import Socket

_MESSAGES_PER_WORK = 256
_BULK_ANSWERS = (AppendAccepted, AppendPersisted, AppendReject)


class Peers:
    """The two lanes' senders and return routes."""

    def __init__(
        self,
        control: Socket,
        bulk: Socket,
        replica: ReplicaInfo,
        *,
        peers: tuple[NodeId, ...],
        slots: memoryview,
        answered: Stamper,
    ) -> None:
        self._answered = answered
        self._control = control
        self._bulk = bulk
        self._replica = replica
        self._peers = frozenset(peers)
        self._slots = slots
        self._uuids: dict[NodeId, bytes] = {}
        self._control_routes: dict[NodeId, bytes] = {}
        self._bulk_routes: dict[NodeId, bytes] = {}

    def decode(
        self, routing_id: bytes, frame: bytes | memoryview, *, is_bulk: bool
    ) -> tuple[Envelope, Any] | None:
        """The message, if it comes from a peer and is meant for this node; remembers its route."""
        try:
            envelope, message = decode_message(frame)
        except FormatError as error:
            self._slots[counter_of(error)] += 1
            return None
        if not self._is_from_peer(envelope, is_init=isinstance(message, InitMessage)):
            self._slots[Counter.FRAMES_FOREIGN] += 1
            return None
        routes = self._bulk_routes if is_bulk else self._control_routes
        routes[envelope.sender] = routing_id
        return envelope, message

    def _is_from_peer(self, envelope: Envelope, *, is_init: bool) -> bool:
        identity = self._replica.identity
        if envelope.sender not in self._peers or envelope.target != self._replica.node:
            return False
        if is_init:  # before bootstrap there is no cluster id, and a wiped node has a new uuid
            return envelope.cluster_id in (ZERO_ID, identity.cluster_id) or (
                identity.cluster_id == ZERO_ID
            )
        if envelope.cluster_id != identity.cluster_id or envelope.cluster_id == ZERO_ID:
            return False
        known = self._uuids.setdefault(envelope.sender, envelope.sender_uuid)
        return envelope.sender_uuid == known != identity.replica_uuid

    def answer(self, answer: Answer | SendInit | TellStart) -> None:
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
        is_sent = is_bulk and _try_send(self._bulk, self._bulk_routes.get(answer.peer), frame)
        if not is_sent and (not is_bulk or isinstance(message, AppendPersisted)):
            is_sent = _try_send(self._control, self._control_routes.get(answer.peer), frame)
        if not is_sent:
            self._slots[Counter.SENDS_DROPPED] += 1


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
        if isinstance(message, ControlMessage):
            self._to_raft.send(ControlReceived(envelope.sender, envelope.correlation, message))
        elif isinstance(message, InitMessage):
            self._to_raft.send(InitReceived(envelope.sender, envelope.sender_uuid, message))
        elif isinstance(message, StartMessage):
            sender, uuid, boot = envelope.sender, envelope.sender_uuid, envelope.correlation
            self._to_raft.send(StartReceived(sender, uuid, boot, message))
        else:
            self._slots[Counter.FRAMES_DROPPED] += 1
