"""The contents of storage files, as rows for people, without a node (`logstore inspect`).

Reads one file at a time. Damage gives an ordinary row: `fault` is empty where the bytes are whole.
Must not repair, lock or decide what is live.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from crc32c import crc32c

from logstore.errors import CorruptData, FormatError, InvalidRequest
from logstore.format.batch import batch_sizes, iterate_batches
from logstore.format.entry import EntryHeader, kind_name, takes_lsns
from logstore.format.group import FRAME_HEADER_SIZE, FRAME_MAGIC, frame_size, unpack_frame_header
from logstore.format.level import NEWEST_LEVEL, check_level, level_of
from logstore.format.meta import META_MAGIC, META_SIZE, unpack_meta
from logstore.format.raft_record import RECORD_SIZE, unpack_raft_record
from logstore.format.segment_header import SEGMENT_HEADER_SIZE, SegmentHeader
from logstore.format.trim_entry import decode_trim
from logstore.limits import MIB, SECTOR_BYTES
from logstore.model import Codec, EntryKind
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import read_salvaged
from logstore.storage.meta_store import META_NAMES
from logstore.storage.segment import is_segment_name, read_header

InspectRow = dict[str, int | str]

_MAGIC = FRAME_MAGIC.to_bytes(4, "little")
_META_MAGIC = META_MAGIC.to_bytes(4, "little")


def inspect_meta(disk: Disk, path: str) -> InspectRow:
    """One META file.

    Raises:
      FileNotFoundError: no such file.
      InvalidRequest: neither its name nor its first bytes are those of a META file.
      UnsupportedLevel: the log is above the newest format level that this version reads (S11).
    """
    handle = disk.open_read(path)
    try:
        image = read_salvaged(disk, handle, 0, META_SIZE)
        if os.path.basename(path) not in META_NAMES and not image.startswith(_META_MAGIC):
            raise InvalidRequest(
                f"{path} is no META file: their names are {' and '.join(META_NAMES)}"
            )
        meta = unpack_meta(image)
    except FormatError as error:
        return {"file": path, "fault": str(error)}
    finally:
        disk.close(handle)
    check_level(path, meta.level, newest=NEWEST_LEVEL)
    return {
        "file": path,
        "state": meta.state.name,
        "cluster_id": meta.cluster_id.hex(),
        "replica_uuid": meta.replica_uuid.hex(),
        "node": meta.node,
        "term": meta.term,
        "vote": meta.vote,
        "boot_counter": meta.boot_counter,
        "generation": meta.generation,
        "level": meta.level,
        "log_start_index": meta.log_start.index,
        "log_start_term": meta.log_start.term,
        "log_start_chain": f"{meta.log_start.chain:016x}",
        "log_start_next_lsn": meta.log_start.next_lsn,
        "is_installing": meta.installing is not None,
        "has_config": meta.has_config,
        "forgotten": "" if meta.forgotten is None else meta.forgotten.words,
        "fault": "",
    }


def inspect_segment(disk: Disk, path: str) -> InspectRow:
    """The header of one segment file, and its size; role SPARE for one prepared ahead.

    Errors as `inspect_meta`, and:

    Raises:
      InvalidRequest: the name is not that of a segment file.
    """
    _check_name(path)
    handle = disk.open_read(path)
    size = disk.size(handle)
    disk.close(handle)
    header, fault = _header(disk, path)
    if header is None and _is_spare(disk, path):
        return {"file": path, "size_bytes": size, "role": "SPARE", "fault": ""}
    if header is None:
        return {"file": path, "size_bytes": size, "fault": fault}
    return {
        "file": path,
        "size_bytes": size,
        "role": header.role.name,
        "number": header.number,
        "log_epoch": header.log_epoch,
        "cluster_id": header.cluster_id.hex(),
        "replica_uuid": header.replica_uuid.hex(),
        "segment_uuid": header.segment_uuid.hex(),
        "first_index": header.first_index,
        "first_lsn": header.first_lsn,
        "base_term": header.base_term,
        "base_chain": f"{header.base_chain:016x}",
        "base_timestamp_ns": header.base_timestamp_ns,
        "base_cumulative_bytes": header.base_cumulative_bytes,
        "previous_number": header.previous_number,
        "previous_uuid": header.previous_uuid.hex(),
        "previous_first_index": header.previous_first_index,
        "previous_valid_end": header.previous_valid_end,
        "fault": "",
    }


def inspect_records(disk: Disk, path: str) -> Iterator[InspectRow]:
    """A row for each record of a `.raft` file, or for each frame of a `.data` file, in file order.

    Unwritten space gives no rows. Whether a row is live depends on the other
    segments and is not shown. An entry that raises the format level above what this version reads
    is the last row.

    Raises:
      InvalidRequest: the name is not that of a segment file, or it has no header to check against.
      UnsupportedLevel: what follows is too new for this version (S11).
    """
    _check_name(path)
    header, fault = _header(disk, path)
    if header is None and _is_spare(disk, path):
        return
    if header is None:
        raise InvalidRequest(f"{path}: {fault}; inspect the other file of the pair")
    handle = disk.open_read(path)
    try:
        is_raft = path.endswith(".raft")
        for kind, row in (_record_rows if is_raft else _frame_rows)(disk, handle, header):
            yield row
            check_level(path, level_of(kind), newest=NEWEST_LEVEL)
    finally:
        disk.close(handle)


def _check_name(path: str) -> None:
    if not is_segment_name(os.path.basename(path)):
        raise InvalidRequest(
            f"{path} is no segment file: their names are NUMBER.data and NUMBER.raft"
        )


def _header(disk: Disk, path: str) -> tuple[SegmentHeader | None, str]:
    try:
        return read_header(disk, path), ""
    except (FormatError, CorruptData) as error:
        return None, str(error)


def _is_spare(disk: Disk, path: str) -> bool:
    """Whether nothing was ever written here: the file is part of a spare pair (S9)."""
    handle = disk.open_read(path)
    try:
        return not any(read_salvaged(disk, handle, 0, SEGMENT_HEADER_SIZE + SECTOR_BYTES))
    finally:
        disk.close(handle)


def _record_rows(
    disk: Disk, handle: int, header: SegmentHeader
) -> Iterator[tuple[int, InspectRow]]:
    """Rows with their entries' kinds; kind 0: damaged."""
    position, end = SEGMENT_HEADER_SIZE, disk.size(handle)
    while position < end:
        chunk = read_salvaged(disk, handle, position, min(MIB, end - position))
        if not chunk:
            return  # the replica runs, and has cut the file meanwhile
        for place in range(0, len(chunk), RECORD_SIZE):
            raw = chunk[place : place + RECORD_SIZE]
            if any(raw):
                yield _record_row(raw, position + place, header)
        position += len(chunk)


