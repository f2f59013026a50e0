"""Linearizable appends and tail reads, in O(n log n) and without a search (I6, FAULTS section 2.2).

An append-only log shows the only order its appends can have taken effect in: that of their LSNs. A
tail read that returned `end_lsn` stands between the append that ends there and the next one; reads
in one place may stand in the order of their calls. So the history is linearizable if and only if
nobody in that order returned before somebody ahead of it was called:

    for an operation, `latest` = the latest call among those ahead; broken if returned < latest
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NEVER_NS = 1 << 63  # when an unknown outcome returned


class Append(msgspec.Struct, frozen=True, gc=False):
    """A batch in the log. `returned_ns` NEVER_NS: nobody was told."""

    first_lsn: int
    last_lsn: int
    invoked_ns: int
    returned_ns: int


class TailRead(msgspec.Struct, frozen=True, gc=False):
    """`end_lsn` is the last LSN there was, by the answer."""

    end_lsn: int
    invoked_ns: int
    returned_ns: int


def find_fault(
    appends: Iterable[Append], reads: Iterable[TailRead] = (), *, first_lsn: int = 1
) -> str | None:
    """What keeps these from being linearizable; None: they are.

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
