"""Closing a client under threads that use it: they get `Closed`, never a bare error of ZeroMQ."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import logstore
from logstore import ProducerOptions
from logstore.client import producer as producer_module
from logstore.client.core.steps import Steps, Wait
from logstore.errors import Closed, InvalidRequest, OutcomeUnknown
from logstore.format.client_messages import FetchRequest, StatusRequest, WatermarksRequest
from tests.unit.client_stage import Cluster, FakeReplica
from transport import client_links

WAIT_S = 10


@pytest.fixture
def leader() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        yield cluster.replicas[1]


def client_of(replica: FakeReplica) -> logstore.LogClient:
    return logstore.connect(replica.cluster.endpoint, timeout=60)


class Caller:
    """A thread amid a call, and what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,))
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self.error = error

    def join(self) -> BaseException | None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        return self.error


def silent_to(replica: FakeReplica, kind: type) -> threading.Event:
    """It takes requests of this kind and says nothing; set once one is there."""
    asked = threading.Event()

    def take(_: Any) -> None:
        asked.set()

    replica.on[kind] = take
    return asked


def test_a_consumer_that_waits_for_the_tail_gets_closed(leader: FakeReplica) -> None:
    client = client_of(leader)
    leader.append_to_log([b"a"])
    consumer = client.consumer(1)
    assert consumer.poll(WAIT_S)
    waiting = threading.Event()
    ensure = consumer._machine._ensure_feed

    def ensure_feed() -> Any:
        waiting.set()
        return ensure()

    consumer._machine._ensure_feed = ensure_feed  # type: ignore[method-assign]
    caller = Caller(lambda: list(consumer))
    assert waiting.wait(WAIT_S)
    client.close()
    assert isinstance(caller.join(), Closed)
    assert client._context._context.closed, "every socket was closed by its owner"


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (FetchRequest, lambda client: list(client.read(1, 5))),
        (WatermarksRequest, lambda client: client.watch().now()),
        (WatermarksRequest, lambda client: client.watch().wait_beyond(1, 60)),
        (WatermarksRequest, lambda client: client.consumer("earliest")),
        (StatusRequest, lambda client: client.admin.status()),
    ],
)
def test_who_waits_for_an_answer_gets_closed(
    leader: FakeReplica, kind: type, call: Callable[[logstore.LogClient], object]
) -> None:
    client = client_of(leader)
    asked = silent_to(leader, kind)
    caller = Caller(lambda: call(client))
    assert asked.wait(WAIT_S)
    client.close()
    assert isinstance(caller.join(), Closed)
    assert client._context._context.closed


def test_an_endpoint_that_never_answered_holds_up_no_close(leader: FakeReplica) -> None:
    """FAULTS Z8."""
    client = logstore.connect(f"{leader.cluster.endpoint},127.0.0.1:9", timeout=60)
    client.admin.leader()
    client.close()
    assert client._context._context.closed


def test_a_closed_client_says_so(leader: FakeReplica) -> None:
    client = client_of(leader)
    consumer, reader = client.consumer(1), client.reader()
    client.close()
    for call in (
        client.admin.status,
        client.producer,
        lambda: client.consumer("latest"),
        lambda: consumer.poll(1),
        lambda: list(reader.read(1, 2)),
        lambda: list(client.read(1, 2)),
    ):
        with pytest.raises(Closed, match="closed"):
            call()
    client.close()


def test_a_consumer_closed_by_another_thread_closes_its_sockets_at_the_end_of_the_call(
    leader: FakeReplica,
) -> None:
    with client_of(leader) as client:
        consumer = client.consumer(1)
        amid, go = threading.Event(), threading.Event()

        def step(_: int) -> Steps[list[Any]]:
            amid.set()
            assert go.wait(WAIT_S)
            yield Wait(0)
            return []

        consumer.poll(0)  # it listens to the tail
        machine = consumer._machine
        machine._step = step  # type: ignore[method-assign]
        caller = Caller(lambda: consumer.poll(60))
        assert amid.wait(WAIT_S)
        with pytest.raises(InvalidRequest, match="two threads use one consumer"):
            consumer.poll(1)
        consumer.close()
        assert machine._feed is not None, "its thread is amid a call"
        go.set()
        assert isinstance(caller.join(), Closed)
        assert machine._feed is None


def test_a_producer_stuck_in_a_callback_keeps_its_sockets_until_it_comes_back(
    leader: FakeReplica, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(producer_module, "STOP_TIMEOUT_S", 0.05)
    monkeypatch.setattr(client_links, "CLOSE_TIMEOUT_S", 0.05)
    client = client_of(leader)
    stuck, go = threading.Event(), threading.Event()

    def on_ack(*_: int) -> None:
        stuck.set()
        assert go.wait(WAIT_S)

    producer = client.producer(ProducerOptions(on_ack=on_ack, delivery_timeout_s=0.05))
    first = producer.append(b"a")
    assert stuck.wait(WAIT_S)
    second = producer.append(b"b")
    client.close()
    assert first.result(0) == (1, 1)
    with pytest.raises(OutcomeUnknown, match="callback"):
        second.result(0)
    with pytest.raises(logstore.LogStoreError, match="closed"):
        producer.append(b"c")
    assert not client._context._context.closed
    go.set()
    producer._thread.join(WAIT_S)
    ending = [each for each in threading.enumerate() if each.name == "client-ending"]
    for each in ending:
        each.join(WAIT_S)
    assert client._context._context.closed
    assert not [each for each in caplog.records if each.exc_info], "it found out quietly"


def test_a_callback_may_close_its_producer_and_its_client(leader: FakeReplica) -> None:
    client = client_of(leader)
    done = threading.Event()

    def close(_: object) -> None:
        client.close()
        done.set()

    producer = client.producer()
    producer.append(b"a").add_done_callback(close)
    assert done.wait(WAIT_S)
    producer._thread.join(WAIT_S)
    assert producer.is_closed


def test_threads_that_append_while_another_one_closes_get_an_outcome_each(
    leader: FakeReplica,
) -> None:
    client = client_of(leader)
    producer = client.producer()
    futures: list[list[Any]] = [[] for _ in range(4)]
    begun = threading.Barrier(5)

    def append(mine: list[Any]) -> None:
        begun.wait(WAIT_S)
        while True:
            mine.append(producer.append(b"x"))

    callers = [Caller(lambda mine=mine: append(mine)) for mine in futures]
    begun.wait(WAIT_S)
    producer.close()
    for caller in callers:
        assert isinstance(caller.join(), logstore.LogStoreError)
    producer.flush(0)
    assert all(future.done() for mine in futures for future in mine)
    client.close()