def _record_row(raw: bytes, position: int, header: SegmentHeader) -> tuple[int, InspectRow]:
    expected = header.first_index + (position - SEGMENT_HEADER_SIZE) // RECORD_SIZE
    try:
        record = unpack_raft_record(raw, segment_uuid=header.segment_uuid)
    except FormatError as error:
        return 0, {"position": position, "index": expected, "fault": str(error)}
    entry = record.header
    fault = "" if entry.index == expected else f"index {entry.index} in the place of {expected}"
    return entry.kind, {
        "position": position,
        **_entry_fields(entry),
        "next_lsn": entry.next_lsn,
        "chain": f"{record.chain:016x}",
        "frame_offset": record.frame_offset,
        "commit_known": record.commit_known,
        "log_epoch": record.log_epoch,
        "fault": fault,
    }


def _frame_rows(disk: Disk, handle: int, header: SegmentHeader) -> Iterator[tuple[int, InspectRow]]:
    """As `_record_rows`. Each frame begins where the one before ends, or at the next sector
    boundary; after damage, at the next boundary where a frame begins."""
    position, end = SEGMENT_HEADER_SIZE, disk.size(handle)
    while position < end:
        raw = read_salvaged(disk, handle, position, FRAME_HEADER_SIZE)
        try:
            frame = unpack_frame_header(raw, segment_uuid=header.segment_uuid)
        except FormatError as error:
            if raw.startswith(_MAGIC):
                yield 0, {"position": position, "fault": str(error)}
            position = _next_sector(disk, handle, position, end)
            continue
        entry = frame.header
        body = read_salvaged(disk, handle, position + FRAME_HEADER_SIZE, entry.body_size)
        computed = crc32c(body) if body else 0
        is_whole = len(body) == entry.body_size and computed == entry.body_crc
        row: InspectRow = {
            "position": position,
            **_entry_fields(entry),
            "chain": f"{entry.chain():016x}",
            "commit_known": frame.commit_known,
            "log_epoch": frame.log_epoch,
            **(_body_fields(entry, body) if is_whole else {}),
            "fault": "" if is_whole else f"body CRC {computed:#010x} over {len(body)} bytes",
        }
        yield entry.kind, row
        position += frame_size(entry)


