"""Simulated consumers, readers and operators against scripted replicas: what they give their users,
and the violations they report after a wrong answer."""

from __future__ import annotations

from typing import Any

import pytest

from actors.simulation.checkers.client_facts import Delivered, EndTold, Subscribed
from actors.simulation.clients import consumer as consumers
from actors.simulation.clients import reader as readers
from actors.simulation.clients.consumer import Consumer, ConsumerOptions
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.operators import Operator
from actors.simulation.clients.reader import Question, Reader, ReaderOptions
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.start import Start
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    FetchReply,
    FetchRequest,
    StatusRequest,
    TailGroup,
    TailNotice,
    Tip,
    TransferRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import Asked, Stage, batch_of, piece_of

TAIL = PortOffset.TAIL
HOUR_NS = 3_600_000 * MS_NS
# LSNs 1 to 2, 3, 4 to 6
BATCHES = {1: batch_of(0, b"a", b"b"), 3: batch_of(1, b"c"), 4: batch_of(2, b"d", b"", b"f")}


class ConsumerStage(Stage):
    """A consumer that has subscribed at a node and is not welcomed yet."""

    def __init__(self, *, start: Start = 1, move_every_ns: int = HOUR_NS) -> None:
        super().__init__()
        options = ConsumerOptions(start, 512, move_every_ns, timeout_s=2.0)
        self.consumer = Consumer(self.host("consumer-1"), options)
        self.client = self.consumer.client
        self.client.on_start()
        self.pass_ms(500, until=lambda: bool(self.consumer.node))
        self.pass_ms(1)


def publish(stage: ConsumerStage, message: Any, *more: bytes) -> None:
    """Publish on the tail feed of the node that is read."""
    stage.replicas[stage.consumer.node].publish(TAIL, message, *more)
    stage.pass_ms(1)


def tail_group(stage: ConsumerStage, first_lsn: int, *, visible_lsn: int = 99) -> None:
    publish(stage, TailGroup(Lsn(visible_lsn)), piece_of(first_lsn, BATCHES[first_lsn]))


def answer_fetch(stage: ConsumerStage, *lsns: int, visible_lsn: int, next_lsn: int) -> FetchRequest:
    """Answer the next fetch with batches; returns the fetch."""
    asked = stage.wait_asked(stage.consumer.node, FetchRequest, milliseconds=400)
    frame = piece_of(lsns[0], *[BATCHES[lsn] for lsn in lsns]) if lsns else b""
    reply = FetchReply(Lsn(1), Lsn(visible_lsn), Lsn(next_lsn), int(bool(lsns)))
    stage.replicas[stage.consumer.node].reply(asked, reply, frame)
    stage.pass_ms(1)
    message: FetchRequest = asked.message
    return message


def delivered(stage: Stage) -> list[int]:
    return [each.first_lsn for each in stage.told(Delivered)]


def subscribed(stage: Stage) -> list[tuple[str, int]]:
    return [(each.consumer, each.next_lsn) for each in stage.told(Subscribed)]


# --- the consumer ---


def test_a_consumer_subscribes_to_everything_and_fetches_up_to_the_tip() -> None:
    stage = ConsumerStage()
    assert stage.replicas[stage.consumer.node].subscriptions(TAIL) == [b""]
    assert subscribed(stage) == [("consumer-1", 1)]
    publish(stage, Tip(Lsn(3)))
    asked = answer_fetch(stage, 1, 3, visible_lsn=3, next_lsn=4)
    assert (asked.first_lsn, asked.last_lsn, asked.max_bytes) == (1, 3, 512)
    assert delivered(stage) == [1, 3]
    assert stage.consumer.next_lsn == 4
    assert stage.complaints == []


def test_groups_that_continue_the_log_are_handed_on_without_a_fetch() -> None:
    stage = ConsumerStage()
    for first_lsn in (1, 3, 4):
        tail_group(stage, first_lsn, visible_lsn=first_lsn + 2)
    assert delivered(stage) == [1, 3, 4]
    assert stage.inbox[stage.consumer.node] == []
    contents = [each.batch for each in stage.told(Delivered)]
    assert contents == list(BATCHES.values())


def test_a_jump_makes_it_fetch_what_it_missed_and_nothing_comes_twice() -> None:
    stage = ConsumerStage()
    tail_group(stage, 1)
    tail_group(stage, 4)  # 3 was lost
    asked = answer_fetch(stage, 3, 4, visible_lsn=6, next_lsn=7)
    assert (asked.first_lsn, asked.last_lsn) == (3, 6)
    tail_group(stage, 4)  # again
    assert delivered(stage) == [1, 3, 4]
    assert stage.complaints == []


def test_a_notice_makes_it_fetch() -> None:
    stage = ConsumerStage()
    publish(stage, TailNotice(Lsn(1), Lsn(2)))
    answer_fetch(stage, 1, visible_lsn=2, next_lsn=3)
    assert delivered(stage) == [1]


