"""A client in a child of the process that made it: everything says so, and nothing hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

import logstore
from logstore import ProducerOptions, SequenceMode
from tests.unit.client_stage import Cluster

WAIT_S = 10


def in_child(act: Callable[[], object]) -> str:
    """What the act raises in a child of this process; empty: nothing, or it hung."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(WAIT_S)
        try:
            act()
        except BaseException as error:
            os.write(sending, type(error).__name__.encode())
        os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as words:
        said = words.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, "it hung"
    return said


def test_a_forked_child_appends_nothing_whatever_its_parent_was_at() -> None:
    """What joined a batch that lingers was never settled; who held the queue at the fork holds it
    for ever."""
    with Cluster() as cluster:
        cluster.replicas[1].on_push = lambda *_: None
        with logstore.connect(cluster.endpoint, timeout=20) as client:
            producer = client.producer(ProducerOptions(linger_ms=60_000, delivery_timeout_s=0.5))
            monotone = client.producer(ProducerOptions(name="m", mode=SequenceMode.MONOTONE))
            producer.append(b"is not acknowledged")
            cluster.replicas[1].pushed.get(timeout=WAIT_S)
            producer.append(b"lingers")
            acts: list[Callable[[], object]] = [
                lambda: producer.append(b"x"),
                lambda: producer.append_batch([b"x"]),
                lambda: monotone.append_batch([b"x"], sequence=1),
                lambda: producer.flush(0),
            ]
            assert [in_child(act) for act in acts] == ["Closed"] * len(acts)
            with producer._queue._lock, monotone._queue._lock, monotone._order:
                assert [in_child(act) for act in acts] == ["Closed"] * len(acts)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_forked_child_is_told_to_connect_again(nodes: int) -> None:
    """An append was never sent, and a poll never ended (FAULTS Z7)."""
    with Cluster(nodes) as cluster:
        endpoints = [f"127.0.0.1:{port}" for port in (*cluster.ports.values(), 9)]
        with logstore.connect(endpoints, timeout=20) as client:
            producer = client.producer()
            assert producer.append(b"x").result(WAIT_S) == (1, 1)
            consumer = client.consumer()
            assert consumer.poll(WAIT_S)
            acts: list[Callable[[], object]] = [
                lambda: producer.append(b"y"),
                producer.flush,
                lambda: consumer.poll(WAIT_S),
                lambda: next(client.read(1, 1)),
                client.admin.leader,
                client.producer,
            ]
            assert [in_child(act) for act in acts] == ["Closed"] * len(acts)
            assert in_child(client.close) == ""
            with client._context._lock:  # a thread of the parent opens a socket
                assert [in_child(act) for act in acts] == ["Closed"] * len(acts)
                assert in_child(client.close) == ""
            assert producer.append(b"z").result(WAIT_S) == (2, 2)


def test_a_forked_child_waits_for_nothing_that_a_thread_of_its_parent_does() -> None:
    """It closes for a minute, reads, or waits for an outcome: in the child there is no such thread,
    and what it holds is never released."""
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        replica.append_to_log([b"a"])
        replica.on_push = lambda *_: None
        with logstore.connect(cluster.endpoint, timeout=20) as client:
            producer = client.producer(ProducerOptions(delivery_timeout_s=60))
            consumer, reader = client.consumer(), client.reader()
            future = producer.append(b"is not acknowledged")
            replica.pushed.get(timeout=WAIT_S)
            assert in_child(future.result) == "Closed"
            locks = (client._lock, producer._closing, consumer._guard._lock, future._pack._lock)
            with locks[0], locks[1], locks[2], locks[3], reader._guard:
                ends: list[Callable[[], object]]
                ends = [client.close, producer.close, consumer.close, reader.close]
                assert [in_child(end) for end in ends] == [""] * len(ends)
                acts: list[Callable[[], object]]
                acts = [lambda: consumer.poll(0), lambda: next(reader.read(1, 1)), future.result]
                assert [in_child(act) for act in acts] == ["Closed"] * len(acts)
            producer.close(timeout=0)
