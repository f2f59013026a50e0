"""Asks one question at a time, each sent once, of any node or mostly of whoever leads.

Owns whom to ask, and when. What is asked and what an answer is worth is the subject's.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from actors.simulation.clients.asker import Asker
from actors.simulation.clients.host import NEVER_NS
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply
from logstore.settings import PortOffset

_ROAMING = 0.2  # an old leader is asked, too
_LATER = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
    }
)


class Subject(Protocol):
    """What an inquirer asks about."""

    @property
    def wire(self) -> Wire: ...

    @property
    def ask_every_ns(self) -> int:
        """The mean."""

    @property
    def port(self) -> PortOffset:
        """CONTROL, where only a leader answers most questions, or FETCH, where everybody does."""

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        """The next request, and the type of its reply."""

    def answered(self, node: int, message: Any) -> None:
        """By a message of that type."""

    def refused(self, node: int, error: ErrorReply) -> bool:
        """For another reason than that somebody else, or the same one later, may answer. Whether
        that is an answer like any other: the next question goes there, too."""


class Inquirer:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._host = subject.wire.host
        self._asker: Asker | None = None  # of the question under way
        self._askers: dict[int, Asker] = {}
        self._ask_ns = 0
        self._leader = 0  # who answered last, or may do so
        self._is_stopped = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self._subject.wire.counts

    @property
    def is_asking(self) -> bool:
        return self._asker is not None

    def stop(self) -> None:
        """No more questions after the one under way. Wake its process."""
        self._is_stopped = True

    def ask_now(self) -> None:
        """The next question, or the one behind that under way, is due. Wake its process."""
        self._ask_ns = 0

    # --- an actor's words ---

    def on_start(self) -> None:
        """It begins with its first do_work."""

    def do_work(self, now_ns: int) -> int:
        """Everything that is there and due; 0, since nothing is left then."""
        if self._asker is not None:
            self._read_answer(self._asker, now_ns)
        elif now_ns >= self._ask_ns and not self._is_stopped:
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        return [] if self._asker is None else [self._asker.socket]

    def next_timer_ns(self) -> int:
        if self._asker is not None:
            return self._asker.next_timer_ns()
        return NEVER_NS if self._is_stopped else self._ask_ns

    def on_close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers.clear()
        self._asker = None

    # --- one question ---

    def _ask(self, now_ns: int) -> None:
        host, random = self._host, self._host.random
        self._ask_ns = now_ns + int(random.expovariate(1.0) * self._subject.ask_every_ns)
        subject = self._subject
        is_roaming = not self._leader or random.random() < _ROAMING
        is_any = is_roaming or subject.port is PortOffset.FETCH
        node = host.any_node() if is_any else self._leader
        asker = self._askers.get(node)
        if asker is None:
            asker = self._askers[node] = Asker(subject.wire, node, subject.port)
        self._asker = asker
        asker.ask(*subject.question(), now_ns)

    def _read_answer(self, asker: Asker, now_ns: int) -> None:
        answer = asker.poll(now_ns)
        if answer is not None:
            self._asker = None
            self._take(answer.node, answer.message)
        elif asker.is_late(now_ns):
            self._subject.wire.count("late")
            self._leader = 0
            self._asker = None
            asker.close()
            del self._askers[asker.node]

    def _take(self, node: int, message: Any) -> None:
        self._leader = node
        if not isinstance(message, ErrorReply):
            self._subject.answered(node, message)
        elif message.code in _LATER or not self._subject.refused(node, message):
            self._subject.wire.count(f"refused-{ErrorCode(message.code).name.lower()}")
            self._leader = message.leader or self._host.any_node(but=node)
