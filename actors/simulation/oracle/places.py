"""Where each replica's flushed entries lie on its disk, and what was written there.

Owns the bytes of every entry as they were when its flush was answered, so that damage is known from
the medium alone, whatever a reader makes of it. Must not know what any actor believes.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from random import Random

import msgspec
from crc32c import crc32c

from actors.simulation.checkers.ports import Held
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.media_faults import medium_returns
from actors.simulation.disk.sectors import ZERO_SECTOR
from actors.simulation.faults.script import RotPlace
from logstore.errors import FormatError
from logstore.format.group import FRAME_HEADER_SIZE, frame_size
from logstore.format.raft_record import RECORD_SIZE, RaftRecord
from logstore.format.segment_header import (
    SEGMENT_IMAGE_SIZE,
    FileRole,
    SegmentHeader,
    unpack_segment_header,
)
from logstore.limits import SECTOR_BYTES
from logstore.storage.segment import record_position, segment_numbers, segment_path


class Extent(msgspec.Struct, frozen=True, gc=False):
    """Bytes of a file, as they were written."""

    path: str
    start: int
    content: bytes

    @property
    def within(self) -> range:
        return range(self.start, self.start + len(self.content))

    @property
    def sectors(self) -> set[tuple[str, int]]:
        """(path, sector) of all of it."""
        end = -(-self.within.stop // SECTOR_BYTES)
        return {(self.path, number) for number in range(self.start // SECTOR_BYTES, end)}


class Place(msgspec.Struct, frozen=True, gc=False):
    """One entry: which it is, and its two halves."""

    chain: int
    segment: int
    record: Extent
    frame: Extent


class Places:
    """Of one node, by index."""

    def __init__(self, disk: SimulatedDisk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._places: dict[int, Place] = {}
        self._headers: dict[int, SegmentHeader] = {}
        self._images: dict[str, bytes] = {}  # whole headers, by path

    def add(self, record: RaftRecord, segment: int, *, is_doubtful: bool) -> None:
        """The entry is flushed. `is_doubtful`: the medium may have changed since."""
        index = record.header.index
        known = self._places.get(index)
        if known is not None and (known.chain, known.segment) == (record.chain, segment):
            return
        header = self._header(segment)
        if header is None:
            return
        frame = self._extent(header, FileRole.DATA, record.frame_offset, frame_size(record.header))
        if is_doubtful and not _is_frame_of(frame.content, record):
            return
        at = record_position(header, index)
        half = self._extent(header, FileRole.RAFT, at, RECORD_SIZE)
        self._places[index] = Place(record.chain, segment, half, frame)

    def truncate(self, first_index: int) -> None:
        for index in [each for each in self._places if each >= first_index]:
            del self._places[index]

    def damaged(self) -> list[int]:
        """Indexes of entries that do not read as they were written, rising."""
        return [
            index
            for index, place in sorted(self._places.items())
            if not (self._is_whole(place.record) and self._is_whole(place.frame))
        ]

    def held(self, indexes: Container[int] | None = None) -> list[Held]:
        """All of them, or those of `indexes`, as the medium has them now, rising.

        None with a sector that is still to be written: its end may mend what rotted there, before a
        start reads it. None that only the page cache has with damage, which a second fault took
        from the medium: a reader sees the one or the other. None that lost nothing but zeros to a
        sector that is refused: whoever takes such a sector for zeros reads the whole entry, whoever
        does not calls it damaged.
        """
        newest = self._newest_segment()
        return [
            Held(
                index,
                place.chain,
                self._is_whole(place.record),
                self._is_whole(place.frame),
                place.segment == newest,
            )
            for index, place in sorted(self._places.items())
            if indexes is None or index in indexes
            if not self._is_under_way(place.record) and not self._is_under_way(place.frame)
            if not self._is_rotten_in_cache(place.record)
            if not self._is_rotten_in_cache(place.frame)
            if not self._lacks_zeros_only(place.frame)
        ]

    def is_forgetful(self) -> bool:
        """Some of it would pass for a write that never ended: an entry has lost both halves, and no
        whole record behind it shows that it was flushed. One fault never does that."""
        return any(not is_whole for _, is_whole in self._unproved(self._newest()))

    def needed(self) -> set[tuple[str, int]]:
        """(path, sector) that must not rot, lest it becomes forgetful."""
        newest = self._newest()
        sectors = {sector for place, _ in self._unproved(newest) for sector in place.frame.sectors}
        proofs = [place for place in newest if self._is_whole(place.record)]
        if proofs:
            proof = proofs[-1].record.sectors
            kept = [place for place in newest if place.record.sectors != proof]
            if any(not is_whole for _, is_whole in self._unproved(newest, kept)):
                sectors |= proof
        return sectors

    def half_headed(self) -> list[int]:
        """Segments with a header in one of their two files, and none that is whole in the other."""
        self._disk.deferred.apply_due_locally()
        lacking = []
        for number in segment_numbers(self._disk.names_in(self._folder)):
            headed = [role for role in FileRole if self._is_headed(number, role)]
            if len(headed) == 1:
                lacking.append(number)
        return lacking

    def aim(self, place: RotPlace, random: Random, amount: int) -> list[Extent]:
        """Where rot strikes: nowhere if there is nothing such."""
        if place is RotPlace.HEADER:
            numbers = sorted({each.segment for each in self._places.values()})[-amount:]
            paths = [
                segment_path(self._folder, each, role) for each in numbers for role in FileRole
            ]
            return [Extent(random.choice(paths), 0, bytes(SEGMENT_IMAGE_SIZE))] if paths else []
        entries = self._newest()
        if not entries:
            return []
        if place is RotPlace.ENTRY:
            entries = entries[:-amount]
            return _halves(random.choice(entries)) if entries else []
        hit = random.choice(entries[-amount:])
        return [hit.frame if place is RotPlace.FRAME else hit.record]

    def _newest(self) -> list[Place]:
        """The entries of the newest segment that has any, rising."""
        rising = [each for _, each in sorted(self._places.items())]
        return [each for each in rising if each.segment == rising[-1].segment]

    def _unproved(
        self, newest: list[Place], records: list[Place] | None = None
    ) -> list[tuple[Place, bool]]:
        """Entries behind the last whole record, of `records` if they are given, and whether their
        frames are whole."""
        whole = [
            each for each in (newest if records is None else records) if self._is_whole(each.record)
        ]
        behind = newest[newest.index(whole[-1]) + 1 :] if whole else newest
        return [(each, self._is_whole(each.frame)) for each in behind]

    def _is_whole(self, extent: Extent) -> bool:
        self._disk.deferred.apply_due_locally()
        if not self._disk.has_name(extent.path):
            return False
        return medium_returns(self._disk.file_named(extent.path), extent.start, extent.content)

    def _is_under_way(self, extent: Extent) -> bool:
        if not self._disk.has_name(extent.path):
            return False
        file = self._disk.file_named(extent.path)
        return any(file.is_volatile(number) for _, number in extent.sectors)

    def _is_rotten_in_cache(self, extent: Extent) -> bool:
        """And whole on the medium."""
        if not self._is_whole(extent):
            return False
        file = self._disk.file_named(extent.path)
        first, end = extent.start // SECTOR_BYTES, -(-extent.within.stop // SECTOR_BYTES)
        if not any(number in file.apart for number in range(first, end)):
            return False
        cached = b"".join(file.sectors.get(number, ZERO_SECTOR) for number in range(first, end))
        start = extent.start - first * SECTOR_BYTES
        return cached[start : start + len(extent.content)] != extent.content

    def _lacks_zeros_only(self, extent: Extent) -> bool:
        if not self._disk.has_name(extent.path):
            return False
        file, start = self._disk.file_named(extent.path), extent.start
        refused = [number for _, number in extent.sectors if number in file.unreadable]
        if not refused:
            return False
        given = bytearray(file.durable_bytes(start, len(extent.content)))
        for number in refused:
            first = max(0, number * SECTOR_BYTES - start)
            end = min(len(given), (number + 1) * SECTOR_BYTES - start)
            given[first:end] = bytes(end - first)
        return given == extent.content

    def _extent(self, header: SegmentHeader, role: FileRole, start: int, size: int) -> Extent:
        path = segment_path(self._folder, header.number, role)
        return Extent(path, start, self._disk.durable_bytes(path, start, size))

    def _header(self, number: int) -> SegmentHeader | None:
        """The first whole copy that is on the medium; what is flushed of a file is kept whatever
        its name."""
        header = self._headers.get(number)
        if header is not None:
            return header
        for role in FileRole:
            path = segment_path(self._folder, number, role)
            if header is not None or not self._disk.has_name(path):
                continue
            with suppress(FormatError):
                image = self._disk.file_named(path).durable_bytes(0, SEGMENT_IMAGE_SIZE)
                header = self._headers[number] = unpack_segment_header(image)
        return header

    def _is_headed(self, number: int, role: FileRole) -> bool:
        path = segment_path(self._folder, number, role)
        if not self._disk.has_name(path):
            return False
        file = self._disk.file_named(path)
        image = file.durable_bytes(0, SEGMENT_IMAGE_SIZE)
        if image == self._images.get(path):
            return medium_returns(file, 0, image)
        try:
            header = unpack_segment_header(image)
        except FormatError:
            return False
        if (header.number, header.role) != (number, role):
            return False
        self._images[path] = image
        return medium_returns(file, 0, image)

    def _newest_segment(self) -> int:
        """The one that a start goes on with; 0 while a header is under way."""
        self._disk.deferred.apply_due_locally()
        newest = 0
        for number in segment_numbers(self._disk.names_in(self._folder)):
            if self._header(number) is not None:
                newest = number
            for role in FileRole:
                path = segment_path(self._folder, number, role)
                if self._disk.has_name(path) and self._disk.file_named(path).is_volatile(0):
                    return 0
        return newest


def _halves(place: Place) -> list[Extent]:
    return [place.record, place.frame]


def _is_frame_of(content: bytes, record: RaftRecord) -> bool:
    header = record.header
    body = content[FRAME_HEADER_SIZE:]
    if len(content) != frame_size(header) or header.pack() not in content[:FRAME_HEADER_SIZE]:
        return False
    return (crc32c(body) if body else 0) == header.body_crc
