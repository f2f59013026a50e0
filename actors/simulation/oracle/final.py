"""What a replica holds at the end: its committed entries, read from its disk by the real reader.

Owns nothing. Must not know what they should be.
"""

from __future__ import annotations

from collections.abc import Iterator

from actors.simulation.replica import Replica
from logstore.format.entry import EntryHeader
from logstore.model import Index
from logstore.storage.log_reader import LogReader


def read_committed(replica: Replica, commit: int) -> Iterator[tuple[EntryHeader, bytes]]:
    """Header and body of every entry up to `commit`.

    Raises:
      CorruptData: one of them cannot be read.
    """
    reader = LogReader(replica.disk, replica.folder)
    for index in range(reader.start.index + 1, commit + 1):
        record = reader.record(Index(index))
        yield record.header, reader.body_of(record)
