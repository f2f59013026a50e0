"""Recovery of a data folder at start (SAFETY section 4), and the creation of a new log.

Owns the order: lock, META, boot counter, headers, flushes, verdicts, records of adopted entries, a
new segment if the tail is torn, dead files. Must not know consensus: raft decides what is exposed.

Under the mark INSTALL whatever segments there are hold nothing of the log, which starts over after
log start: recovery removes them and opens the first one (G5a). Where there is no space for that,
the mark stays, and the writer goes on.

Invariants: recovery that is interrupted anywhere and run again ends in the same log; an entry
under a whole record is never dropped, whatever happened to its frame; only bytes that the
device returned are trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import msgspec

from logstore.errors import CorruptData, DiskFull, FolderRefused, ReplicaLost
from logstore.format.entry import Row, chain_start
from logstore.format.level import check_level
from logstore.format.meta import InstallMark, LogStart, Meta
from logstore.format.raft_record import RECORD_SIZE
from logstore.format.segment_header import FileRole, SegmentHeader
from logstore.model import (
    FIRST_LSN,
    FORMED_STATES,
    NO_INDEX,
    NO_NODE,
    NO_TERM,
    Index,
    Lsn,
    NodeId,
    ReplicaState,
    Term,
)
from logstore.storage.disk import Disk
from logstore.storage.folder_scan import (
    FolderScan,
    check_holds_no_entry,
    check_is_ours,
    scan_folder,
)
from logstore.storage.log_writer import LogState, LogWriter
from logstore.storage.meta_store import MetaStore, create_meta, load_meta
from logstore.storage.repair_mark import begin_repair, end_repair
from logstore.storage.segment import (
    SegmentOptions,
    log_start_at,
    read_either_header,
    record_position,
    release_allocation,
    remove_dead_pair,
    row_at_start,
    segment_numbers,
    segment_path,
)
from logstore.storage.verdict import FaultyRange, Rebuilt, Verdicts, judge

NO_CLUSTER = bytes(16)


class Recovered(msgspec.Struct, frozen=True):
    """A replica's durable state at start. `writer` is None until the replica
    has a log (`create_log`).

    `last` is the last entry, or the position before the first one as a NOOP row. `commit_floor` is
    the highest index known to be committed, `persisted` the last index that this replica may claim
    (Q1). `trims` are the TRIM entries above log start, whether they have acted or not.
    `records_rebuilt` counts records written for frames that had none. `has_torn_tail`: bytes after
    the last entry were no entry. `levels`: (index, level) of the entries that raise it (S11).
    `configs` are the indexes of the CONFIG entries above log start (C5).
    """

    meta: MetaStore
    writer: LogWriter | None
    state: ReplicaState
    cluster_id: bytes
    replica_uuid: bytes
    node: NodeId
    term: Term
    vote: NodeId
    boot_counter: int
    start: LogStart
    last: Row
    term_runs: tuple[tuple[Index, Term], ...]
    trims: tuple[Index, ...]
    commit_floor: Index
    persisted: Index
    faulty: tuple[FaultyRange, ...]
    records_rebuilt: int
    has_torn_tail: bool
    levels: tuple[tuple[Index, int], ...]
    configs: tuple[Index, ...]

    @property
    def first_index(self) -> Index:
        return Index(self.start.index + 1)


def recover(
    disk: Disk,
    folder: str,
    options: SegmentOptions,
    *,
    node: NodeId,
    newest_level: int,
    new_uuid: Callable[[], bytes],
    tick: Callable[[], None],
) -> Recovered:
    """Open the data folder of `node`, new or not. Calls `tick` at least once a MiB read.

    Raises:
      FolderRefused: in use, of another node, cluster or newer version (M2, L3).
      UnsupportedLevel: the log is above `newest_level` (S11).
      MetaLost: there is a log without META (L1).
      ReplicaLost: META says that this replica must not go on (L7).
      CorruptData: damage that no rule covers; replace the replica.
      DiskFull: no space for META or for a file that was lost; the folder is unlocked, try again.
      WriteFailed: the device refused a write or flush.
    """
    disk.make_folder(folder)
    disk.lock_folder(folder)
    tick()
    try:
        store = _load_or_create_meta(disk, folder, node, new_uuid)
    except DiskFull:
        disk.unlock_folder(folder)
        raise
    try:
        return _recover_under(
            disk, folder, options, store,
            node=node, newest_level=newest_level, new_uuid=new_uuid, tick=tick,
        )  # fmt: skip
    except DiskFull:
        store.close()
        disk.unlock_folder(folder)
        raise


def _recover_under(
    disk: Disk,
    folder: str,
    options: SegmentOptions,
    store: MetaStore,
    *,
    node: NodeId,
    newest_level: int,
    new_uuid: Callable[[], bytes],
    tick: Callable[[], None],
) -> Recovered:
    """Recover, with the folder locked and META loaded."""
    meta = store.meta
    if meta.node != node:
        raise FolderRefused(
            f"{folder} is node {meta.node}'s, this is node {node}: check the folder"
        )
    check_level(f"the log in {folder}", meta.level, newest=newest_level)
    if meta.forgotten is not None:
        raise ReplicaLost(meta.forgotten.words)
    store.save(msgspec.structs.replace(meta, boot_counter=meta.boot_counter + 1))
    tick()
    if meta.state not in FORMED_STATES:
        # EMPTY or STARTING (L2): a cluster id may be proposed, but nothing was promised yet
        _remove_unfinished_log(disk, folder)
        start = meta.log_start
        return _recovered(store, None, Verdicts(start, row_at_start(start)))
    if meta.installing is not None:
        return _finish_install(disk, folder, options, store, meta.installing, new_uuid=new_uuid)
    return _recover_log(
        disk, folder, options, store, newest_level=newest_level, new_uuid=new_uuid, tick=tick
    )


def create_log(
    disk: Disk,
    folder: str,
    options: SegmentOptions,
    store: MetaStore,
    *,
    cluster_id: bytes,
    first_lsn: Lsn,
    new_uuid: Callable[[], bytes],
    state: ReplicaState = ReplicaState.VOTER,
) -> LogWriter:
    """Create the first segment pair of a new log, then save META with the cluster id and `state`,
    VOTER or LEARNER, both durable. In this order, META of such a state proves that there was a log
    (S10)."""
    _remove_unfinished_log(disk, folder)
    start = LogStart(NO_INDEX, NO_TERM, chain_start(cluster_id), first_lsn)
    meta = msgspec.structs.replace(store.meta, state=state, cluster_id=cluster_id, log_start=start)
    empty = _empty_log(meta, row_at_start(start), next_number=1)
    writer = LogWriter(disk, folder, options, empty, new_uuid=new_uuid)
    writer.open_first()
    store.save(meta)
    return writer


def initial_log_start(first_lsn: Lsn) -> LogStart:
    """The log start in META before there is a log (L2)."""
    return LogStart(NO_INDEX, NO_TERM, 0, first_lsn)


def _load_or_create_meta(
    disk: Disk, folder: str, node: NodeId, new_uuid: Callable[[], bytes]
) -> MetaStore:
    store = load_meta(disk, folder)
    if store is not None:
        return store
    meta = Meta(
        state=ReplicaState.EMPTY,
        cluster_id=NO_CLUSTER,
        replica_uuid=new_uuid(),
        node=node,
        vote=NO_NODE,
        nonce=0,
        term=NO_TERM,
        boot_counter=0,
        generation=0,
        log_start=initial_log_start(FIRST_LSN),
    )
    return create_meta(disk, folder, meta)


def _finish_install(
    disk: Disk,
    folder: str,
    options: SegmentOptions,
    store: MetaStore,
    mark: InstallMark,
    *,
    new_uuid: Callable[[], bytes],
) -> Recovered:
    """The mark INSTALL: a crash came while a log was dropped, or before its first new segment held
    an entry. Go on from there. Without space for that segment the mark stays in META: the replica
    starts, and the writer opens the segment once there is space (S9)."""
    meta = store.meta
    numbers = segment_numbers(disk.list_folder(folder))
    for number in numbers:
        header = read_either_header(disk, folder, number)
        if header is not None:
            check_is_ours(folder, header, meta)
    for number in numbers:
        remove_dead_pair(disk, folder, number)
    before = row_at_start(
        meta.log_start, timestamp_ns=mark.timestamp_ns, cumulative_bytes=mark.cumulative_bytes
    )
    writer = LogWriter(
        disk,
        folder,
        options,
        _empty_log(meta, before, next_number=max([0, *numbers]) + 1),
        new_uuid=new_uuid,
    )
    if writer.prepare_spare():
        writer.open_first()
        store.save(msgspec.structs.replace(store.meta, installing=None))
    return _recovered(store, writer, Verdicts(meta.log_start, before))


def _empty_log(meta: Meta, before: Row, *, next_number: int) -> LogState:
    """The state of a log that has no segment yet, after the entry `before`."""
    return LogState(
        meta.cluster_id,
        meta.replica_uuid,
        log_start_at(before),
        before,
        live=(),
        commit_floor=before.header.index,
        data_end=0,
        next_number=next_number,
    )


def _remove_unfinished_log(disk: Disk, folder: str) -> None:
    """Remove the segments of a bootstrap that META does not record: nothing was
    ever appended to them."""
    for number in segment_numbers(disk.list_folder(folder)):
        check_holds_no_entry(disk, folder, number)
        for role in FileRole:
            disk.unlink(segment_path(folder, number, role))


def _recover_log(
    disk: Disk,
    folder: str,
    options: SegmentOptions,
    store: MetaStore,
    *,
    newest_level: int,
    new_uuid: Callable[[], bytes],
    tick: Callable[[], None],
) -> Recovered:
    scan = scan_folder(disk, folder, options, store.meta, tick=tick)
    if not scan.headers:
        raise CorruptData(
            folder, 0, expected="the segments of the log that META speaks of",
            got="none; replace this replica, never let it begin an empty log",
        )  # fmt: skip
    found = judge(
        disk, folder, scan.map, store.meta.log_start, sector_bytes=options.sector_bytes, tick=tick
    )
    if found.is_lost_above_start:
        # the first entry to come would not add up, and end the writer at each start
        raise CorruptData(
            folder, 0, expected=f"an entry above {found.start.index}, after which the log starts",
            got="none, nor that one; the device forgot what it had flushed: replace this replica",
        )  # fmt: skip
    for _, level in found.levels:  # before anything is written, for what follows may be newer, too
        check_level(f"the log in {folder}", level, newest=newest_level)
    _write_records_durable(disk, folder, found.rebuilt, scan)
    end_repair(disk, folder)
    if found.last.header.term > store.meta.term:
        store.save(msgspec.structs.replace(store.meta, term=found.last.header.term, vote=NO_NODE))
    writer = LogWriter(
        disk, folder, options, _log_state(store.meta, scan, found), new_uuid=new_uuid
    )
    _remove_dead(disk, folder, scan)
    if found.has_torn_tail and writer.prepare_spare():
        # Everything after the last entry is discarded, and the new segment's headers
        # record it (S7). Without space for it the replica starts all the same, and the
        # writer does it later (S9).
        writer.roll()
    return _recovered(store, writer, found)


def _log_state(meta: Meta, scan: FolderScan, found: Verdicts) -> LogState:
    live = tuple(s.header for s in scan.map.segments if s.header is not None)
    return LogState(
        meta.cluster_id,
        meta.replica_uuid,
        meta.log_start,
        found.last,
        live=live,
        commit_floor=_commit_floor(meta, found),
        data_end=found.data_end,
        next_number=scan.next_number,
        has_torn_tail=found.has_torn_tail,
        summing=found.summing,
    )


def _write_records_durable(
    disk: Disk, folder: str, rebuilt: list[Rebuilt], scan: FolderScan
) -> None:
    """Write rebuilt records, flushed before raft starts or a segment opens (step 4). Their frames
    are durable: of the newest pair since the scan, of older ones since the next one's header."""
    by_number: dict[int, list[Rebuilt]] = {}
    for one in rebuilt:
        by_number.setdefault(one.segment.number, []).append(one)
    for number, records in by_number.items():
        if number != scan.next_number - 1:
            begin_repair(disk, folder, unused=scan.dead)
        handle = disk.open_write(segment_path(folder, number, FileRole.RAFT))
        try:
            # the file may replace a lost one, or be a copy with holes: then this needs space
            end = max(record_position(one.segment, one.index) for one in records) + RECORD_SIZE
            disk.allocate(handle, end)
            for one in records:
                disk.write(handle, record_position(one.segment, one.index), [one.record])
            disk.flush(handle)
        finally:
            disk.close(handle)


