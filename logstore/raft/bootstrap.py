"""How a cluster comes to be: EMPTY → STARTING → VOTER, in two phases over all configured nodes
(L2).

Owns this node's bootstrap state and, where it coordinates, the attempt. Must not know files,
sockets or where entropy comes from (a seeded `Random` is passed in).

    1. The coordinator (the lowest node id, or the node told `init`) asks everybody; all must
       answer.
    2. It mints a nonce above every nonce seen and a cluster id, makes itself STARTING durable, and
       asks everybody to prepare. A STARTING node takes a newer nonce; a VOTER never does.
    3. When all are prepared, it makes itself VOTER durable, then tells everybody.

Why at most one cluster id can win: VOTER is reached first by a coordinator whose own nonce is
still the attempt's, and for any other attempt that coordinator would have to prepare again, which
a VOTER does not. So whoever is STARTING and hears of a VOTER may take its cluster id whatever its
own nonce says: each node was prepared for it. Whoever is EMPTY and hears of a VOTER has lost its
disk, and must not join in place (L1). A VOTER goes on answering, for those that missed the word.

Where the log begins travels with the cluster id from the coordinator on: no replica can have
another first LSN, and only the coordinator has to be told one.
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
from logstore.limits import SAY_AGAIN_NS
from logstore.model import Lsn, NodeId, ReplicaState
from logstore.raft.effects import Log

CLUSTER_ID_SIZE = 16
NO_CLUSTER = bytes(CLUSTER_ID_SIZE)
# Questions are asked again this often; an answer takes milliseconds.
RETRY_NS = 200_000_000
# A node prepared by another coordinator lets it finish for so many rounds before it tries itself.
ROUNDS_YIELDED = 25
NEVER_NS = 1 << 62
_ATTEMPT_BITS = 32  # a nonce is an attempt number above 32 random bits: ordered, and told apart


class SaveInit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=160):
    """To the writer's META lane: make the bootstrap state durable. `state` is a ReplicaState."""

    seq: int
    state: int
    nonce: int
    cluster_id: bytes
    first_lsn: Lsn


class SendInit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=161):
    """To a peer: InitStatus and InitPrepared are answers, the others go on our own lane."""

    peer: NodeId
    message: InitMessage


class InitDone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=162):
    """This node is a VOTER of `cluster_id`, durably: make the log, start the core."""

    cluster_id: bytes


InitEffect = SaveInit | SendInit | InitDone | Log


class _Known(msgspec.Struct, frozen=True):
    """A bootstrap state as told or saved."""

    state: int
    nonce: int
    cluster_id: bytes
    first_lsn: Lsn

    @property
    def tail(self) -> bytes:
        """The first LSN as messages carry it."""
        return pack_first_lsn(self.first_lsn)


def _told(state: int, message: InitStatus | InitPrepare | InitCommit) -> _Known:
    """
    Raises:
      FormatError: no log begins where the message says.
    """
    first_lsn = unpack_first_lsn(message.first_lsn)
    return _Known(state, message.nonce, message.cluster_id, first_lsn)


