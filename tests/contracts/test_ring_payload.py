"""Contract of the payload ring, on tmpfs and on anonymous memory (SAFETY M1, M4)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from transport.errors import LayoutMismatch, MessageTooLarge, RingInvariantViolated
from transport.payload_ring import (
    HEAD,
    HOLD_SLOTS_MAX,
    NO_TERM,
    RESERVED,
    PayloadRingReader,
    PayloadRingWriter,
    RingFreer,
    create_payload_ring,
    format_payload_ring,
    payload_region_bytes,
)
from transport.shm import map_anonymous, map_region

RING_BYTES = 100


@dataclass
class Ring:
    writer: PayloadRingWriter
    reader: PayloadRingReader
    freer: RingFreer
    slots: memoryview

    def fill(self, data: bytes) -> tuple[int, int]:
        written = self.writer.try_write([data])
        assert written is not None
        return written

    def read(self, start: int, end: int) -> bytes:
        views = self.reader.views(start, end)
        data = b"".join(views)
        for view in views:
            view.release()
        return data


@pytest.fixture(params=["tmpfs", "anonymous"])
def ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    size_bytes = payload_region_bytes(RING_BYTES)
    if request.param == "tmpfs":
        fd = create_payload_ring(RING_BYTES, incarnation=5)
        region = map_region(fd, size_bytes)
        os.close(fd)
    else:
        region = map_anonymous(size_bytes)
        format_payload_ring(region, incarnation=5)
    ends = (
        PayloadRingWriter(region, incarnation=5),
        PayloadRingReader(region, incarnation=5),
        RingFreer(region, incarnation=5),
    )
    with memoryview(region) as whole, whole[:4096] as page, page.cast("Q") as slots:
        yield Ring(*ends, slots)
    for end in ends:
        end.close()
    region.close()


def test_parts_lie_behind_one_another_at_positions_that_never_wrap(ring: Ring) -> None:
    assert ring.writer.try_write([b"abc", memoryview(b"defg"), b""]) == (0, 7)
    assert ring.read(0, 7) == b"abcdefg"
    ring.freer.set_free(7)
    for number in range(1, 40):
        start, end = ring.fill(bytes([number]) * 33)
        assert (start, end) == (7 + 33 * (number - 1), 7 + 33 * number)
        assert ring.read(start, end) == bytes([number]) * 33
        assert ring.reader.copy_out(start, end) == bytes([number]) * 33
        ring.freer.set_free(end)
    assert ring.reader.head == ring.reader.reserved == ring.reader.free == 7 + 33 * 39


def test_an_empty_write_takes_no_room_even_in_a_full_ring(ring: Ring) -> None:
    ring.fill(bytes(RING_BYTES))
    assert ring.writer.try_write([]) == (100, 100)
    assert ring.writer.try_write([b"", b""]) == (100, 100)
    assert ring.reader.views(100, 100) == []
    assert ring.reader.copy_out(100, 100) == b""


def test_a_full_ring_refuses_until_raft_frees(ring: Ring) -> None:
    ring.fill(b"x" * 90)
    assert ring.writer.free_bytes() == 10
    assert ring.writer.try_write([b"y" * 11]) is None
    assert ring.reader.reserved == 90
    ring.freer.set_free(1)
    assert ring.writer.try_write([b"y" * 11]) == (90, 101)
    assert ring.read(90, 101) == b"y" * 11
    assert ring.read(1, 90) == b"x" * 89
    assert ring.writer.free_bytes() == 0


def test_a_range_that_wraps_is_two_views(ring: Ring) -> None:
    ring.fill(bytes(60))
    ring.freer.set_free(60)
    whole = bytes(range(70))
    start, end = ring.fill(whole)
    views = ring.reader.views(start, end)
    assert [len(view) for view in views] == [40, 30]
    assert b"".join(views) == whole
    for view in views:
        view.release()
    (up_to_the_end,) = ring.reader.views(start, 100)
    assert bytes(up_to_the_end) == whole[:40]
    up_to_the_end.release()


def test_a_write_that_ends_at_the_end_goes_on_at_the_beginning(ring: Ring) -> None:
    written = ring.writer.try_write([b"a" * 50, b"b" * 50])
    assert written == (0, 100)
    ring.freer.set_free(100)
    assert ring.writer.try_write([b"c" * 50, b"d" * 50]) == (100, 200)
    assert ring.read(100, 200) == b"c" * 50 + b"d" * 50


def test_more_than_the_ring_is_an_error(ring: Ring) -> None:
    with pytest.raises(MessageTooLarge, match="101 bytes can never fit"):
        ring.writer.try_write([b"x" * 60, b"y" * 41])


def test_a_copy_of_bytes_that_may_be_overwritten_is_refused(ring: Ring) -> None:
    """SAFETY M4: RESERVED decides, since it is stored before the copy."""
    ring.fill(b"a" * 80)
    ring.freer.set_free(80)
    ring.fill(b"b" * 20)
    assert ring.reader.copy_out(0, 80) == b"a" * 80
    ring.slots[RESERVED] = 101  # ingress has reserved one byte more and not copied it yet
    assert ring.reader.copy_out(0, 80) is None
    assert ring.reader.copy_out(1, 80) == b"a" * 79


def test_a_copy_overtaken_while_it_is_made_is_refused(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAULTS S7."""
    ring.fill(b"a" * 80)
    ring.freer.set_free(80)
    slices = ring.reader._slices

    def slices_then_overtaken(start: int, end: int) -> list[memoryview]:
        views = slices(start, end)
        ring.fill(b"b" * 40)
        return views

    monkeypatch.setattr(ring.reader, "_slices", slices_then_overtaken)
    assert ring.reader.copy_out(0, 80) is None


