"""Where each replica's flushed entries are on its disk, and what was written there.

Owns the bytes of every entry as they were when its flush ended, so that damage is found by
comparing the medium with them, not by any reader. Must not know what any actor believes.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from random import Random

import msgspec
from crc32c import crc32c

from actors.simulation.checkers.world_view import Held
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
        """Each (path, sector) of it."""
        end = -(-self.within.stop // SECTOR_BYTES)
        return {(self.path, number) for number in range(self.start // SECTOR_BYTES, end)}


class Place(msgspec.Struct, frozen=True, gc=False):
    """One entry: its chain and the places of its two halves."""

    chain: int
    segment: int
    record: Extent
    frame: Extent


class Places:
    """The places of one node's entries, by index."""

    def __init__(self, disk: SimulatedDisk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._places: dict[int, Place] = {}
        self._headers: dict[int, SegmentHeader] = {}
        self._images: dict[str, bytes] = {}  # whole headers, by path

    def add(self, record: RaftRecord, segment: int, *, is_doubtful: bool) -> None:
        """The entry was flushed. `is_doubtful`: the medium may have been damaged since."""
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

    def begin_after(self, index: int) -> None:
        """The log starts after this entry."""
        for each in [each for each in self._places if each <= index]:
            del self._places[each]

    def highest_in(self, segment: int) -> int:
        """The highest entry in it; 0: there is none."""
        indexes = (index for index, each in self._places.items() if each.segment == segment)
        return max(indexes, default=0)

    def damaged(self) -> list[int]:
        """The indexes of damaged entries, ascending."""
        return [
            index
            for index, place in sorted(self._places.items())
            if not (self._is_whole(place.record) and self._is_whole(place.frame))
        ]

    def held(self, indexes: Container[int] | None = None) -> list[Held]:
        """The entries, or those of `indexes`, as the medium has them now, ascending.

        Left out: an entry with a volatile sector, because writing it may repair the rot before a
        start reads it; one whose damage only the page cache has, because a second fault repaired
        the medium and a reader sees either; and one that lost nothing but zeros to an unreadable
        sector, because a reader may take such a sector for zeros or call the entry damaged.
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

    def has_unprovable_loss(self) -> bool:
        """A lost entry looks like a write that never ended: both halves are gone, and no whole
        record after them proves that it was flushed. A single fault never does that."""
        return any(not is_whole for _, is_whole in self._unproved(self._newest()))

    def sectors_to_spare(self) -> set[tuple[str, int]]:
        """Each (path, sector) whose rot would make a loss unprovable."""
        newest = self._newest()
        sectors = {sector for place, _ in self._unproved(newest) for sector in place.frame.sectors}
        proofs = [place for place in newest if self._is_whole(place.record)]
        if proofs:
            proof = proofs[-1].record.sectors
            kept = [place for place in newest if place.record.sectors != proof]
            if any(not is_whole for _, is_whole in self._unproved(newest, kept)):
                sectors |= proof
        return sectors

    def segments_with_one_header(self) -> list[int]:
        """Segments with a whole header in exactly one of their two files."""
        self._disk.deferred.apply_due_locally()
        lacking = []
        for number in segment_numbers(self._disk.names_in(self._folder)):
            headed = [role for role in FileRole if self._is_headed(number, role)]
            if len(headed) == 1:
                lacking.append(number)
        return lacking

    def aim(self, place: RotPlace, random: Random, amount: int) -> list[Extent]:
        """Where rot at `place` strikes; nothing if there is no such place."""
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
        if place is RotPlace.FRAMES:
            return [each.frame for each in entries[-amount:]]
        hit = random.choice(entries[-amount:])
        return [hit.frame if place is RotPlace.FRAME else hit.record]

    def _newest(self) -> list[Place]:
        """The entries of the newest segment that has any, ascending."""
        ascending = [each for _, each in sorted(self._places.items())]
        return [each for each in ascending if each.segment == ascending[-1].segment]

    def _unproved(
        self, newest: list[Place], records: list[Place] | None = None
    ) -> list[tuple[Place, bool]]:
        """The entries after the last whole record (of `records` if given), each with whether its
        frame is whole."""
        whole = [
            each for each in (newest if records is None else records) if self._is_whole(each.record)
        ]
        after = newest[newest.index(whole[-1]) + 1 :] if whole else newest
        return [(each, self._is_whole(each.frame)) for each in after]

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
        if not any(number in file.other_in_cache for number in range(first, end)):
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
        """The first whole copy on the medium, whether the file's name is durable or not."""
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
        """The segment that a start would continue; 0 while a header is volatile."""
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
