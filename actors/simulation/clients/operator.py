"""An operator of the virtual world: hands leadership over when told to, looks at the status.

Owns one transfer at a time: find the leader, ask, hear the outcome. Looks at a node's status now
and then. Must not know when a transfer is wanted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Asker
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.leader import LeaderFinder
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    StatusReply,
    StatusRequest,
    TransferRequest,
)
from logstore.settings import PortOffset

_STATUS_EVERY_NS = 2_000 * MS_NS
_ANSWER_NS = 10_000 * MS_NS  # the replica answers within this
_REFUSED = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.TRANSFER_FAILED,
        ErrorCode.TIMED_OUT,
        ErrorCode.DISK_FULL,
    }
)


class Operator:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self.status: dict[int, dict[str, Any]] = {}  # by node: what it said last
        self._wanted: list[int] = []
        self._finder = LeaderFinder(self.wire)
        self._is_finding = False
        self._asker: Asker | None = None
        self._status_ns = 0

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    def transfer(self, target: int) -> None:
        """Whoever leads shall hand over to `target`, 0: to whoever fits best. Wake its process."""
        self._wanted.append(target)

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        if self._asker is not None:
            self._read_answer(self._asker, now_ns)
        if self._asker is None and self._is_finding:
            leader = self._finder.poll(now_ns)
            if leader:
                self._is_finding = False
                request = TransferRequest(self._wanted.pop(0))
                self._ask(leader, request, DoneReply, now_ns, wait_ns=_ANSWER_NS)
        elif self._asker is None and self._wanted:
            self._is_finding = True
            self._finder.begin(now_ns)
        elif self._asker is None and now_ns >= self._status_ns:
            mean_ns = self.host.random.expovariate(1.0) * _STATUS_EVERY_NS
            self._status_ns = now_ns + int(mean_ns)
            self._ask(self.host.any_node(), StatusRequest(), StatusReply, now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        if self._asker is not None:
            return [self._asker.socket]
        return self._finder.sockets()

    def next_timer_ns(self) -> int:
        if self._asker is not None:
            return self._asker.next_timer_ns()
        if self._is_finding:
            return self._finder.next_timer_ns()
        return 0 if self._wanted else self._status_ns

    def on_close(self) -> None:
        self._finder.close()
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    # --- one request ---

    def _ask(
        self,
        node: int,
        request: msgspec.Struct,
        expects: type[Any],
        now_ns: int,
        *,
        wait_ns: int = 0,
    ) -> None:
        self._asker = Asker(self.wire, node, PortOffset.CONTROL)
        self._asker.ask(request, expects, now_ns, wait_ns=wait_ns)

    def _read_answer(self, asker: Asker, now_ns: int) -> None:
        answer = asker.poll(now_ns)
        if answer is None:
            if asker.is_late(now_ns):
                self.wire.count("late")
                self.on_close()
            return
        message = answer.message
        if isinstance(message, StatusReply):
            self._take_status(answer.node, message.document)
        elif isinstance(message, DoneReply):
            self.wire.count("transferred")
        else:
            self._take_error(message)
        self.on_close()

    def _take_status(self, node: int, document: bytes) -> None:
        try:
            self.status[node] = msgspec.json.decode(document, type=dict[str, Any])
        except msgspec.DecodeError as error:
            self.wire.violated(Invariant.I11, f"a status of node {node}: {error}")
            return
        self.wire.count("status")

    def _take_error(self, error: ErrorReply) -> None:
        if error.code in _REFUSED:
            self.wire.count(f"refused-{ErrorCode(error.code).name.lower()}")
        else:
            self.wire.violated(Invariant.I11, f"refused with {error}")