def test_free_goes_forward_only_and_never_beyond_head(ring: Ring) -> None:
    ring.fill(b"x" * 10)
    ring.freer.set_free(4)
    ring.freer.set_free(4)
    for position in (3, 11):
        with pytest.raises(RingInvariantViolated, match=f"not to {position}"):
            ring.freer.set_free(position)


def test_reading_outside_free_and_head_is_a_broken_invariant(ring: Ring) -> None:
    ring.fill(b"x" * 10)
    ring.freer.set_free(4)
    for start, end in ((3, 10), (4, 11), (8, 7)):
        with pytest.raises(RingInvariantViolated, match="not within FREE 4"):
            ring.reader.views(start, end)
    for start, end in ((4, 11), (8, 7)):
        with pytest.raises(RingInvariantViolated, match="HEAD 10"):
            ring.reader.copy_out(start, end)


def test_a_writer_whose_head_is_behind_free_stops(ring: Ring) -> None:
    ring.fill(b"x" * 10)
    ring.freer.set_free(10)
    ring.slots[HEAD] = 9
    with pytest.raises(RingInvariantViolated, match="FREE 10 is above HEAD 9"):
        ring.writer.try_write([b"y"])


def test_only_live_holds_of_this_term_near_the_head_count(ring: Ring) -> None:
    """SAFETY M4: a HOLD of another term, a dead process, or half a ring back is ignored."""
    ring.fill(b"x" * 90)
    everybody = range(HOLD_SLOTS_MAX)
    assert ring.freer.lowest_hold(3, everybody) is None
    ring.reader.set_hold(0, term=3, position=70)
    ring.reader.set_hold(15, term=3, position=60)
    ring.reader.set_hold(2, term=2, position=50)
    assert ring.freer.lowest_hold(3, everybody) == 60
    assert ring.freer.lowest_hold(3, [0, 2]) == 70
    assert ring.freer.lowest_hold(2, everybody) == 50
    ring.reader.set_hold(15, term=3, position=39)  # more than half a ring behind 90
    assert ring.freer.lowest_hold(3, everybody) == 70
    ring.reader.set_hold(15, term=3, position=40)
    assert ring.freer.lowest_hold(3, everybody) == 40
    ring.reader.set_hold(15, term=3, position=80)
    assert ring.freer.lowest_hold(3, everybody) == 70
    ring.reader.clear_hold(15)
    assert ring.freer.lowest_hold(3, everybody) == 70
    assert ring.freer.lowest_hold(NO_TERM, everybody) is None


def test_a_hold_slot_that_does_not_exist_is_a_broken_invariant(ring: Ring) -> None:
    for slot in (-1, HOLD_SLOTS_MAX):
        with pytest.raises(RingInvariantViolated, match="hold slots"):
            ring.reader.set_hold(slot, term=1, position=0)


def test_a_ring_of_another_incarnation_or_kind_is_refused(ring: Ring) -> None:
    """SAFETY M1, FAULTS S4."""
    region = map_anonymous(payload_region_bytes(RING_BYTES))
    format_payload_ring(region, incarnation=8)
    with pytest.raises(LayoutMismatch, match="incarnation is 0x8, expected 0x9"):
        PayloadRingReader(region, incarnation=9)
