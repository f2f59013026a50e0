"""Changes of the members that operators ask for (SAFETY C7, C11).

Owns what a request means, and whether it is done already: an operator whose answer was lost asks
again, and by then the change may be committed. raft decides everything else. Nothing is answered
from here without a quorum: that a change is done already is a linearizable read, because a leader
that was deposed may not know of the change that undid it.
"""

from __future__ import annotations

import msgspec

from actors.ingress.linearizable_reads import LinearizableReads, ReadKind, Reply
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.replica_info import ReplicaInfo
from actors.ingress.sockets_and_rings import ToRaft
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import DoneReply
from logstore.format.configuration_body import (
    NO_UUID,
    Member,
    MemberRole,
    is_host_name,
    roles,
    sorted_by_key,
)
from logstore.format.member_messages import MemberChangeKind, MemberChangeRequest, decode_place
from logstore.format.message import NODE_ID_MAX
from logstore.model import NO_NODE, EntryKind, NodeId
from logstore.raft.effects import MembersChanged
from logstore.raft.events import ChangeKind, ChangeRequested
from logstore.session.session import Refused
from logstore.settings import HIGHEST_PORT, PORTS_PER_NODE

_BASE_PORT_MAX = HIGHEST_PORT - PORTS_PER_NODE + 1
_KINDS = frozenset(MemberChangeKind)
_COUNTED = frozenset({MemberRole.VOTER, MemberRole.INCOMING})


class MemberRequests:
    """Hands changes on to raft."""

    def __init__(
        self, requests: Requests, reads: LinearizableReads, replica: ReplicaInfo, to_raft: ToRaft
    ) -> None:
        self._requests = requests
        self._reads = reads
        self._replica = replica
        self._to_raft = to_raft

    def ask(self, caller: Caller, request: MemberChangeRequest, now_ns: int) -> None:
        """Ask raft for the change, or let it confirm that there is nothing left to change."""
        change = change_of(request)
        if not self._replica.is_leading:
            self._requests.refuse_as_not_leading(caller)
        elif isinstance(change, Refused):
            self._requests.refuse_request(caller, change)
        elif request_id := self._requests.add(caller, now_ns):
            change = msgspec.structs.replace(change, request_id=request_id)
            if is_done(request, self._replica.members):
                read = ReadKind(lambda *_: self._confirm(request, change), sees=EntryKind.CONFIG)
                self._reads.begin(request_id, read, request)
            else:
                self._to_raft.send(change)

    def _confirm(self, request: MemberChangeRequest, change: ChangeRequested) -> Reply | None:
        """A quorum has confirmed that this replica leads. Its log has every configuration that was
        committed before, and MembersChanged was sent before the confirmation."""
        if is_done(request, self._replica.members):
            return lambda: DoneReply(0)
        self._to_raft.send(change)
        return None


def change_of(request: MemberChangeRequest) -> ChangeRequested | Refused:
    """The event for raft, with request id 0."""
    try:
        host, labels = decode_place(request.place)
    except FormatError as error:
        return _refused(str(error))
    if request.kind not in _KINDS:
        return _refused(f"no change of members has the number {request.kind}")
    kind = MemberChangeKind(request.kind)
    if not 1 <= request.number <= NODE_ID_MAX:
        return _refused(f"no member {request.number}: they are 1 to {NODE_ID_MAX}")
    if fault := _place_fault(kind, request, host):
        return _refused(fault)
    node = NodeId(request.number)
    members: tuple[Member, ...] = ()
    if host:
        number = node if kind is MemberChangeKind.ADD else NO_NODE
        members = (Member(number, NO_UUID, host, request.port, sorted_by_key(labels)),)
    return ChangeRequested(
        0,
        ChangeKind(kind),
        NO_NODE if kind is MemberChangeKind.ADD else node,
        by=NodeId(request.by),
        members=members,
        is_forced=request.is_forced,
        uuid=request.replica_uuid,
    )


def is_done(request: MemberChangeRequest, known: MembersChanged | None) -> bool:
    """Whether a committed configuration, which is not being changed, is as the request wants it."""
    if known is None or not known.is_committed or not known.configuration.id:
        return False
    if known.configuration.incoming:
        return False
    found = {member.number: (member, role) for member, role in roles(known.configuration)}
    member, role = found.get(NodeId(request.number), (None, None))
    host, labels = decode_place(request.place)
    has_left = member is None or request.replica_uuid not in (NO_UUID, member.uuid)
    match MemberChangeKind(request.kind):
        case MemberChangeKind.ADD:
            if member is None or (member.host, member.port) != (host, request.port):
                return False
            return set(labels) <= set(member.labels)
        case MemberChangeKind.PROMOTE:
            return role in _COUNTED
        case MemberChangeKind.REMOVE:
            return has_left
        case MemberChangeKind.REPLACE:
            if not host and not request.by:  # in place: by a replica of another uuid
                return request.replica_uuid != NO_UUID and member is not None and has_left
            if request.by:
                return has_left and found.get(NodeId(request.by), (None, None))[1] in _COUNTED
            # By one at another address: on its way, or there.
            waits = {*labels, f"replaces={request.number}"}
            return any(
                each_role in _COUNTED if has_left else waits <= set(each.labels)
                for each, each_role in found.values()
                if (each.host, each.port) == (host, request.port)
            )


def _place_fault(kind: MemberChangeKind, request: MemberChangeRequest, host: str) -> str:
    """What is wrong with where the new replica is to be; empty: nothing."""
    if request.by and kind is not MemberChangeKind.REPLACE:
        return f"only a replacement has `by`: this is {kind.name}"
    if request.by > NODE_ID_MAX:
        return f"no member {request.by}: they are 1 to {NODE_ID_MAX}"
    if not host:
        return "where is it to run? Give its HOST:PORT" if kind is MemberChangeKind.ADD else ""
    if kind not in (MemberChangeKind.ADD, MemberChangeKind.REPLACE) or request.by:
        return f"an address is given, and {kind.name} needs none"
    if not is_host_name(host):
        return "the host is neither an IPv4 address nor a host name of at most 253 characters"
    if not 1 <= request.port <= _BASE_PORT_MAX:
        return f"port {request.port}: the first of {PORTS_PER_NODE} ports is 1 to {_BASE_PORT_MAX}"
    return ""


def _refused(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, 0, text)
