"""The writer's data folder: recovery, META and the log.

Owns what raft learns of recovery. Only the META worker saves META.
"""

from __future__ import annotations

import logging

import msgspec

from actors import topology
from actors.messages import FaultyRange, LogRecovered
from actors.observer import FolderRecovered
from actors.station import Station
from actors.topology import Counter
from logstore.errors import CorruptData, InvariantViolated, MetaLost
from logstore.limits import STATUS_FAULTY_MAX
from logstore.model import NO_INDEX, NO_NODE, NO_TERM, Lsn, NodeId, ReplicaState, Term
from logstore.raft.bootstrap import SaveInit
from logstore.storage import verdict as faults
from logstore.storage.damaged_lsns import damaged_lsns
from logstore.storage.log_reader import LogReader
from logstore.storage.log_writer import LogWriter
from logstore.storage.meta_store import MetaStore
from logstore.storage.recovery import Recovered, create_log, initial_log_start, recover
from logstore.storage.segment import SegmentOptions

UUID_BYTES = 16
LOGGED_MAX = 8  # damaged ranges that one line of the log lists

_log = logging.getLogger("logstore.writer")


class Folder:
    """Everything the writer has on disk."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self._loops = station.slot(f"{topology.WRITER}.loops")
        storage = station.config.storage
        self._options = SegmentOptions(storage.segment_bytes, storage.segment_records)
        self._disk = station.host.disk
        self._meta: MetaStore | None = None
        self._log: LogWriter | None = None

    @property
    def log(self) -> LogWriter:
        if self._log is None:
            raise InvariantViolated("an entry came before the log was made")
        return self._log

    @property
    def has_log(self) -> bool:
        return self._log is not None

    def recover(self) -> LogRecovered:
        """Open the folder (SAFETY section 4). If it cannot be served, `damage` says why."""
        try:
            recovered = recover(
                self._disk,
                self._station.folder,
                self._options,
                node=self._station.node,
                newest_level=self._station.newest_level,
                new_uuid=self._new_uuid,
                tick=self._tick,
            )
        except (MetaLost, CorruptData) as error:
            return _damaged(str(error))
        self._station.host.observer.saw(
            FolderRecovered(
                recovered.meta.copies_whole, recovered.records_rebuilt, recovered.has_torn_tail
            )
        )
        self._meta = recovered.meta
        self._log = recovered.writer
        self.count_bytes()
        return _report(recovered, self._faulty_ranges(recovered))

    def _faulty_ranges(self, recovered: Recovered) -> tuple[FaultyRange, ...]:
        """The faulty ranges, with LSNs for those that a status shows. They are read here because
        raft's loop must not read the disk."""
        found = recovered.faulty
        if not found:
            return ()
        _log.error("%d damaged ranges: %s", len(found), _summary(found))
        reader = LogReader(self._disk, self._station.folder)
        try:
            ranges = []
            for each in found[:STATUS_FAULTY_MAX]:
                lsns = damaged_lsns(reader, each.first, each.last)
                ranges.append(FaultyRange(each.first, each.last, *lsns))
                self._tick()
        finally:
            reader.close()
        rest = found[STATUS_FAULTY_MAX:]
        return (*ranges, *(FaultyRange(each.first, each.last) for each in rest))

    def save_vote(self, *, term: Term, vote: NodeId) -> None:
        meta = self._opened_meta()
        meta.save(msgspec.structs.replace(meta.meta, term=term, vote=vote))

    def save_level(self, level: int) -> None:
        """Save the log's format level, which never falls (S11)."""
        meta = self._opened_meta()
        if level > meta.meta.level:
            meta.save(msgspec.structs.replace(meta.meta, level=level))

    def save_init(self, command: SaveInit) -> None:
        """Save a step of the bootstrap. VOTER: create the first segment, then save META (S10)."""
        meta = self._opened_meta()
        if command.state == ReplicaState.VOTER:
            meta.save(msgspec.structs.replace(meta.meta, nonce=command.nonce))
            self._log = create_log(
                self._disk,
                self._station.folder,
                self._options,
                meta,
                cluster_id=command.cluster_id,
                first_lsn=command.first_lsn,
                new_uuid=self._new_uuid,
            )
            return
        meta.save(
            msgspec.structs.replace(
                meta.meta,
                state=ReplicaState(command.state),
                nonce=command.nonce,
                cluster_id=command.cluster_id,
                log_start=initial_log_start(command.first_lsn),
            )
        )

    def new_log_report(self) -> LogRecovered:
        """The report that raft starts with after the bootstrap: an empty log."""
        meta = self._opened_meta().meta
        return LogRecovered(
            cluster_id=meta.cluster_id,
            replica_uuid=meta.replica_uuid,
            boot=meta.boot_counter,
            state=meta.state,
            nonce=meta.nonce,
            term=meta.term,
            vote=meta.vote,
            start_index=meta.log_start.index,
            start_term=meta.log_start.term,
            start_chain=meta.log_start.chain,
            start_next_lsn=meta.log_start.next_lsn,
            last_row=None,
            term_runs=(),
            commit_floor=meta.log_start.index,
            persisted=meta.log_start.index,
            faulty=(),
            damage="",
            level=meta.level,
        )

    def count_bytes(self) -> None:
        """Count the bytes given to pwrite since this process started."""
        slots, log, meta = self._slots, self._log, self._meta
        if log is not None:
            slots[Counter.DISK_BYTES_DATA] = log.data_bytes_written
            slots[Counter.DISK_BYTES_RAFT] = log.raft_bytes_written
        if meta is not None:
            slots[Counter.DISK_BYTES_META] = meta.bytes_written

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        if self._meta is not None:
            self._meta.close()

    def _opened_meta(self) -> MetaStore:
        if self._meta is None:
            raise InvariantViolated("META was saved before it was read")
        return self._meta

    def _new_uuid(self) -> bytes:
        return self._station.host.random_bytes(UUID_BYTES)

    def _tick(self) -> None:
        """Recovery counts as progress of the writer's loop (M3)."""
        self._slots[self._loops] += 1


