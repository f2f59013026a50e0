"""Cluster bootstrap: EMPTY → STARTING → VOTER, in two phases over all configured nodes (L2).

Owns this node's bootstrap state and the attempt that it coordinates. Must not know files, sockets
or where entropy comes from (a seeded `Random` is an argument).

    1. The coordinator (the lowest node id, or the node that `logstore init` named) asks all nodes
       for their state; all must answer.
    2. It chooses a nonce above every nonce seen, and a cluster id. It saves STARTING and asks all
       to prepare. A STARTING node takes a newer nonce; a VOTER never does.
    3. When all are prepared, it saves VOTER, then sends the commit to all.

At most one cluster id can win. The first VOTER is a coordinator whose own nonce is still the
attempt's. Any other attempt would have to prepare that coordinator again, which a VOTER refuses. So
a STARTING node that hears of a VOTER may take its cluster id whatever its own nonce is, since every
node was prepared for it. That holds for its disk, so an EMPTY node is prepared only once it has
heard from every other one that none is a VOTER: a coordinator may have missed that the cluster was
formed, and this disk be in the place of one that has voted since. An EMPTY node that hears of a
VOTER is new, or has lost its disk, and must not come back in place (L1): it saves LEARNER with that
cluster id, and asks for a place (L4). A LEARNER is only where a VOTER was, so it says as much of
the cluster. Both go on answering, for nodes that missed the commit.

The coordinator sends the first LSN with the cluster id. So all replicas have the same one, and only
the coordinator must be given it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import assert_never

import msgspec

from logstore.errors import FormatError, InvariantViolated
from logstore.format.first_lsn import pack_first_lsn, unpack_first_lsn
from logstore.format.peer_messages import (
    InitCommit,
    InitMessage,
    InitPrepare,
    InitPrepared,
    InitStatus,
    InitStatusRequest,
)
from logstore.limits import LOG_AGAIN_NS
from logstore.model import FORMED_STATES, NO_NODE, Lsn, NodeId, ReplicaState
from logstore.raft.effects import Log

CLUSTER_ID_SIZE = 16
NO_CLUSTER = bytes(CLUSTER_ID_SIZE)
# How often requests are repeated; an answer takes milliseconds. Nodes that start together wait for
# the last one's sockets, and then for the next request.
RETRY_NS = 50_000_000
# A node that another coordinator prepared waits for so many retries, 5 s, before it coordinates.
RETRIES_YIELDED = 100
NEVER_NS = 1 << 62
_ATTEMPT_BITS = 32  # a nonce: an attempt number, then 32 random bits


class SaveInit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=160):
    """To the writer: make the bootstrap state durable in META. `state` is a ReplicaState."""

    seq: int
    state: int
    nonce: int
    cluster_id: bytes
    first_lsn: Lsn


class SendInit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=161):
    """To a peer: InitStatus and InitPrepared are answers, the others go on
    our own pair of sockets."""

    peer: NodeId
    message: InitMessage


class InitDone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=162):
    """This node is a VOTER or a LEARNER of `cluster_id`, durably: create the log."""

    cluster_id: bytes


InitEffect = SaveInit | SendInit | InitDone | Log


class _InitState(msgspec.Struct, frozen=True):
    """A bootstrap state, reported or saved."""

    state: int
    nonce: int
    cluster_id: bytes
    first_lsn: Lsn

    @property
    def first_lsn_bytes(self) -> bytes:
        """The first LSN as messages encode it."""
        return pack_first_lsn(self.first_lsn)


def _state_in(state: int, message: InitStatus | InitPrepare | InitCommit) -> _InitState:
    """The state that `message` reports.

    Raises:
      FormatError: no log can begin at its first LSN.
    """
    first_lsn = unpack_first_lsn(message.first_lsn)
    return _InitState(state, message.nonce, message.cluster_id, first_lsn)


class Bootstrap:
    """One node's bootstrap. Every method returns effects, to be carried out in order.

    Args:
      node, voters, replica_uuid: this node's id, all nodes, and this replica's uuid.
      auto_init: the lowest node id coordinates without `logstore init`.
      state, nonce, cluster_id, first_lsn: from META; zero nonce and cluster id while EMPTY. A
        coordinator that was stopped during an attempt tries again with the same first LSN.
      random: seeded by the caller; nonce and cluster id are drawn from it.
    """

    def __init__(
        self,
        *,
        node: NodeId,
        voters: Sequence[NodeId],
        replica_uuid: bytes,
        auto_init: bool,
        state: int,
        nonce: int,
        cluster_id: bytes,
        first_lsn: Lsn,
        random: Random,
    ) -> None:
        self._node = node
        self._peers = tuple(voter for voter in voters if voter != node)
        self._random = random
        self._is_coordinator = auto_init and node == min(voters)
        self._durable = _InitState(state, nonce, cluster_id, first_lsn)
        self._requested_first_lsn = first_lsn
        self._saving: _InitState | None = None
        self._seq = 0
        self._answer_when_saved: NodeId | None = None
        self._attempt: _InitState | None = None
        self._prepared: set[NodeId] = set()
        self._peer_states: dict[NodeId, _InitState] = {}
        self._uuids: dict[NodeId, bytes] = {node: replica_uuid}
        self._retries_yielded = 0
        self._out: list[InitEffect] = []
        self.deadline_ns = NEVER_NS if state in FORMED_STATES else 0
        self.refusal = ""
        self._refusal_kind = ""
        self._refused_by = NO_NODE  # whose messages are the reason; NO_NODE: those of several
        self._now_ns = 0
        self._logged_ns: dict[str, int] = {}  # by kind of refusal

    @property
    def state(self) -> ReplicaState:
        """The durable state."""
        return ReplicaState(self._durable.state)

    @property
    def cluster_id(self) -> bytes:
        """The durable cluster id; final once the state is of a formed cluster."""
        return self._durable.cluster_id

    @property
    def first_lsn(self) -> Lsn:
        """The log's first LSN; only a VOTER's is final."""
        return self._durable.first_lsn

    def on_tick(self, now_ns: int) -> list[InitEffect]:
        """Repeat unanswered requests, and begin an attempt once all nodes have answered; or join
        the cluster that some have named since the last time."""
        self._now_ns = now_ns
        if now_ns < self.deadline_ns:
            return []
        self._join_if_formed()
        self.deadline_ns = now_ns + RETRY_NS
        self._retries_yielded = max(0, self._retries_yielded - 1)
        request = InitStatusRequest(self._durable.nonce)
        for peer in self._peers:
            self._send(peer, request)
        attempt = self._attempt
        if attempt is None:
            self._begin_if_all_answered()
        elif self._durable == attempt:
            self._ask_to_prepare(attempt)
        return self._take()

    def on_init_requested(self, first_lsn: Lsn) -> list[InitEffect]:
        """An operator makes this node the coordinator. An attempt under way keeps its first LSN."""
        self._is_coordinator = True
        self._requested_first_lsn = first_lsn
        self._retries_yielded = 0
        self._begin_if_all_answered()
        return self._take()

    def on_message(
        self, sender: NodeId, sender_uuid: bytes, message: InitMessage
    ) -> list[InitEffect]:
        """A bootstrap message of a configured peer. Others are told that there is a cluster, once
        there is one: they may join it (L4)."""
        if sender not in self._peers:
            if isinstance(message, InitStatusRequest) and self.state in FORMED_STATES:
                self._send_status(sender)
            return self._take()
        if self.refusal and sender == self._refused_by:
            self._forget_refusal()  # each message gives the reason again, while there is one
        if not self._has_own_uuid(sender, sender_uuid):
            return self._take()
        try:
            self._dispatch(sender, message)
        except FormatError as error:
            self._out.append(Log(f"a bootstrap message of node {sender} is dropped: {error}"))
        return self._take()

    def _dispatch(self, sender: NodeId, message: InitMessage) -> None:
        match message:
            case InitStatusRequest():
                self._send_status(sender)
            case InitStatus():
                self._on_status(sender, _state_in(message.state, message))
            case InitPrepare():
                self._on_prepare(sender, _state_in(ReplicaState.STARTING, message))
            case InitPrepared():
                self._on_prepared(sender, message.nonce)
            case InitCommit():
                self._on_status(sender, _state_in(ReplicaState.VOTER, message))
            case _:
                assert_never(message)

    def on_saved(self, seq: int) -> list[InitEffect]:
        """SaveInit `seq` is durable: send what waited for it."""
        if seq > self._seq:
            raise InvariantViolated(f"InitSaved({seq}), but only {self._seq} were ordered")
        saved = self._saving
        if saved is None or seq < self._seq:
            return []
        self._durable, self._saving = saved, None
        coordinator, self._answer_when_saved = self._answer_when_saved, None
        if saved.state in FORMED_STATES:
            self.deadline_ns = NEVER_NS
            for peer in self._peers if saved.state == ReplicaState.VOTER else ():
                self._send(peer, InitCommit(saved.nonce, saved.cluster_id, saved.first_lsn_bytes))
            self._out.append(InitDone(saved.cluster_id))
        elif saved == self._attempt:
            self._ask_to_prepare(saved)
        elif coordinator is not None:
            self._send(coordinator, InitPrepared(saved.nonce))
        return self._take()

    # --- the coordinator ---

    def _begin_if_all_answered(self) -> None:
        is_free = self._attempt is None and self._saving is None and not self._retries_yielded
        if not (self._is_coordinator and is_free and self.state not in FORMED_STATES):
            return
        answers = self._peer_states.values()
        if len(answers) < len(self._peers):
            return
        if any(heard.state in FORMED_STATES for heard in answers):
            return
        newest = max([self._durable.nonce, *(heard.nonce for heard in answers)])
        number = (newest >> _ATTEMPT_BITS) + 1
        nonce = number << _ATTEMPT_BITS | self._random.getrandbits(_ATTEMPT_BITS)
        cluster_id = self._random.randbytes(CLUSTER_ID_SIZE)
        self._attempt = _InitState(
            ReplicaState.STARTING, nonce, cluster_id, self._requested_first_lsn
        )
        self._prepared = set()
        self._save(self._attempt)

    def _ask_to_prepare(self, attempt: _InitState) -> None:
        prepare = InitPrepare(attempt.nonce, attempt.cluster_id, attempt.first_lsn_bytes)
        for peer in self._peers:
            if peer not in self._prepared:
                self._send(peer, prepare)
        self._finish_if_all_prepared()

    def _on_prepared(self, sender: NodeId, nonce: int) -> None:
        attempt = self._attempt
        if attempt is not None and nonce == attempt.nonce and self._durable == attempt:
            self._prepared.add(sender)
            self._finish_if_all_prepared()

    def _finish_if_all_prepared(self) -> None:
        attempt = self._attempt
        if attempt is not None and len(self._prepared) == len(self._peers):
            self._attempt = None
            self._save(msgspec.structs.replace(attempt, state=ReplicaState.VOTER))

    # --- every node ---

    def _on_status(self, sender: NodeId, heard: _InitState) -> None:
        self._peer_states[sender] = heard
        if heard.state in FORMED_STATES:
            self._on_formed(sender, msgspec.structs.replace(heard, state=ReplicaState.VOTER))
        elif self._attempt is not None and heard.nonce > self._attempt.nonce:
            self._attempt = None  # another node has a newer attempt: begin again above it, later
            self._retries_yielded = RETRIES_YIELDED
        else:
            self._begin_if_all_answered()

    def _on_formed(self, sender: NodeId, voter: _InitState) -> None:
        """A peer is of a cluster that is formed. An EMPTY node waits for the next tick, since other
        peers may know better where the log began, or name another cluster."""
        if self.state in FORMED_STATES:
            if voter.cluster_id != self._durable.cluster_id:
                self._refuse("foreign", f"node {sender} belongs to another cluster", sender)
        elif self.state == ReplicaState.STARTING and (
            self._saving is None or self._saving.state not in FORMED_STATES
        ):
            self._attempt = None
            if voter.cluster_id == self._durable.cluster_id:
                # a voter whose log was trimmed does not know any more where it began
                voter = msgspec.structs.replace(voter, first_lsn=self._durable.first_lsn)
            self._save(voter)

    def _join_if_formed(self) -> None:
        """An EMPTY node becomes a LEARNER of the cluster that its peers are of (L4). A peer whose
        log was trimmed does not know any more where it began: the lowest first LSN is the best."""
        if self.state != ReplicaState.EMPTY or self._saving is not None:
            return
        formed = {
            peer: heard for peer, heard in self._peer_states.items() if heard.state in FORMED_STATES
        }
        if len({heard.cluster_id for heard in formed.values()}) > 1:
            self._refuse(
                "foreign",
                f"nodes {sorted(formed)} are of different clusters, and this node has no log: name "
                "the nodes of one cluster in its configuration file",
            )
            return
        self._forget_refusal_of_several()
        if not formed:
            return
        first = min(formed.values(), key=lambda heard: heard.first_lsn)
        self._attempt = None
        self._forget_refusal()
        self._save(msgspec.structs.replace(first, state=ReplicaState.LEARNER))

    def _on_prepare(self, sender: NodeId, wanted: _InitState) -> None:
        newest = self._saving or self._durable
        if self.state == ReplicaState.EMPTY and not self._knows_no_cluster():
            self._send_status(sender)  # it asks again
        elif not FORMED_STATES.isdisjoint((newest.state, self._durable.state)):
            self._send_status(sender)
        elif wanted == self._durable and self._saving is None:
            self._send(sender, InitPrepared(wanted.nonce))
        elif wanted.nonce > newest.nonce:
            self._attempt = None
            self._retries_yielded = RETRIES_YIELDED
            self._answer_when_saved = sender
            self._save(wanted)
        elif wanted != newest:
            self._send_status(sender)

    def _knows_no_cluster(self) -> bool:
        """Whether every peer has said since this start that it is of none."""
        states = self._peer_states
        return len(states) == len(self._peers) and all(
            heard.state not in FORMED_STATES for heard in states.values()
        )

    def _has_own_uuid(self, sender: NodeId, uuid: bytes) -> bool:
        """Whether no other node has this uuid. Two nodes with one uuid have copies of one data
        folder, and must not both vote (L3)."""
        for node, known in self._uuids.items():
            if node != sender and known == uuid:
                self._refuse(
                    "copy",
                    f"nodes {node} and {sender} have the same replica uuid: one data folder is a "
                    "copy of the other's; start one of them with an empty folder",
                    sender,
                )
                self._peer_states.pop(sender, None)
                self._prepared.discard(sender)
                return False
        if self._uuids.get(sender, uuid) != uuid:
            self._peer_states.pop(sender, None)  # another disk answers now
            self._prepared.discard(sender)
        self._uuids[sender] = uuid
        return True

    def _send_status(self, peer: NodeId) -> None:
        known = self._durable
        self._send(
            peer, InitStatus(known.state, known.nonce, known.cluster_id, known.first_lsn_bytes)
        )

    def _save(self, known: _InitState) -> None:
        self._forget_refusal_of_several()
        self._saving = known
        self._seq += 1
        self._out.append(
            SaveInit(self._seq, known.state, known.nonce, known.cluster_id, known.first_lsn)
        )

    def _refuse(self, kind: str, reason: str, sender: NodeId = NO_NODE) -> None:
        """Take no part, and log why. Every peer gives the reason at every retry: it is logged once,
        then every minute, with the first peer's text."""
        if kind != self._refusal_kind:
            self._refusal_kind, self.refusal, self._refused_by = kind, reason, sender
        logged_ns = self._logged_ns.get(kind)
        if logged_ns is None or self._now_ns - logged_ns >= LOG_AGAIN_NS:
            self._logged_ns[kind] = self._now_ns
            self._out.append(Log(self.refusal))

    def _forget_refusal(self) -> None:
        self.refusal = self._refusal_kind = ""

    def _forget_refusal_of_several(self) -> None:
        """Those that were of different clusters are so no more: some have another folder now."""
        if self._refused_by == NO_NODE:
            self._forget_refusal()

    def _send(self, peer: NodeId, message: InitMessage) -> None:
        self._out.append(SendInit(peer, message))

    def _take(self) -> list[InitEffect]:
        effects, self._out = self._out, []
        return effects
