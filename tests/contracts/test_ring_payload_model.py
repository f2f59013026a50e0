"""The payload ring against a dumb model: one growing list of bytes."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from transport.errors import MessageTooLarge
from transport.payload_ring import (
    PayloadRingReader,
    PayloadRingWriter,
    RingFreer,
    format_payload_ring,
    payload_region_bytes,
)
from transport.shm import map_anonymous

RING_BYTES = 64


class PayloadRingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        region = map_anonymous(payload_region_bytes(RING_BYTES))
        format_payload_ring(region, incarnation=1)
        self.writer = PayloadRingWriter(region, incarnation=1)
        self.reader = PayloadRingReader(region, incarnation=1)
        self.freer = RingFreer(region, incarnation=1)
        self.everything = bytearray()
        self.free = 0

    @rule(parts=st.lists(st.binary(max_size=40), max_size=4))
    def write(self, parts: list[bytes]) -> None:
        total = sum(map(len, parts))
        head = len(self.everything)
        if total > RING_BYTES:
            with pytest.raises(MessageTooLarge):
                self.writer.try_write(parts)
            return
        written = self.writer.try_write(parts)
        if head + total > self.free + RING_BYTES:
            assert written is None
            return
        assert written == (head, head + total)
        self.everything += b"".join(parts)

    @precondition(lambda self: self.free < len(self.everything))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.free = data.draw(st.integers(self.free, len(self.everything)))
        self.freer.set_free(self.free)

    @rule(data=st.data())
    def copy_anything(self, data: st.DataObject) -> None:
        head = len(self.everything)
        start = data.draw(st.integers(max(0, head - 2 * RING_BYTES), head))
        end = data.draw(st.integers(start, min(head, start + RING_BYTES)))
        copy = self.reader.copy_out(start, end)
        if start + RING_BYTES < head:
            assert copy is None
        else:
            assert copy == self.everything[start:end]

    @invariant()
    def unsettled_bytes_are_in_place(self) -> None:
        views = self.reader.views(self.free, len(self.everything))
        assert b"".join(views) == self.everything[self.free :]
        for view in views:
            view.release()
        assert self.writer.free_bytes() == RING_BYTES - (len(self.everything) - self.free)


TestPayloadRingAgreesWithADumbModel = PayloadRingMachine.TestCase
