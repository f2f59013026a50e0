"""Contract of a doorbell, real and fake (SAFETY M7)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from transport.doorbell import Doorbell
from transport.inproc import FakeDoorbell, FakePoller
from transport.poller import Poller
from transport.ports import Bell

IsRinging = Callable[[], bool]


@pytest.fixture(params=["real", "fake"])
def bell(request: pytest.FixtureRequest) -> Iterator[tuple[Bell, IsRinging]]:
    if request.param == "fake":
        fake = FakeDoorbell()
        assert fake.fileno() == -1
        yield fake, lambda: FakePoller().wait([fake]) == [fake]
        return
    real = Doorbell.create()
    poller = Poller()
    yield real, lambda: poller.wait([real], 0) == [real]
    real.close()


def test_a_bell_rings_until_it_is_cleared(bell: tuple[Bell, IsRinging]) -> None:
    each, is_ringing = bell
    assert not is_ringing()
    each.ring()
    each.ring()
    assert is_ringing()
    assert is_ringing()
    each.clear()
    assert not is_ringing()


def test_clearing_a_silent_bell_changes_nothing(bell: tuple[Bell, IsRinging]) -> None:
    each, is_ringing = bell
    each.clear()
    assert not is_ringing()
    each.ring()
    assert is_ringing()


def test_a_bell_that_can_count_no_further_still_rings() -> None:
    bell = Doorbell.create()
    os.eventfd_write(bell.fileno(), (1 << 64) - 2)
    bell.ring()
    assert Poller().wait([bell], 0) == [bell]
    bell.clear()
    assert Poller().wait([bell], 0) == []
    bell.close()


def test_a_bell_is_not_inherited_unless_passed_on() -> None:
    bell = Doorbell.create()
    assert not os.get_inheritable(bell.fileno())
    bell.close()


def test_a_closed_bell_rings_nothing() -> None:
    """Its number is the next file's, into which a ring would write eight bytes."""
    bell = Doorbell.create()
    number = bell.fileno()
    bell.close()
    other = os.eventfd(0, os.EFD_NONBLOCK)
    if other != number:  # another thread of the tests took it: take it back
        os.dup2(other, number)
    bell.ring()
    bell.clear()
    bell.close()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(other)
    for fd in {other, number}:
        os.close(fd)
    assert bell.fileno() == -1


def test_a_bell_is_not_closed_under_a_ring_of_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell = Doorbell.create()
    closers: list[threading.Thread] = []
    was_open: list[bool] = []

    def write_slowly(fd: int, _: int) -> None:
        closer = threading.Thread(target=bell.close)
        closers.append(closer)
        closer.start()
        closer.join(0.05)  # it waits for this ring; without its lock it would be through
        was_open.append(os.path.exists(f"/proc/self/fd/{fd}"))

    monkeypatch.setattr(os, "eventfd_write", write_slowly)
    bell.ring()
    for closer in closers:
        closer.join()
    bell.ring()
    assert was_open == [True]
    assert bell.fileno() == -1


def test_a_ring_by_the_receiver_sets_a_flag_and_one_by_another_thread_wakes_it() -> None:
    bell = Doorbell.create()
    poller = Poller()
    bell.adopt()
    bell.ring()
    assert bell.is_rung_locally
    assert poller.wait([bell], 0) == []
    bell.is_rung_locally = False
    other = threading.Thread(target=bell.ring)
    other.start()
    other.join()
    assert not bell.is_rung_locally
    assert poller.wait([bell], 0) == [bell]
    bell.close()
