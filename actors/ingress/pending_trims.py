"""Requests to move the log start: proposed, answered at their commit (SAFETY G1).

Owns the requests for which a SESSION snapshot or a CONFIG must come first: they are decided again
once it is committed, and time out like every other request. Must not know how far a TRIM may reach.
What another leader may have changed since is refused by a linearizable read, as in `changes`: a
cursor that it deleted, a level that it raised, more that it committed.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

from actors.ingress.admission import Admission
from actors.ingress.changes import refusal
from actors.ingress.groups import HeldAnswer
from actors.ingress.linearizable_reads import LinearizableReads, ReadKind, Reply
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.trim_bounds import TrimBounds
from actors.ingress.trim_requests import ConfigurationFirst, SnapshotFirst
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, ErrorReply, TrimRequest
from logstore.format.trim_entry import TrimEntry
from logstore.limits import REQUESTS_PENDING_MAX
from logstore.model import NO_INDEX, EntryKind, Index, Lsn, Term
from logstore.session.session import Refused

Waits: TypeAlias = SnapshotFirst | ConfigurationFirst
Decided: TypeAlias = TrimEntry | DoneReply | ErrorReply | Waits | Refused

_log = logging.getLogger(__name__)
_CONFIRMED = frozenset((ErrorCode.OUT_OF_RANGE, ErrorCode.LEVEL_REFUSED))


class PendingTrims:
    """The requests of one replica."""

    def __init__(
        self, admission: Admission, bounds: TrimBounds, requests: Requests, reads: LinearizableReads
    ) -> None:
        self._admission = admission
        self._bounds = bounds
        self._requests = requests
        self._reads = reads
        self._waiting: dict[int, Lsn] = {}  # what each is to keep, by request
        self._put_off: dict[int, Lsn] = {}  # likewise, of those that can be decided again
        self._gen: tuple[Term, int] | None = None  # that they wait in
        self._in_the_way = (NO_INDEX, NO_INDEX)  # the newest snapshot and CONFIG then

    def ask(self, caller: Caller, request: TrimRequest, now_ns: int) -> None:
        """Propose the TRIM, now or once a snapshot or CONFIG allows it, or refuse it."""
        decided = self._bounds.decide(request.lsn)
        if _needs_confirmation(decided) or isinstance(decided, TrimEntry | Waits):
            if request_id := self._requests.add(caller, now_ns):
                self._go_on(request_id, request.lsn, decided)
        elif isinstance(decided, Refused):
            self._requests.refuse_request(caller, decided)
        else:
            self._requests.reply(caller, decided)

    def do_work(self) -> int:
        """Go on with the requests that waited, if something has changed; returns how many. Called
        once in a do_work."""
        self._bounds.begin_do_work()
        if not (self._waiting or self._put_off):
            return 0
        if self._admission.gen != self._gen:
            return self._redirect()
        self._look_for_newer()
        due, self._put_off = self._put_off, {}
        for request_id, lsn in due.items():
            if self._requests.is_pending(request_id):
                self._decide_again(request_id, lsn)
        return len(due) - len(self._put_off)

    def _look_for_newer(self) -> None:
        """All that waited can be decided again if there is a newer snapshot or CONFIG. What one of
        them then still waits for is no reason for the others to wait."""
        newest = self._newest
        if newest != self._in_the_way:
            self._in_the_way = newest
            self._put_off |= self._waiting
            self._waiting = {}

    def _decide_again(self, request_id: int, lsn: Lsn) -> None:
        decided = self._bounds.decide(lsn)
        if isinstance(decided, Refused) and decided.code is ErrorCode.OVERLOADED:
            self._put_off[request_id] = lsn  # appends have their turn, or another request
        else:
            self._go_on(request_id, lsn, decided)

    def _go_on(self, request_id: int, lsn: Lsn, decided: Decided) -> None:
        """Do what was decided for a pending request."""
        if isinstance(decided, TrimEntry):
            self._propose(request_id, decided)
        elif isinstance(decided, Waits):
            self._wait(request_id, lsn, decided)
        elif _needs_confirmation(decided):
            again = ReadKind(lambda *_: self._confirmed(request_id, lsn), EntryKind.CURSOR)
            self._reads.begin(request_id, again, lsn)
        elif isinstance(decided, Refused):
            self._requests.redirect(request_id)
        else:
            self._requests.answer(request_id, decided)

    def _confirmed(self, request_id: int, lsn: Lsn) -> Reply | None:
        """Raft has confirmed the leadership: refuse, or propose if it is allowed by now."""
        decided = self._bounds.decide(lsn)
        if isinstance(decided, TrimEntry | Waits):
            self._go_on(request_id, lsn, decided)
            return None
        reply = refusal(decided) if isinstance(decided, Refused) else decided
        return lambda: reply

    def _propose(self, request_id: int, entry: TrimEntry) -> None:
        lsn = entry.start.next_lsn
        _log.info("an operator trims the log: it is to start at LSN %d", lsn)
        reply = DoneReply(lsn)
        self._admission.take(entry).request = HeldAnswer(request_id, reply)

    @property
    def _newest(self) -> tuple[Index, Index]:
        return self._admission.snapshot_index, self._bounds.configurations.index

    def _wait(self, request_id: int, lsn: Lsn, for_what: Waits) -> None:
        self._gen = self._admission.gen
        self._look_for_newer()
        if len(self._waiting) >= REQUESTS_PENDING_MAX:  # some of them have timed out
            is_pending = self._requests.is_pending
            self._waiting = {each: kept for each, kept in self._waiting.items() if is_pending(each)}
        self._waiting[request_id] = lsn
        if isinstance(for_what, SnapshotFirst):
            self._admission.want_snapshot()
        else:
            self._bounds.configurations.want()

    def _redirect(self) -> int:
        """The gen has ended, and the snapshot with it."""
        waiting = self._waiting | self._put_off
        self._waiting, self._put_off = {}, {}
        for request_id in waiting:
            self._requests.redirect(request_id)
        return len(waiting)


def _needs_confirmation(decided: Decided) -> bool:
    """A refusal that a leader cut off from the others would give for good."""
    return isinstance(decided, ErrorReply | Refused) and decided.code in _CONFIRMED
