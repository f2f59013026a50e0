"""A reader of the virtual world: ranges by LSN on any replica, and the tail, linearizably or not.

Ranges, and the tail of a replica, are read as a user reads them. What a user cannot ask is asked by
hand: what lies beyond all bounds, and of a node that need not lead, whether it confirms the tail.

| question | what must come |
|---|---|
| RANGE | whole batches from the first LSN on, in order, cut by nothing but the limits asked for |
| BEYOND | OUT_OF_RANGE with bounds that do not hold what was asked for |
| LATER | what will be there: at least `min_lsn` shown, or TIMED_OUT |
| TAIL | what this replica shows: committed, maybe behind |
| LINEAR | from a leader after a quorum: everything acknowledged before |
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from actors.simulation.checkers.messages.delivery_recorder import DeliveryRecorder
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS, ClientHost
from logstore.client.core.operating import commit_lsn, watermarks
from logstore.client.core.range_machine import RangeMachine, RangeWalk
from logstore.client.core.steps import Steps
from logstore.errors import OutOfRange
from logstore.format.client_messages import (
    LSN_MAX,
    FetchRequest,
    WatermarksRequest,
)
from logstore.model import Lsn
from logstore.settings import PortOffset

_RANGE_MAX = 60
_REPLIES_MAX = 4  # of one range: who asks for all of it, reads a part
_BEYOND_LSN = 1 << 40
_AS_A_USER = 0.15  # of linearizable questions: whoever leads is found first


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
    """`ask_every_ns` is a mean. A question that is listed twice is asked twice as often. A reader
    that `is_roaming` asks any node, others stay with the leader that they found."""

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
    """A subject."""

    def __init__(self, inquirer: Inquirer, options: ReaderOptions) -> None:
        self._inquirer = inquirer
        self._host = inquirer.host
        self._options = options
        self.ask_every_ns = options.ask_every_ns
        self._recorder = DeliveryRecorder(inquirer.host)
        self._leader = 0  # who answered linearizably last
        self._known_lsn = 0  # the highest that was shown

    def ask(self) -> Steps[None]:
        question = self._host.random.choice(self._options.questions)
        match question:
            case Question.RANGE:
                yield from self._read_range(min_lsn=0)
            case Question.LATER:
                min_lsn = self._known_lsn + self._host.random.randrange(1, _RANGE_MAX)
                yield from self._read_range(min_lsn=min_lsn)
            case Question.BEYOND:
                yield from self._fetch_beyond()
            case Question.TAIL:
                node = self._host.any_node()
                marks = yield from watermarks(
                    self._inquirer.cluster(), replica=node, min_lsn=0, is_linearizable=False
                )
                self._known_lsn = max(self._known_lsn, marks.visible_lsn)
            case Question.LINEAR:
                yield from self._read_linearly()

    # --- as a user ---

    def _read_range(self, *, min_lsn: int) -> Steps[None]:
        """Read a range from one replica, or from any that answers."""
        host, random = self._host, self._host.random
        first_lsn, last_lsn = self._draw_range()
        core, routing, timeout_s = self._inquirer.cluster()
        machine = RangeMachine(
            core,
            routing,
            replica=random.choice((None, host.any_node())),
            timeout_s=timeout_s,
            max_bytes=1 << random.randrange(15),
            reads_ahead=random.random() < 0.5,
        )
        walk = RangeWalk(
            machine, self._recorder, first_lsn, last_lsn, min_lsn=min_lsn, is_linearizable=False
        )
        self._recorder.begin_at(first_lsn)
        try:
            for _ in range(random.randint(1, _REPLIES_MAX)):
                if not walk.is_at_end:
                    batches = yield from walk.next_batches()
                    self._recorder.record(machine.node, batches)
        except OutOfRange as bounds:
            self._known_lsn = max(self._known_lsn, bounds.last)
        finally:
            machine.close()

    def _draw_range(self) -> tuple[int, int]:
        random, log_start = self._host.random, int(self._host.first_lsn)
        first_lsn = random.randrange(log_start, max(self._known_lsn, log_start) + 1)
        return first_lsn, random.choice((first_lsn + random.randrange(_RANGE_MAX), LSN_MAX))

    # --- by hand ---

    def _fetch_beyond(self) -> Steps[None]:
        first_lsn = self._draw_range()[0]
        bounds = ((0, 10), (_BEYOND_LSN, LSN_MAX), (first_lsn + 1, first_lsn))
        first_lsn, last_lsn = self._host.random.choice(bounds)
        request = FetchRequest(Lsn(first_lsn), Lsn(last_lsn), Lsn(0), 1_000, 0, False)
        yield from self._ask(self._host.any_node(), request)

    def _read_linearly(self) -> Steps[None]:
        host, random = self._host, self._host.random
        if self._options is not HASTY and random.random() < _AS_A_USER:
            shown_lsn = yield from commit_lsn(self._inquirer.cluster())
            self._known_lsn = max(self._known_lsn, shown_lsn)
            return
        is_roaming = self._options.is_roaming and random.random() < 0.6
        node = host.any_node() if is_roaming else self._leader or host.any_node()
        self._leader = 0
        yield from self._ask(node, self._draw_linear())
        self._leader = node

    def _draw_linear(self) -> FetchRequest | WatermarksRequest:
        random = self._host.random
        wait_ms = random.choice((0, 100, 2_000))
        if random.random() < 0.5:
            return WatermarksRequest(Lsn(0), wait_ms, True)
        first_lsn, last_lsn = self._draw_range()
        max_bytes = 1 << random.randrange(15)
        return FetchRequest(Lsn(first_lsn), Lsn(last_lsn), Lsn(0), max_bytes, wait_ms, True)

    def _ask(self, node: int, request: FetchRequest | WatermarksRequest) -> Steps[None]:
        wait_s = request.wait_ms / 1e3
        reply = yield from self._inquirer.ask_node(
            node, request, offset=PortOffset.FETCH, wait_s=wait_s
        )
        self._known_lsn = max(self._known_lsn, reply.visible_lsn)
