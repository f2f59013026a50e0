"""A group: the batches or the entry of one proposal, from the first batch to the acknowledgement.

Plain data; `proposals` changes its state. A group of kind DATA or IMPORT has an origin for each
batch, the others have none.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from logstore.model import NO_INDEX, EntryKind, Index
from logstore.session.session import WindowRow

# producer id, producer epoch, round, row of the session table; a tuple because there is one a batch
Origin: TypeAlias = tuple[int, int, int, WindowRow]


class HeldAnswer(msgspec.Struct, frozen=True, gc=False):
    """The reply to the request for a group's entry, held until the group is committed.

    `lost`: the text of OUTCOME_UNKNOWN, sent in its place if raft had accepted the group and the
    term ended before its commit. "": the client is redirected, for it may ask again without harm.
    """

    request_id: int
    reply: msgspec.Struct
    lost: str = ""


class Group(msgspec.Struct, gc=False):
    """`parts` are dropped once they are in the ring. `count` and `payload_bytes` are of payloads.

    `request`: the answer to the client that asked for this entry; `readers`: answers of reads that
    depend on it, by request (`Requests.hold_at`). `producer_id`: whose session an OPEN begins; 0:
    it is none. `timestamp_ns` is known once raft has accepted it. `received_ns` is when its first
    batch was read, `proposed_ns` when raft was told, by the monotonic clock.
    """

    kind: EntryKind
    parts: list[bytes | memoryview]
    origins: list[Origin]
    size_bytes: int = 0
    count: int = 0
    payload_bytes: int = 0
    producer_id: int = 0
    timestamp_ns: int = 0
    received_ns: int = 0
    proposed_ns: int = 0
    prop: int = -1
    index: Index = NO_INDEX
    request: HeldAnswer | None = None
    readers: dict[int, msgspec.Struct] = {}
