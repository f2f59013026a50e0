"""That payload bytes are written to a replica's disk once (P8; I20).

Owns how many bytes each incarnation was ordered to write and has not written. A frame may be
written once, a record has a fixed size, and no other write has room for a payload. Must not know
whether bytes lie where they should, nor whether they are durable.
"""

from __future__ import annotations

from actors.simulation.checkers.facts import CoreMade, DiskWritten, Started, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.group import frame_size
from logstore.format.meta import META_SIZE
from logstore.format.pair_summary import SUMMARY_SIZE
from logstore.format.peer_starts import PEER_STARTS_SIZE
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_IMAGE_SIZE
from logstore.raft.effects import Persist
from logstore.storage.meta_store import META_NAMES
from logstore.storage.peer_starts_file import PEER_STARTS_NAME

_LOGS = (".data", ".raft")


class WrittenOnce:
    """Checks all writes of all replicas."""

    def __init__(self, record: Record) -> None:
        self._report = record.findings.report
        # by node and log: bytes that were ordered and are not written
        self._due: dict[tuple[int, str], int] = {}
        self._recovering: dict[int, None] = {}

    @reads(Started)
    def on_start(self, start: Started) -> None:
        """What the incarnation before was ordered to write, this one must not write."""
        self._due.update({(start.node, log): 0 for log in _LOGS})
        self._recovering[start.node] = None

    @reads(CoreMade)
    def on_core(self, made: CoreMade) -> None:
        self._recovering.pop(made.node, None)

    @reads(Persist)
    def on_persist(self, replica: Replica, persist: Persist, _step: Stepped) -> None:
        self._due[replica.node, ".data"] += frame_size(persist.header)
        self._due[replica.node, ".raft"] += RECORD_SIZE

    @reads(DiskWritten)
    def on_written(self, write: DiskWritten) -> None:
        """After a segment's header, no more bytes may be written than were ordered."""
        node, log, size = write.node, write.path[-5:], write.size_bytes
        if log in _LOGS and write.offset:
            # Recovery writes lost records again (S1), one at a time.
            if log == ".raft" and node in self._recovering and size == RECORD_SIZE:
                return
            room = self._due[node, log]
            self._due[node, log] = room - size
        else:
            room = _room_for_metadata(write.path, write.offset)
        if size > room:
            text = f"node {node} writes {size} bytes to {write.path} at byte {write.offset}"
            self._report(Invariant.I20, f"{text}, {room} are due there")


def _room_for_metadata(path: str, offset: int) -> int:
    """How many bytes of this file may be written again and again from `offset` on."""
    if path.endswith(PEER_STARTS_NAME):  # two places
        return PEER_STARTS_SIZE if offset in (0, PEER_STARTS_SIZE) else 0
    if offset:
        return 0
    if path.endswith(_LOGS):  # a Raft file's header comes with the summary of the pair before
        return SEGMENT_IMAGE_SIZE + (SUMMARY_SIZE if path.endswith(".raft") else 0)
    return META_SIZE if path.endswith(META_NAMES) else 0