def test_a_group_that_comes_while_a_fetch_is_under_way_is_spliced() -> None:
    stage = ConsumerStage()
    publish(stage, Tip(Lsn(3)))
    tail_group(stage, 1)
    answer_fetch(stage, 1, 3, visible_lsn=3, next_lsn=4)
    assert delivered(stage) == [1, 3]
    assert stage.complaints == []


def test_from_the_latest_means_from_what_the_replica_shows() -> None:
    stage = ConsumerStage(start="latest")
    asked = stage.wait_asked(stage.consumer.node, WatermarksRequest)
    stage.replicas[stage.consumer.node].reply(asked, WatermarksReply(Lsn(1), Lsn(2)))
    stage.pass_ms(1)
    assert subscribed(stage) == [("consumer-1", 3)]
    tail_group(stage, 3)
    assert delivered(stage) == [3]


def test_a_silent_replica_is_left_and_the_cursor_stays() -> None:
    stage = ConsumerStage()
    tail_group(stage, 1)
    before = stage.consumer.node
    stage.pass_ms(3_600)
    assert stage.consumer.node != before
    tail_group(stage, 1)
    tail_group(stage, 3)
    assert delivered(stage) == [1, 3]


def test_a_replica_that_lags_is_waited_for() -> None:
    stage = ConsumerStage()
    tail_group(stage, 1)
    publish(stage, Tip(Lsn(6)))
    asked = stage.wait_asked(stage.consumer.node, FetchRequest)
    error = ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 1, 0, b"")
    stage.replicas[stage.consumer.node].reply(asked, error)
    stage.pass_ms(500)
    assert stage.inbox[stage.consumer.node] == []
    assert stage.complaints == []
    publish(stage, Tip(Lsn(3)))
    answer_fetch(stage, 3, visible_lsn=3, next_lsn=4)
    assert delivered(stage) == [1, 3]


def test_a_damaged_replica_is_left() -> None:
    stage = ConsumerStage()
    before = stage.consumer.node
    publish(stage, Tip(Lsn(6)))
    asked = stage.wait_asked(before, FetchRequest)
    stage.replicas[before].reply(asked, ErrorReply(ErrorCode.CORRUPT_DATA, 0, 1, 2, b"rot"))
    stage.pass_ms(1)
    assert stage.consumer.node != before
    assert stage.complaints == []


def test_it_moves_now_and_then() -> None:
    stage = ConsumerStage(move_every_ns=100 * MS_NS)
    stage.pass_ms(2_000)
    assert stage.consumer.witness.counts["moves"] > 5


def test_damaged_or_misplaced_batches_are_violations() -> None:
    damaged = bytearray(piece_of(1, BATCHES[1]))
    damaged[-1] ^= 1
    for frame, number in ((bytes(damaged), "I11"), (b"", "I11"), (piece_of(1)[:-1], "I11")):
        stage = ConsumerStage()
        publish(stage, TailGroup(Lsn(9)), frame)
        assert [each for each, _ in stage.complaints] == [number]
        assert delivered(stage) == []


@pytest.mark.parametrize(
    ("lsns", "visible_lsn", "next_lsn", "number"),
    [
        ((3,), 3, 4, "I5"),  # not what was asked for
        ((1,), 3, 4, "I4"),  # next_lsn does not follow
        ((1, 3), 2, 4, "I8"),  # more than it shows
        ((), 3, 1, "I4"),  # nothing, although there is something
    ],
)
def test_a_fetch_that_breaks_a_promise_is_a_violation(
    lsns: tuple[int, ...], visible_lsn: int, next_lsn: int, number: str
) -> None:
    stage = ConsumerStage()
    publish(stage, Tip(Lsn(3)))
    answer_fetch(stage, *lsns, visible_lsn=visible_lsn, next_lsn=next_lsn)
    assert stage.complaints[0][0] == number


def test_a_group_above_what_is_shown_is_a_violation() -> None:
    stage = ConsumerStage()
    tail_group(stage, 1, visible_lsn=1)
    assert [each for each, _ in stage.complaints] == ["I8"]


# --- the reader ---


def reader_stage(question: Question) -> tuple[Stage, Reader]:
    """A reader that asks this question only."""
    stage = Stage()
    options = ReaderOptions(ask_every_ns=50 * MS_NS, questions=(question,))
    made: list[Reader] = []

    def make(inquirer: Inquirer) -> Reader:
        made.append(Reader(inquirer, options))
        return made[0]

    stage.client = Inquirer(stage.host("reader-1"), make).client
    return stage, made[0]


def next_asked(stage: Stage) -> tuple[Asked, int]:
    """The next request, and the node that got it."""
    stage.pass_ms(500, until=lambda: any(stage.inbox.values()))
    return next((inbox.pop(0), node) for node, inbox in stage.inbox.items() if inbox)


def ask(question: Question) -> tuple[Stage, Asked, int]:
    """A reader that has asked this question; the request and the node that got it."""
    stage, _ = reader_stage(question)
    return stage, *next_asked(stage)


