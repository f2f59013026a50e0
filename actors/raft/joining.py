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
from actors.station import NEVER_NS, Station
from logstore.errors import ErrorCode
from logstore.format.configuration_body import is_host_name
from logstore.format.peer_messages import JoinAnswer, JoinRequest
from logstore.model import NO_INDEX, NO_NODE, ReplicaState
from logstore.settings import HIGHEST_PORT

ASK_AGAIN_MAX_NS = 2_000_000_000  # a few small messages
REASON_MAX_BYTES = 1_024  # of a peer's text, for a log line and a status

log = logging.getLogger("logstore.raft")


class Joining:
    """Of one incarnation. A VOTER has its place."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._routes = routes
        own = station.config.node(station.node)
        self._request = JoinRequest(own.port, own.host.encode("ascii"))
        self._first_wait_ns = self._wait_ns = station.config.raft.election_timeout_ns
        self._is_learner = recovered.state == ReplicaState.LEARNER
        self._logged = ""
        has_entries = recovered.last_row is not None or recovered.start_index > NO_INDEX
        self.is_admitted = not self._is_learner or has_entries or recovered.has_config
        self.refusal = ""
        self.deadline_ns = NEVER_NS
        self._asked_ns = 0
        if self._is_learner:
            self._begin_to_ask()

    def on_tick(self, now_ns: int) -> None:
        """Ask every peer, each time after twice the wait: any may lead, or says who does."""
        if now_ns < self.deadline_ns:
            return
        for peer in self._routes.members:
            self._routes.to_peer(TellJoin(peer, self._request))
        self._asked_ns = now_ns
        self.deadline_ns = now_ns + self._wait_ns
        self._wait_ns = min(2 * self._wait_ns, max(self._first_wait_ns, ASK_AGAIN_MAX_NS))

    def on_answer(self, received: JoinReceived, answer: JoinAnswer) -> None:
        """What a peer says. Late answers do no harm: a place that was given is in the log, and this
        replica asks until its own log says so. A leader that is busy takes no place away."""
        if self.deadline_ns == NEVER_NS:
            return
        if answer.code == ErrorCode.OK:
            self.is_admitted, self.refusal = True, ""
        elif answer.code == ErrorCode.NOT_LEADER:
            self._ask_leader(answer)
        elif answer.code != ErrorCode.NOT_READY or not self.is_admitted:
            if answer.code == ErrorCode.NOT_READY:
                self._wait_ns = self._first_wait_ns
                self.deadline_ns = min(self.deadline_ns, self._asked_ns + self._wait_ns)
            self._refuse(f"node {received.sender}: {_printable(answer.reason)}")

    def _ask_leader(self, answer: JoinAnswer) -> None:
        """The leader may be a member that this replica's file does not name. A peer may be behind:
        the one that was named last is asked, with the others, the next time."""
        place = _place_in(answer.reason)
        if answer.leader != NO_NODE and place is not None:
            self._routes.take_leader(answer.leader, *place)

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
            else "it has no place in the cluster: it asks nodes "
            f"{list(self._routes.members)} for one, and their leader has not answered yet"
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


def _place_in(reason: bytes) -> tuple[str, int] | None:
    """Host and first port of the node that leads; None: it says something else."""
    host, _, port = reason[:REASON_MAX_BYTES].decode("latin-1").rpartition(":")
    if not (is_host_name(host) and port.isascii() and port.isdigit() and len(port) <= 5):
        return None
    return (host, int(port)) if 0 < int(port) <= HIGHEST_PORT else None
