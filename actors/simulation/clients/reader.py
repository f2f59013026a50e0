"""A reader of the virtual world: ranges by LSN on any replica, and the tail, linearizably or not.

Owns one question at a time and what is a right answer to it. The tail that a leader confirms goes
to the ledger with the times of question and answer (I6). Must not know how a replica answers.

| question | what must come |
|---|---|
| RANGE | whole batches from the first LSN on, cut by nothing but the limits asked for |
| BEYOND | OUT_OF_RANGE with bounds that do not hold what was asked for |
| LATER | what will be there: at least `min_lsn` shown, or TIMED_OUT |
| TAIL | what this replica shows: committed, maybe behind |
| LINEAR | from a leader after a quorum: everything acknowledged before |
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import Delivered, EndTold, Subscribed
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.asker import Answer, Asker
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.pieces import check_fetched, served_batches
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    LSN_MAX,
    ErrorReply,
    FetchReply,
    FetchRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.model import Lsn
from logstore.settings import PortOffset

_RANGE_MAX = 60
_BEYOND_LSN = 1 << 40
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER,
        ErrorCode.NOT_READY,
        ErrorCode.NO_QUORUM,
        ErrorCode.TIMED_OUT,
        ErrorCode.OVERLOADED,
        ErrorCode.CORRUPT_DATA,
    }
)


class Question(StrEnum):
    RANGE = "range"
    BEYOND = "beyond"
    LATER = "later"
    TAIL = "tail"
    LINEAR = "linear"


DRAWN = (
    Question.RANGE,
    Question.RANGE,
    Question.BEYOND,
    Question.LATER,
    Question.TAIL,
    Question.LINEAR,
    Question.LINEAR,
    Question.LINEAR,
)


# Of one that asks whoever there is, often: an old leader is asked, too.
ROAMING = (Question.RANGE, Question.LINEAR, Question.LINEAR, Question.LINEAR)


class ReaderOptions(msgspec.Struct, frozen=True):
    """`ask_every_ns` is a mean. A question that stands twice is asked twice as often. Who
    `is_roaming` asks any node, a reader else stays with the leader it found."""

    ask_every_ns: int
    questions: tuple[Question, ...] = DRAWN
    is_roaming: bool = False


# Several times a heartbeat: what a leader does with its heartbeats must not hang on them alone.
HASTY = ReaderOptions(ask_every_ns=5 * MS_NS, questions=(Question.LINEAR,))
_HASTY_PERCENT = 8


def draw_options(host: ClientHost) -> ReaderOptions:
    if host.random.randrange(100) < _HASTY_PERCENT:
        return HASTY
    return ReaderOptions(ask_every_ns=host.random.randrange(200, 1_100) * MS_NS)


def draw_roaming(host: ClientHost) -> ReaderOptions:
    return ReaderOptions(host.random.randrange(120, 500) * MS_NS, ROAMING, is_roaming=True)


class Reader:
    """Looks like an actor: `on_start`, `do_work`, `wait_on`, `next_timer_ns`, `on_close`."""

    def __init__(self, host: ClientHost, options: ReaderOptions) -> None:
        self.host = host
        self.options = options
        self.wire = Wire(host)
        self._asker: Asker | None = None  # of the node that was asked last
        self._askers: dict[int, Asker] = {}
        self._question = Question.TAIL
        self._request: FetchRequest | WatermarksRequest = WatermarksRequest(Lsn(0), 0, False)
        self._invoked_ns = 0  # of the world
        self._ask_ns = 0
        self._leader = 0  # who answered linearizably last, or may do so
        self._known_lsn = 0  # the highest that was shown

    @property
    def counts(self) -> dict[str, int]:
        """What happened to it, by name."""
        return self.wire.counts

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
                asker.close()
                del self._askers[asker.node]
                self._asker = None
        elif now_ns >= self._ask_ns:
            self._ask(now_ns)
        return 0

    def wait_on(self) -> list[Any]:
        asker = self._asker
        return [asker.socket] if asker is not None and asker.is_waiting else []

    def next_timer_ns(self) -> int:
        asker = self._asker
        if asker is not None and asker.is_waiting:
            return asker.next_timer_ns()
        return self._ask_ns

    def on_close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers.clear()
        self._asker = None

    # --- asking ---

    def _ask(self, now_ns: int) -> None:
        random = self.host.random
        self._ask_ns = now_ns + int(random.expovariate(1.0) * self.options.ask_every_ns)
        self._question = random.choice(self.options.questions)
        self._request = self._draw_request()
        node = self.host.any_node()
        is_roaming = self.options.is_roaming and random.random() < 0.6
        if self._question is Question.LINEAR and self._leader and not is_roaming:
            node = self._leader
        asker = self._asker = self._askers.get(node) or Asker(self.wire, node, PortOffset.FETCH)
        self._askers[node] = asker
        expects = FetchReply if isinstance(self._request, FetchRequest) else WatermarksReply
        self._invoked_ns = self.host.world_now()
        asker.ask(self._request, expects, now_ns, wait_ns=self._request.wait_ms * MS_NS)

    def _draw_request(self) -> FetchRequest | WatermarksRequest:
        random, known_lsn = self.host.random, self._known_lsn
        first_lsn = log_start = int(self.host.first_lsn)
        if known_lsn >= log_start:
            first_lsn = random.randrange(log_start, known_lsn + 1)
        last_lsn = first_lsn + random.randrange(_RANGE_MAX)
        max_bytes = 1 << random.randrange(15)
        wait_ms = random.choice((0, 100, 2_000))
        match self._question:
            case Question.RANGE:
                last_lsn = random.choice((last_lsn, LSN_MAX))
                return FetchRequest(Lsn(first_lsn), Lsn(last_lsn), Lsn(0), max_bytes, 0, False)
            case Question.BEYOND:
                first_lsn, last_lsn = random.choice(
                    ((0, 10), (_BEYOND_LSN, LSN_MAX), (first_lsn + 1, first_lsn))
                )
                return FetchRequest(Lsn(first_lsn), Lsn(last_lsn), Lsn(0), max_bytes, 0, False)
            case Question.LATER:
                min_lsn = known_lsn + random.randrange(1, _RANGE_MAX)
                return FetchRequest(
                    Lsn(first_lsn), Lsn(LSN_MAX), Lsn(min_lsn), max_bytes, wait_ms, False
                )
            case Question.TAIL:
                return WatermarksRequest(Lsn(0), wait_ms, False)
            case Question.LINEAR:
                if random.random() < 0.5:
                    return WatermarksRequest(Lsn(0), wait_ms, True)
                return FetchRequest(Lsn(first_lsn), Lsn(last_lsn), Lsn(0), max_bytes, wait_ms, True)

    # --- judging ---

    def _take(self, answer: Answer) -> None:
        message = answer.message
        if isinstance(message, ErrorReply):
            self._refused(message, answer.node)
            return
        self.wire.count(f"answered-{self._question}")
        shown_lsn = message.visible_lsn
        self._known_lsn = max(self._known_lsn, shown_lsn)
        if self._question is Question.BEYOND:
            self._report(Invariant.I8, f"{self._request} was served: {message}")
        if shown_lsn < self._request.min_lsn:
            text = f"LSN {self._request.min_lsn} was waited for, node {answer.node} shows {message}"
            self._report(Invariant.I6, text)
        if self._request.is_linearizable:
            self._leader = answer.node
        is_linearizable = self._request.is_linearizable
        self.host.tell(EndTold(self._invoked_ns, shown_lsn, answer.node, is_linearizable))
        if isinstance(message, FetchReply):
            self._take_range(answer, message)

    def _take_range(self, answer: Answer, reply: FetchReply) -> None:
        """What was asked for of the batches that came; the limits may cut the first and last."""
        request = self._request
        batches = served_batches(self.wire, answer.node, answer.more, pieces=reply.pieces)
        if batches is None or not isinstance(request, FetchRequest):
            return
        check_fetched(self.wire, answer.node, reply, batches, first_lsn=request.first_lsn)
        if not batches:
            return
        host = self.host
        host.tell(Subscribed(host.name, request.first_lsn))
        for each in batches:
            first_lsn = max(each.first_lsn, request.first_lsn)
            last_lsn = min(each.next_lsn - 1, request.last_lsn)
            if last_lsn < first_lsn:
                self._report(Invariant.I4, f"{request} was served {each.first_lsn}, too")
                return
            handed = first_lsn, last_lsn
            is_whole = handed == (each.first_lsn, each.next_lsn - 1)
            place = host.name, answer.node, each.first_lsn
            host.tell(Delivered(*place, each.batch, handed, is_whole))

    def _refused(self, error: ErrorReply, node: int) -> None:
        request = self._request
        if error.code == ErrorCode.OUT_OF_RANGE and isinstance(request, FetchRequest):
            self.wire.count("out-of-range")
            is_there = error.first <= request.first_lsn <= error.last + 1
            if is_there and request.last_lsn >= request.first_lsn:
                text = f"node {node} has [{error.first}, {error.last}], refused {request}"
                self._report(Invariant.I5, text)
        elif error.code in _ELSEWHERE:
            self.wire.count(f"refused-{ErrorCode(error.code).name.lower()}")
            if self._question is Question.LINEAR:
                self._leader = self.host.any_node(but=node)  # the next guess
        else:
            self._report(Invariant.I11, f"{request} was refused with {error}")

    def _report(self, invariant: Invariant, text: str) -> None:
        self.wire.violated(invariant, text)
