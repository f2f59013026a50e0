"""How far the explorer goes."""

from __future__ import annotations

from typing import Literal

import msgspec

from logstore.raft.raft_config import StreamMode

REPLICAS = 3
FirstChange = Literal["promote", "remove", "replace"]


class Bound(msgspec.Struct, frozen=True):
    """Terms up to `terms`, logs up to `entries` (with no-ops), `crashes` of each replica, `streams`
    of appends from a leader to each peer (the first, and its rewinds: appends that overtake each
    other are rejected, so without a bound there would be ever more). A step that would exceed the
    bound is counted as cut, and not taken.

    `changes`: so many changes of the members in any log, the first of which is `change`; then each
    log begins with a CONFIG beside its `entries`, and no client proposes."""

    terms: int = 2
    entries: int = 2
    crashes: int = 1
    streams: int = 2
    stream_mode: StreamMode = "streaming"
    changes: int = 0
    change: FirstChange = "promote"

    @property
    def last_index(self) -> int:
        """Of the longest log."""
        return self.entries + (self.changes > 0)

    @property
    def are_two_alike(self) -> bool:
        """Nodes 1 and 2 may be exchanged in every CONFIG."""
        return self.changes == 1 and self.change != "replace"
