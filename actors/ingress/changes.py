"""Changes of the session table that clients ask for: a cursor moved, a session ended.

A change is an entry: proposed at once and answered at its commit, as an OPEN is (SAFETY E8). A
refusal is a linearizable read, because a deposed leader may refuse what the new one would allow. It
is sent at once only where the reason lies in the request itself, or will soon pass. Must not know
which changes there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actors.ingress.admission import APPENDS_COME_FIRST, Admission
from actors.ingress.full_disks import FullDisks
from actors.ingress.groups import HeldAnswer
from actors.ingress.linearizable_reads import LinearizableReads, ReadKind, Reply
from actors.ingress.pending_requests import Caller, Requests
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, ErrorReply
from logstore.format.cursor_entries import Cursor
from logstore.format.session_entries import ExpireEntry
from logstore.limits import POSITION_MAX
from logstore.model import NO_NODE, EntryKind
from logstore.session.session import Refused
from logstore.session.table import SessionTable

_REFUSED_AT_ONCE = frozenset((ErrorCode.INVALID_REQUEST, ErrorCode.NOT_READY, ErrorCode.OVERLOADED))


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change that the table allows: its entry, the reply at its commit, and the text of the error
    if its outcome stays unknown."""

    entry: Cursor | ExpireEntry
    reply: DoneReply
    lost: str


class ChangeKind(msgspec.Struct, frozen=True):
    """How requests of a type are decided. `sees`: the entries that a refusal depends on, as in
    `ReadKind`."""

    decide: Callable[[SessionTable, Any], Change | Refused]
    sees: EntryKind | None


class Changes:
    """Proposes what the table allows."""

    def __init__(
        self,
        admission: Admission,
        requests: Requests,
        reads: LinearizableReads,
        full_disks: FullDisks,
    ) -> None:
        self._admission = admission
        self._requests = requests
        self._reads = reads
        self._full_disks = full_disks

    def ask(self, caller: Caller, kind: ChangeKind, request: Any, now_ns: int) -> None:
        """Propose the change, or have raft confirm its refusal."""
        table = self._admission.table
        if table is None:
            self._requests.refuse_as_not_leading(caller)
            return
        decision = kind.decide(table, request)
        if isinstance(decision, Refused) and decision.code in _REFUSED_AT_ONCE:
            self._requests.refuse_request(caller, decision)
        elif refused := self._why_not_now(decision):
            self._requests.refuse_request(caller, refused)
        elif request_id := self._requests.add(caller, now_ns):
            if isinstance(decision, Change):
                self._propose(request_id, decision)
            else:
                again = ReadKind(lambda *of: self._decide_again(request_id, kind, *of), kind.sees)
                self._reads.begin(request_id, again, request)

    def _decide_again(
        self, request_id: int, kind: ChangeKind, table: SessionTable, request: Any
    ) -> Reply | None:
        """Raft has confirmed the leadership: refuse, or propose if the table allows it by now."""
        decision = kind.decide(table, request)
        if isinstance(decision, Refused):
            reply = refusal(decision)
            return lambda: reply
        if refused := self._why_not_now(decision):
            self._requests.answer(request_id, refusal(refused))
        else:
            self._propose(request_id, decision)
        return None

    def _why_not_now(self, decision: Change | Refused) -> Refused | None:
        if not self._admission.may_take_request:
            # A client that asks again and again would hold up every append (E6).
            return APPENDS_COME_FIRST
        if isinstance(decision, Refused):
            return None
        return self._full_disks.why_refused(decision.entry)

    def _propose(self, request_id: int, change: Change) -> None:
        group = self._admission.take(change.entry)
        group.request = HeldAnswer(request_id, change.reply, change.lost)


def refusal(refused: Refused) -> ErrorReply:
    """The reply to a request that is refused."""
    last = POSITION_MAX if refused.code is ErrorCode.OUT_OF_RANGE else 0  # a bound below only
    return ErrorReply(refused.code, NO_NODE, refused.detail, last, refused.text.encode())
