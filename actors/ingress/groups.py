"""A group: the batches or the entry of one proposal, from the first batch to the acknowledgement.

Plain data and its sums; `proposals` changes its state. A group of kind DATA or IMPORT has an origin
for each batch, the others have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from actors.topology import Counter
from logstore.format.batch import BatchSizes
from logstore.format.configuration_body import Configuration
from logstore.model import NO_INDEX, EntryKind, Index, Lsn
from logstore.session.session import WindowRow

# Where the answer to a batch goes: to the ack feed, in this round, or to the connection of the
# produce port that has this routing id.
Route: TypeAlias = int | bytes
# producer id, producer epoch, route, row of the session table; a tuple because there is one a batch
Origin: TypeAlias = tuple[int, int, Route, WindowRow]


class HeldAnswer(msgspec.Struct, frozen=True, gc=False):
    """The reply to the request for a group's entry, held until the group is committed.

    `lost`: the text of OUTCOME_UNKNOWN, sent in its place if raft had accepted the group and the
    term ended before its commit. "": the client is redirected, for it may ask again without harm.
    """

    request_id: int
    reply: msgspec.Struct
    lost: str = ""


class Group(msgspec.Struct, gc=False):
    """`parts` are dropped once they are in the ring. `count` and `payload_bytes` are of payloads,
    `stored_bytes` of these as they are stored, fewer where they are compressed.

    `request`: the answer to the client that asked for this entry; `readers`: answers of reads that
    depend on it, by request (`Requests.hold_at`). `producer_id`: whose session an OPEN begins; 0:
    it is none. `timestamp_ns` is known once raft has accepted it. `received_ns` is when its first
    batch was read, `proposed_ns` when raft was told, by the monotonic clock. `expectations`: which
    LSN some of its batches must get (E11).

    `unanswered`: producers whose batches in it are not acknowledged at the commit, since their
    session has another level than quorum; `await_flush`: those batches of them that are answered
    once this leader has flushed the entry (E10).

    `configuration`: what a CONFIG entry holds, as raft wanted it.
    """

    kind: EntryKind
    parts: list[bytes | memoryview]
    origins: list[Origin]
    size_bytes: int = 0
    count: int = 0
    payload_bytes: int = 0
    stored_bytes: int = 0
    producer_id: int = 0
    timestamp_ns: int = 0
    received_ns: int = 0
    proposed_ns: int = 0
    prop: int = -1
    index: Index = NO_INDEX
    request: HeldAnswer | None = None
    readers: dict[int, msgspec.Struct] = {}
    expectations: list[tuple[WindowRow, Lsn]] = []
    unanswered: set[int] = set()
    await_flush: list[Origin] = []
    configuration: Configuration | None = None

    def add(self, view: memoryview, origin: Origin, sizes: BatchSizes) -> None:
        """Hot: once a batch."""
        self.parts.append(view)
        self.origins.append(origin)
        self.size_bytes += len(view)
        self.count += sizes.count
        self.payload_bytes += sizes.plain_bytes
        self.stored_bytes += sizes.stored_bytes

    def count_committed(self, slots: memoryview) -> None:
        """In the counters, if it has batches."""
        if self.origins:
            slots[Counter.GROUPS_COMMITTED] += 1
            slots[Counter.PAYLOADS_ACKNOWLEDGED] += self.count
            slots[Counter.PAYLOAD_BYTES_ACKNOWLEDGED] += self.payload_bytes
            slots[Counter.STORED_BYTES_ACKNOWLEDGED] += self.stored_bytes


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What came of groups, in the order of the stream. `forgotten`: their gen or term ended first.
    `retries`: batches that are committed now, and that their producers had sent again or asked for
    in a SessionState."""

    committed: Sequence[Group] = ()
    forgotten: Sequence[Group] = ()
    retries: Sequence[Origin] = ()
