"""An opener: the same name again and again, a new epoch each time (E8), and nothing more. Without a
name it is somebody new each time, who takes a place in the table and leaves it.

Owns one request at a time. With it an OPEN is under way whenever a leader ends. It never appends.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from actors.simulation.clients.wish import Wish
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, OpenSessionReply
from logstore.limits import SESSION_WINDOW_MIN
from logstore.model import SequenceMode
from logstore.settings import PortOffset

_ASK_EVERY_NS = (250 * MS_NS, 1_200 * MS_NS)  # the mean, drawn once
_ELSEWHERE_ONE_IN = 5
_LATER = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
    }
)


class Opener:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost, name: bytes) -> None:
        self.host = host
        self.wire = Wire(host)
        self._ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        mode = host.random.choice((SequenceMode.DENSE, SequenceMode.MONOTONE))
        self._wish = Wish(mode, SESSION_WINDOW_MIN, name)
        self._asker: Asker | None = None
        self._ask_ns = 0
        self._leader = 0  # who answered last, or may do so
        self._epoch = 0
        self._is_stopped = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    @property
    def is_asking(self) -> bool:
        return self._asker is not None and self._asker.is_waiting

    def stop(self) -> None:
        """No more requests after the one under way. Wake its process."""
        self._is_stopped = True

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        asker = self._asker
        if asker is not None and asker.is_waiting:
            answer = asker.poll(now_ns)
            if answer is not None:
                self._take(answer)
            elif asker.is_late(now_ns):
                self.wire.count("late")
                self._leader = 0
                self.on_close()
        elif now_ns >= self._ask_ns and not self._is_stopped:
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        asker = self._asker
        return [asker.socket] if asker is not None and asker.is_waiting else []

    def next_timer_ns(self) -> int:
        asker = self._asker
        if asker is not None and asker.is_waiting:
            return asker.next_timer_ns()
        return NEVER_NS if self._is_stopped else self._ask_ns

    def on_close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None

    # --- one request ---

    def _ask(self, now_ns: int) -> None:
        host, random = self.host, self.host.random
        self._ask_ns = now_ns + int(random.expovariate(1.0) * self._ask_every_ns)
        is_roaming = not self._leader or random.randrange(_ELSEWHERE_ONE_IN) == 0
        node = host.any_node() if is_roaming else self._leader
        if self._asker is None or self._asker.node != node:
            self.on_close()
            self._asker = Asker(self.wire, node, PortOffset.CONTROL)
        self._asker.ask(self._wish.request(), OpenSessionReply, now_ns)

    def _take(self, answer: Answer) -> None:
        message, wire = answer.message, self.wire
        self._leader = answer.node
        if isinstance(message, ErrorReply):
            if message.code not in _LATER:
                wire.violated(Invariant.I17, f"{self._wish}: refused with {message}")
            wire.count(f"refused-{ErrorCode(message.code).name.lower()}")
            self._leader = message.leader or self.host.any_node(but=answer.node)
            return
        wire.count("opened")
        if not self._wish.is_granted_by(message):
            wire.violated(Invariant.I17, f"{self._wish} was answered by {message}")
        if not self._wish.name:
            self._epoch = 0
        if message.producer_epoch <= self._epoch:
            text = f"epoch {message.producer_epoch} is told as new after epoch {self._epoch}"
            wire.violated(Invariant.I7, text)
        self._epoch = message.producer_epoch
        mode, now_ns = self._wish.mode, self.host.world_now()
        self.host.ledger.session_opened(message.producer_id, self._epoch, mode, now_ns)
