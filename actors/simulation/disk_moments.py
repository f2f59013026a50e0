"""What a disk call of a writer begins, for faults that strike at such a moment.

Owns which Raft file of one replica is the newest, and how many writes its data file had. Must not
know who strikes.
"""

from __future__ import annotations

from actors.simulation.faults.script import Moment
from logstore.storage.meta_store import META_NAMES


class DiskMoments:
    """Of one replica's disk."""

    def __init__(self) -> None:
        self._raft_path = ""  # the newest Raft file
        self._data_writes = 0  # into its data file

    def moment_of(self, what: str, path: str, is_installing: bool) -> str:
        """What this call begins; empty: nothing of note. A new segment gets both headers, the Raft
        file's first, then frames (SAFETY S7); one that goes loses its data file first."""
        if what == "unlink":
            return Moment.REMOVAL if path.endswith(".data") else ""
        if what != "write":
            return ""
        if path.endswith(META_NAMES[0]):
            return Moment.INSTALL if is_installing else ""
        if path.endswith(".raft") and path != self._raft_path:
            self._raft_path, self._data_writes = path, 0
            return Moment.ROLL
        if path.endswith(".data"):
            self._data_writes += 1
            return Moment.FIRST_GROUP if self._data_writes == 2 else ""
        return ""
