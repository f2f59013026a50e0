"""How long flushes take, for people who ask: stamps of sampled entries, and a counter.

Owns no clock but the host's, and decides nothing. One timer for each kind of flush; there is one
flush of a kind at a time, in whichever thread.
"""

from __future__ import annotations

from actors.station import Station
from actors.topology import Counter
from actors.trace import TracePoint, sampled_in
from logstore.storage.log_writer import AppendedGroup


class FlushTimer:
    """`begun` and `flushed`: the points that an entry passes; `counter`: what the time adds to."""

    def __init__(
        self, station: Station, *, begun: TracePoint, flushed: TracePoint, counter: Counter
    ) -> None:
        self._clock = station.host.clock
        self._slots = station.slots
        self._begun = station.stamper(begun)
        self._flushed = station.stamper(flushed)
        self._counter = counter

    def now_ns(self) -> int:
        return self._clock.monotonic_ns()

    def ended(self, group: AppendedGroup, begun_ns: int) -> None:
        """The group was written from `begun_ns` on, and is flushed now."""
        flushed_ns = self._clock.monotonic_ns()
        for index in sampled_in(group.first_index, group.last_index):
            self._begun.stamp_at(index, begun_ns)
            self._flushed.stamp_at(index, flushed_ns)
        self._slots[self._counter] += flushed_ns - begun_ns
