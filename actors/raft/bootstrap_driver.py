"""Runs the bootstrap of a replica that has no log yet (SAFETY L2, L4).

Carries out what the pure `Bootstrap` decides: saves through the writer, messages through the
replicators and ingress, entropy from the host.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import assert_never

from actors.messages import (
    CreateLog,
    InitAnswered,
    InitReceived,
    InitRequested,
    InitSaved,
    LogRecovered,
)
from actors.raft.routes import Routes
from actors.station import Station
from logstore.errors import ErrorCode
from logstore.format.peer_messages import InitPrepared, InitStatus
from logstore.limits import REQUESTS_PENDING_MAX
from logstore.model import FORMED_STATES, NO_INDEX, ReplicaState
from logstore.raft.bootstrap import Bootstrap, InitDone, InitEffect, SaveInit, SendInit
from logstore.raft.effects import Log

NEVER_NS = 1 << 62

log = logging.getLogger("logstore.raft")

# What a folder holds, by its META, in the error that `logstore init` prints.
_FOLDER_STATES = {
    ReplicaState.EMPTY: "holds no log",
    ReplicaState.STARTING: "was prepared for a cluster that is not formed yet",
    ReplicaState.VOTER: "holds the log of a cluster",
    ReplicaState.LEARNER: "belongs to a cluster that was formed without it",
}
_JOINED = (
    "its configuration file names nodes of that cluster; to form another one, name others, and "
    "start it with an empty folder"
)


def refusal_text(station: Station, state: int, reason: str) -> str:
    """Why `logstore init` is refused: which folder, what it holds, and the reason."""
    words = _FOLDER_STATES.get(ReplicaState(state), "cannot be used")
    return f"the folder of node {station.node}, {station.folder}, {words}: {reason}"


class BootstrapDriver:
    """Drives one `Bootstrap`. That of a formed cluster goes on answering peers that missed the
    commit, or join."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._station = station
        self._routes = routes
        self._bootstrap = Bootstrap(
            node=station.node,
            voters=station.nodes,
            replica_uuid=recovered.replica_uuid,
            auto_init=station.config.cluster.auto_init,
            state=recovered.state,
            nonce=recovered.nonce,
            cluster_id=recovered.cluster_id,
            first_lsn=recovered.start_next_lsn,
            random=Random(station.host.random_bytes(32)),
        )
        self._is_trimmed = recovered.start_index > NO_INDEX
        # ingress waits for at most so many answers
        self._pending: deque[InitRequested] = deque(maxlen=REQUESTS_PENDING_MAX)

    @property
    def deadline_ns(self) -> int:
        is_formed = self._bootstrap.state in FORMED_STATES
        return NEVER_NS if is_formed else self._bootstrap.deadline_ns

    @property
    def refusal(self) -> str:
        """Why this replica cannot take part; empty if it can."""
        return self._bootstrap.refusal

    def on_tick(self, now_ns: int) -> None:
        self._carry_out(self._bootstrap.on_tick(now_ns))
        self._refuse_if_refused()

    def on_message(self, message: InitReceived | InitRequested | InitSaved) -> None:
        match message:
            case InitReceived():
                effects: Sequence[InitEffect] = self._bootstrap.on_message(
                    message.sender, message.sender_uuid, message.message
                )
            case InitRequested():
                effects = self._on_requested(message)
            case InitSaved():
                effects = self._bootstrap.on_saved(message.seq)
            case _:
                assert_never(message)
        self._carry_out(effects)
        self._refuse_if_refused()

    def _on_requested(self, request: InitRequested) -> Sequence[InitEffect]:
        """`logstore init` is answered once this node is of a cluster that is formed."""
        if self._bootstrap.state in FORMED_STATES:
            self._answer_requester(request)
            return ()
        self._pending.append(request)
        self._refuse_if_refused()
        return self._bootstrap.on_init_requested(request.first_lsn) if self._pending else ()

    def _refuse_if_refused(self) -> None:
        """Answer every waiting request once this replica cannot take part."""
        while self.refusal and self._pending:
            request = self._pending.popleft()
            reason = refusal_text(self._station, self._bootstrap.state, self.refusal)
            refused = InitAnswered(request.request_id, ErrorCode.INVALID_REQUEST, reason)
            self._routes.ingress.send(refused)

    def _answer_requester(self, request: InitRequested) -> None:
        """The cluster is formed, by whichever node's attempt: has its log the requested first LSN?
        META forgets it when the log is trimmed: then all that is known is that it was no higher.
        A replica that joined does not know it, and has formed nothing."""
        if self._bootstrap.state == ReplicaState.LEARNER:
            reason = refusal_text(self._station, ReplicaState.LEARNER, _JOINED)
            invalid = InitAnswered(request.request_id, ErrorCode.INVALID_REQUEST, reason)
            self._routes.ingress.send(invalid)
            return
        first_lsn = self._bootstrap.first_lsn
        answer = InitAnswered(request.request_id, ErrorCode.OK, "")
        is_other = request.first_lsn != first_lsn
        if is_other and not (self._is_trimmed and request.first_lsn < first_lsn):
            reason = (
                f"the log of this cluster begins at LSN {first_lsn}, not at {request.first_lsn}: "
                "form another one, of empty folders and with auto_init = false"
            )
            answer = InitAnswered(request.request_id, ErrorCode.INVALID_REQUEST, reason)
        self._routes.ingress.send(answer)

    def _carry_out(self, effects: Sequence[InitEffect]) -> None:
        for effect in effects:
            match effect:
                case SaveInit():
                    self._routes.to_writer(effect)
                case SendInit():
                    self._send(effect)
                case InitDone():
                    self._routes.to_writer(CreateLog(effect.cluster_id))
                    while self._pending:
                        self._answer_requester(self._pending.popleft())
                case Log():
                    log.warning("%s", effect.text)
                case _:
                    assert_never(effect)

    def _send(self, effect: SendInit) -> None:
        """Answers go on the pair of sockets that the request came on, requests on our own."""
        if isinstance(effect.message, InitStatus | InitPrepared):
            self._routes.ingress.send(effect)
        else:
            self._routes.to_peer(effect)
