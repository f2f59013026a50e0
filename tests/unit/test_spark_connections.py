"""The clients that Spark's processes keep: one a cluster, shared by threads, closed under none."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from logstore.errors import WrongCluster
from logstore.spark import connections
from logstore.spark.connections import CLIENTS_MAX, client_of, connected


class FakeAdmin:
    def __init__(self) -> None:
        self.is_wrong = False

    def watermarks(self) -> None:
        if self.is_wrong:
            raise WrongCluster("another one")


class FakeClient:
    cluster_id = b"\x0f" * 16

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeClient]]:
    found: list[FakeClient] = []

    def connect(_endpoints: str, *, timeout: float) -> FakeClient:
        time.sleep(0)  # lets another thread go on
        found.append(FakeClient())
        return found[-1]

    monkeypatch.setattr(connections, "connect", connect)
    yield found
    connections._clients.clear()


def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def ask_all(count: int) -> None:
    for number in range(count):
        client_of(f"h:{number + 1}", timeout_s=1)


def test_threads_that_ask_at_once_get_one_client(made: list[FakeClient]) -> None:
    count = 8
    for cluster in range(20):
        together = threading.Barrier(count)

        def ask(cluster: int = cluster, together: threading.Barrier = together) -> None:
            together.wait()
            client_of(f"h:{cluster + 1}", timeout_s=1)

        threads = [threading.Thread(target=ask) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(made) == 20


def test_the_oldest_is_closed_once_there_are_too_many(made: list[FakeClient]) -> None:
    ask_all(CLIENTS_MAX)
    client_of("h:1", timeout_s=1)
    client_of("h:99", timeout_s=1)
    assert [client.closed for client in made] == [0, 1] + [0] * (CLIENTS_MAX - 1)


def test_a_client_that_a_living_thread_has_asked_for_is_not_closed(made: list[FakeClient]) -> None:
    end, has_asked = threading.Event(), threading.Event()

    def ask_and_stay() -> None:
        client_of("h:1", timeout_s=1)
        has_asked.set()
        end.wait()

    thread = threading.Thread(target=ask_and_stay)
    thread.start()
    has_asked.wait()
    ask_all(CLIENTS_MAX + 1)
    assert made[0].closed == 0
    end.set()
    thread.join()
    in_thread(lambda: client_of("h:98", timeout_s=1))
    ask_all(CLIENTS_MAX)
    client_of("h:99", timeout_s=1)
    assert len(connections._clients) == CLIENTS_MAX
    assert all(client.closed <= 1 for client in made)
    assert sum(client.closed for client in made) == len(made) - CLIENTS_MAX


def test_a_client_that_another_cluster_answers_is_replaced_once(made: list[FakeClient]) -> None:
    client_of("h:1", timeout_s=1)
    made[0].admin.is_wrong = True
    assert connected("h:1", timeout_s=1).client is made[1]
    connections._forget((os.getpid(), "h:1", 1), made[0])
    assert [client.closed for client in made] == [1, 0]
    assert client_of("h:1", timeout_s=1) is made[1]


def test_a_process_that_is_forked_while_the_lock_is_held_has_its_own(
    made: list[FakeClient],
) -> None:
    client_of("h:1", timeout_s=1)
    with connections._lock:
        child = os.fork()
        if not child:
            try:
                client_of("h:1", timeout_s=1)
            finally:
                os._exit(len(made))  # a client of its own: the second
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 2
    assert made[0].closed == 0
