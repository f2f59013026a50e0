"""An entry's timestamp is never far ahead of a majority's clocks (SAFETY G2, I6).

Owns how far those clocks were from the world's time in the last seconds: a leader knows its peers'
clocks from answers that may have been delayed while a clock jumped. Without clocks nothing is
checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from actors.simulation.checkers.electorates import Electorate
from actors.simulation.checkers.invariant import Findings, Invariant
from logstore.format.entry import EntryHeader

# One second by the rule; the rest is two election timeouts by a clock that jumps or drifts.
AHEAD_MAX_NS = 4_600_000_000
OFFSETS_KEPT_NS = 20_000_000_000


class Stamps:
    """Checks every new entry. `read_clocks` reads the wall clocks of all replicas, also of those
    that are down, by node."""

    __slots__ = ("_findings", "_now", "_offsets", "_read_clocks")

    def __init__(
        self,
        findings: Findings,
        now: Callable[[], int],
        read_clocks: Callable[[], Mapping[int, int]],
    ) -> None:
        self._findings = findings
        self._now = now
        self._read_clocks = read_clocks
        self._offsets: deque[tuple[int, int]] = deque()  # (when, a majority's clock less that)

    def on_entry(
        self, header: EntryHeader, previous: EntryHeader | None, electorate: Electorate
    ) -> None:
        """A leader orders a new entry; most have the timestamp of the entry before, or a little
        more."""
        clocks = self._read_clocks()
        if not clocks:
            return
        at_ns, offsets = self._now(), self._offsets
        offsets.append((at_ns, electorate.reached(clocks, 0) - at_ns))
        # Keep one offset that is older than the limit: it held until the next one was recorded.
        while len(offsets) > 1 and offsets[1][0] < at_ns - OFFSETS_KEPT_NS:
            offsets.popleft()
        previous_ns = 0 if previous is None else previous.timestamp_ns
        most_ns = at_ns + max(each for _, each in offsets) + AHEAD_MAX_NS
        if header.timestamp_ns > max(previous_ns, most_ns):
            beyond_s = (header.timestamp_ns - most_ns + AHEAD_MAX_NS) / 1e9
            text = f"entry {header.index} of term {header.term} has a time {beyond_s:.1f} s beyond"
            self._findings.report(Invariant.I6, f"{text} what a majority's clocks say")
