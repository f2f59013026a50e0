"""A bounded queue of small messages from one process to another, in shared memory.

Owns record framing and the two cursors. Must not know what a message means.

    control page (layout.py):  line 1: HEAD (sender)   line 2: TAIL (receiver)
    data:  | size u64 | message, padded with anything to 8 bytes | size u64 | ...
           size = 2**64 - 1: no more records before the end of the data, continue at its beginning

Positions are bytes since the ring was created and never wrap; records are 8-aligned and
never split. Invariants: one sender, one receiver (SPSC); size and message are stored before
HEAD (SAFETY M4); a message is copied out before TAIL moves; `offer` never waits (SAFETY M8);
TAIL <= HEAD <= TAIL + size.
"""

from __future__ import annotations

import mmap
import os

from transport.errors import LayoutMismatch, MessageTooLarge, RingInvariantViolated
from transport.layout import (
    CONTROL_BYTES,
    SLOT_BYTES,
    RingKind,
    control_slots,
    line_slot,
    write_header,
)
from transport.shm import SHARED_MEMORY_FOLDER, create_region, map_region

HEAD = line_slot(1)
TAIL = line_slot(2)
PAD = (1 << 64) - 1
COMMAND_RING_BYTES_MIN = 64


def command_region_bytes(ring_bytes: int) -> int:
    """Size of the region that holds a command ring of `ring_bytes`."""
    return CONTROL_BYTES + ring_bytes


def record_bytes(message_bytes: int) -> int:
    """The bytes that a message of this size takes in the ring, with its size word and padding."""
    return (message_bytes + 2 * SLOT_BYTES - 1) & -SLOT_BYTES


def message_bytes_max(ring_bytes: int) -> int:
    """The largest message that a ring takes: half of the ring, so that
    padding never keeps it out."""
    return (ring_bytes // 2 & -SLOT_BYTES) - SLOT_BYTES


def create_command_ring(
    ring_bytes: int,
    *,
    incarnation: int,
    folder: str = SHARED_MEMORY_FOLDER,
    is_reserved: bool = False,
) -> int:
    """Make a command ring in shared memory. `is_reserved`: with memory for its cursors only, so
    that nothing may be sent before `allocate_region`.

    Returns:
      The descriptor, owned by the caller (the supervisor, SAFETY M3).
    """
    size_bytes = command_region_bytes(ring_bytes)
    allocated_bytes = CONTROL_BYTES if is_reserved else None
    fd = create_region(size_bytes, folder, allocated_bytes=allocated_bytes)
    try:
        with map_region(fd, size_bytes) as region:
            format_command_ring(region, incarnation=incarnation)
    except BaseException:
        os.close(fd)
        raise
    return fd


def format_command_ring(region: mmap.mmap, *, incarnation: int) -> None:
    """Make a zeroed region an empty command ring.

    Raises:
      LayoutMismatch: the data part is too small or no multiple of 8 bytes.
    """
    ring_bytes = len(region) - CONTROL_BYTES
    if ring_bytes < COMMAND_RING_BYTES_MIN or ring_bytes % SLOT_BYTES:
        raise LayoutMismatch(
            f"a command ring of {ring_bytes} bytes: take a multiple of {SLOT_BYTES}, "
            f"at least {COMMAND_RING_BYTES_MIN}"
        )
    write_header(region, kind=RingKind.COMMAND, incarnation=incarnation)


class _CommandRingEnd:
    """The common part of both ends: checked control slots, size words and the mapped bytes."""

    def __init__(self, region: mmap.mmap, *, incarnation: int) -> None:
        self._region = region
        self._slots = control_slots(region, kind=RingKind.COMMAND, incarnation=incarnation)
        with memoryview(region) as whole, whole[CONTROL_BYTES:] as data:
            self._words = data.cast("Q")
        self.size_bytes = len(region) - CONTROL_BYTES

    def close(self) -> None:
        """Release the mapping's views; whoever mapped the region closes it."""
        self._words.release()
        self._slots.release()


class CommandRingWriter(_CommandRingEnd):
    """The sender's end."""

    def __init__(self, region: mmap.mmap, *, incarnation: int) -> None:
        super().__init__(region, incarnation=incarnation)
        self._head = self._slots[HEAD]
        self._tail_seen = self._slots[TAIL]
        self.message_bytes_max = message_bytes_max(self.size_bytes)

    def free_bytes(self) -> int:
        """Bytes free now. A message takes `record_bytes`; the wrap may waste as many again."""
        return self.size_bytes - (self._head - self._slots[TAIL])

    def offer(self, message: bytes) -> bool:
        """Queue a message; False if the ring is full. Never waits (SAFETY M8). Hot.

        The caller rings the receiver's doorbell afterwards, once per do_work (SAFETY M7).

        Raises:
          MessageTooLarge: it would never fit.
        """
        message_bytes = len(message)
        need = (message_bytes + 15) & -8
        size = self.size_bytes
        head = self._head
        at = head % size
        rest = size - at
        end = head + need if need <= rest else head + rest + need
        if end - self._tail_seen > size or message_bytes > self.message_bytes_max:
            if message_bytes > self.message_bytes_max:
                raise MessageTooLarge(
                    f"a message of {message_bytes} bytes: a command ring of {size} takes up to "
                    f"{self.message_bytes_max}"
                )
            self._tail_seen = self._slots[TAIL]
            if end - self._tail_seen > size:
                return False
        if need > rest:
            self._words[at >> 3] = PAD
            at = 0
        self._words[at >> 3] = message_bytes
        begin = CONTROL_BYTES + SLOT_BYTES + at
        self._region[begin : begin + message_bytes] = message
        self._head = end
        self._slots[HEAD] = end
        return True


class CommandRingReader(_CommandRingEnd):
    """The receiver's end."""

    def __init__(self, region: mmap.mmap, *, incarnation: int) -> None:
        super().__init__(region, incarnation=incarnation)
        self._tail = self._slots[TAIL]

    def drain(self, limit: int) -> list[bytes]:
        """Take up to `limit` messages, the oldest first, as private copies. Hot.

        Raises:
          RingInvariantViolated: a size word or the sender's cursor is impossible.
        """
        tail = self._tail
        head = self._slots[HEAD]
        messages: list[bytes] = []
        if tail == head:
            return messages
        region, words, size = self._region, self._words, self.size_bytes
        if not 0 < head - tail <= size:
            raise RingInvariantViolated(f"HEAD {head}, TAIL {tail} in a ring of {size} bytes")
        while tail < head and len(messages) < limit:
            at = tail % size
            message_bytes = words[at >> 3]
            if message_bytes == PAD:
                tail += size - at
                continue
            begin = CONTROL_BYTES + SLOT_BYTES + at
            tail += (message_bytes + 15) & -8
            if tail > head:
                raise RingInvariantViolated(
                    f"a message of {message_bytes} bytes ends at {tail}, behind HEAD {head}"
                )
            messages.append(region[begin : begin + message_bytes])
        self._tail = tail
        self._slots[TAIL] = tail
        return messages
