"""The simulated importer and founder against scripted replicas: their messages and facts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from actors.simulation.checkers.client_facts import AppendAcknowledged, AppendInvoked
from actors.simulation.clients.importer import Importer, ImporterOptions
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.clients.operators import Founder
from logstore.errors import ErrorCode
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    Acks,
    DoneReply,
    ErrorReply,
    ImportRequest,
    InitializeRequest,
    MetadataRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.first_lsn import unpack_first_lsn
from logstore.format.message import decode_message
from logstore.limits import POSITION_MAX
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.simulation.scripted_replica import ScriptedReplica, Stage, row

MS_NS = 1_000_000
FIRST_LSN = 5_000
OPTIONS = ImporterOptions(
    batches=30, for_ns=60_000 * MS_NS, at_once=4, batch_every_ns=5 * MS_NS, payload_max_bytes=8,
    batch_max_payloads=3, batch_max_bytes=4_096,
)  # fmt: skip


class ImportStage(Stage):
    """Node 1 leads, and takes imports where its log ends unless a test says otherwise."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.over = 0
        host = msgspec.structs.replace(self.host("importer-1"), first_lsn=Lsn(FIRST_LSN))
        self.importer = Importer(host, msgspec.structs.replace(OPTIONS, **options), self._on_over)
        self.client = self.importer.client
        self.next_lsn = FIRST_LSN  # where the log ends
        self.log: list[bytes] = []
        self.refused = 0
        self.is_silent = False
        self.start_lsn = FIRST_LSN  # what is fetched is told to lie below it

    def _on_over(self) -> None:
        self.over += 1

    def work(self) -> None:
        super().work()
        for node, inbox in self.inbox.items():
            for asked in inbox:
                self.replicas[node].reply(asked, self.answer(asked.message))
            inbox.clear()
        for frame in self.replicas[self.leader].frames():
            self.take(decode_message(frame)[1])

    def answer(self, request: Any) -> WatermarksReply | ErrorReply:
        if isinstance(request, WatermarksRequest):
            assert request.is_linearizable
            return WatermarksReply(Lsn(FIRST_LSN), Lsn(self.next_lsn - 1))
        bounds = Lsn(self.start_lsn), Lsn(POSITION_MAX)
        return ErrorReply(ErrorCode.OUT_OF_RANGE, 0, *bounds, b"it is gone")

    def take(self, request: ImportRequest) -> None:
        if self.is_silent:
            return
        count = read_batch_header(request.batch).count
        if request.first_lsn == self.next_lsn:
            self.log.append(request.batch)
            self.next_lsn += count
            self.tell(request, row(request.first_lsn, first_lsn=request.first_lsn, count=count))
        else:
            self.refused += 1
            gap = row(request.first_lsn, code=ErrorCode.GAP, detail=self.next_lsn)
            self.tell(request, gap)

    def tell(self, request: ImportRequest, *rows: bytes) -> None:
        topic = request.importer.to_bytes(8, "little")
        acks = Acks(request.importer, 0, 0, b"".join(rows))
        self.replicas[self.leader].publish(PortOffset.ACKS, acks, topic=topic)

    def pass_until_over(self) -> None:
        self.pass_ms(90_000, until=lambda: self.importer.is_over)
        assert self.over == 1


def test_every_batch_is_an_append_in_the_ledger_and_acknowledged_at_its_lsn() -> None:
    """Batches that are wrong on purpose are refused, and are no facts."""
    stage = ImportStage()
    stage.pass_until_over()
    assert stage.importer.witness.counts["imported"] == 1
    calls, told = stage.told(AppendInvoked), stage.told(AppendAcknowledged)
    assert len(stage.log) == len(calls) == OPTIONS.batches
    lsn = FIRST_LSN
    for call, batch, answer in zip(calls, stage.log, told, strict=True):
        assert (answer.operation, answer.first_lsn) == (call.operation, lsn)
        assert answer.count == read_batch_header(batch).count
        lsn = Lsn(lsn + answer.count)
    assert stage.refused == stage.importer.witness.counts.get("mischief", 0) > 0
    assert stage.complaints == []


def test_the_log_is_asked_how_far_it_is_after_a_silence() -> None:
    stage = ImportStage()
    stage.pass_ms(40)
    settled = len(stage.told(AppendAcknowledged))
    stage.is_silent = True
    stage.pass_ms(6_000, until=lambda: "failed-timed_out" in stage.importer.witness.counts)
    stage.is_silent = False
    stage.pass_until_over()
    assert 0 < settled < OPTIONS.batches == len(stage.log)
    assert stage.complaints == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER, ErrorCode.NOT_READY])
def test_refusals_for_now_make_it_look_for_the_leader_again(code: ErrorCode) -> None:
    stage = ImportStage()
    taken = stage.take

    def refuse_once(request: ImportRequest) -> None:
        stage.take = taken  # type: ignore[method-assign]
        stage.tell(request, row(request.first_lsn, code=code))

    stage.take = refuse_once  # type: ignore[method-assign]
    stage.pass_until_over()
    assert stage.importer.witness.counts[f"refused-{code.name.lower()}"] == 1
    assert len(stage.log) == OPTIONS.batches
    assert stage.complaints == []


def test_it_gives_up_in_time_and_says_so_once() -> None:
    stage = ImportStage(for_ns=700 * MS_NS)
    stage.is_silent = True
    stage.pass_until_over()
    assert stage.importer.witness.counts["given-up"] == 1
    assert stage.client.next_timer_ns() > stage.now_ns
    stage.pass_ms(2_000)
    assert stage.over == 1
    assert stage.told(AppendAcknowledged) == []


