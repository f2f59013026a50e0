"""What raft's driver does of itself for the members of the cluster (SAFETY C5a, C10, L4).

Owns which part hears what: a replica that joins or was removed, a leader that answers one that
joins, a leader whose log lacks the first CONFIG. What it returns is a request for the core. Decides
nothing.
"""

from __future__ import annotations

from actors.messages import JoinReceived, LogRecovered, StartReceived
from actors.raft.first_configuration import FirstConfiguration
from actors.raft.join_requests import CHANGES_OF_RAFT, JoinRequests
from actors.raft.joining import Joining
from actors.raft.removal import Removal
from actors.raft.routes import Routes
from actors.station import Station
from logstore.format.peer_messages import JoinAnswer, JoinRequest, Removed
from logstore.raft.core import RaftCore
from logstore.raft.effects import ChangeAnswered, MembersChanged
from logstore.raft.events import ChangeRequested


class MembershipDriver:
    """Of one incarnation of a replica of a cluster that is formed."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._node = station.node
        self._removal = Removal(station, routes, recovered)
        self._joining = Joining(station, routes, recovered)
        self._founding = FirstConfiguration(station, recovered, request_id=CHANGES_OF_RAFT)
        self._requests = JoinRequests(routes, first_id=CHANGES_OF_RAFT + 1)

    @property
    def deadline_ns(self) -> int:
        return min(self._joining.deadline_ns, self._removal.deadline_ns)

    @property
    def is_admitted(self) -> bool:
        """Whether this replica takes part."""
        return self._joining.is_admitted

    @property
    def refusal(self) -> str:
        """Why it does not, or not any more; empty if it does."""
        return self._removal.refusal or self._joining.refusal

    @property
    def is_removed(self) -> bool:
        """Whether this replica is no member any more: it serves its status only (C9)."""
        return self._removal.is_removed

    def on_tick(self, now_ns: int, core: RaftCore | None) -> ChangeRequested | None:
        self._joining.on_tick(now_ns)
        if core is None:
            return None
        self._removal.on_tick(now_ns, core)
        return self._founding.on_tick(now_ns, core)

    def on_heard(self, received: StartReceived) -> None:
        self._founding.on_heard(received)

    def on_join(self, received: JoinReceived, core: RaftCore | None) -> ChangeRequested | None:
        message = received.message
        if isinstance(message, JoinRequest):
            return self._requests.on_request(received, message, core)
        if isinstance(message, JoinAnswer):
            self._joining.on_answer(received, message)
        elif isinstance(message, Removed):
            self._removal.on_told(message)
        return None

    def on_members(self, changed: MembersChanged) -> None:
        is_named = self._removal.on_members(changed)
        self._joining.on_members(is_named=is_named, was_member=self._removal.was_member)
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
