"""An operator who forms the cluster, where it does not form itself (SAFETY L2).

Asks any node, again and again, until one says that the log begins where it was told to. Owns one
question at a time.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, InitializeRequest
from logstore.format.first_lsn import pack_first_lsn
from logstore.settings import PortOffset

_PAUSE_NS = (20 * MS_NS, 300 * MS_NS)
_ANSWER_NS = 1_000 * MS_NS  # a node may wait ten seconds for the others; another one may be quicker
_LATER = frozenset({ErrorCode.NOT_READY, ErrorCode.OVERLOADED, ErrorCode.TIMED_OUT})


class Founder:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self.is_done = False
        self._asker: Asker | None = None
        self._ask_ns = 0

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        asker = self._asker
        if asker is None:
            if now_ns >= self._ask_ns and not self.is_done:
                self._ask(now_ns)
            return 0
        answer = asker.poll(now_ns)
        if answer is None and not asker.is_late(now_ns):
            return 0
        self.on_close()
        self._ask_ns = now_ns + self.host.random.randrange(*_PAUSE_NS)
        if answer is None:
            self.wire.count("late")
        elif isinstance(answer.message, DoneReply):
            self.wire.count("formed")
            self.is_done = True
        elif answer.message.code in _LATER:
            self.wire.count("refused")
        else:
            self.wire.violated(Invariant.I11, f"node {answer.node} refuses: {answer.message}")
        return 0

    def wait_on(self) -> list[Any]:
        return [] if self._asker is None else [self._asker.socket]

    def next_timer_ns(self) -> int:
        if self._asker is not None:
            return self._asker.next_timer_ns()
        return NEVER_NS if self.is_done else self._ask_ns

    def on_close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    def _ask(self, now_ns: int) -> None:
        self._asker = Asker(self.wire, self.host.any_node(), PortOffset.CONTROL)
        request = InitializeRequest(pack_first_lsn(self.host.first_lsn))
        self._asker.ask(request, DoneReply, now_ns, wait_ns=_ANSWER_NS)