def _summary(found: tuple[faults.FaultyRange, ...]) -> str:
    """The first ranges, as text for the log."""
    shown = [f"entries {each.first} to {each.last}: {each.reason}" for each in found[:LOGGED_MAX]]
    return "; ".join([*shown, "…"] if len(found) > LOGGED_MAX else shown)


def _report(recovered: Recovered, faulty: tuple[FaultyRange, ...]) -> LogRecovered:
    start = recovered.start
    has_entries = recovered.last.header.index > start.index
    return LogRecovered(
        cluster_id=recovered.cluster_id,
        replica_uuid=recovered.replica_uuid,
        boot=recovered.boot_counter,
        state=recovered.state,
        nonce=recovered.meta.meta.nonce,
        term=recovered.term,
        vote=recovered.vote,
        start_index=start.index,
        start_term=start.term,
        start_chain=start.chain,
        start_next_lsn=start.next_lsn,
        last_row=recovered.last if has_entries else None,
        term_runs=recovered.term_runs,
        commit_floor=recovered.commit_floor,
        persisted=recovered.persisted,
        faulty=faulty,
        damage="",
        level=recovered.meta.meta.level,
        levels=recovered.levels,
    )


def _damaged(reason: str) -> LogRecovered:
    """META or the log is lost: this replica takes no part until it is replaced (L1)."""
    return LogRecovered(
        cluster_id=bytes(UUID_BYTES),
        replica_uuid=bytes(UUID_BYTES),
        boot=0,
        state=ReplicaState.EMPTY,
        nonce=0,
        term=NO_TERM,
        vote=NO_NODE,
        start_index=NO_INDEX,
        start_term=NO_TERM,
        start_chain=0,
        start_next_lsn=Lsn(0),
        last_row=None,
        term_runs=(),
        commit_floor=NO_INDEX,
        persisted=NO_INDEX,
        faulty=(),
        damage=reason,
    )
