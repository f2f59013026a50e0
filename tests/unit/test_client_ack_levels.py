"""What users of the client see of levels of acknowledgement (SAFETY E10)."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import logstore
from logstore import LsnRange, ProducerOptions, Provisional, aio
from logstore.client.future import AppendFuture, Pack
from logstore.client.producer_options import open_request
from logstore.errors import ErrorCode, Fenced, InvalidRequest, OutcomeUnknown
from logstore.format.client_messages import ErrorReply, SessionStateRequest
from logstore.model import AckLevel, SequenceMode
from tests.unit.aio_stage import LOOPS, run_of, silent
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


def test_the_level_is_in_the_request_that_opens_the_session() -> None:
    levels = [
        open_request(ProducerOptions(acks=acks)).ack_level for acks in ("quorum", "leader", "none")
    ]
    assert levels == [AckLevel.QUORUM, AckLevel.LEADER, AckLevel.NONE]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acks": "all"}, "give one of quorum, leader, none"),
        ({"acks": "leader", "mode": SequenceMode.MONOTONE, "name": "n"}, "so it has acks quorum"),
        ({"acks": "leader", "mode": "monotone", "name": "n"}, "so it has acks quorum"),
        ({"mode": "monotone"}, "needs a name"),
        ({"mode": "sparse"}, "mode 'sparse': give one of dense, monotone"),
    ],
)
def test_levels_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        open_request(ProducerOptions(**options))


def test_a_mode_may_be_given_as_text() -> None:
    monotone = open_request(ProducerOptions(mode="monotone", name="n"))
    assert monotone == open_request(ProducerOptions(mode=SequenceMode.MONOTONE, name="n"))
    assert open_request(ProducerOptions(mode="dense")) == open_request(ProducerOptions())


def test_what_are_no_options_is_refused_in_words() -> None:
    with (
        Cluster() as cluster,
        logstore.connect(cluster.endpoint, timeout=20) as log,
        pytest.raises(InvalidRequest, match="give a ProducerOptions"),
    ):
        log.producer({"acks": "leader"})  # type: ignore[arg-type]


def test_a_provisional_outcome_has_no_lsn_and_says_so() -> None:
    outcome = Provisional(is_flushed=True)
    reads: list[Callable[[], object]] = [
        lambda: outcome.first,
        lambda: outcome.last,
        lambda: outcome[0],
        lambda: outcome[-1:],
        lambda: tuple(outcome),
        lambda: unpacked(*outcome),
        lambda: 0 in outcome,
        lambda: len(outcome),
        lambda: outcome < LsnRange(1, 2),
        lambda: max(LsnRange(1, 2), outcome),
        outcome._asdict,
    ]
    for read in reads:
        with pytest.raises(InvalidRequest, match="has no LSN"):
            read()
    with pytest.raises(InvalidRequest, match="has no LSN"):
        _first, _last = outcome
    assert b"0" not in msgspec.json.encode(outcome)
    assert outcome
    assert outcome == Provisional(is_flushed=True)
    assert outcome not in (Provisional(is_flushed=False), LsnRange(0, 0))
    assert repr(outcome) == "Provisional(is_flushed=True)"


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_provisional_outcome_can_be_copied_and_kept_as_a_key(is_flushed: bool) -> None:
    outcome = Provisional(is_flushed=is_flushed)
    copies = [copy.copy(outcome), copy.deepcopy(outcome), pickle.loads(pickle.dumps(outcome))]
    for each in copies:
        assert each == outcome
        assert repr(each) == f"Provisional(is_flushed={is_flushed})"
        assert isinstance(each, LsnRange)
    assert len({outcome, *copies}) == 1
    others: list[object] = [Provisional(is_flushed=not is_flushed), LsnRange(0, 0), (), is_flushed]
    for other in others:
        assert outcome != other
        assert other != outcome
    assert {outcome: 1}.get(Provisional(is_flushed=not is_flushed)) is None


def unpacked(*lsns: int) -> int:
    return len(lsns)


def test_every_append_of_a_provisional_pack_has_that_outcome() -> None:
    pack = Pack([b"a", b"b"], opened_ns=1, deadline_ns=2)
    futures = [
        AppendFuture(pack, 0, False),
        AppendFuture(pack, 1, False),
        AppendFuture(pack, 0, True),
    ]
    pack.resolve_provisionally(is_flushed=False)
    pack.resolve(7, 2)  # it is settled
    assert [each.result(0) for each in futures] == [Provisional(is_flushed=False)] * 3
    assert [each.exception(0) for each in futures] == [None] * 3


def fence(leader: FakeReplica) -> None:
    """Whatever comes is of an older epoch."""
    leader.on[SessionStateRequest] = lambda _: (
        leader.session_state(SessionStateRequest(7, 1, 1))
        if leader.pushed.empty()
        else ErrorReply(ErrorCode.FENCED, 0, 0, 0, b"a newer one is open")
    )
    leader.on_push = lambda round_number, sequence, payloads: leader.send_acks(
        round_number, [(sequence, 0, len(payloads), ErrorCode.FENCED, 0)]
    )


@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_producer_that_ended_says_why(acks: Any, caplog: pytest.LogCaptureFixture) -> None:
    with Cluster() as cluster, logstore.connect(cluster.endpoint, timeout=20) as client:
        fence(cluster.replicas[1])
        producer = client.producer(ProducerOptions(acks=acks))
        producer.append(b"a")
        producer.close()
        assert isinstance(producer.ending, Fenced)
        assert "producer 7 ended: a newer one is open" in caplog.text
        assert producer.statistics().possibly_lost_payloads == 1
        with client.producer() as other:
            assert other.ending is None
        assert other.ending is None


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("acks", ["leader", "none"])
def test_a_producer_of_asyncio_that_ended_says_why(
    acks: Any, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer(ProducerOptions(acks=acks))
        future = producer.append(b"a")
        await producer.close()
        assert isinstance(producer.ending, Fenced)
        assert isinstance(future.exception(), OutcomeUnknown if acks == "leader" else type(None))
        assert caplog.text.count("producer 7 ended: a newer one is open") == 1
        assert producer.statistics().possibly_lost_payloads == 1

    with Cluster() as cluster:
        fence(cluster.replicas[1])
        run_of(loop, cluster)(body)


def stored_while_it_is_closed(leader: FakeReplica) -> None:
    """Stores what was sent when the state is asked for the fourth time: after the connection, and
    a first batch, only a producer that closes asks so soon."""
    asked: list[SessionStateRequest] = []

    def state(request: SessionStateRequest) -> Any:
        asked.append(request)
        if len(asked) == 4:
            _, sequence, payloads = leader.pushed.get(timeout=WAIT_S)
            leader.commit(sequence, payloads)
        return leader.session_state(request)

    leader.on[SessionStateRequest] = state
    leader.on_push = silent


SLOW_TO_ASK = ProducerOptions(acks="leader", ack_timeout_s=20)


def test_close_asks_also_when_its_flush_took_too_long() -> None:
    with Cluster() as cluster, logstore.connect(cluster.endpoint, timeout=20) as client:
        stored_while_it_is_closed(cluster.replicas[1])
        producer = client.producer(SLOW_TO_ASK)
        future = producer.append(b"a")
        producer.close(0.1)
        assert future.result(0) == Provisional(is_flushed=True)
        assert producer.statistics().possibly_lost_payloads == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_close_of_asyncio_asks_also_when_its_flush_took_too_long(loop: str) -> None:
    async def body(log: aio.LogClient) -> None:
        producer = await log.producer(SLOW_TO_ASK)
        future = producer.append(b"a")
        await producer.close(timeout=0.1)
        assert future.result() == Provisional(is_flushed=True)
        assert producer.statistics().possibly_lost_payloads == 0

    with Cluster() as cluster:
        stored_while_it_is_closed(cluster.replicas[1])
        run_of(loop, cluster)(body)


def test_a_producer_of_quorum_counts_too() -> None:
    with Cluster() as cluster, logstore.connect(cluster.endpoint, timeout=20) as client:
        with client.producer() as producer:
            producer.append_batch([b"a", b"b"]).result(WAIT_S)
            producer.append_batch([b"c"]).result(WAIT_S)
        told = producer.statistics()
    assert (told.sent_batches, told.sent_payloads) == (2, 3)
    assert (told.committed_batches, told.committed_payloads) == (2, 3)
    assert (told.provisional_payloads, told.possibly_lost_payloads, told.reopened) == (0, 0, 0)
