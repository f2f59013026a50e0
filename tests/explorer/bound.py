"""How far the explorer goes. Owns the numbers; knows nothing of how they are kept."""

from __future__ import annotations

import msgspec

from logstore.raft.raft_config import StreamMode

REPLICAS = 3


class Bound(msgspec.Struct, frozen=True):
    """What lies inside: terms up to `terms`, logs up to `entries` (no-ops included), `crashes` of
    each replica, `streams` of appends from a leader to each peer (the first, and its rewinds:
    without a bound, appends that overtake each other cause rejects for ever). A step that would
    leave it is counted as cut, and not taken."""

    terms: int = 2
    entries: int = 2
    crashes: int = 1
    streams: int = 2
    stream_mode: StreamMode = "streaming"
