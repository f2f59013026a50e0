"""The writer's data folder: recovery, META and the log.

Owns what raft learns of recovery. Only the META worker saves META.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec

from actors import topology
from actors.messages import FaultyRange, LogRecovered
from actors.observer import FolderRecovered
from actors.station import Station
from actors.topology import Counter
from logstore.errors import CorruptData, FormatError, InvariantViolated, MetaLost, ReplicaLost
from logstore.format.entry import Row
from logstore.format.level import CONFIG_LEVEL
from logstore.format.meta import Forgotten, ForgottenWhat, InstallMark, LogStart
from logstore.format.peer_starts import PeerStart
from logstore.format.trim_entry import TrimEntry, decode_trim
from logstore.limits import STATUS_FAULTY_MAX
from logstore.model import (
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
from logstore.raft.bootstrap import SaveInit
from logstore.raft.log_view import Position, WholeLogStart
from logstore.storage import verdict as faults
from logstore.storage.damaged_lsns import damaged_lsns
from logstore.storage.kept_configurations import kept_configurations
from logstore.storage.log_reader import BelowLogStart, LogReader
from logstore.storage.log_writer import LogWriter
from logstore.storage.meta_store import MetaStore, newest_meta
from logstore.storage.peer_starts_file import PeerStartsFile
from logstore.storage.recovery import Recovered, create_log, initial_log_start, recover
from logstore.storage.segment import SegmentOptions, row_at_start

UUID_BYTES = 16
LOGGED_MAX = 8  # damaged ranges that one line of the log lists

_log = logging.getLogger("logstore.writer")


class Folder:
    """Everything the writer has on disk."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self._loops = station.loops_slot(topology.WRITER)
        storage = station.config.storage
        self._options = SegmentOptions(storage.segment_bytes, storage.segment_records)
        self._disk = station.host.disk
        self._meta: MetaStore | None = None
        self._log: LogWriter | None = None
        self._starts = PeerStartsFile(self._disk, station.folder)

    @property
    def log(self) -> LogWriter:
        if self._log is None:
            raise InvariantViolated("an entry came before the log was made")
        return self._log

    @property
    def has_log(self) -> bool:
        return self._log is not None

    def recover(self) -> LogRecovered:
        """Open the folder (SAFETY section 4). If it cannot be served, `damage` says why. It stays
        closed where an earlier incarnation found out that this replica must not go on (L6)."""
        if self._station.damage:
            return _damaged(self._with_advice(self._station.damage))
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
        except ReplicaLost as error:
            self._count_lost()
            return _damaged(self._with_advice(str(error)))
        self._station.host.observer.saw(
            FolderRecovered(
                recovered.meta.copies_whole, recovered.records_rebuilt, recovered.has_torn_tail
            )
        )
        self._meta = recovered.meta
        self._log = recovered.writer
        self.count_bytes()
        report = _report(recovered, self._faulty_ranges(recovered))
        report = msgspec.structs.replace(report, starts=self._starts.load())
        if not (recovered.configs or report.has_config):
            return report
        reader = LogReader(self._disk, self._station.folder)
        try:
            kept = kept_configurations(reader, recovered)
        finally:
            reader.close()
        return msgspec.structs.replace(
            report,
            configurations=kept.found,
            config_hidden=kept.hidden,
            was_named=kept.was_named,
        )

    def _count_lost(self) -> None:
        """META may know how many entries are gone, which this replica had acknowledged."""
        meta = newest_meta(self._disk, self._station.folder)
        forgotten = None if meta is None else meta.forgotten
        if forgotten is not None and forgotten.what == ForgottenWhat.ENTRIES:
            self._slots[Counter.FLUSHED_LOST] = forgotten.told - forgotten.known

    def _with_advice(self, reason: str) -> str:
        node = self._station.node
        return (
            f"{reason}. It serves nothing, and neither votes nor acknowledges: stop it, and "
            f"`logstore reset --node {node}` moves its folder aside"
        )

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

    def save_level(self, level: int, *, has_config: bool) -> None:
        """Save the log's format level, which never falls (S11), and that it has had a CONFIG, which
        is never taken back (C12)."""
        store = self._opened_meta()
        meta = store.meta
        has_had_config = meta.has_config or has_config
        if level > meta.level or has_had_config != meta.has_config:
            level = max(level, meta.level)
            store.save(msgspec.structs.replace(meta, level=level, has_config=has_had_config))

    def save_starts(self, starts: tuple[PeerStart, ...]) -> bool:
        """Save which starts of peers were seen (L7); False: there is no space for it."""
        return self._starts.save(starts)

    def save_forgotten(self, forgotten: Forgotten) -> None:
        """Save why this replica must not go on, for good (L7)."""
        meta = self._opened_meta()
        meta.save(msgspec.structs.replace(meta.meta, forgotten=forgotten))

    def next_log_start(
        self, orders: deque[Index | WholeLogStart], report_rot: Callable[[Index], None]
    ) -> WholeLogStart | None:
        """Of these orders, which are taken off, the highest log start, if that is above the present
        one: it does what all of them ask for. An index is of a TRIM. Those of a start are all that
        the log holds, and a follower that catches up gets all that its leader has: one reader
        serves them. What is damaged moves nothing: the next TRIM has a whole log start, too. The
        writer's thread adds to them meanwhile, and may remove all of them."""
        reader = LogReader(self._disk, self._station.folder)
        highest: WholeLogStart | None = None
        try:
            while (order := _taken_first(orders)) is not None:
                try:
                    whole = order if isinstance(order, WholeLogStart) else _trim_at(reader, order)
                except (CorruptData, FormatError) as error:
                    text = "the log start stays: entry %d, a TRIM, is damaged here: %s"
                    _log.error(text, order, error)
                    if isinstance(error, CorruptData) and not isinstance(order, WholeLogStart):
                        report_rot(order)
                    continue
                reached = reader.start.index if highest is None else highest.position.index
                if whole is not None and whole.position.index > reached:
                    highest = whole
        finally:
            reader.close()
        return highest

    def save_log_start(self, whole: WholeLogStart) -> None:
        """Save it with the log's format level, which entries below may have raised (S11)."""
        meta = self._opened_meta()
        level = max(meta.meta.level, whole.level)
        meta.save(msgspec.structs.replace(meta.meta, log_start=log_start_of(whole), level=level))

    def save_install(self, whole: WholeLogStart) -> None:
        """Save a log start and the mark INSTALL: from now on the log is to be dropped (G5a). From
        the level on that brought CONFIG entries, one may lie below that log start: this replica
        does not campaign until it has one (C12)."""
        meta = self._opened_meta()
        level = max(meta.meta.level, whole.level)
        meta.save(
            msgspec.structs.replace(
                meta.meta,
                log_start=log_start_of(whole),
                level=level,
                installing=InstallMark(whole.cumulative_bytes, whole.timestamp_ns),
                has_config=meta.meta.has_config or level >= CONFIG_LEVEL,
            )
        )

    def drop_log(self, whole: WholeLogStart) -> None:
        """Remove every pair; the log starts over after this log start. May be called again."""
        self.log.drop(
            row_at_start(
                log_start_of(whole),
                timestamp_ns=whole.timestamp_ns,
                cumulative_bytes=whole.cumulative_bytes,
            )
        )

    @property
    def unfinished_install(self) -> WholeLogStart | None:
        """After recovery: the log start of an install that had no space to end (S9)."""
        meta = None if self._meta is None else self._meta.meta
        if meta is None or meta.installing is None:
            return None
        at, mark = meta.log_start, meta.installing
        position = Position(at.index, at.term, at.next_lsn, at.chain)
        return WholeLogStart(position, mark.cumulative_bytes, mark.timestamp_ns, meta.level)

    def save_installed(self) -> None:
        """Take the mark INSTALL off."""
        meta = self._opened_meta()
        meta.save(msgspec.structs.replace(meta.meta, installing=None))

    def save_init(self, command: SaveInit) -> None:
        """Save a step of the bootstrap, or that this replica joins. VOTER and LEARNER: create the
        first segment, then save META (S10)."""
        meta = self._opened_meta()
        if command.state in FORMED_STATES:
            meta.save(msgspec.structs.replace(meta.meta, nonce=command.nonce))
            self._log = create_log(
                self._disk,
                self._station.folder,
                self._options,
                meta,
                cluster_id=command.cluster_id,
                first_lsn=command.first_lsn,
                new_uuid=self._new_uuid,
                state=ReplicaState(command.state),
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
            has_config=meta.has_config,
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


def _taken_first(orders: deque[Index | WholeLogStart]) -> Index | WholeLogStart | None:
    try:
        return orders.popleft()
    except IndexError:  # to ask first is no good: another thread may remove it in between
        return None


def _trim_at(reader: LogReader, index: Index) -> WholeLogStart | None:
    """The log start of the TRIM at `index`; None if it is not above the present one.

    Raises:
      CorruptData, FormatError: the TRIM is damaged, or this log has another entry there.
    """
    try:
        trim = decode_trim(reader.read_body(index))
        start = trim.start
        if start.index <= reader.start.index:
            return None
        if start.index >= index:
            raise FormatError(f"the TRIM at {index} makes entry {start.index} the log start")
        row = _row(reader, start.index)
        if row is not None and (row.header.term, row.chain) != (start.term, start.chain):
            raise FormatError(f"the TRIM at {index} names {start}, this log has {row}")
        return _whole(trim)
    except BelowLogStart:
        return None  # a later one has acted


def _row(reader: LogReader, index: Index) -> Row | None:
    try:
        return reader.row(index)
    except CorruptData:
        return None


def _whole(trim: TrimEntry) -> WholeLogStart:
    start = trim.start
    position = Position(start.index, start.term, start.next_lsn, start.chain)
    return WholeLogStart(position, trim.cumulative_bytes, trim.timestamp_ns, trim.level)


def log_start_of(whole: WholeLogStart) -> LogStart:
    """What META keeps of it."""
    at = whole.position
    return LogStart(at.index, at.term, at.chain, at.next_lsn)


def _summary(found: tuple[faults.FaultyRange, ...]) -> str:
    """The first ranges, as text for the log."""
    shown = [f"entries {each.first} to {each.last}: {each.reason}" for each in found[:LOGGED_MAX]]
    return "; ".join([*shown, "…"] if len(found) > LOGGED_MAX else shown)


def _report(recovered: Recovered, faulty: tuple[FaultyRange, ...]) -> LogRecovered:
    start = recovered.start
    has_entries = recovered.last.header.index > start.index
    at_start = row_at_start(start) if recovered.writer is None else recovered.writer.row_at_start()
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
        trims=recovered.trims,
        level=recovered.meta.meta.level,
        levels=recovered.levels,
        start_bytes=at_start.header.cumulative_bytes,
        start_timestamp_ns=at_start.header.timestamp_ns,
        has_config=recovered.meta.meta.has_config,
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
