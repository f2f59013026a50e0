"""A producer, a consumer and requests of one client in one thread: what an event loop asks of the
core. Real sockets, one poll for all; nobody blocks, nobody calls back from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logstore.client.append_queue import AppendQueue, QueueLimits
from logstore.client.clock import milliseconds_until, monotonic_ns
from logstore.client.core.consumer_machine import ConsumerMachine
from logstore.client.core.operating import Cluster as Asked
from logstore.client.core.operating import commit_lsn
from logstore.client.core.producer_machine import MachineOptions, ProducerMachine
from logstore.client.core.routing import Routing
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Host, Steps
from logstore.client.core.task import Task
from logstore.client.endpoint import parse_endpoints
from logstore.client.future import LsnRange
from logstore.client.records import batches_of
from logstore.client.threads import host_on, new_context
from logstore.format.client_messages import OpenSessionRequest, Tip
from logstore.limits import MIB
from logstore.model import AckLevel, SequenceMode
from tests.unit.client_stage import Cluster, FakeReplica
from transport.client_links import park

COUNT = 20


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        replica = cluster.replicas[1]

        def publish(round_number: int, sequence: int, payloads: list[bytes]) -> None:
            replica.acknowledge(round_number, sequence, payloads)
            replica.publish_tail(Tip(replica.visible_lsn))

        replica.on_push = publish
        yield replica


@pytest.fixture
def host() -> Iterator[Host]:
    context = new_context()
    yield host_on(context)
    context.close()


def run_together(*steps: Steps[Any]) -> list[Any]:
    """Go through all of them; their results."""
    tasks = [Task(each) for each in steps]
    deadline_ns = monotonic_ns() + 20 * 10**9
    try:
        while waiting := [task for task in tasks if not task.is_done]:
            assert monotonic_ns() < deadline_ns
            for task in waiting:
                task.do_work(monotonic_ns())
            waits = [task.wait for task in waiting if not task.is_done]
            if len(waits) == len(waiting):
                reads: list[Any] = [link for wait in waits for link in wait.reads]
                writes: list[Any] = [link for wait in waits for link in wait.writes]
                park(reads, writes, None, milliseconds_until(min(w.until_ns for w in waits)))
    finally:
        for task in tasks:
            task.close()
    return [task.result for task in tasks]


def produce(host: Host, routing: Routing) -> Steps[list[LsnRange]]:
    """Append COUNT payloads, and stop with the last acknowledgement."""
    request = OpenSessionRequest(0, SequenceMode.DENSE, AckLevel.QUORUM, 64, b"")
    session = yield from open_session(host, routing, request, timeout_s=10.0)
    limits = QueueLimits(
        window_bytes=MIB, pack_bytes=64, batch_max_bytes=MIB, append_timeout_s=0.1,
        delivery_timeout_s=10.0,
    )  # fmt: skip
    queue = AppendQueue(limits, ring=lambda: None)
    acknowledged: list[int] = []

    def on_ack(_: int, payloads: int, *__: int) -> None:
        acknowledged.append(payloads)
        if sum(acknowledged) == COUNT:
            machine.stop()

    options = MachineOptions(0.001, 1.0, 10.0, True, on_ack, lambda _: None)
    machine = ProducerMachine(host, routing, session, queue, options)
    futures = [queue.append(b"%d" % number) for number in range(COUNT)]
    yield from machine.live()
    machine.settle_rest(None)
    return [future.result(0) for future in futures]


def consume(host: Host, routing: Routing) -> Steps[list[bytes]]:
    machine = ConsumerMachine(
        host, routing, batches_of, end_lsn=COUNT, replica=None, timeout_s=10.0
    )
    payloads: list[bytes] = []
    try:
        yield from machine.locate(1)
        while not machine.is_at_end:
            for batch in (yield from machine.poll(10.0)):
                payloads += batch.payloads()
    finally:
        machine.close()
    return payloads


def test_a_producer_a_consumer_and_requests_share_one_thread(
    replica: FakeReplica, host: Host
) -> None:
    routing = Routing(host, parse_endpoints(replica.cluster.endpoint))
    lsns, payloads, *ends = run_together(
        produce(host, routing),
        consume(host, routing),
        *(commit_lsn(Asked(host, routing, 10.0)) for _ in range(3)),
    )
    assert lsns == [(lsn, lsn) for lsn in range(1, COUNT + 1)]
    assert payloads == [b"%d" % number for number in range(COUNT)]
    assert all(0 <= end <= COUNT for end in ends)
