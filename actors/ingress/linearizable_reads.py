"""Linearizable reads of the session table: of sessions, of cursors, of anything else in it (V5).

An answer must contain everything that was committed before the request, and nothing that is not
committed:

1. raft confirms by a quorum round, begun after the request came, that this replica leads. What was
   committed before that round is in the table by then: its Committed was sent first.
2. The answer is taken from the table, which may be ahead of the commit index.
3. It is sent once the newest entry that it may depend on is committed. If that entry is forgotten,
   the answer is dropped and the client is redirected.

`test_ingress_cursors.py` has a test for each step left out. Owns the requests that wait for raft,
and the answers that depend on every kind of entry: they wait for the newest of all, and are
redirected when the gen ends. An answer that depends on one kind waits at the group of that entry.
Must not know what is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from actors.ingress.admission import Admission
from actors.ingress.groups import Group
from actors.ingress.pending_requests import Caller, Requests
from actors.ingress.sockets_and_rings import ToRaft
from actors.messages import READS_OF_INGRESS
from logstore import limits
from logstore.model import NO_INDEX, EntryKind
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.session.table import SessionTable

Reply: TypeAlias = Callable[[], msgspec.Struct]  # makes the message when it is sent

# Requests that raft has confirmed and that are looked at in one do_work, and answers that are sent
# in one. A session of 4,096 rows takes 4 ms (2026-11-28): all of 1,024 at once would stand still
# until raft stepped down (V6).
_TAKEN_AT_ONCE = 16


class ReadKind(msgspec.Struct, frozen=True):
    """How requests of a type are answered from the table. `answer` returns None where the request
    became a change, which is answered at its commit. `sees`: the one kind of entry on which the
    answer depends; None: it depends on all."""

    answer: Callable[[SessionTable, Any], Reply | None]
    sees: EntryKind | None


class LinearizableReads:
    """Reads that wait. `Requests`, raft's bound on reads and HELD_ANSWERS_MAX bound them."""

    def __init__(self, admission: Admission, requests: Requests, to_raft: ToRaft) -> None:
        self._admission = admission
        self._requests = requests
        self._to_raft = to_raft
        self._reads: dict[int, tuple[ReadKind, Any]] = {}  # by request, until it is looked at
        self._heard: deque[tuple[int, bool]] = deque()  # what raft has said, and its request
        self._held: deque[tuple[Group, int, Reply]] = deque()  # in the order of their groups

    def ask(self, caller: Caller, kind: ReadKind, request: Any, now_ns: int) -> None:
        """Begin the read of a request that has just come."""
        if self._admission.table is None:
            self._requests.refuse_as_not_leading(caller)
        elif request_id := self._requests.add(caller, now_ns):
            self.begin(request_id, kind, request)

    def begin(self, request_id: int, kind: ReadKind, request: Any) -> None:
        """Begin the read of a pending request."""
        self._reads[request_id] = kind, request
        self._to_raft.send(ReadIndexRequested(READS_OF_INGRESS + request_id))

    def on_read_index(self, answered: ReadIndexAnswered) -> None:
        """Raft has confirmed that this replica leads, or it does not."""
        self._heard.append((answered.request_id - READS_OF_INGRESS, answered.is_leader))

    @property
    def has_more(self) -> bool:
        """The next do_work has something to do, whatever raft says meanwhile."""
        return bool(self._heard) or self._may_release

    def do_work(self) -> int:
        """Once in a do_work, when raft's messages have been read: send the answers whose groups are
        committed, redirect all if the gen has ended, and look at what raft has confirmed. All that
        was committed before that is in the table of any later gen, too. Returns how many."""
        work = self._release()
        heard = self._heard
        for _ in range(min(len(heard), _TAKEN_AT_ONCE)):
            work += 1
            self._take(*heard.popleft())
        return work

    def _take(self, request_id: int, is_leader: bool) -> None:
        kind, request = self._reads.pop(request_id)
        if not self._requests.is_pending(request_id):
            return  # it timed out, and its client was told: a change is not begun any more
        admission = self._admission
        table = admission.table
        if not is_leader or table is None or not admission.is_ready:
            self._requests.redirect(request_id)
            return
        reply = kind.answer(table, request)
        if reply is None:
            return
        group = admission.proposals.newest_pending(kind.sees)
        if group is None:
            self._requests.answer(request_id, reply())
        elif kind.sees is not None:
            self._requests.hold_at(group, request_id, reply())
        else:
            self._hold(group, request_id, reply)

    def _hold(self, group: Group, request_id: int, reply: Reply) -> None:
        """Hold the answer until the group is committed, if there is a place. Requests that timed
        out give theirs up; they do so in the order in which they came."""
        held = self._held
        while held and not self._requests.is_pending(held[0][1]):
            held.popleft()
        if len(held) < limits.HELD_ANSWERS_MAX:
            held.append((group, request_id, reply))
        else:
            self._requests.redirect(request_id)

    @property
    def _may_release(self) -> bool:
        """Whether the answer that was held first need not wait any more."""
        if not self._held:
            return False
        group, table = self._held[0][0], self._admission.table
        return table is None or NO_INDEX < group.index <= table.commit

    def _release(self) -> int:
        """Send answers whose groups are committed; redirect all if the gen has ended."""
        held, is_over = self._held, self._admission.table is None
        released = 0
        while self._may_release and (is_over or released < _TAKEN_AT_ONCE):
            released += 1
            _, request_id, reply = held.popleft()
            if is_over:
                self._requests.redirect(request_id)
            elif self._requests.is_pending(request_id):
                self._requests.answer(request_id, reply())
        return released