def give(stage: Stage, node: int, asked: Asked, reply: Any, *more: bytes) -> list[str]:
    """Answer; returns the invariants that the reader reported as broken."""
    stage.now_ns += 7 * MS_NS
    stage.replicas[node].reply(asked, reply, *more)
    stage.client.do_work(stage.now_ns)
    return [number for number, _ in stage.complaints]


def test_a_linearizable_read_is_a_fact_with_the_times_of_question_and_answer() -> None:
    stage, asked, node = ask(Question.LINEAR)
    assert asked.message.is_linearizable
    invoked_ns = stage.now_ns
    reply: Any = WatermarksReply(Lsn(1), Lsn(0))
    if isinstance(asked.message, FetchRequest):
        reply = FetchReply(Lsn(1), Lsn(0), Lsn(1), 0)
    assert give(stage, node, asked, reply) == []
    (read,) = stage.told(EndTold)
    assert (read.invoked_ns, read.end_lsn) == (invoked_ns, 0)
    assert read.is_linearizable


def test_a_reader_hands_on_the_part_of_a_range_that_it_asked_for() -> None:
    stage, reader = reader_stage(Question.RANGE)
    reader._draw_range = lambda: (2, 5)  # type: ignore[method-assign]
    asked, node = next_asked(stage)
    assert (asked.message.first_lsn, asked.message.last_lsn) == (2, 5)
    frame = piece_of(1, *BATCHES.values())
    assert give(stage, node, asked, FetchReply(Lsn(1), Lsn(6), Lsn(7), 1), frame) == []
    assert subscribed(stage) == [("reader-1", 2)]
    handed = [(each.first_lsn, each.handed, each.is_whole) for each in stage.told(Delivered)]
    assert handed == [(1, (2, 2), False), (3, (3, 3), True), (4, (4, 5), False)]


def test_what_lies_beyond_the_bounds_must_be_refused() -> None:
    stage, asked, node = ask(Question.BEYOND)
    refusal = ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 1, 6, b"")
    assert give(stage, node, asked, refusal) == []
    stage, asked, node = ask(Question.BEYOND)
    served = FetchReply(Lsn(1), Lsn(6), asked.message.first_lsn, 0)
    assert "I8" in give(stage, node, asked, served)


def test_a_range_that_is_there_must_not_be_refused() -> None:
    stage, asked, node = ask(Question.RANGE)
    assert give(stage, node, asked, ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 1, 6, b"")) == ["I5"]


def test_an_answer_that_did_not_wait_for_its_lsn_is_a_violation() -> None:
    stage, asked, node = ask(Question.LATER)
    assert asked.message.min_lsn >= 1
    assert give(stage, node, asked, FetchReply(Lsn(1), Lsn(0), Lsn(1), 0)) == ["I6"]


def test_a_reader_gives_up_and_asks_again() -> None:
    stage, _, _ = ask(Question.TAIL)
    stage.pass_ms(10_000)
    assert stage.client.core.links._observer.witness.counts["failed-timed_out"] >= 2


# --- the operator ---


def operator_stage() -> tuple[Stage, Operator, Inquirer]:
    stage = Stage()
    made: list[Operator] = []

    def make(inquirer: Inquirer) -> Operator:
        made.append(Operator(inquirer))
        return made[0]

    inquirer = Inquirer(stage.host("operator-1"), make)
    stage.client = inquirer.client
    return stage, made[0], inquirer


def test_a_transfer_goes_to_the_leader() -> None:
    stage, operator, inquirer = operator_stage()
    stage.leader = 3
    operator.transfer(2)
    asked = stage.wait_asked(3, TransferRequest)
    assert asked.message == TransferRequest(2)
    stage.replicas[3].reply(asked, DoneReply(0))
    stage.leader = 2
    stage.pass_ms(100)
    assert inquirer.witness.counts["transferred"] == 1


def test_a_refused_transfer_is_no_violation() -> None:
    stage, operator, inquirer = operator_stage()
    operator.transfer(0)
    asked = stage.wait_asked(1, TransferRequest)
    stage.replicas[1].reply(asked, ErrorReply(ErrorCode.TRANSFER_FAILED, 0, 0, 0, b"it lags"))
    stage.pass_ms(5)
    assert inquirer.witness.counts["refused-transfer_failed"] == 1
    assert stage.complaints == []


def test_an_operator_looks_at_the_status() -> None:
    stage, _, inquirer = operator_stage()
    asked = stage.wait_asked(1, StatusRequest, milliseconds=100_000)
    stage.replicas[1].reply(asked, ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"later"))
    stage.pass_ms(5)
    assert inquirer.witness.counts["refused-not_ready"] == 1
    assert stage.complaints == []


def test_what_kind_of_client_it_is_follows_from_its_chance() -> None:
    def draw(seed: int) -> tuple[ConsumerOptions, ReaderOptions]:
        host = Stage().host(seed=seed)
        return consumers.draw_options(host), readers.draw_options(host)

    assert len({draw(seed) for seed in range(20)}) > 10
    assert draw(3) == draw(3)
