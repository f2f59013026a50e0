"""The payload ring: bodies are written once, read in place by the writer and copied by replicators.

Owns the cursors' protocol (SAFETY M4). Must not know what the bytes mean,
nor terms beyond equality.

    line   owner        cursor
     1     ingress      RESERVED   bytes below it may be overwritten by a copy under way
     2     ingress      HEAD       bytes below it are complete
     3     raft         FREE       bytes below it are no longer needed
     4..19 replicator n HOLD[n], HOLD_TERM[n]   bytes from HOLD on are needed in that term

Positions are bytes since the ring was created; they never wrap. The byte of position p lies at p
mod size. Invariants: FREE <= HEAD <= RESERVED <= FREE + size, as each owner of a cursor sees it;
RESERVED is stored before the copy and HEAD after it. A HOLD is only a request: if it is ignored, a
replicator reads files, but never a wrong byte, because `copy_out` checks RESERVED after its copy.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence

from transport.errors import MessageTooLarge, RingInvariantViolated
from transport.layout import CONTROL_BYTES, RingKind, control_slots, line_slot, write_header
from transport.shm import SHARED_MEMORY_FOLDER, create_region, map_region

HOLD_SLOTS_MAX = 16  # replicators of one replica; each takes a cache line of the control page
NO_TERM = 0  # the term of a HOLD that holds nothing

RESERVED = line_slot(1)
HEAD = line_slot(2)
FREE = line_slot(3)
HOLD_BASE = line_slot(4)
HOLD_STRIDE = line_slot(1)


def payload_region_bytes(ring_bytes: int) -> int:
    """Size of the region that holds a payload ring of `ring_bytes`."""
    return CONTROL_BYTES + ring_bytes


def create_payload_ring(
    ring_bytes: int, *, incarnation: int, folder: str = SHARED_MEMORY_FOLDER
) -> int:
    """Make a payload ring in shared memory.

    Returns:
      The descriptor, owned by the caller (the supervisor, SAFETY M3).
    """
    size_bytes = payload_region_bytes(ring_bytes)
    fd = create_region(size_bytes, folder)
    try:
        with map_region(fd, size_bytes) as region:
            format_payload_ring(region, incarnation=incarnation)
    except BaseException:
        os.close(fd)
        raise
    return fd


def format_payload_ring(region: mmap.mmap, *, incarnation: int) -> None:
    """Make a zeroed region an empty payload ring."""
    write_header(region, kind=RingKind.PAYLOAD, incarnation=incarnation)


class _PayloadRingEnd:
    """The common part of every end: the checked control slots and the data bytes."""

    def __init__(self, region: mmap.mmap, *, incarnation: int) -> None:
        self._slots = control_slots(region, kind=RingKind.PAYLOAD, incarnation=incarnation)
        with memoryview(region) as whole:
            self._data = whole[CONTROL_BYTES:]
        self.size_bytes = len(self._data)

    @property
    def head(self) -> int:
        """Position up to which bytes are complete."""
        return self._slots[HEAD]

    @property
    def reserved(self) -> int:
        """Position up to which bytes may be under way."""
        return self._slots[RESERVED]

    @property
    def free(self) -> int:
        """Position below which bytes are no longer needed."""
        return self._slots[FREE]

    def clear_hold(self, slot: int) -> None:
        """Hold nothing any more. Called by its replicator, or by raft once that is dead."""
        self._slots[hold_slot(slot) + 1] = NO_TERM

    def close(self) -> None:
        """Release the mapping's views; whoever mapped the region closes it."""
        self._data.release()
        self._slots.release()


class PayloadRingWriter(_PayloadRingEnd):
    """Ingress' end: only it writes bytes, RESERVED and HEAD."""

    def free_bytes(self) -> int:
        """How many bytes `try_write` would take now."""
        slots = self._slots
        return slots[FREE] + self.size_bytes - slots[HEAD]

    def try_write(self, parts: Sequence[bytes | memoryview]) -> tuple[int, int] | None:
        """Copy `parts`, one after the other, into the ring. Hot.

        Args:
          parts: byte buffers (format "B"); the caller may reuse them on return.

        Returns:
          [start, end) positions, (head, head) for no bytes; None if the ring has no room now.

        Raises:
          MessageTooLarge: more bytes than the whole ring.
          RingInvariantViolated: FREE is above HEAD.
        """
        slots = self._slots
        size = self.size_bytes
        total = sum(map(len, parts))
        start = slots[HEAD]
        free = slots[FREE]
        end = start + total
        if free > start:
            raise RingInvariantViolated(f"FREE {free} is above HEAD {start}")
        if end > free + size:
            if total > size:
                raise MessageTooLarge(f"{total} bytes can never fit into a ring of {size}")
            return None
        slots[RESERVED] = end
        at = start % size
        for part in parts:
            at = _copy_in(self._data, at, part)
        slots[HEAD] = end
        return start, end


