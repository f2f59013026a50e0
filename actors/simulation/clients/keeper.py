"""A keeper of cursors in the virtual world: sets, deletes and lists a few names, which it shares.

Owns one question at a time, each sent once. Sets a cursor to an LSN that nobody else uses, so that
the log says whose change it was. Must not know what a right answer is; the ledger does.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MS_NS, NEVER_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode, FormatError
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import ANY_LSN, NO_LSN, Cursor, decode_cursors
from logstore.model import Lsn
from logstore.settings import PortOffset

NAMES = (b"a", "ü".encode(), b"cursor-3")
_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.OVERLOADED,
        ErrorCode.DISK_FULL,
        ErrorCode.TIMED_OUT,
        ErrorCode.OUTCOME_UNKNOWN,
    }
)


class Keeper:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self._ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        self._asker: Asker | None = None  # of the question under way
        self._askers: dict[int, Asker] = {}
        self._number = 0
        self._change: Cursor | None = None
        self._known: dict[bytes, int] = {}  # where it believes each cursor stands
        self._ask_ns = 0
        self._leader = 0  # who answered last, or may do so
        self._is_stopped = False

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

    @property
    def is_asking(self) -> bool:
        return self._asker is not None

    def stop(self) -> None:
        """No more questions after the one under way. Wake its process."""
        self._is_stopped = True

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

    # --- asking ---

    def _ask(self, now_ns: int) -> None:
        host, random = self.host, self.host.random
        self._ask_ns = now_ns + int(random.expovariate(1.0) * self._ask_every_ns)
        self._number = self.wire.next_operation()
        is_roaming = not self._leader or random.random() < 0.2  # an old leader is asked, too
        node = host.any_node() if is_roaming else self._leader
        asker = self._asker = self._askers.get(node) or Asker(self.wire, node, PortOffset.CONTROL)
        self._askers[node] = asker
        if random.random() < 0.45:
            self._change = None
            host.ledger.cursor_asked(self._number, None, ANY_LSN, host.world_now())
            asker.ask(CursorsRequest(), CursorsReply, now_ns)
        else:
            change = self._change = self._draw_change()
            expected_lsn = self._draw_expected(change.name)
            host.ledger.cursor_asked(self._number, change, expected_lsn, host.world_now())
            request = SetCursorRequest(change.lsn, Lsn(expected_lsn), change.is_held, change.name)
            asker.ask(request, DoneReply, now_ns)

    def _draw_change(self) -> Cursor:
        random = self.host.random
        name = random.choice(NAMES)
        if random.random() < 0.2:
            return Cursor(name, NO_LSN, False)
        return Cursor(name, Lsn(self._number), random.random() < 0.3)

    def _draw_expected(self, name: bytes) -> int:
        """Mostly where it stands, as far as this keeper knows; now and then anything."""
        random, known_lsn = self.host.random, self._known.get(name, NO_LSN)
        return random.choice((known_lsn, known_lsn, known_lsn, ANY_LSN, NO_LSN, 1))

    # --- answers ---

    def _read_answer(self, asker: Asker, now_ns: int) -> None:
        answer = asker.poll(now_ns)
        if answer is not None:
            self._asker = None
            self._take(answer)
        elif asker.is_late(now_ns):
            self.wire.count("late")
            self._leader = 0
            self._asker = None
            asker.close()
            del self._askers[asker.node]

    def _take(self, answer: Answer) -> None:
        message, change = answer.message, self._change
        self._leader = answer.node
        if isinstance(message, ErrorReply):
            self._take_error(answer.node, message)
        elif change is None:
            self._take_list(answer.node, message.cursors)
        else:
            self.wire.count("changed")
            self._known[change.name] = change.lsn
            self.host.ledger.cursor_changed(self._number, message.value, self.host.world_now())

    def _take_list(self, node: int, rows: bytes) -> None:
        try:
            cursors = decode_cursors(rows)
        except FormatError as error:
            self.wire.violated(Invariant.I11, f"a list of cursors: {error}")
            return
        self.wire.count("listed")
        self._known = {each.name: each.lsn for each in cursors}
        self.host.ledger.cursors_listed(self._number, cursors, self.host.world_now(), node=node)

    def _take_error(self, node: int, error: ErrorReply) -> None:
        change = self._change
        if error.code == ErrorCode.CURSOR_MOVED and change is not None:
            self.wire.count("moved")
            self._known[change.name] = error.first
            self.host.ledger.cursor_moved(
                self._number, error.first, self.host.world_now(), node=node
            )
        elif error.code in _ELSEWHERE:
            self.wire.count(f"refused-{ErrorCode(error.code).name.lower()}")
            self._leader = error.leader or self.host.any_node(but=node)
        else:
            self.wire.violated(Invariant.I11, f"a question for cursors is refused with {error}")
