"""Asks for a place in a cluster that was formed without this replica (SAFETY L4).

Owns when a LEARNER asks its peers, whether it has a place, and what the newest refusal was. Must
not know the core. Invariant: before a replica has been given a place it takes no part, not even by
answering. A cluster without a CONFIG counts node numbers, and a replica whose disk was lost would
be counted for what it was before (L1). A log that is not empty proves that it had a place.
"""

from __future__ import annotations

import logging

from actors.messages import JoinReceived, LogRecovered, TellJoin
from actors.raft.routes import Routes
from actors.station import Station
from logstore.errors import ErrorCode
from logstore.format.peer_messages import JoinAnswer, JoinRequest
from logstore.model import NO_INDEX, NO_NODE, ReplicaState

ASK_AGAIN_MAX_NS = 10_000_000_000
NEVER_NS = 1 << 62
REASON_MAX_BYTES = 1_024  # of a peer's text, for a log line and a status

log = logging.getLogger("logstore.raft")


class Joining:
    """Of one incarnation. A VOTER has its place."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._routes = routes
        self._peers = station.peers
        own = station.config.node(station.node)
        self._request = JoinRequest(own.port, own.host.encode("ascii"))
        self._first_wait_ns = self._wait_ns = station.config.raft.election_timeout_ns
        self._is_learner = recovered.state == ReplicaState.LEARNER
        self._logged = ""
        has_entries = recovered.last_row is not None or recovered.start_index > NO_INDEX
        self.is_admitted = not self._is_learner or has_entries or recovered.has_config
        self.refusal = ""
        self.deadline_ns = NEVER_NS
        if self._is_learner:
            self._begin_to_ask()

    def on_tick(self, now_ns: int) -> None:
        """Ask every peer, each time after twice the wait: any of them may lead."""
        if now_ns < self.deadline_ns:
            return
        for peer in self._peers:
            self._routes.to_peer(TellJoin(peer, self._request))
        self.deadline_ns = now_ns + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, ASK_AGAIN_MAX_NS)

    def on_answer(self, received: JoinReceived, answer: JoinAnswer) -> None:
        """What a peer says. Late answers do no harm: a place that was given is in the log, and this
        replica asks until its own log says so."""
        if self.deadline_ns == NEVER_NS:
            return
        if answer.code == ErrorCode.OK:
            self.is_admitted, self.refusal = True, ""
        elif answer.code != ErrorCode.NOT_LEADER:
            if answer.code == ErrorCode.NOT_READY:
                self._wait_ns = self._first_wait_ns
            self._refuse(f"node {received.sender}: {_printable(answer.reason)}")

    def on_members(self, *, is_named: bool, was_member: bool) -> None:
        """Whether the configuration in force in this replica's own log names it. One that was a
        member and is none any more was removed, and does not come back under its uuid (C6)."""
        if not self._is_learner:
            return
        if is_named:
            self.is_admitted, self.refusal, self.deadline_ns = True, "", NEVER_NS
        elif was_member:
            self.refusal, self.deadline_ns = "", NEVER_NS
        elif self.deadline_ns == NEVER_NS:
            self._begin_to_ask()

    def _begin_to_ask(self) -> None:
        self.deadline_ns = 0
        self._wait_ns = self._first_wait_ns
        self.refusal = (
            ""
            if self.is_admitted
            else f"it has no place in the cluster: it asks nodes {list(self._peers)} for one, and "
            "their leader has not answered yet"
        )

    def _refuse(self, reason: str) -> None:
        self.refusal = f"it has no place in the cluster: {reason}"
        if self._logged != reason:
            self._logged = reason
            log.warning("%s", self.refusal)


def _printable(reason: bytes) -> str:
    """A peer's text in one line, as it may be logged."""
    text = reason[:REASON_MAX_BYTES].decode(errors="replace")
    return "".join(each if each.isprintable() else "?" for each in text)


def leader_words(leader: int) -> str:
    """Whom to ask, for a peer that asked another."""
    return "no leader is known here" if leader == NO_NODE else f"node {leader} leads"
