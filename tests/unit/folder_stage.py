"""A replica's data folder on a real disk, written by the shipped writer, and faults planted in it.

Planted faults keep every CRC right where they are meant to, so that only the contents are wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import msgspec
from crc32c import crc32c

from logstore.format.batch import encode_batch
from logstore.format.entry import EntryHeader, Row
from logstore.format.group import FRAME_HEADER_SIZE, FrameHeader
from logstore.format.level import NEWEST_LEVEL
from logstore.format.raft_record import RECORD_SIZE, RaftRecord
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.limits import KIB
from logstore.model import EntryKind, Index, Lsn, NodeId, Term
from logstore.storage.disk import RealDisk
from logstore.storage.log_reader import LogReader
from logstore.storage.recovery import create_log, recover
from logstore.storage.segment import (
    SegmentOptions,
    read_header,
    record_position,
    segment_path,
)

CLUSTER = b"cluster of tests"
OPTIONS = SegmentOptions(segment_bytes=16 * KIB, segment_records=64)


def fill(folder: Path, first_lsn: int) -> None:
    """60 payloads in entries of one to three batches, over several segments. All but the last
    entry, a NOOP, is known to be committed."""
    stage = FolderStage(folder, first_lsn)
    stage.append()
    for number in range(10):
        stage.append(batch([b"%d-one" % number]))
        stage.append(batch([b"%d-a" % number, b""]), batch([b"%d-b" % number * 900, b"c", b"d"]))
        stage.append()
    stage.close()


def batch(payloads: Sequence[bytes], sequence: int = 0) -> bytes:
    return encode_batch(
        payloads, producer_id=7, producer_epoch=1, sequence=sequence, timestamp_ns=5
    )


class FolderStage:
    """Entries go in, one a flush; `close` it before it is looked at."""

    def __init__(self, folder: Path, first_lsn: int = 1) -> None:
        self.folder = folder
        self._disk = RealDisk()
        uuids = itertools.count(1)

        def new_uuid() -> bytes:
            return next(uuids).to_bytes(16, "little")

        found = recover(
            self._disk, str(folder), OPTIONS,
            node=NodeId(1), newest_level=NEWEST_LEVEL, new_uuid=new_uuid, tick=lambda: None,
        )  # fmt: skip
        self._writer = create_log(
            self._disk, str(folder), OPTIONS, found.meta, cluster_id=CLUSTER,
            first_lsn=Lsn(first_lsn), new_uuid=new_uuid,
        )  # fmt: skip

    def append(self, *batches: bytes, commit: int | None = None, kind: int = EntryKind.NOOP) -> int:
        """An entry of these batches, or of `kind` without any; its first LSN. All before it is
        committed."""
        last = self._writer.last
        body = b"".join(batches)
        counts = [int.from_bytes(each[12:16], "little") for each in batches]
        header = EntryHeader(
            kind=EntryKind.DATA if body else kind, count=sum(counts), term=Term(1),
            index=Index(last.header.index + 1), prev_term=last.header.term,
            first_lsn=last.header.next_lsn, timestamp_ns=last.header.timestamp_ns + 1,
            cumulative_bytes=last.header.cumulative_bytes + len(body), prev_chain=last.chain,
            body_size=len(body), body_crc=crc32c(body) if body else 0,
        )  # fmt: skip
        known = last.header.index if commit is None else commit
        entry = (header, Row.of(header).chain, known, [memoryview(body)])
        if self._writer.needs_roll([entry]):
            self._writer.roll()
        group = self._writer.append([entry])
        self._writer.flush_data(group)
        self._writer.write_records(group)
        self._writer.flush_records(group)
        return int(header.first_lsn)

    def close(self) -> None:
        self._disk.unlock_folder(str(self.folder))


# --- faults ---


def located(folder: Path, lsn: int) -> tuple[SegmentHeader, RaftRecord]:
    """The segment and the record of the entry that holds an LSN."""
    disk = RealDisk()
    reader = LogReader(disk, str(folder))
    last = Index(max(_last_index(disk, folder, number) for number in _numbers(folder)))
    try:
        record, number = reader.located(reader.index_of_lsn(Lsn(lsn), last))
    finally:
        reader.close()
    return read_header(disk, segment_path(str(folder), number, FileRole.RAFT)), record


def flip(folder: Path, name: str, position: int) -> None:
    """One bit of one byte of a file, in place: somebody may have it open."""
    with open(folder / name, "r+b", buffering=0) as file:
        file.seek(position)
        old = file.read(1)
        file.seek(position)
        file.write(bytes([old[0] ^ 1]))


def flip_payload(folder: Path, lsn: int, payload: bytes) -> None:
    """A bit of a payload, once; `payload` is what the entry that holds the LSN has of it."""
    segment, record = located(folder, lsn)
    name = f"{segment.number:016d}.data"
    at = (folder / name).read_bytes().index(payload, record.frame_offset + FRAME_HEADER_SIZE)
    flip(folder, name, at + len(payload) // 2)


def forget(folder: Path, lsn: int) -> None:
    """The entry that holds an LSN is a NOOP now: its LSNs are missing, and nothing is damaged."""
    segment, record = located(folder, lsn)
    header = msgspec.structs.replace(
        record.header, kind=EntryKind.NOOP, count=0, body_size=0, body_crc=0
    )
    _write(folder, segment, record, header, b"", record.frame_offset)


def repeat(folder: Path, lsn: int) -> None:
    """The entry that ends before an LSN has the next one's batches, too: its LSNs are doubled."""
    segment, record = located(folder, lsn - 1)
    _, following = located(folder, lsn)
    data = (folder / f"{segment.number:016d}.data").read_bytes()
    body = b"".join(
        data[start : start + size]
        for start, size in (
            (each.frame_offset + FRAME_HEADER_SIZE, each.header.body_size)
            for each in (record, following)
        )
    )
    header = msgspec.structs.replace(
        record.header, count=record.header.count + following.header.count, body_size=len(body),
        body_crc=crc32c(body), cumulative_bytes=record.header.cumulative_bytes + len(body),
    )  # fmt: skip
    _write(folder, segment, record, header, body, len(data))


def _write(
    folder: Path,
    segment: SegmentHeader,
    record: RaftRecord,
    header: EntryHeader,
    body: bytes,
    offset: int,
) -> None:
    frame = FrameHeader(
        header, segment.number, segment.segment_uuid, segment.log_epoch, record.commit_known
    )
    written = RaftRecord(header, header.chain(), offset, record.commit_known, segment.log_epoch)
    for suffix, position, block in (
        ("data", offset, frame.pack() + body),
        ("raft", record_position(segment, header.index), written.pack(segment.segment_uuid)),
    ):
        with open(folder / f"{segment.number:016d}.{suffix}", "r+b") as file:
            file.seek(position)
            file.write(block)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.raft"))


def _last_index(disk: RealDisk, folder: Path, number: int) -> int:
    path = segment_path(str(folder), number, FileRole.RAFT)
    data = Path(path).read_bytes()
    if not any(data[:512]):
        return 0
    header = read_header(disk, path)
    places = range(record_position(header, header.first_index), len(data), RECORD_SIZE)
    count = sum(1 for place in places if any(data[place : place + RECORD_SIZE]))
    return header.first_index + count - 1
