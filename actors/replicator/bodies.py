"""The bytes of an entry for a replicator: a private copy from the payload ring, or from the files.

The copy is checked twice: the ring was not overwritten meanwhile, and the body's CRC is right
(SAFETY M4). Ring memory is never lent to ZeroMQ.
"""

from __future__ import annotations

from collections.abc import Callable

from crc32c import crc32c

from actors.station import Station
from actors.topology import Counter
from logstore.errors import CorruptData
from logstore.format.entry import EntryHeader
from logstore.model import NO_INDEX, Index, Lsn
from logstore.raft.stream import FollowerStream, SendFromFile, SendFromRing
from logstore.storage.damaged_lsns import damaged_lsns
from logstore.storage.log_reader import LogReader

ReportRot = Callable[[Index, Lsn, Lsn], None]


class Bodies:
    """Entry headers and bodies for one stream; owns the HOLD of its replicator.

    `report_rot` is called once for an entry that is committed and written but cannot be read, with
    its LSNs. Otherwise it would stay unknown why the follower does not advance (Q3, Q5).
    """

    def __init__(self, station: Station, *, report_rot: ReportRot) -> None:
        self._report_rot = report_rot
        self._rotted = NO_INDEX
        self._slots = station.slots
        self._disk = station.host.disk
        self._ring = station.payload_reader()
        self._hold_slot = station.hold_slot(station.actor)
        self._folder = ""  # whose files may be read; "": of none
        self._log: LogReader | None = None
        self._generation = -1
        self._ring.clear_hold(self._hold_slot)

    def open_log(self, folder: str) -> None:
        """Entries may be read from the files of `folder`, which are opened when one is needed.
        Called when the replica leads, so it has some."""
        self._folder = folder

    def close_log(self) -> None:
        self._folder = ""
        if self._log is not None:
            self._log.close()
        self._log = None

    def close_if_stale(self) -> None:
        """Close the files if some may have been removed, since an open file keeps its space. Reads
        nothing; the next entry from the files opens what it needs."""
        if self._log is not None and self._slots[Counter.MAP_GENERATION] != self._generation:
            self._log.close()

    def publish_hold(self, stream: FollowerStream) -> None:
        """Publish which ring bytes this stream still needs: none if it does not
        lead, or reads only files."""
        position = stream.hold_position
        if position is None:
            self.release_hold()
        else:
            self._ring.set_hold(self._hold_slot, term=stream.term, position=position)

    def release_hold(self) -> None:
        self._ring.clear_hold(self._hold_slot)

    def of(self, step: SendFromRing | SendFromFile) -> tuple[EntryHeader, bytes] | None:
        if isinstance(step, SendFromRing):
            header = step.header
            if header.body_size == 0:
                return header, b""
            body = self._ring.copy_out(step.ring_start, step.ring_end)
            if body is not None and crc32c(body) == header.body_crc:
                return header, body
            self._slots[Counter.RING_OVERWRITTEN] += 1
        return self._from_files(step)

    def _from_files(self, step: SendFromRing | SendFromFile) -> tuple[EntryHeader, bytes] | None:
        if not self._folder:
            return None
        # Read before the files are: what is written after that read is no damage.
        written_seq = self._slots[Counter.WRITTEN]
        is_in_files = isinstance(step, SendFromFile) or written_seq >= step.persist_seq
        index = step.index if isinstance(step, SendFromFile) else step.header.index
        generation = self._slots[Counter.MAP_GENERATION]
        try:
            log = self._log_of(generation)
            record = log.record(index)
            header = record.header
            body = log.body_of(record)
        except (CorruptData, LookupError, OSError) as error:
            # Not written yet, moved by a roll, no descriptor for its file now, or damaged. A
            # committed entry is never truncated, so if it is written it must be readable.
            self._generation = -1
            is_damage = is_in_files and isinstance(error, CorruptData) and index <= step.commit
            if is_damage and index != self._rotted and self._log is not None:
                self._rotted = index
                self._report_rot(index, *damaged_lsns(self._log, index, index))
            return None
        if isinstance(step, SendFromRing) and header != step.header:
            return None  # the ring was overwritten before the files had these bytes (W5)
        return header, body

    def _log_of(self, generation: int) -> LogReader:
        """The files as of this map generation."""
        if self._log is None:
            self._log = LogReader(self._disk, self._folder)
        elif generation != self._generation:
            self._log.refresh()
        self._generation = generation
        return self._log