class Bootstrap:
    """One node's bootstrap. Every method returns effects, to be carried out in order.

    Args:
      node, voters, replica_uuid: who we are among whom.
      auto_init: the lowest node id coordinates unasked.
      state, nonce, cluster_id, first_lsn: as META says; zero nonce and cluster id while EMPTY. A
        coordinator that was stopped in mid-attempt tries again with the same first LSN.
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
        self._durable = _Known(state, nonce, cluster_id, first_lsn)
        self._wished_first_lsn = first_lsn
        self._saving: _Known | None = None
        self._seq = 0
        self._answer_when_saved: NodeId | None = None
        self._attempt: _Known | None = None
        self._prepared: set[NodeId] = set()
        self._told: dict[NodeId, _Known] = {}
        self._uuids: dict[NodeId, bytes] = {node: replica_uuid}
        self._yielded = 0
        self._out: list[InitEffect] = []
        self.deadline_ns = NEVER_NS if state == ReplicaState.VOTER else 0
        self.refusal = ""
        self._refusal_kind = ""
        self._now_ns = 0
        self._said_ns: dict[str, int] = {}  # by kind of refusal

    @property
    def state(self) -> ReplicaState:
        """How far this node durably is."""
        return ReplicaState(self._durable.state)

    @property
    def cluster_id(self) -> bytes:
        """The durable cluster id; only a VOTER's is final."""
        return self._durable.cluster_id

    @property
    def first_lsn(self) -> Lsn:
        """Where the log begins; only a VOTER's is final."""
        return self._durable.first_lsn

    def on_tick(self, now_ns: int) -> list[InitEffect]:
        """Ask again what has not been answered, and begin an attempt when all have answered."""
        self._now_ns = now_ns
        if now_ns < self.deadline_ns:
            return []
        self.deadline_ns = now_ns + RETRY_NS
        self._yielded = max(0, self._yielded - 1)
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
        self._wished_first_lsn = first_lsn
        self._yielded = 0
        self._begin_if_all_answered()
        return self._take()

    def on_message(
        self, sender: NodeId, sender_uuid: bytes, message: InitMessage
    ) -> list[InitEffect]:
        """A bootstrap message of a configured peer; anyone else's is left unanswered."""
        if sender not in self._peers or not self._is_uuid_sound(sender, sender_uuid):
            return self._take()
        try:
            self._hear(sender, message)
        except FormatError as error:
            self._out.append(Log(f"a bootstrap message of node {sender} is dropped: {error}"))
        return self._take()

    def _hear(self, sender: NodeId, message: InitMessage) -> None:
        match message:
            case InitStatusRequest():
                self._send_status(sender)
            case InitStatus():
                self._on_status(sender, _told(message.state, message))
            case InitPrepare():
                self._on_prepare(sender, _told(ReplicaState.STARTING, message))
            case InitPrepared():
                self._on_prepared(sender, message.nonce)
            case InitCommit():
                self._on_status(sender, _told(ReplicaState.VOTER, message))
            case _:
                assert_never(message)

    def on_saved(self, seq: int) -> list[InitEffect]:
        """SaveInit `seq` is durable: say so to whoever waits for it."""
        if seq > self._seq:
            raise InvariantViolated(f"InitSaved({seq}), but only {self._seq} were ordered")
        saved = self._saving
        if saved is None or seq < self._seq:
            return []
        self._durable, self._saving = saved, None
        asker, self._answer_when_saved = self._answer_when_saved, None
        if saved.state == ReplicaState.VOTER:
            self.deadline_ns = NEVER_NS
            for peer in self._peers:
                self._send(peer, InitCommit(saved.nonce, saved.cluster_id, saved.tail))
            self._out.append(InitDone(saved.cluster_id))
        elif saved == self._attempt:
            self._ask_to_prepare(saved)
        elif asker is not None:
            self._send(asker, InitPrepared(saved.nonce))
        return self._take()

    # --- the coordinator ---

    def _begin_if_all_answered(self) -> None:
        is_free = self._attempt is None and self._saving is None and not self._yielded
        if not (self._is_coordinator and is_free and self.state != ReplicaState.VOTER):
            return
        answers = self._told.values()
        if len(answers) < len(self._peers):
            return
        if any(told.state == ReplicaState.VOTER for told in answers):
            return
        newest = max([self._durable.nonce, *(told.nonce for told in answers)])
        number = (newest >> _ATTEMPT_BITS) + 1
        nonce = number << _ATTEMPT_BITS | self._random.getrandbits(_ATTEMPT_BITS)
        cluster_id = self._random.randbytes(CLUSTER_ID_SIZE)
        self._attempt = _Known(ReplicaState.STARTING, nonce, cluster_id, self._wished_first_lsn)
        self._prepared = set()
        self._save(self._attempt)

    def _ask_to_prepare(self, attempt: _Known) -> None:
        prepare = InitPrepare(attempt.nonce, attempt.cluster_id, attempt.tail)
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

    # --- everybody ---

    def _on_status(self, sender: NodeId, told: _Known) -> None:
        self._told[sender] = told
        if told.state == ReplicaState.VOTER:
            self._on_voter_seen(sender, told)
        elif self._attempt is not None and told.nonce > self._attempt.nonce:
            self._attempt = None  # a newer attempt is about: begin again above it, later
            self._yielded = ROUNDS_YIELDED
        else:
            self._begin_if_all_answered()

    def _on_voter_seen(self, sender: NodeId, voter: _Known) -> None:
        if self.state == ReplicaState.EMPTY:
            self._refuse(
                "lost",
                f"node {sender} votes in a cluster already, and this node has no log: its disk "
                "was lost or is new; it stays out until it is added as a new replica",
            )
        elif self.state == ReplicaState.VOTER:
            if voter.cluster_id != self._durable.cluster_id:
                self._refuse("foreign", f"node {sender} belongs to another cluster")
        elif self._saving is None or self._saving.state != ReplicaState.VOTER:
            self._attempt = None
            self._save(voter)

    def _on_prepare(self, sender: NodeId, wanted: _Known) -> None:
        newest = self._saving or self._durable
        if ReplicaState.VOTER in (newest.state, self._durable.state):
            self._send_status(sender)
        elif wanted == self._durable and self._saving is None:
            self._send(sender, InitPrepared(wanted.nonce))
        elif wanted.nonce > newest.nonce:
            self._attempt = None
            self._yielded = ROUNDS_YIELDED
            self._answer_when_saved = sender
            self._save(wanted)
        elif wanted != newest:
            self._send_status(sender)

    def _is_uuid_sound(self, sender: NodeId, uuid: bytes) -> bool:
        """Two nodes with one uuid are one data folder copied: neither may vote twice (L3)."""
        for node, known in self._uuids.items():
            if node != sender and known == uuid:
                self._refuse(
                    "copy",
                    f"nodes {node} and {sender} have the same replica uuid: one data folder is a "
                    "copy of the other's; start one of them with an empty folder",
                )
                self._told.pop(sender, None)
                self._prepared.discard(sender)
                return False
        if self._uuids.get(sender, uuid) != uuid:
            self._told.pop(sender, None)  # another disk answers now: what the old one said is void
            self._prepared.discard(sender)
        self._uuids[sender] = uuid
        return True

    def _send_status(self, peer: NodeId) -> None:
        known = self._durable
        self._send(peer, InitStatus(known.state, known.nonce, known.cluster_id, known.tail))

    def _save(self, known: _Known) -> None:
        self._saving = known
        self._seq += 1
        self._out.append(
            SaveInit(self._seq, known.state, known.nonce, known.cluster_id, known.first_lsn)
        )

    def _refuse(self, kind: str, reason: str) -> None:
        """Take no part. Every peer gives the reason at every round: it is said once, then every
        minute, in the words of whoever gave it first."""
        if kind != self._refusal_kind:
            self._refusal_kind, self.refusal = kind, reason
        said_ns = self._said_ns.get(kind)
        if said_ns is None or self._now_ns - said_ns >= SAY_AGAIN_NS:
            self._said_ns[kind] = self._now_ns
            self._out.append(Log(self.refusal))

    def _send(self, peer: NodeId, message: InitMessage) -> None:
        self._out.append(SendInit(peer, message))

    def _take(self) -> list[InitEffect]:
        effects, self._out = self._out, []
        return effects
