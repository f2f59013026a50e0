"""What raft's driver does of itself for the members of the cluster (SAFETY C5a, L4).

Owns which part hears what: a replica that joins, a leader that answers one, a leader whose log
lacks the first CONFIG. What it returns is a request for the core. Decides nothing.
"""

from __future__ import annotations

import logging

from actors.messages import JoinReceived, LogRecovered, StartReceived
from actors.raft.first_configuration import FirstConfiguration
from actors.raft.join_requests import CHANGES_OF_RAFT, JoinRequests
from actors.raft.joining import Joining
from actors.raft.routes import Routes
from actors.station import Station
from logstore.format.configuration_body import roles
from logstore.format.peer_messages import JoinRequest
from logstore.model import ReplicaState
from logstore.raft.core import RaftCore
from logstore.raft.effects import ChangeAnswered, MembersChanged
from logstore.raft.events import ChangeRequested

log = logging.getLogger("logstore.raft")


class MembershipDriver:
    """Of one incarnation of a replica of a cluster that is formed."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._node = station.node
        self._who = station.node, recovered.replica_uuid
        # A committed configuration has named it; the founders are named by the first one.
        self._was_member = recovered.state == ReplicaState.VOTER
        self._removed_by = 0  # the committed configuration that does not name this replica any more
        self._joining = Joining(station, routes, recovered)
        self._founding = FirstConfiguration(station, recovered, request_id=CHANGES_OF_RAFT)
        self._requests = JoinRequests(routes, first_id=CHANGES_OF_RAFT + 1)

    @property
    def deadline_ns(self) -> int:
        return self._joining.deadline_ns

    @property
    def is_admitted(self) -> bool:
        """Whether this replica takes part."""
        return self._joining.is_admitted

    @property
    def refusal(self) -> str:
        """Why it does not, or not any more; empty if it does."""
        if self._removed_by:
            return (
                f"configuration {self._removed_by} of the cluster has removed it: stop it; "
                f"`logstore reset --node {self._node}` moves its folder aside, should another "
                "replica join in its place"
            )
        return self._joining.refusal

    @property
    def is_removed(self) -> bool:
        """Whether this replica is no member any more: it serves its status only (C9)."""
        return self._removed_by > 0

    def on_tick(self, now_ns: int, core: RaftCore | None) -> ChangeRequested | None:
        self._joining.on_tick(now_ns)
        return None if core is None else self._founding.on_tick(now_ns, core)

    def on_heard(self, received: StartReceived) -> None:
        self._founding.on_heard(received)

    def on_join(self, received: JoinReceived, core: RaftCore | None) -> ChangeRequested | None:
        message = received.message
        if isinstance(message, JoinRequest):
            return self._requests.on_request(received, message, core)
        self._joining.on_answer(received, message)
        return None

    def on_members(self, changed: MembersChanged) -> None:
        found = changed.configuration
        is_member = self._who in [(each.number, each.uuid) for each, _ in roles(found)]
        if changed.is_committed and found.id:
            if self._was_member and not is_member and not self._removed_by:
                log.warning(
                    "node %d is no member any more, by configuration %d", self._node, found.id
                )
            self._removed_by = found.id if self._was_member and not is_member else 0
            self._was_member = self._was_member or is_member
        self._joining.on_members(is_named=is_member, was_member=self._was_member)
        for part in (self._founding, self._requests):
            part.on_members(changed)

    def takes(self, answered: ChangeAnswered) -> bool:
        """Whether it answers a request of this driver's, not one of ingress'."""
        if answered.request_id < CHANGES_OF_RAFT:
            return False
        if answered.request_id == CHANGES_OF_RAFT:
            self._founding.on_answered(answered)
        else:
            self._requests.on_answered(answered, self._node)
        return True