@pytest.mark.parametrize(
    ("answer", "invariant"),
    [
        pytest.param({"first_lsn": FIRST_LSN + 1}, "I4", id="elsewhere"),
        pytest.param({"count": 99}, "I4", id="of another size"),
        pytest.param({"code": ErrorCode.INVALID_BATCH}, "I11", id="refused for nothing"),
    ],
)
def test_a_wrong_answer_is_a_violation(answer: dict[str, int], invariant: str) -> None:
    stage = ImportStage()

    def lie(request: ImportRequest) -> None:
        fields = {"first_lsn": request.first_lsn, "count": read_batch_header(request.batch).count}
        stage.tell(request, row(request.first_lsn, **(fields | answer)))

    stage.take = lie  # type: ignore[method-assign]
    stage.pass_ms(2_000, until=lambda: bool(stage.complaints))
    assert {each[0] for each in stage.complaints} == {invariant}


def test_a_log_that_lost_what_it_acknowledged_is_a_violation() -> None:
    stage = ImportStage()
    stage.pass_ms(1_000, until=lambda: len(stage.log) > 3)
    stage.pass_ms(20)
    stage.next_lsn, stage.is_silent = FIRST_LSN, True
    stage.pass_ms(8_000, until=lambda: bool(stage.complaints))
    assert stage.complaints[0][0] == "I6"


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_was_trimmed_before_it_was_compared_ends_an_import(is_gone: bool) -> None:
    stage = ImportStage()
    stage.pass_ms(1_000, until=lambda: len(stage.log) > 3)
    stage.tell = lambda *_: None  # type: ignore[method-assign]
    stage.pass_ms(1_000, until=lambda: len(stage.log) > 4)
    stage.start_lsn = stage.next_lsn if is_gone else FIRST_LSN
    stage.pass_until_over()
    assert stage.importer.witness.counts.get("gone", 0) == int(is_gone)
    assert {each[0] for each in stage.complaints} == (set() if is_gone else {"I5", "I11"})


def test_mischief_never_names_an_lsn_where_its_batch_could_be_taken() -> None:
    """Except the batch's own LSN. A late copy of it would be stored twice, without a fault of the
    product."""
    stage = ImportStage()
    requests: list[ImportRequest] = []
    taken = stage.take
    stage.take = lambda request: (requests.append(request), taken(request))[1]  # type: ignore[method-assign]
    stage.pass_until_over()
    own: dict[bytes, int] = {}
    for request in requests:
        first = own.setdefault(request.batch, request.first_lsn)
        count = read_batch_header(request.batch).count
        within = range(first, first + count)
        assert request.first_lsn in within or request.first_lsn == POSITION_MAX


def test_mischief_sends_nothing_again_that_this_connection_did_not_send_yet() -> None:
    """What is due next would be taken, and acknowledged before it is under way."""
    stage = ImportStage(at_once=16, for_ns=600_000 * MS_NS)
    sent: dict[int, list[bytes]] = {}  # by the core's connections, in their order
    replica, taken = stage.replicas[1], stage.take
    welcome = replica.welcome

    def welcomed(offset: PortOffset, topic: bytes) -> None:
        sent[int.from_bytes(topic, "little")] = []
        welcome(offset, topic)

    def take(request: ImportRequest) -> None:
        if request.importer in sent:
            sent[request.importer].append(request.batch)
        else:  # mischief
            assert request.batch in list(sent.values())[-1]
        stage.is_silent = len(sent) < 12
        taken(request)

    replica.welcome = welcomed  # type: ignore[method-assign, assignment]
    stage.take = take  # type: ignore[method-assign]
    stage.pass_ms(200_000, until=lambda: stage.over == 1)
    assert len(sent) >= 12
    assert stage.importer.witness.counts["mischief"] > 0
    assert stage.importer.witness.counts["imported"] == 1
    assert stage.complaints == []
    for new in sent.values():
        at = stage.log.index(new[0])
        assert new == stage.log[at : at + len(new)]


# --- forming ---


class FoundingStage(Stage):
    """Every node records its requests, leader or not."""

    def __init__(self) -> None:
        super().__init__()
        host = msgspec.structs.replace(self.host("founder-1"), first_lsn=Lsn(FIRST_LSN))
        self.founder = Inquirer(host, Founder)
        self.client = self.founder.client

    def _serve(self, replica: ScriptedReplica) -> None:
        for asked in replica.asked():
            if isinstance(asked.message, MetadataRequest):
                replica.reply_leader(asked, 0)
            else:
                self.inbox[replica.node].append(asked)

    def answer(self, message: Any) -> None:
        """The next request to form the cluster is answered so."""
        self.pass_ms(5_000, until=lambda: any(self.inbox.values()))
        ((node, (asked,)),) = [each for each in self.inbox.items() if each[1]]
        assert isinstance(asked.message, InitializeRequest)
        assert unpack_first_lsn(asked.message.first_lsn) == FIRST_LSN
        self.inbox[node].clear()
        self.replicas[node].reply(asked, message)
        self.pass_ms(5)


def test_a_founder_asks_until_the_cluster_is_formed() -> None:
    stage = FoundingStage()
    stage.answer(ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b""))
    stage.answer(ErrorReply(ErrorCode.TIMED_OUT, 0, 0, 0, b""))
    stage.answer(DoneReply(0))
    counts = stage.founder.witness.counts
    assert (counts["refused-not_ready"], counts["refused-timed_out"], counts["formed"]) == (1, 1, 1)
    stage.pass_ms(3_000)
    assert not any(stage.inbox.values())
    assert stage.complaints == []


def test_a_cluster_that_was_formed_otherwise_is_a_violation() -> None:
    stage = FoundingStage()
    stage.answer(ErrorReply(ErrorCode.INVALID_REQUEST, 0, 0, 0, b"begins at LSN 1"))
    assert stage.complaints[0][0] == "I11"
