"""Byte map of the control page that every ring, and every table of stamps, begins with.

Owns where a cursor lies and what makes a page valid. Must not know how rings use their cursors.

    line  bytes        slots   what
     0       0..63     0..7    magic u64 | kind u32, version u32 | incarnation u64 | size u64 | 0
     1      64..127    8       a cursor and nothing else
     2     128..191   16       the next cursor ...
     ..
    63    4032..4095
          4096..               data

Everything is a u64 slot of `memoryview.cast("Q")`: one aligned 8-byte store or load each, which
x86-64 neither tears nor reorders with other stores (`struct.pack_into` zeroes the field first;
SAFETY M4). A cursor has a cache line of its own, so that its writer does not slow down the others.
Stores by memmove come before a later cursor store too: fast-string stores are ordered against other
stores, and glibc ends its non-temporal copies with a fence.

Invariants: the magic is stored last; all zero is never valid; the incarnation is never 0.
"""

from __future__ import annotations

import mmap
import sys
from enum import IntEnum

from transport.errors import LayoutMismatch

CONTROL_BYTES = 4096
CACHE_LINE_BYTES = 64
SLOT_BYTES = 8
SLOTS_PER_LINE = CACHE_LINE_BYTES // SLOT_BYTES
LINES = CONTROL_BYTES // CACHE_LINE_BYTES
LAYOUT_VERSION = 1

RING_MAGIC = int.from_bytes(b"LOGRING\x01", "little")
MAGIC_SLOT, KIND_SLOT, INCARNATION_SLOT, DATA_BYTES_SLOT = range(4)


class RingKind(IntEnum):
    """What a region holds, and which protocol its cursors follow, if it has some."""

    PAYLOAD = 1
    COMMAND = 2
    STAMPS = 3  # no ring: a table without cursors


def line_slot(line: int) -> int:
    """First slot of a cache line; line 0 is the header's."""
    if not 0 <= line < LINES:
        raise LayoutMismatch(f"the control page has lines 0 to {LINES - 1}, not {line}")
    return line * SLOTS_PER_LINE


def write_header(region: mmap.mmap, *, kind: RingKind, incarnation: int) -> None:
    """Make a zeroed region a ring of this kind: once, before it is shared."""
    if sys.byteorder != "little":
        raise LayoutMismatch("rings are little-endian")
    if incarnation < 1:
        raise LayoutMismatch(f"an incarnation is at least 1, not {incarnation}")
    data_bytes = len(region) - CONTROL_BYTES
    if data_bytes < SLOT_BYTES:
        raise LayoutMismatch(
            f"a ring of {len(region)} bytes: it needs {CONTROL_BYTES} for its control page "
            f"and at least {SLOT_BYTES} for data"
        )
    with memoryview(region) as whole, whole[:CONTROL_BYTES] as page, page.cast("Q") as slots:
        slots[KIND_SLOT] = LAYOUT_VERSION << 32 | kind
        slots[INCARNATION_SLOT] = incarnation
        slots[DATA_BYTES_SLOT] = data_bytes
        slots[MAGIC_SLOT] = RING_MAGIC


def control_slots(region: mmap.mmap, *, kind: RingKind, incarnation: int) -> memoryview:
    """Check the header; returns the control page as u64 slots, which the caller releases.

    Raises:
      LayoutMismatch: another incarnation (SAFETY M1), kind, version or size, or no ring at all.
    """
    if len(region) < CONTROL_BYTES + SLOT_BYTES:
        raise LayoutMismatch(f"a region of {len(region)} bytes is too small to be a ring")
    with memoryview(region) as whole, whole[:CONTROL_BYTES] as page:
        slots = page.cast("Q")
    expected = {
        "magic": (MAGIC_SLOT, RING_MAGIC),
        "version and kind": (KIND_SLOT, LAYOUT_VERSION << 32 | kind),
        "incarnation": (INCARNATION_SLOT, incarnation),
        "data size": (DATA_BYTES_SLOT, len(region) - CONTROL_BYTES),
    }
    for name, (slot, value) in expected.items():
        if slots[slot] != value:
            got = slots[slot]
            slots.release()
            raise LayoutMismatch(f"ring header: {name} is {got:#x}, expected {value:#x}")
    return slots
