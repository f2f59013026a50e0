"""When a process looks at what its connections cost (SAFETY W6)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors import guard as guard_module
from actors.guard import (
    GIVE_BACK_COST_NS,
    GIVE_BACK_LAST_NS,
    GROWTH_BYTES,
    LOOK_AGAIN_NS,
    LOOK_COST_NS,
    LOOK_EVERY_NS,
    ConnectionGuard,
    CounterSlots,
    Guarded,
    guards_beside,
    memory_max_bytes,
)
from logstore.limits import CONNECTION_MEMORY_BYTES, MIB, TOPIC_MAX_BYTES
from tests.unit.actor_stage import ActorStage
from transport import link
from transport.link import Lane
from transport.listening import Connection, ListeningSocket
from transport.tcp_state import TcpState

SECOND_NS = 1_000_000_000
LOOP_NS = 25_000_000
LOOPS = 40
CONNECTIONS = 4_096
UNREAD_MAX_BYTES = 1 << 20


class Looked(Connection):
    """One that counts how often somebody looks at it."""

    __slots__ = ()
    looks = 0

    def _state(self) -> TcpState | None:
        Looked.looks += 1
        return TcpState(0, 0, is_sending=False)


@pytest.mark.parametrize("connections", [10, CONNECTIONS])
def test_memory_that_comes_and_goes_with_each_batch_takes_a_quarter_of_the_time_at_most(
    monkeypatch, connections
):
    memory = [0]
    monkeypatch.setattr(guard_module, "private_bytes", lambda: memory[0])
    monkeypatch.setattr(Looked, "looks", 0)
    with guarded_port() as (guard, socket):
        guard.connections_max = CONNECTIONS
        for fd in range(connections):
            socket.account.connections[fd] = Looked(fd, 1, accepted_ns=0)
        for loop in range(LOOPS):
            memory[0] = loop % 2 * 2 * GROWTH_BYTES
            guard.do_work(loop * LOOP_NS)
        socket.account.connections.clear()
    assert Looked.looks >= (LOOPS // 8 if connections == CONNECTIONS else LOOPS // 2) * connections
    assert Looked.looks * LOOK_COST_NS <= LOOPS * LOOP_NS // 4


@contextmanager
def guarded_port() -> Iterator[tuple[ConnectionGuard, ListeningSocket]]:
    socket = link.router_bind("tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096)
    try:
        guard = ConnectionGuard(
            [Guarded("test", socket, 4_096, UNREAD_MAX_BYTES)],
            memoryview(bytearray(64)).cast("Q"),
            CounterSlots(0, 1, 2, 3),
            memory_max_bytes=1 << 30,
            guards=1,
        )
        yield guard, socket
    finally:
        socket.close()


class Greedy(Connection):
    """One that has too much unread until it is ended."""

    __slots__ = ()

    def measure(self, now_ns: int) -> tuple[int, int]:
        return 2 * UNREAD_MAX_BYTES, 0

    def end(self) -> None:
        pass


def test_memory_is_given_back_again_for_as_long_as_a_starved_thread_may_free_it(monkeypatch):
    """CI, 2026-11-22: 96 MiB of an ended connection stayed, freed after the only time that
    memory was given back."""
    memory, given_back = [0], []
    monkeypatch.setattr(guard_module, "private_bytes", lambda: memory[0])
    monkeypatch.setattr(guard_module, "give_back_memory", lambda: given_back.append(now_ns))
    with guarded_port() as (guard, socket):
        socket.account.connections[0] = Greedy(0, 1, accepted_ns=0)
        memory[0] = 2 * GROWTH_BYTES
        now_ns = LOOK_EVERY_NS
        guard.do_work(now_ns)
        socket.account.connections.clear()
        assert given_back == []
        while now_ns < 4 * GIVE_BACK_LAST_NS:
            assert guard.next_timer_ns > now_ns
            now_ns = guard.next_timer_ns
            guard.do_work(now_ns)
    assert given_back[0] - LOOK_EVERY_NS <= LOOK_EVERY_NS
    assert GIVE_BACK_LAST_NS // 2 <= given_back[-1] - given_back[-2] <= GIVE_BACK_LAST_NS
    assert len(given_back) <= 12


def test_a_guard_that_was_started_again_shows_no_connections_of_its_predecessor():
    """Egress starts again alone, over the same counters (M3)."""
    socket = link.router_bind("tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096)
    slots = memoryview(bytearray(64)).cast("Q")
    slots[0] = 57
    try:
        guard = ConnectionGuard(
            [Guarded("test", socket, 4_096, UNREAD_MAX_BYTES)],
            slots,
            CounterSlots(0, 1, 2, 3),
            memory_max_bytes=1 << 30,
            guards=1,
        )
        guard.do_work(SECOND_NS)
    finally:
        socket.close()
    assert slots[0] == 0


def test_a_guard_without_a_free_descriptor_looks_at_memory_later(monkeypatch):
    """More strangers came between two looks than descriptors are kept for."""

    def refuse() -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    memory_bytes = 2 * GROWTH_BYTES
    with guarded_port() as (guard, socket):
        greedy = socket.account.connections[0] = Greedy(0, 1, accepted_ns=0)
        greedy.topics.add(b"ended with it")
        guard._seen_bytes = 0
        monkeypatch.setattr(guard_module, "private_bytes", refuse)
        guard.do_work(SECOND_NS)
        assert greedy.topics
        assert guard.next_timer_ns > SECOND_NS
        monkeypatch.setattr(guard_module, "private_bytes", lambda: memory_bytes)
        guard.do_work(guard.next_timer_ns)
        assert not greedy.topics
        monkeypatch.setattr(guard_module, "private_bytes", refuse)
        guard.do_work(guard.next_timer_ns)  # gives memory back


STRANGE_SUBSCRIPTION = b"\x01" + bytes(TOPIC_MAX_BYTES + 1)


def test_whoever_is_ended_again_and_again_keeps_the_guard_from_nothing(monkeypatch):
    """Each end put off looking, and giving memory back: 200 in a second switched both off."""
    now_ns, looked, given_back = 0, [], []
    monkeypatch.setattr(guard_module, "private_bytes", lambda: looked.append(now_ns) or 0)
    monkeypatch.setattr(guard_module, "give_back_memory", lambda: given_back.append(now_ns))
    with guarded_port() as (guard, socket):
        socket.account.connections[0] = Greedy(0, 1, accepted_ns=0)
        socket.account.source = 0
        for now_ns in range(0, SECOND_NS, LOOK_AGAIN_NS // 5):
            guard.do_work(now_ns)
            assert not guard.subscribed(socket, STRANGE_SUBSCRIPTION, now_ns)
    assert len(given_back) >= SECOND_NS // (3 * LOOK_AGAIN_NS)
    assert len(looked) >= SECOND_NS // LOOK_EVERY_NS


def test_giving_memory_back_takes_a_quarter_of_the_time_at_most(monkeypatch):
    memory_mib, given_back = 1_024, []
    monkeypatch.setattr(guard_module, "private_bytes", lambda: memory_mib * MIB)
    monkeypatch.setattr(guard_module, "give_back_memory", lambda: given_back.append(now_ns))
    with guarded_port() as (guard, socket):
        socket.account.connections[0] = Greedy(0, 1, accepted_ns=0)
        socket.account.source = 0
        for now_ns in range(0, SECOND_NS, LOOK_AGAIN_NS):
            guard.do_work(now_ns)
            guard.subscribed(socket, STRANGE_SUBSCRIPTION, now_ns)
    assert len(given_back) >= 2
    assert len(given_back) * memory_mib * GIVE_BACK_COST_NS <= SECOND_NS // 4 + LOOK_EVERY_NS * 2


@pytest.mark.parametrize(
    ("groups", "guards", "lends"),
    [
        ({}, 1, False),
        ({"core": ["ingress", "egress"]}, 2, True),
        ({"out": ["egress", "replicator"]}, 1, False),
        ({"core": ["raft", "ingress", "egress"]}, 2, True),
    ],
)
def test_w6_guards_of_one_process_share_descriptors_and_expect_the_memory_of_both(
    tmp_path: Path, groups: dict[str, list[str]], guards: int, lends: bool
) -> None:
    station = ActorStage(tmp_path, groups=groups).station("egress")
    lent_bytes = station.config.limits.client_memory_bytes if lends else 0
    assert guards_beside(station) == guards
    assert memory_max_bytes(station) == guards * CONNECTION_MEMORY_BYTES + lent_bytes
