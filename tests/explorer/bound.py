"""How far the explorer goes."""

from __future__ import annotations

import msgspec

from logstore.raft.raft_config import StreamMode

REPLICAS = 3


class Bound(msgspec.Struct, frozen=True):
    """Terms up to `terms`, logs up to `entries` (with no-ops), `crashes` of each replica, `streams`
    of appends from a leader to each peer (the first, and its rewinds: appends that overtake each
    other are rejected, so without a bound there would be ever more). A step that would exceed the
    bound is counted as cut, and not taken."""

    terms: int = 2
    entries: int = 2
    crashes: int = 1
    streams: int = 2
    stream_mode: StreamMode = "streaming"