class PayloadRingReader(_PayloadRingEnd):
    """The end of the writer process (views in place) and of replicators (private copies)."""

    def views(self, start: int, end: int) -> list[memoryview]:
        """The bytes of [start, end) in place: no view for an empty range, two where it wraps.

        Only for a caller that knows that the range is not settled yet (the writer process). It
        releases the views before the range is settled.

        Raises:
          RingInvariantViolated: the range is not within FREE..HEAD, or goes backwards.
        """
        slots = self._slots
        if not slots[FREE] <= start <= end <= slots[HEAD]:
            raise RingInvariantViolated(
                f"[{start}, {end}) is not within FREE {slots[FREE]} .. HEAD {slots[HEAD]}"
            )
        return self._slices(start, end)

    def copy_out(self, start: int, end: int) -> bytes | None:
        """A private copy of [start, end), or None if it may have been overwritten meanwhile.

        1. Copy.
        2. Read RESERVED.
        3. If RESERVED is above start + size, writing into these bytes may have begun before (1)
        ended; shown by test_a_copy_is_right_or_refused_while_the_ring_is_overwritten.

        The caller checks the CRC all the same, then sends the copy (SAFETY M4).

        Raises:
          RingInvariantViolated: the range is above HEAD, or goes backwards.
        """
        slots = self._slots
        if not start <= end <= slots[HEAD]:
            raise RingInvariantViolated(f"[{start}, {end}) is not below HEAD {slots[HEAD]}")
        limit = start + self.size_bytes
        if slots[RESERVED] > limit:
            return None
        parts = self._slices(start, end)
        copy = b"".join(parts)
        for part in parts:
            part.release()
        return copy if slots[RESERVED] <= limit else None

    def set_hold(self, slot: int, *, term: int, position: int) -> None:
        """Ask that bytes from `position` on be kept while `term` lasts; for replicator `slot`.

        A change of term goes through NO_TERM, so that raft never reads the position of one term
        with the number of another.
        """
        base = hold_slot(slot)
        slots = self._slots
        if slots[base + 1] != term:
            slots[base + 1] = NO_TERM
        slots[base] = position
        slots[base + 1] = term

    def _slices(self, start: int, end: int) -> list[memoryview]:
        if start == end:
            return []
        size = self.size_bytes
        at = start % size
        until = at + end - start
        if until <= size:
            return [self._data[at:until]]
        return [self._data[at:], self._data[: until - size]]


class RingFreer(_PayloadRingEnd):
    """Raft's end: only it moves FREE."""

    def set_free(self, position: int) -> None:
        """Free everything below `position`.

        Raises:
          RingInvariantViolated: FREE would go back, or above HEAD.
        """
        slots = self._slots
        if not slots[FREE] <= position <= slots[HEAD]:
            raise RingInvariantViolated(
                f"FREE may go from {slots[FREE]} up to HEAD {slots[HEAD]}, not to {position}"
            )
        slots[FREE] = position

    def lowest_hold(self, term: int, live_slots: Iterable[int]) -> int | None:
        """The lowest position that a live replicator of this term needs; None if there is none.

        A HOLD of another term, or more than half a ring below HEAD, is ignored: its replicator
        reads files (SAFETY M4). The caller leaves out slots of dead processes.
        """
        slots = self._slots
        floor = slots[HEAD] - self.size_bytes // 2
        lowest: int | None = None
        for slot in live_slots:
            base = hold_slot(slot)
            before = slots[base + 1]
            position = slots[base]
            if term == NO_TERM or before != term or slots[base + 1] != term or position < floor:
                continue
            if lowest is None or position < lowest:
                lowest = position
        return lowest


def hold_slot(slot: int) -> int:
    """Index of HOLD[slot] on the control page; HOLD_TERM[slot] is the next one."""
    if not 0 <= slot < HOLD_SLOTS_MAX:
        raise RingInvariantViolated(f"hold slots are 0 to {HOLD_SLOTS_MAX - 1}, not {slot}")
    return HOLD_BASE + slot * HOLD_STRIDE


def _copy_in(data: memoryview, at: int, part: bytes | memoryview) -> int:
    """Copy `part` to offset `at`, around the end if necessary; returns the offset after it. Hot."""
    size = len(data)
    until = at + len(part)
    if until <= size:
        data[at:until] = part
        return 0 if until == size else until
    first = size - at
    with memoryview(part) as view:
        data[at:] = view[:first]
        data[: until - size] = view[first:]
    return until - size
