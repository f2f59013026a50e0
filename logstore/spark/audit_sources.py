"""What an audit compares: replicas, a lake, folders of stopped replicas; their parts and batches.

Owns how each kind is read so that damage is a fact like any other: of a batch that cannot be told,
a place is left, with LSNs and a fault. Tasks read parts, each batch of a source in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from logstore.errors import CorruptData, FormatError
from logstore.limits import MIB, POSITION_MAX
from logstore.spark.connections import connected
from logstore.spark.lake import data_path, read_manifest
from logstore.spark.lake_file import read_lake_file
from logstore.spark.lake_manifest import LakeFile
from logstore.storage.disk import RealDisk
from logstore.storage.salvage import SalvagedEntry, committed_lsn, salvage_folder, salvage_segment
from logstore.storage.salvaged_batches import salvage_batches
from logstore.storage.segment_map import LiveSegment

PART_BYTES = 64 * MIB
FETCH_BYTES = 2 * MIB


class Place(msgspec.Struct, frozen=True, gc=False):
    """A batch, or where one should be: its LSNs, its bytes if they can be told, what is wrong."""

    first_lsn: int
    count: int
    data: bytes | memoryview
    fault: str = ""

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


class Replica(msgspec.Struct, frozen=True, tag=True):
    """A replica that runs; `last_lsn` is what was committed when the audit began."""

    endpoints: str
    node: int
    timeout_s: float

    @property
    def name(self) -> str:
        return f"node {self.node}"


class Lake(msgspec.Struct, frozen=True, tag=True):
    folder: str

    @property
    def name(self) -> str:
        return f"lake {self.folder}"


class Folder(msgspec.Struct, frozen=True, tag=True):
    """The data folder of a replica that does not run."""

    path: str

    @property
    def name(self) -> str:
        return f"folder {self.path}"


Source = Replica | Lake | Folder


class Part(msgspec.Struct, frozen=True):
    """What one task reads of a source: these LSNs, or that file, or that segment."""

    source: Source
    first_lsn: int
    last_lsn: int
    file: LakeFile | None = None
    segment: LiveSegment | None = None


class Survey(msgspec.Struct, frozen=True):
    """A source as it is found: it should have LSNs [first_lsn, last_lsn], in these parts.

    `faults`: damage that is in no part.
    """

    source: Source
    first_lsn: int
    last_lsn: int
    parts: tuple[Part, ...]
    faults: tuple[str, ...] = ()


def survey(source: Source) -> Survey:
    """Look a source over, without reading its batches.

    Raises:
      Unreachable: a replica does not answer, or does not show what is committed.
      CorruptData, InvalidRequest: there is no lake, or its manifest is damaged.
    """
    match source:
        case Replica():
            return _survey_replica(source)
        case Lake():
            manifest = read_manifest(source.folder)
            parts = [
                Part(source, file.first_lsn, file.last_lsn, file=file) for file in manifest.files
            ]
            return Survey(source, manifest.first_lsn, manifest.next_lsn - 1, tuple(parts))
        case Folder():
            return _survey_folder(source)


def read_part(part: Part) -> Iterator[Place]:
    """The batches of a part by LSN, as far as they are in order, none left out that anything tells
    of."""
    match part.source:
        case Replica():
            yield from _read_replica(part.source, part.first_lsn, part.last_lsn)
        case Lake():
            yield from _read_lake(part.source, part)
        case Folder():
            yield from _read_folder(part.source, part)


# --- replicas ---


def _survey_replica(source: Replica) -> Survey:
    admin = connected(source.endpoints, timeout_s=source.timeout_s).client.admin
    last_lsn = admin.commit_lsn()
    shown = admin.watermarks(replica=source.node, min_lsn=last_lsn)
    parts: list[Part] = []
    if last_lsn >= shown.log_start_lsn:
        spans = admin.spans(
            shown.log_start_lsn, last_lsn, step_bytes=PART_BYTES, replica=source.node
        )
        parts = [Part(source, span.first_lsn, span.last_lsn) for span in spans.rows]
    return Survey(source, shown.log_start_lsn, last_lsn, tuple(parts))


def _read_replica(source: Replica, first_lsn: int, last_lsn: int) -> Iterator[Place]:
    client = connected(source.endpoints, timeout_s=source.timeout_s).client
    next_lsn = first_lsn
    while next_lsn <= last_lsn:
        fault, after = "", next_lsn
        try:
            with client.reader(replica=source.node, max_bytes=FETCH_BYTES) as reader:
                for batch in reader.read_batches(next_lsn, last_lsn, min_lsn=last_lsn):
                    if batch.first_lsn >= next_lsn:
                        yield Place(batch.first_lsn, batch.count, batch.data)
                    next_lsn = after = batch.last_lsn + 1
        except CorruptData as damage:
            fault, after = damage.got, max(damage.last_lsn, next_lsn) + 1
        except FormatError as error:
            fault, after = str(error), last_lsn + 1
        if fault:
            yield Place(next_lsn, min(after, last_lsn + 1) - next_lsn, b"", fault)
            next_lsn = after


# --- lakes ---


def _read_lake(source: Lake, part: Part) -> Iterator[Place]:
    if part.file is None:
        return
    next_lsn = part.first_lsn
    try:
        for batch in read_lake_file(data_path(source.folder, part.file), part.file):
            yield Place(batch.first_lsn, batch.count, batch.data)
            next_lsn = batch.last_lsn + 1
    except (CorruptData, FormatError) as damage:
        yield Place(next_lsn, part.last_lsn - next_lsn + 1, b"", str(damage))


# --- folders ---


def _survey_folder(source: Folder) -> Survey:
    disk = RealDisk()
    found = salvage_folder(disk, source.path)
    known = [segment for segment in found.segments if segment.header is not None]
    # The log start may lie inside the first segment.
    starts = [
        max(segment.header.first_lsn, found.first_lsn)
        for segment in known
        if segment.header is not None
    ]
    parts = [
        Part(source, first, max(first, end - 1), segment=segment)
        for segment, first, end in zip(known, starts, [*starts[1:], POSITION_MAX], strict=True)
    ]
    last_lsn = committed_lsn(disk, source.path, found)
    return Survey(source, found.first_lsn, last_lsn, tuple(parts), found.faults)


def _read_folder(source: Folder, part: Part) -> Iterator[Place]:
    if part.segment is None:
        return
    next_lsn = part.first_lsn
    for entry in salvage_segment(RealDisk(), source.path, part.segment):
        if entry.count:
            yield from _places(entry)
            next_lsn = entry.next_lsn
        elif entry.fault:
            # Nothing says how many LSNs it has, if any: the next entry shows.
            yield Place(entry.first_lsn or next_lsn, 0, b"", entry.fault)


def _places(entry: SalvagedEntry) -> Iterator[Place]:
    has_told = not entry.fault
    for batch in salvage_batches(entry):
        has_told = has_told or bool(batch.fault)
        yield Place(batch.first_lsn, batch.count, batch.data, batch.fault)
    if not has_told:  # the damage is in the entry's frame or record, its batches are whole
        yield Place(entry.first_lsn, 0, b"", entry.fault)
