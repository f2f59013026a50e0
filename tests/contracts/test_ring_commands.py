"""Contract of a command ring, on the real one in shared memory and on the fake (SAFETY M1, M8)."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transport.command_ring import (
    HEAD,
    CommandRingReader,
    CommandRingWriter,
    command_region_bytes,
    create_command_ring,
    format_command_ring,
    message_bytes_max,
    record_bytes,
)
from transport.errors import LayoutMismatch, MessageTooLarge, RingInvariantViolated
from transport.inproc import FakeCommandRing
from transport.layout import CONTROL_BYTES
from transport.ports import CommandReceiver, CommandSender
from transport.shm import map_anonymous, map_region

RING_BYTES = 256


@dataclass
class Ring:
    sender: CommandSender
    receiver: CommandReceiver


Make = Callable[[int], Ring]


@pytest.fixture(params=["tmpfs", "anonymous", "fake"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    closing: list[Callable[[], None]] = []

    def make_ring(ring_bytes: int) -> Ring:
        if request.param == "fake":
            fake = FakeCommandRing(ring_bytes)
            return Ring(fake, fake)
        size_bytes = command_region_bytes(ring_bytes)
        if request.param == "tmpfs":
            fd = create_command_ring(ring_bytes, incarnation=7)
            region = map_region(fd, size_bytes)
            os.close(fd)
        else:
            region = map_anonymous(size_bytes)
            format_command_ring(region, incarnation=7)
        sender = CommandRingWriter(region, incarnation=7)
        receiver = CommandRingReader(region, incarnation=7)
        closing.extend([sender.close, receiver.close, region.close])
        return Ring(sender, receiver)

    yield make_ring
    for close in closing:
        close()


def test_messages_come_out_whole_and_in_order(make: Make) -> None:
    ring = make(RING_BYTES)
    messages = [b"", b"a", b"12345678", b"123456789", bytes(40)]
    assert all(ring.sender.offer(message) for message in messages)
    assert ring.receiver.drain(10) == messages
    assert ring.receiver.drain(10) == []


def test_a_full_ring_refuses_and_takes_again_after_a_drain(make: Make) -> None:
    ring = make(RING_BYTES)
    accepted = 0
    while ring.sender.offer(bytes([accepted]) * 24):
        accepted += 1
    assert accepted == RING_BYTES // record_bytes(24)
    assert ring.sender.free_bytes() == 0
    assert ring.receiver.drain(1) == [bytes(24)]
    assert ring.sender.free_bytes() == record_bytes(24)
    assert ring.sender.offer(b"z" * 24)
    assert not ring.sender.offer(b"")
    assert len(ring.receiver.drain(100)) == accepted


def test_a_drain_takes_at_most_its_limit(make: Make) -> None:
    ring = make(RING_BYTES)
    for number in range(5):
        assert ring.sender.offer(bytes([number]))
    assert ring.receiver.drain(0) == []
    assert ring.receiver.drain(2) == [b"\0", b"\1"]
    assert ring.receiver.drain(100) == [b"\2", b"\3", b"\4"]


def test_a_message_that_can_never_fit_is_an_error_and_the_largest_fits_anywhere(make: Make) -> None:
    ring = make(RING_BYTES)
    largest = message_bytes_max(RING_BYTES)
    assert ring.sender.message_bytes_max == largest
    with pytest.raises(MessageTooLarge, match=str(largest + 1)):
        ring.sender.offer(bytes(largest + 1))
    for _ in range(RING_BYTES // 8):  # at every offset, whatever the wrap costs
        assert ring.sender.offer(b"x" * largest)
        assert ring.sender.offer(b"")
        assert ring.receiver.drain(2) == [b"x" * largest, b""]


@given(
    operations=st.lists(
        st.one_of(
            st.binary(max_size=message_bytes_max(RING_BYTES)), st.integers(min_value=0, max_value=6)
        ),
        max_size=60,
    )
)
def test_a_ring_agrees_with_a_dumb_queue(operations: list[bytes | int]) -> None:
    """Bytes are offered, a number drains: what was accepted comes out, each once, in order."""
    region = map_anonymous(command_region_bytes(RING_BYTES))
    format_command_ring(region, incarnation=1)
    sender = CommandRingWriter(region, incarnation=1)
    receiver = CommandRingReader(region, incarnation=1)
    queue: deque[bytes] = deque()
    for operation in operations:
        if isinstance(operation, int):
            expected = [queue.popleft() for _ in range(min(operation, len(queue)))]
            assert receiver.drain(operation) == expected
            continue
        free_bytes = sender.free_bytes()
        if sender.offer(operation):
            queue.append(operation)
            assert record_bytes(len(operation)) <= free_bytes
        else:
            assert free_bytes < 2 * record_bytes(len(operation))
            assert queue
    assert receiver.drain(1_000) == list(queue)
    sender.close()
    receiver.close()
    region.close()


def test_a_restarted_end_goes_on_where_the_ring_stands() -> None:
    region = map_anonymous(command_region_bytes(RING_BYTES))
    format_command_ring(region, incarnation=1)
    assert CommandRingWriter(region, incarnation=1).offer(b"first")
    assert CommandRingReader(region, incarnation=1).drain(9) == [b"first"]
    assert CommandRingWriter(region, incarnation=1).offer(b"second")
    assert CommandRingReader(region, incarnation=1).drain(9) == [b"second"]


def test_a_ring_of_another_incarnation_is_refused() -> None:
    """SAFETY M1."""
    region = map_anonymous(command_region_bytes(RING_BYTES))
    format_command_ring(region, incarnation=3)
    for end in (CommandRingWriter, CommandRingReader):
        with pytest.raises(LayoutMismatch, match="incarnation is 0x3, expected 0x4"):
            end(region, incarnation=4)


@pytest.mark.parametrize("ring_bytes", [56, 100, 260])
def test_a_ring_of_an_odd_size_is_refused(ring_bytes: int) -> None:
    with pytest.raises(LayoutMismatch, match="a multiple of 8"):
        format_command_ring(map_anonymous(command_region_bytes(ring_bytes)), incarnation=1)


@pytest.mark.parametrize("head", [RING_BYTES + 8, (1 << 64) - 8])
def test_a_cursor_that_cannot_be_ends_the_reader(head: int) -> None:
    region = map_anonymous(command_region_bytes(RING_BYTES))
    format_command_ring(region, incarnation=1)
    reader = CommandRingReader(region, incarnation=1)
    with memoryview(region) as whole, whole.cast("Q") as slots:
        slots[HEAD] = head
    with pytest.raises(RingInvariantViolated, match="HEAD"):
        reader.drain(1)


def test_a_length_that_cannot_be_ends_the_reader() -> None:
    region = map_anonymous(command_region_bytes(RING_BYTES))
    format_command_ring(region, incarnation=1)
    writer = CommandRingWriter(region, incarnation=1)
    reader = CommandRingReader(region, incarnation=1)
    assert writer.offer(b"a message")
    with memoryview(region) as whole, whole.cast("Q") as slots:
        slots[CONTROL_BYTES // 8] = 1_000
    with pytest.raises(RingInvariantViolated, match="1000 bytes"):
        reader.drain(1)
