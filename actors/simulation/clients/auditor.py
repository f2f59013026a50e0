"""Reads all that one replica shows, once: every entry is whole, or the replica says that it is not.

Owns how far it is: first it has every entry verified, by index, then it fetches every payload, by
LSN. Damage that is named is gone around; what was named goes to the ledger, which knows the medium.
Must not know which entries are damaged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import DamageNamed, Delivered, LogVerified, Subscribed
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.pieces import check_fetched, served_batches
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    LSN_MAX,
    ErrorReply,
    FetchReply,
    FetchRequest,
    VerifyReply,
    VerifyRequest,
)
from logstore.limits import KIB
from logstore.model import Lsn
from logstore.settings import PortOffset

_SLICE_BYTES = 32 * KIB
_AGAIN_NS = 100 * MS_NS
_LATER = frozenset({ErrorCode.NOT_READY, ErrorCode.OVERLOADED, ErrorCode.TIMED_OUT})


class Auditor:
    """Looks like an actor. `is_done`: it has seen everything that `node` shows."""

    def __init__(self, host: ClientHost, node: int) -> None:
        self.host = host
        self.node = node
        self.wire = Wire(host)
        self.is_done = False
        self._asker: Asker | None = None
        self._next_index = 1
        self._next_lsn = int(host.first_lsn)
        self._is_verified = False
        self._ask_ns = 0

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        asker = self._asker
        if asker is not None and asker.is_waiting:
            answer = asker.poll(now_ns)
            if answer is not None:
                self._take(answer, now_ns)
            elif asker.is_late(now_ns):
                self.on_close()
        elif now_ns >= self._ask_ns and not self.is_done:
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        asker = self._asker
        return [asker.socket] if asker is not None and asker.is_waiting else []

    def next_timer_ns(self) -> int:
        asker = self._asker
        if self.is_done or (asker is not None and asker.is_waiting):
            return asker.next_timer_ns() if asker is not None else NEVER_NS
        return self._ask_ns

    def on_close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    # --- asking ---

    def _ask(self, now_ns: int) -> None:
        if self._asker is None:
            self._asker = Asker(self.wire, self.node, PortOffset.FETCH)
        if not self._is_verified:
            request = VerifyRequest(self._next_index, _SLICE_BYTES)
            self._asker.ask(request, VerifyReply, now_ns)
        else:
            self._asker.ask(self._fetch(), FetchReply, now_ns)

    def _fetch(self) -> FetchRequest:
        return FetchRequest(Lsn(self._next_lsn), Lsn(LSN_MAX), Lsn(0), _SLICE_BYTES, 0, False)

    # --- judging ---

    def _take(self, answer: Answer, now_ns: int) -> None:
        message = answer.message
        if isinstance(message, ErrorReply):
            self._refused(message, now_ns)
        elif isinstance(message, VerifyReply):
            self._verified(message)
        elif isinstance(message, FetchReply):
            self._fetched(message, answer.more)

    def _refused(self, error: ErrorReply, now_ns: int) -> None:
        if error.code in _LATER:
            self._ask_ns = now_ns + _AGAIN_NS
            return
        asked_lsn = self._next_lsn
        is_named = error.code == ErrorCode.CORRUPT_DATA and error.first == asked_lsn <= error.last
        if not self._is_verified or not is_named:
            self.wire.violated(Invariant.I11, f"node {self.node} refused an audit with {error}")
            self.is_done = True
            return
        host = self.host
        host.tell(DamageNamed(self.node, (error.first, error.last)))
        self._next_lsn = error.last + 1

    def _verified(self, reply: VerifyReply) -> None:
        host, first = self.host, self._next_index
        named = [row["first_index"] for row in msgspec.json.decode(reply.document)]
        span = (first, reply.last_index)
        host.tell(LogVerified(self.node, span, reply.chain, named))
        self._next_index = reply.last_index + 1
        self._is_verified = reply.last_index >= reply.visible_index
        if reply.last_index < min(first, reply.visible_index):
            text = f"node {self.node} was asked to verify {first}, and answers {reply}"
            self.wire.violated(Invariant.I11, text)
            self.is_done = True

    def _fetched(self, reply: FetchReply, frame: bytes) -> None:
        host, first_lsn = self.host, self._next_lsn
        batches = served_batches(self.wire, self.node, frame, pieces=reply.pieces)
        self.is_done = batches is None or reply.next_lsn > reply.visible_lsn
        if batches is None:
            return
        check_fetched(self.wire, self.node, reply, batches, first_lsn=first_lsn)
        if not batches:
            self.is_done = True
            return
        host.tell(Subscribed(host.name, first_lsn))
        for each in batches:
            handed = (max(each.first_lsn, first_lsn), each.next_lsn - 1)
            is_whole = handed[0] == each.first_lsn
            place = host.name, self.node, each.first_lsn
            host.tell(Delivered(*place, each.batch, handed, is_whole))
        self._next_lsn = reply.next_lsn
