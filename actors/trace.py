"""Which points an entry passes on a replica, and how a process stamps the sampled ones.

Stamps are for people who ask where an append's time goes (`logstore explain`): no decision depends
on one (SAFETY U1). All stamps of a replica are of its monotonic clock, so differences between two
of its processes are right; stamps of two replicas must never be subtracted.

Invariant: a process stamps a point before it passes the entry on, so the stamps of one entry rise
along its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from actors.host import Clock
from actors.topology import SPARE_NAMES
from logstore.model import Index, NodeId
from transport.stamp_table import STAMPED_EVERY, STAMPS_KEPT, StampRow


class TracePoint(StrEnum):
    """Where an entry is stamped. A follower's entry passes RECEIVED to RECORDS_FLUSHED as a
    leader's does."""

    RECEIVED = "received"  # ingress has read its first batch, or the leader's append
    PROPOSED = "proposed"  # ingress has copied it into the payload ring and tells raft
    APPENDED = "appended"  # raft has given it its index, and orders it from the writer
    WRITE_BEGUN = "write_begun"  # the writer begins to write its frame
    DATA_FLUSHED = "data_flushed"  # its frame is durable
    RECORDS_BEGUN = "records_begun"  # the writer begins to write its record
    RECORDS_FLUSHED = "records_flushed"  # its record is durable
    COMMITTED = "committed"  # the leader's raft knows that it is committed
    ACKNOWLEDGED = "acknowledged"  # the leader's ingress has sent its acknowledgements
    ANSWERED = "answered"  # the follower's ingress sends that it is durable
    SENT = "sent"  # the replicator sends it
    CONFIRMED = "confirmed"  # the replicator has got the follower's answer that it is durable


OF_REPLICATORS = (TracePoint.SENT, TracePoint.CONFIRMED)


def row_name(point: TracePoint, peer: NodeId | str | None = None) -> str:
    """The row of a point; `peer`: whose replicator it is, for the points that each of them has. A
    spare's row has its name, since its peer changes."""
    return f"{point}.{peer}" if point in OF_REPLICATORS else str(point)


def row_names(node: NodeId, nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """The rows of a replica's stamp table, in its order."""
    own = [row_name(point) for point in TracePoint if point not in OF_REPLICATORS]
    peers: list[NodeId | str] = [peer for peer in nodes if peer != node]
    peers += SPARE_NAMES
    return (*own, *(row_name(point, peer) for peer in peers for point in OF_REPLICATORS))


def is_sampled(index: Index) -> bool:
    """Whether the entry is stamped, here and on all replicas. Hot: once an entry."""
    return index % STAMPED_EVERY == 0


def sampled_in(first: Index, last: Index) -> Iterator[Index]:
    """Those of the entries [first, last] that are stamped."""
    return map(Index, range(-(-first // STAMPED_EVERY) * STAMPED_EVERY, last + 1, STAMPED_EVERY))


class Stamper:
    """Stamps the entries that pass one point of one process."""

    __slots__ = ("_clock", "_newest", "_row")

    def __init__(self, row: StampRow, clock: Clock) -> None:
        self._row = row
        self._clock = clock
        # Of those stamped, in samples. A process that was started again goes on where its
        # predecessor ended: what had passed then does not pass now.
        self._newest = max(row.read(), default=0) // STAMPED_EVERY

    def stamp(self, index: Index) -> None:
        """The entry passes now. Hot: once an entry."""
        if index % STAMPED_EVERY == 0:
            self._row.put(index, self._clock.monotonic_ns())

    def stamp_at(self, index: Index, time_ns: int) -> None:
        """A sampled entry passed then."""
        self._row.put(index, time_ns)

    def stamp_through(self, last: Index) -> None:
        """All entries up to `last` that have not passed yet do so now. An index that is lower than
        before begins another run of entries. Hot: once a do_work."""
        newest, before = last // STAMPED_EVERY, self._newest
        if newest == before:
            return
        self._newest = newest
        if newest < before:
            return
        now_ns = self._clock.monotonic_ns()
        for sample in range(max(before, newest - STAMPS_KEPT) + 1, newest + 1):
            self._row.put(sample * STAMPED_EVERY, now_ns)