def _body_fields(entry: EntryHeader, body: bytes) -> InspectRow:
    """What the body tells besides the entry's header, where the frame is whole."""
    if entry.kind == EntryKind.TRIM:
        return _trim_fields(body)
    return _batch_fields(body) if takes_lsns(entry.kind) else {}


def _batch_fields(body: bytes) -> InspectRow:
    """How many batches there are, how many of them are compressed, and their payload bytes without
    compression and as stored."""
    batches = compressed = payload_bytes = stored_bytes = 0
    try:
        for offset, header in iterate_batches(body):
            sizes = batch_sizes(body, offset, header)
            batches += 1
            compressed += header.codec != Codec.NONE
            payload_bytes += sizes.plain_bytes
            stored_bytes += sizes.stored_bytes
    except (FormatError, InvalidRequest) as error:
        return {"batches": str(error)}
    return {
        "batches": batches,
        "compressed": compressed,
        "payload_bytes": payload_bytes,
        "stored_bytes": stored_bytes,
    }


def _trim_fields(body: bytes) -> InspectRow:
    """What a TRIM makes the log start, under META's names."""
    try:
        trim = decode_trim(body)
    except FormatError as error:
        return {"trim": str(error)}
    return {
        "trim": trim.reason.name,
        "log_start_index": trim.start.index,
        "log_start_term": trim.start.term,
        "log_start_chain": f"{trim.start.chain:016x}",
        "log_start_next_lsn": trim.start.next_lsn,
    }


def _next_sector(disk: Disk, handle: int, position: int, end: int) -> int:
    """The next boundary after `position` where a frame may begin, or `end`."""
    position = (position // SECTOR_BYTES + 1) * SECTOR_BYTES
    while position < end:
        chunk = read_salvaged(disk, handle, position, min(MIB, end - position))
        if not chunk:
            break  # it was cut meanwhile
        if chunk.count(0) != len(chunk):
            for place in range(0, len(chunk), SECTOR_BYTES):
                if chunk.startswith(_MAGIC, place):
                    return position + place
        position += len(chunk)
    return end


def _entry_fields(entry: EntryHeader) -> InspectRow:
    return {
        "kind": kind_name(entry.kind),
        "term": entry.term,
        "index": entry.index,
        "prev_term": entry.prev_term,
        "first_lsn": entry.first_lsn,
        "count": entry.count,
        "timestamp_ns": entry.timestamp_ns,
        "cumulative_bytes": entry.cumulative_bytes,
        "prev_chain": f"{entry.prev_chain:016x}",
        "body_size": entry.body_size,
        "body_crc": f"{entry.body_crc:08x}",
    }
