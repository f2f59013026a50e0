"""What is really durable on the disks of all replicas: the checkers' `Durability` port.

Owns a log reader per node over the durable bytes alone. Must not know what any actor believes.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Container
from typing import cast

from actors.simulation.checkers.world_view import Held
from actors.simulation.disk.disk import SimulatedDisk
from actors.simulation.disk.file import SimulatedFile
from actors.simulation.disk.read_now import read_now
from actors.simulation.oracle.places import Places
from logstore.errors import CorruptData, FormatError
from logstore.format.group import frame_size
from logstore.format.meta import META_SIZE, NO_START, LogStart, Meta, unpack_meta
from logstore.format.raft_record import RECORD_SIZE, RaftRecord, unpack_raft_record
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.model import Index
from logstore.storage.disk import Disk
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.meta_store import META_NAMES, newest_meta
from logstore.storage.peer_starts_file import PEER_STARTS_NAME
from logstore.storage.segment import (
    read_either_header,
    record_position,
    segment_numbers,
    segment_path,
)
from logstore.storage.segment_map import SegmentMap

_NO_LOG = (*META_NAMES, PEER_STARTS_NAME)  # files that are not of the log


class DurableView:
    """The reading half of a `Disk` with only the bytes that are on the medium now."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._paths: list[str] = []

    def list_folder(self, folder: str) -> list[str]:
        paths = self._disk.durable_paths()
        return sorted(os.path.basename(path) for path in paths if os.path.dirname(path) == folder)

    def open_read(self, path: str) -> int:
        if path not in self._disk.durable_paths():
            raise FileNotFoundError(path)
        self._paths.append(path)
        return len(self._paths) - 1

    def read(self, handle: int, offset: int, size: int) -> bytes:
        return self._disk.durable_bytes(self._paths[handle], offset, size)

    def drop_cache(self, handle: int) -> None:
        """There is no cache."""

    def close(self, handle: int) -> None:
        """Nothing to do: a handle is an index into `_paths`."""


