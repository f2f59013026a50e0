"""Damage to a replica's files, and how it is taken back: what a disk does, done on purpose.

Works on files below the replica; what it needs to know of them it reads as `logstore inspect` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import SEGMENT_HEADER_SIZE
from logstore.storage.disk import RealDisk
from logstore.storage.inspect import inspect_records

META_NAMES = ("meta.a", "meta.b")


class Entry(msgspec.Struct, frozen=True):
    """One entry of a segment, as its record tells; `path` is the segment's data file."""

    path: Path
    kind: str
    index: int
    first_lsn: int
    count: int
    frame_offset: int
    body_size: int

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1

    @property
    def body_middle(self) -> int:
        """Position of a byte in the middle of the body."""
        return self.frame_offset + FRAME_HEADER_SIZE + self.body_size // 2

    @property
    def end(self) -> int:
        """Position behind the frame."""
        return self.frame_offset + FRAME_HEADER_SIZE + self.body_size


def segments(folder: Path) -> list[list[Entry]]:
    """The entries of every segment that holds some, in the order of the segments."""
    found = [_entries(path) for path in sorted(folder.glob("*.raft"))]
    return [entries for entries in found if entries]


def _entries(raft_path: Path) -> list[Entry]:
    if not any(raft_path.read_bytes()[:SEGMENT_HEADER_SIZE]):
        return []  # a prepared spare
    data_path = raft_path.with_suffix(".data")
    return [
        Entry(
            path=data_path,
            kind=str(row["kind"]),
            index=int(row["index"]),
            first_lsn=int(row["first_lsn"]),
            count=int(row["count"]),
            frame_offset=int(row["frame_offset"]),
            body_size=int(row["body_size"]),
        )
        for row in inspect_records(RealDisk(), str(raft_path))
        if not row["fault"]
    ]


def middle_data_entry(entries: list[Entry]) -> Entry:
    """An entry with payloads, with entries before and behind it."""
    data = [entry for entry in entries if entry.kind == "DATA"]
    return data[len(data) // 2]


def flip(path: Path, position: int) -> None:
    """Invert one byte in place; twice is as before."""
    with path.open("r+b") as file:
        byte = os.pread(file.fileno(), 1, position)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0xFF]), position)


@contextmanager
def flipped(path: Path, position: int) -> Iterator[None]:
    flip(path, position)
    try:
        yield
    finally:
        flip(path, position)


def tear_behind_last_frame(folder: Path, garbage: bytes) -> None:
    """Bytes behind the last frame, as a write that the power cut in two leaves them."""
    last = segments(folder)[-1][-1]
    _write(last.path, last.end, garbage)


def tear_half_a_frame(folder: Path) -> None:
    """The first half of a frame that would continue nothing."""
    entry = middle_data_entry(segments(folder)[-1])
    size = (entry.end - entry.frame_offset) // 2
    with entry.path.open("rb") as file:
        half = os.pread(file.fileno(), size, entry.frame_offset)
    end = segments(folder)[-1][-1].end
    _write(entry.path, -(-end // 512) * 512, half)


def tear_half_a_record(folder: Path) -> None:
    """The first half of the record before, where the next one belongs."""
    last = segments(folder)[-1]
    raft_path = last[-1].path.with_suffix(".raft")
    position = SEGMENT_HEADER_SIZE + (last[-1].index - _first_index(raft_path)) * RECORD_SIZE
    with raft_path.open("rb") as file:
        half = os.pread(file.fileno(), RECORD_SIZE // 2, position)
    _write(raft_path, position + RECORD_SIZE, half)


def _first_index(raft_path: Path) -> int:
    return int(next(iter(inspect_records(RealDisk(), str(raft_path))))["index"])


def _write(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), content, position)
