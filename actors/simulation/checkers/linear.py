"""Linearizable appends and tail reads, in O(n log n) and without a search (I6, FAULTS section 2.2).

The appends of a log can have taken effect in one order only: that of their LSNs. A tail read that
returned `end_lsn` comes after the append that ends there and before the next one; reads that
returned the same `end_lsn` are ordered by their calls. So the history is linearizable if and only
if no operation in that order returned before an earlier one was called:

    for an operation, `latest` = the latest call of those before it; broken if returned < latest
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NEVER_NS = 1 << 63  # when an operation with an unknown outcome returned


class Append(msgspec.Struct, frozen=True, gc=False):
    """A batch in the log. `returned_ns` is NEVER_NS if no client got an answer."""

    first_lsn: int
    last_lsn: int
    invoked_ns: int
    returned_ns: int


class TailRead(msgspec.Struct, frozen=True, gc=False):
    """`end_lsn` is the last LSN of the log, by the answer."""

    end_lsn: int
    invoked_ns: int
    returned_ns: int


def find_fault(
    appends: Iterable[Append], reads: Iterable[TailRead] = (), *, first_lsn: int = 1
) -> str | None:
    """Returns why this history is not linearizable, or None if it is.

    Args:
      appends: every batch that is in the log, in any order, each once.
      reads: linearizable tail reads that returned.
      first_lsn: where the log begins.
    """
    ordered = sorted(appends, key=lambda append: append.first_lsn)
    ends = {first_lsn - 1} | {append.last_lsn for append in ordered}
    timeline: list[tuple[int, int, int, Append | TailRead]] = [
        (append.last_lsn, 0, append.invoked_ns, append) for append in ordered
    ]
    for read in reads:
        if read.end_lsn not in ends:
            return f"{read}: no batch ends there"
        timeline.append((read.end_lsn, 1, read.invoked_ns, read))
    timeline.sort(key=lambda each: each[:3])
    latest_ns, latest = -1, None
    for _, _, invoked_ns, each in timeline:
        if each.returned_ns < latest_ns:
            return f"{each} returned before {latest} was called, which is ahead of it"
        if invoked_ns > latest_ns:
            latest_ns, latest = invoked_ns, each
    return None
