"""The control page: golden bytes, and everything that is no ring of ours (SAFETY M1)."""

from __future__ import annotations

import sys

import pytest

from transport.errors import LayoutMismatch
from transport.layout import RingKind, control_slots, line_slot, write_header
from transport.shm import map_anonymous


def test_the_header_has_these_bytes() -> None:
    region = map_anonymous(4096 + 64)
    write_header(region, kind=RingKind.COMMAND, incarnation=0x0A0B)
    assert region[:64] == (
        b"LOGRING\x01"
        b"\x02\0\0\0\x01\0\0\0"  # command ring, version 1
        b"\x0b\x0a\0\0\0\0\0\0"
        b"\x40\0\0\0\0\0\0\0" + bytes(32)
    )
    assert region[64:] == bytes(4096)


def test_cursors_lie_on_cache_lines_of_their_own() -> None:
    assert [line_slot(line) for line in (0, 1, 2, 63)] == [0, 8, 16, 504]
    for line in (-1, 64):
        with pytest.raises(LayoutMismatch, match="lines 0 to 63"):
            line_slot(line)


@pytest.mark.parametrize(
    ("slot", "value", "reason"),
    [
        (0, 0, "magic is 0x0"),
        (1, 1 << 32 | 2, "version and kind is 0x100000002, expected 0x100000001"),
        (1, 2 << 32 | 1, "version and kind is 0x200000001"),
        (2, 6, "incarnation is 0x6, expected 0x5"),
        (3, 65, "data size is 0x41, expected 0x40"),
    ],
)
def test_a_header_of_something_else_is_refused(slot: int, value: int, reason: str) -> None:
    region = map_anonymous(4096 + 64)
    write_header(region, kind=RingKind.PAYLOAD, incarnation=5)
    control_slots(region, kind=RingKind.PAYLOAD, incarnation=5).release()
    with memoryview(region) as whole, whole[:64] as line, line.cast("Q") as slots:
        slots[slot] = value
    with pytest.raises(LayoutMismatch, match=reason):
        control_slots(region, kind=RingKind.PAYLOAD, incarnation=5)
    region.close()  # nothing of a refused region is held


def test_all_zero_is_no_ring() -> None:
    with pytest.raises(LayoutMismatch, match="magic"):
        control_slots(map_anonymous(8192), kind=RingKind.PAYLOAD, incarnation=1)


def test_a_region_too_small_for_a_ring_is_refused() -> None:
    with pytest.raises(LayoutMismatch, match="at least 8 for data"):
        write_header(map_anonymous(4096), kind=RingKind.PAYLOAD, incarnation=1)
    with pytest.raises(LayoutMismatch, match="too small"):
        control_slots(map_anonymous(4096), kind=RingKind.PAYLOAD, incarnation=1)


def test_incarnation_zero_is_refused() -> None:
    with pytest.raises(LayoutMismatch, match="at least 1"):
        write_header(map_anonymous(8192), kind=RingKind.PAYLOAD, incarnation=0)


def test_a_big_endian_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(LayoutMismatch, match="little-endian"):
        write_header(map_anonymous(8192), kind=RingKind.PAYLOAD, incarnation=1)
