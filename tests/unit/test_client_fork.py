"""A client in a child of the process that made it: everything says so, and nothing hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

import logstore
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
            assert producer.append(b"z").result(WAIT_S) == (2, 2)
