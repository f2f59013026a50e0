"""Two loops hand messages to each other through rings and sockets: no wake-up is lost (SAFETY M7).

The loops park for ever, so a lost wake-up stops both, and the watching thread sees that.
"""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from actors import runner
from actors.loop_usage import USAGE, LoopUsage
from actors.runner import run
from transport import link
from transport.command_ring import (
    CommandRingReader,
    CommandRingWriter,
    command_region_bytes,
    format_command_ring,
)
from transport.doorbell import Doorbell
from transport.link import Lane, bound_endpoint
from transport.poller import Poller
from transport.shm import map_anonymous

RING_BYTES = 1 << 16
HAND_OFFS = 60_000
IN_FLIGHT = 3  # by sockets; by rings one, so that nothing else wakes who slept through its bell
STANDSTILL_S = 2.0
NAME = b"echo"
NEVER_NS = 1 << 62


class Way(Enum):
    """How the messages go."""

    RINGS = "rings"
    SOCKETS = "sockets"


class Partner:
    """Sends each message back the way it came."""

    full_turn = 4

    def __init__(
        self, way: Way, rings: list[Any], bells: list[Doorbell], socket: Any, head: list[bytes]
    ) -> None:
        self._way = way
        self._inbox = CommandRingReader(rings[0], incarnation=1)
        self._outbox = CommandRingWriter(rings[1], incarnation=1)
        self._other_bell = bells[1]
        self._socket, self._head = socket, head
        self.begins = False
        self.taken = 0

    def on_start(self) -> None:
        """The one that begins sends the first messages in its first do_work."""

    def do_work(self, now_ns: int) -> int:
        rung, work = 0, 0
        if self.begins:
            self.begins = False
            if self._way is Way.RINGS:
                assert self._outbox.offer(b"x")
                rung = 1
            else:
                for _ in range(IN_FLIGHT):
                    assert link.try_send(self._socket, [*self._head, b"y"])
        for _ in self._inbox.drain(self.full_turn):
            assert self._outbox.offer(b"x")
            rung, work = rung + 1, work + 1
        for _ in range(self.full_turn):
            frames = link.try_receive(self._socket)
            if frames is None:
                break
            assert link.try_send(self._socket, [*self._head, b"y"])
            work += 1
        self.taken += work
        if rung:
            self._other_bell.ring()
            for _ in range(3):
                select.select([], [], [], 0)  # the other thread may answer before this one goes on
        return work

    def wait_on(self) -> tuple[Any]:
        return (self._socket,)

    def next_timer_ns(self) -> int:
        return NEVER_NS

    def on_close(self) -> None:
        """The test closes the sockets."""


class Table:
    """Two partners, each with a loop and a thread of its own."""

    def __init__(self, way: Way) -> None:
        rings = [map_anonymous(command_region_bytes(RING_BYTES)) for _ in range(2)]
        for ring in rings:
            format_command_ring(ring, incarnation=1)
        self.bells = [Doorbell.create() for _ in range(2)]
        options: Any = {"lane": Lane.CONTROL, "message_size_max": 4_096}
        router = link.router_bind("tcp://127.0.0.1:*", **options)
        dealer = link.dealer_connect(bound_endpoint(router), routing_id=NAME, **options)
        while not link.try_send(dealer, [b"here"]):
            pass
        assert Poller().wait([router], 10_000) == [router]
        assert link.try_receive(router) == [NAME, b"here"]
        self.sockets = [router, dealer]
        self.partners = [
            Partner(way, rings, self.bells, router, [NAME]),
            Partner(way, rings[::-1], self.bells[::-1], dealer, []),
        ]
        self.partners[0].begins = True
        self._is_over = False

    @property
    def taken(self) -> int:
        return sum(each.taken for each in self.partners)

    def play(self) -> bool:
        """Whether all hand-offs were made: False if the table stood still."""
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        seen = -1
        while (taken := self.taken) < HAND_OFFS and taken != seen:
            seen = taken
            threads[0].join(STANDSTILL_S)
        is_done = self.taken >= HAND_OFFS
        self._is_over = True
        for bell in self.bells:
            bell.ring()
        for thread in threads:
            thread.join()
        for each in (*self.sockets, *self.bells):
            each.close()
        return is_done

    def _run(self, number: int) -> None:
        run(
            [self.partners[number]],
            [self.bells[number]],
            count_loop=lambda: None,
            usage=LoopUsage(
                memoryview(bytearray(8 * len(USAGE))).cast("Q"),
                lambda name: USAGE.index(name.partition(".")[2]),
                "raft",
            ),
            stop=lambda: self._is_over or self.taken >= HAND_OFFS,
            lifeline=None,
            spin=False,
        )


@pytest.fixture(autouse=True)
def parking_for_ever(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """And threads that change places often."""
    monkeypatch.setattr(runner, "_PARK_MAX_NS", 10**15)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("way", Way)
def test_m7_no_wake_up_of_a_loop_is_lost(way: Way) -> None:
    assert Table(way).play()


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_m7_a_loop_that_clears_its_bell_after_the_work_sleeps_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mutant that the test above must see."""
    work = runner._Task.work

    def work_then_clear(task: Any, now_ns: int) -> int:
        done = work(task, now_ns)
        task.bell.clear()
        return done

    monkeypatch.setattr(runner._Task, "work", work_then_clear)
    assert not Table(Way.RINGS).play()
