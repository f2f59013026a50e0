"""Answers replicas that ask for a place in the cluster (SAFETY L4).

Owns which of them wait for the core, and under which request ids. Must not know who may have a
place: the core decides, and a committed CONFIG says what it decided.
"""

from __future__ import annotations

from actors.messages import JoinReceived, TellJoin
from actors.raft.routes import Routes
from logstore.errors import ErrorCode
from logstore.format.configuration_body import NO_UUID, Member, is_host_name, roles
from logstore.format.peer_messages import JoinAnswer, JoinRequest
from logstore.limits import NODES_MAX
from logstore.model import NO_NODE, NodeId, Role
from logstore.raft.configuration import members
from logstore.raft.core import RaftCore
from logstore.raft.effects import ChangeAnswered, MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested

# One change is under way at a time, and the others are answered at once: that so many wait takes
# replicas that ask while a leader loses its office. Each is two numbers and a uuid.
JOINS_PENDING_MAX = NODES_MAX
# Ids of changes that raft's own driver asks for have this bit; those of ingress count from 1.
CHANGES_OF_RAFT = 1 << 63


class JoinRequests:
    """Of one incarnation, whatever its role."""

    def __init__(self, routes: Routes, *, first_id: int) -> None:
        self._routes = routes
        self._next_id = first_id
        self._pending: dict[int, tuple[NodeId, bytes]] = {}
        self._members: MembersChanged | None = None

    def on_members(self, changed: MembersChanged) -> None:
        self._members = changed

    def on_request(
        self, received: JoinReceived, request: JoinRequest, core: RaftCore | None
    ) -> ChangeRequested | None:
        """Ask the core, or answer at once; None: there is nothing to ask. Without a core this
        replica knows nothing: the other asks again."""
        if core is None:
            return None
        who = received.sender, received.sender_uuid
        if core.role != Role.LEADER:
            self._pending.clear()
            self._answer(who, ErrorCode.NOT_LEADER, self._place_of(core.leader), core.leader)
            return None
        if fault := _fault(received, request):
            self._answer(who, ErrorCode.INVALID_REQUEST, fault, core.leader)
            return None
        if who in self._pending.values():
            return None
        if len(self._pending) >= JOINS_PENDING_MAX:
            self._answer(who, ErrorCode.NOT_READY, "too many replicas ask to join", core.leader)
            return None
        self._pending[self._next_id] = who
        self._next_id += 1
        member = Member(*who, request.host.decode("ascii"), request.port)
        return ChangeRequested(self._next_id - 1, ChangeKind.JOIN, members=(member,))

    def on_answered(self, answered: ChangeAnswered, own: NodeId) -> None:
        """What the core says. OK may be of a change that only made a place free: the replica has
        it once a committed CONFIG names it, and asks again until then."""
        who = self._pending.pop(answered.request_id, None)
        if who is None:
            return
        code, reason = answered.code, answered.reason
        if code == ErrorCode.OK and not self._has_place(who):
            code, reason = ErrorCode.NOT_READY, "a place is reserved for it: it asks again"
        self._answer(who, code, reason, NO_NODE if code == ErrorCode.NOT_LEADER else own)

    def _has_place(self, who: tuple[NodeId, bytes]) -> bool:
        changed = self._members
        return (
            changed is not None
            and changed.is_committed
            and any((each.number, each.uuid) == who for each, _ in roles(changed.configuration))
        )

    def _place_of(self, leader: NodeId) -> str:
        """Where it is to be reached, by the configuration in force; empty: that does not say."""
        found = () if self._members is None else members(self._members.configuration)
        return next((f"{each.host}:{each.port}" for each in found if each.number == leader), "")

    def _answer(
        self, who: tuple[NodeId, bytes], code: ErrorCode, reason: str, leader: NodeId
    ) -> None:
        number, uuid = who
        answer = JoinAnswer(code, leader, reason.encode())
        self._routes.ingress.send(TellJoin(number, answer, uuid))


def _fault(received: JoinReceived, request: JoinRequest) -> str:
    """What no member can have; the rest the core checks."""
    if not (is_host_name(request.host.decode("latin-1")) and request.port):
        return "a member has an IPv4 address or a host name of ASCII, and a port"
    if received.sender == NO_NODE or received.sender_uuid == NO_UUID:
        return "a member has a number and a uuid"
    return ""