class CachedView:
    """The reading half of a `Disk` as any process of the machine sees it now."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._files: list[SimulatedFile] = []

    def list_folder(self, folder: str) -> list[str]:
        return self._disk.names_in(folder)

    def open_read(self, path: str) -> int:
        self._files.append(self._disk.file_named(path))
        return len(self._files) - 1

    def read(self, handle: int, offset: int, size: int) -> bytes:
        return read_now(self._disk.deferred, self._files[handle], offset, size)

    def drop_cache(self, handle: int) -> None:
        """The cache is what this view reads."""

    def close(self, handle: int) -> None:
        """Nothing to do: a handle is an index into `_files`."""


class DiskDurability:
    """What lies at or below a node's log start counts as held, for META is evidence of it.
    `disk_of`, `folder_of`: by node; `is_excused`: the node's medium rotted or lied."""

    def __init__(
        self,
        disk_of: Callable[[int], SimulatedDisk],
        folder_of: Callable[[int], str],
        is_excused: Callable[[int], bool],
    ) -> None:
        self._disk_of = disk_of
        self._folder_of = folder_of
        self._is_excused = is_excused
        self._readers: dict[int, LogReader] = {}
        self._views: dict[int, DurableView] = {}
        self._cached: dict[int, LogReader] = {}
        self._newest: dict[int, SegmentHeader] = {}  # of the segment with the last flushed entry
        self._known: dict[tuple[int, int], int] = {}  # (node, index) → chain of a durable entry
        self._places: dict[str, Places] = {}  # by folder, whether its disk is in or not
        self._held: dict[int, list[Held]] = {}
        self._is_medium_as_at_start: dict[int, bool] = {}
        self._deferred_before: dict[int, int] = {}  # the newest operation of earlier incarnations

    def has_entry(self, node: int, index: int, chain: int) -> bool:
        if self._known.get((node, index)) == chain:
            return True
        try:
            found = self._in_newest(node, index, chain) or self._located(node, index, chain)
        except BelowLogStart:
            return True
        if found is None or not self._has_frame(node, *found):
            # while the pair of the log start's entry is removed, a part of it is still found
            return index <= self.log_start(node).index
        record, number = found
        self._known[node, index] = chain
        self.places(node).add(record, number, is_doubtful=self._is_excused(node))
        return True

    def _has_frame(self, node: int, record: RaftRecord, number: int) -> bool:
        path = segment_path(self._folder_of(node), number, FileRole.DATA)
        size = frame_size(record.header)
        return self._disk_of(node).is_durable(path, record.frame_offset, size, counting_lies=True)

    def _in_newest(self, node: int, index: int, chain: int) -> tuple[RaftRecord, int] | None:
        """Hot. The next entry's durable record mostly follows the last one's in its segment."""
        header = self._newest.get(node)
        if header is None or index < header.first_index:
            return None
        path = segment_path(self._folder_of(node), header.number, FileRole.RAFT)
        position = record_position(header, Index(index))
        raw = self._disk_of(node).durable_bytes(path, position, RECORD_SIZE)
        try:
            record = unpack_raft_record(raw, segment_uuid=header.segment_uuid)
        except FormatError:
            return None
        is_it = (record.header.index, record.chain) == (index, chain)
        return (record, header.number) if is_it and record.log_epoch == header.log_epoch else None

    def _located(self, node: int, index: int, chain: int) -> tuple[RaftRecord, int] | None:
        """The record as a reader of the durable files finds it."""
        reader = self._reader(node)
        self._newest.pop(node, None)
        try:
            record, number = reader.located(Index(index))
            if record.chain != chain:
                reader.refresh()
                record, number = reader.located(Index(index))
        except BelowLogStart:
            raise
        except (CorruptData, FileNotFoundError, LookupError):
            return None
        if record.chain != chain:
            return None
        header = read_either_header(cast(Disk, self._views[node]), self._folder_of(node), number)
        if header is not None:
            self._newest[node] = header
        return record, number

    def is_written(self, node: int, index: int, chain: int) -> bool:
        if self._known.get((node, index)) == chain:
            return True
        reader = self._cached.get(node)
        if reader is None:
            view = cast(Disk, CachedView(self._disk_of(node)))
            reader = self._cached[node] = LogReader(view, self._folder_of(node))
        try:
            if reader.record(Index(index)).chain != chain:
                reader.refresh()
            return reader.record(Index(index)).chain == chain
        except BelowLogStart:
            return True
        except (CorruptData, FileNotFoundError, LookupError):
            return False

    def has_dropped(self, node: int, index: int, chain: int) -> bool:
        """The entry cannot come back: its removal is durable."""
        self._known.pop((node, index), None)
        try:
            self._reader(node).refresh()
            return self._reader(node).record(Index(index)).chain != chain
        except BelowLogStart:
            return False
        except (CorruptData, FileNotFoundError, LookupError):
            return True

    def meta(self, node: int) -> tuple[int, int]:
        meta = self._newest_meta(node)
        return (meta.term, meta.vote) if meta is not None else (0, 0)

    def uuid_of(self, node: int) -> bytes:
        """The replica's, by META; empty: there is none."""
        meta = self._newest_meta(node)
        return meta.replica_uuid if meta is not None else b""

    def boot_of(self, node: int) -> int:
        meta = self._newest_meta(node)
        return meta.boot_counter if meta is not None else 0

    def log_start(self, node: int) -> LogStart:
        meta = self._newest_meta(node)
        return NO_START if meta is None else meta.log_start

    def is_installing(self, node: int) -> bool:
        meta = self._newest_meta(node)
        return meta is not None and meta.installing is not None

    def highest_in(self, node: int, segment: int) -> int:
        return self.places(node).highest_in(segment)

    def pairs_below(self, node: int, start_index: int) -> list[int]:
        view, folder = CachedView(self._disk_of(node)), self._folder_of(node)
        numbers = segment_numbers(view.list_folder(folder))
        found = [read_either_header(cast(Disk, view), folder, each) for each in numbers]
        headers = [each for each in found if each is not None]
        live = SegmentMap.of(headers, start_index=Index(start_index)).segments
        return [each.number for each in headers if live and each.number < live[0].number]

    def meta_copy(self, node: int, copy: int) -> tuple[int, int] | None:
        path = f"{self._folder_of(node)}/{META_NAMES[copy]}"
        if not self._disk_of(node).is_durable(path, 0, META_SIZE, counting_lies=True):
            return None
        try:
            meta = unpack_meta(self._disk_of(node).durable_bytes(path, 0, META_SIZE))
        except FormatError:
            return None
        return meta.term, meta.vote

    def is_excused(self, node: int) -> bool:
        return self._is_excused(node)

    def truncated(self, node: int, first_index: int) -> None:
        """`node` was told to truncate: forget what is known of its entries from there on."""
        for key in [each for each in self._known if each[0] == node and each[1] >= first_index]:
            del self._known[key]
        self._newest.pop(node, None)
        self.places(node).truncate(first_index)

    def begins_after(self, node: int, index: int) -> None:
        """`node` has moved its log start there."""
        self.places(node).begin_after(index)

    def has_bytes(self, node: int, path: str, offset: int, size: int) -> bool:
        """Bytes other than zeros in the range are durable."""
        return any(self._disk_of(node).durable_bytes(path, offset, size))

    def flushed_after(self, node: int, at_ns: int) -> list[str]:
        """The files of the log whose flush, by this incarnation, ends after `at_ns`."""
        disk = self._disk_of(node)
        after = self._deferred_before.get(node, 0)
        files = disk.deferred.owners_after(at_ns, disk.end_flush, after=after)
        paths = [each for each in disk.paths() if not each.endswith(_NO_LOG)] if files else []
        return [path for path in paths if any(disk.file_named(path) is file for file in files)]

    def started(self, node: int) -> None:
        """A new incarnation begins; its recovery can find what the medium has now. Flushes that are
        under way are those of dead processes."""
        self._deferred_before[node] = self._disk_of(node).deferred.newest
        self._held.pop(node, None)
        self._cached.pop(node, None)
        self._newest.pop(node, None)
        self._is_medium_as_at_start[node] = not self._disk_of(node).has_lies
        if self._is_excused(node) and self._is_medium_as_at_start[node]:
            self._held[node] = self.places(node).held()

    def log_made(self, node: int) -> None:
        """`node` has a log from now on. Readers remember headers by number, and it may have begun
        with a number that a bootstrap which a power cut undid had used."""
        self._readers.pop(node, None)
        self._views.pop(node, None)
        self._cached.pop(node, None)
        self._newest.pop(node, None)

    def held_at_start(self, node: int) -> list[Held]:
        return self._held.get(node, [])

    def held_now(self, node: int, indexes: Container[int]) -> list[Held]:
        return [] if self._disk_of(node).has_lies else self.places(node).held(indexes)

    def segments_with_one_header(self, node: int) -> list[int]:
        """The pairs that a recovery must repair; none if a lying device may hide the repair."""
        if self._disk_of(node).has_lies or not self._is_medium_as_at_start.get(node):
            return []
        return self.places(node).segments_with_one_header()

    def places(self, node: int) -> Places:
        folder = self._folder_of(node)
        if folder not in self._places:
            self._places[folder] = Places(self._disk_of(node), folder)
        return self._places[folder]

    def replaced(self, node: int) -> None:
        """Another folder is that of `node` now, perhaps one that was before."""
        self.disk_changed(node)
        self._cached.pop(node, None)

    def disk_changed(self, node: int) -> None:
        """After a power cut or rot: forget what was known to be durable."""
        self._held.pop(node, None)
        self._is_medium_as_at_start[node] = False
        self._known = {key: chain for key, chain in self._known.items() if key[0] != node}
        self._readers.pop(node, None)
        self._views.pop(node, None)
        self._newest.pop(node, None)

    def _newest_meta(self, node: int) -> Meta | None:
        self._reader(node)
        return newest_meta(cast(Disk, self._views[node]), self._folder_of(node))

    def _reader(self, node: int) -> LogReader:
        reader = self._readers.get(node)
        if reader is None:
            view = self._views[node] = DurableView(self._disk_of(node))
            reader = self._readers[node] = LogReader(cast(Disk, view), self._folder_of(node))
        return reader