def _remove_dead(disk: Disk, folder: str, scan: FolderScan) -> None:
    """Remove dead files before anything is allocated: on a full disk this makes space (S9)."""
    for number in scan.dead:
        remove_dead_pair(disk, folder, number)
    live: list[SegmentHeader] = [s.header for s in scan.map.segments if s.header is not None]
    for header, successor in pairwise(live):
        release_allocation(disk, folder, header, successor)


def _recovered(store: MetaStore, writer: LogWriter | None, found: Verdicts) -> Recovered:
    meta = store.meta
    last_index = found.last.header.index
    commit_floor = _commit_floor(meta, found)
    above = [max(each.first, commit_floor + 1) for each in found.faulty if each.last > commit_floor]
    return Recovered(
        meta=store,
        writer=writer,
        state=meta.state,
        cluster_id=meta.cluster_id,
        replica_uuid=meta.replica_uuid,
        node=meta.node,
        term=meta.term,
        vote=meta.vote,
        boot_counter=meta.boot_counter,
        start=meta.log_start,
        last=found.last,
        term_runs=tuple(found.term_runs),
        trims=tuple(found.trims),
        commit_floor=commit_floor,
        persisted=Index(min(above) - 1) if above else last_index,
        faulty=tuple(found.faulty),
        records_rebuilt=len(found.rebuilt),
        has_torn_tail=found.has_torn_tail,
        levels=tuple(found.levels),
        configs=tuple(found.configs),
    )


def _commit_floor(meta: Meta, found: Verdicts) -> Index:
    """The highest index that a record says is committed, but at most the last one: entries above it
    were never written here, so nothing is lost with them (S2)."""
    return Index(min(max(found.commit_known, meta.log_start.index), found.last.header.index))
