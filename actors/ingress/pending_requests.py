"""Requests of clients that wait for raft or for a commit, and how they are answered.

Owns how replies are sent, at the control and the produce port. Pending requests are bounded in
number and in time: after ten seconds without an answer the client is sent TIMED_OUT. Must not know
what a request means.
"""

from __future__ import annotations

import msgspec

from actors.ingress.groups import Group
from actors.ingress.replica_info import ReplicaInfo
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply
from logstore.limits import REQUEST_TIMEOUT_NS, REQUESTS_PENDING_MAX
from logstore.model import NO_INDEX, NO_NODE
from logstore.session.session import Refused
from transport import link
from transport.ports import Socket

NEVER_NS = 1 << 62


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Where the answer of a request goes, and the correlation that it carries. `socket`: of the
    port that the request came to."""

    routing_id: bytes
    correlation: int
    socket: Socket


class _Pending(msgspec.Struct, gc=False):
    """`group`: the one among whose readers its answer waits."""

    caller: Caller
    deadline_ns: int
    group: Group | None = None


class Requests:
    """Pending requests by number; numbers begin at 1, and 0 stands for none."""

    def __init__(self, replica: ReplicaInfo, slots: memoryview) -> None:
        self._replica = replica
        self._slots = slots
        self._next_id = 1
        self._pending: dict[int, _Pending] = {}  # in the order of their deadlines

    @property
    def next_timer_ns(self) -> int:
        for pending in self._pending.values():
            return pending.deadline_ns
        return NEVER_NS

    def add(self, caller: Caller, now_ns: int) -> int:
        """The number of a new pending request; 0 if there are too many, and the refusal is sent."""
        if len(self._pending) >= REQUESTS_PENDING_MAX:
            self.refuse(caller, ErrorCode.OVERLOADED, "too many requests wait here: ask later")
            return 0
        request_id = self._next_id
        self._next_id += 1
        self._pending[request_id] = _Pending(caller, now_ns + REQUEST_TIMEOUT_NS)
        return request_id

    def is_pending(self, request_id: int) -> bool:
        """Whether it has no answer yet, not even TIMED_OUT."""
        return request_id in self._pending

    def take(self, request_id: int) -> Caller | None:
        """The caller of a request that is to be answered now; None if it has timed out."""
        pending = self._pending.pop(request_id, None)
        return pending.caller if pending is not None else None

    # --- answers ---

    def hold_at(self, group: Group, request_id: int, reply: msgspec.Struct) -> None:
        """Answer a pending request once `group` is committed. When the request times out the reply
        is dropped: while two followers' disks are full, a leader confirms reads for days and
        commits nothing."""
        group.readers[request_id] = reply
        self._pending[request_id].group = group

    def answer(self, request_id: int, message: msgspec.Struct) -> None:
        caller = self.take(request_id)
        if caller is not None:
            self.reply(caller, message)

    def redirect(self, request_id: int) -> None:
        """Refuse a pending request: this replica does not lead, or is not ready to answer."""
        caller = self.take(request_id)
        if caller is not None:
            self.refuse_as_not_leading(caller)

    def answer_committed(self, group: Group) -> None:
        """Answer the request for its entry, and the reads that depend on it."""
        if group.request is not None:
            self.answer(group.request.request_id, group.request.reply)
        for request_id, reply in group.readers.items():
            self.answer(request_id, reply)

    def answer_forgotten(self, group: Group) -> None:
        """Its gen or term ended. The outcome of a change that raft has accepted is unknown; all
        other requests may be asked again."""
        request = group.request
        if request is not None and request.lost and group.index != NO_INDEX:
            caller = self.take(request.request_id)
            if caller is not None:
                self.refuse(caller, ErrorCode.OUTCOME_UNKNOWN, request.lost)
        elif request is not None:
            self.redirect(request.request_id)
        for request_id in group.readers:
            self.redirect(request_id)

    def expire(self, now_ns: int) -> int:
        """Answer requests that have waited too long with TIMED_OUT; returns how many."""
        due = []
        for request_id, pending in self._pending.items():
            if pending.deadline_ns > now_ns:
                break
            due.append(request_id)
        for request_id in due:
            late = self._pending.pop(request_id)
            if late.group is not None:
                del late.group.readers[request_id]
            text = "no outcome in time, maybe one yet: ask again"
            self.refuse(late.caller, ErrorCode.TIMED_OUT, text)
        return len(due)

    def reply(self, caller: Caller, message: msgspec.Struct) -> None:
        frame = self._replica.encode(message, correlation=caller.correlation)
        if not link.try_send(caller.socket, (caller.routing_id, frame)):
            self._slots[Counter.SENDS_DROPPED] += 1

    def refuse(self, caller: Caller, code: ErrorCode, text: str) -> None:
        leader = self._replica.leader if code is ErrorCode.NOT_LEADER else NO_NODE
        self.reply(caller, ErrorReply(code, leader, 0, 0, text.encode()))

    def refuse_request(self, caller: Caller, refused: Refused) -> None:
        if refused.code is ErrorCode.NOT_LEADER:
            self.refuse_as_not_leading(caller)
        else:
            self.refuse(caller, refused.code, refused.text)

    def refuse_as_not_leading(self, caller: Caller) -> None:
        """This replica does not lead, or does but cannot take appends now."""
        if self._replica.is_leading and self._slots[Counter.DISK_FULL]:
            # No replica with more space could take over (SAFETY S9): the operator must help.
            self.refuse(caller, ErrorCode.DISK_FULL, "the leader's disk is full: free some space")
        elif self._replica.is_leading:
            self.refuse(caller, ErrorCode.NOT_READY, "this leader is not ready yet: ask later")
        else:
            self.refuse(caller, ErrorCode.NOT_LEADER, "this replica does not lead")
