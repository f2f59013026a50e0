"""One replica's storage on a simulated disk, driven by hand, with a ledger of what it has promised.

Owns the ledger: which entries are acknowledged, which were truncated durably, which term and vote
were answered. Plays the writer's part with the shipped storage code and shows what a recovery made
of a disk. Must not know what is being looked for: tests compare.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec
from crc32c import crc32c

from actors.simulation.disk.disk import SimulatedDisk
from logstore.errors import CorruptData
from logstore.format.entry import EntryHeader, Row, takes_lsns
from logstore.format.level import CONFIG_LEVEL, NEWEST_LEVEL, level_kind
from logstore.format.meta import InstallMark, LogStart
from logstore.format.trim_entry import TrimEntry, TrimReason, encode_trim
from logstore.limits import SECTOR_BYTES
from logstore.model import FIRST_LSN, EntryKind, Index, Lsn, NodeId, ReplicaState, Term
from logstore.storage.log_reader import LogReader
from logstore.storage.log_writer import AppendedGroup, EntryToWrite, LogWriter
from logstore.storage.recovery import Recovered, create_log, recover
from logstore.storage.segment import SegmentOptions, base_row, log_start_at

FOLDER = "/data"
NODE = NodeId(1)
CLUSTER = b"cluster of tests"
# Two groups of two-sector frames, eight records: small enough to enumerate, large enough to roll.
OPTIONS = SegmentOptions(segment_bytes=4096 + 12 * SECTOR_BYTES, segment_records=8)


class Promises(msgspec.Struct, frozen=True):
    """What may never be broken. `acknowledged`: index to chain; `truncated`: (index, chain) that
    must not come back; `term`, `vote`, `start`: those answered last, the log start as an index;
    `next_…`: those that are being saved; `dropped`: what must be gone once `next_start` is the log
    start; `has_config`: META was to know of a CONFIG, and answered."""

    acknowledged: dict[Index, int]
    truncated: frozenset[tuple[Index, int]]
    term: Term
    vote: NodeId
    next_term: Term
    next_vote: NodeId
    start: Index
    next_start: Index
    dropped: frozenset[tuple[Index, int]] = frozenset()
    has_config: bool = False


class Found(msgspec.Struct, frozen=True):
    """What a recovery made of a disk: entries whose bodies read well, and those named faulty."""

    kept: dict[Index, int]
    faulty: frozenset[Index]
    recovered: Recovered


class StorageTrial:
    """A replica's writer on `disk`, new or with a past that made `promises`. `life` tells its ids
    and bodies from those of other lives of the same disk."""

    def __init__(
        self,
        disk: SimulatedDisk,
        *,
        life: int = 1,
        promises: Promises | None = None,
        on_call: Callable[[StorageTrial], None] | None = None,
    ) -> None:
        self.disk = disk
        self.newest_level = NEWEST_LEVEL  # that the writer's version reads
        self._uuids = itertools.count(life * 1_000_000)
        self._bodies = itertools.count(life * 1_000_000)
        self.acknowledged: dict[Index, int] = {}
        self.truncated: set[tuple[Index, int]] = set()
        self._answered = (Term(0), NodeId(0))
        self._saving = (Term(0), NodeId(0))
        self.start = self._next_start = Index(0)
        self._dropped: set[tuple[Index, int]] = set()
        self._has_config = False
        if promises is not None:
            self.acknowledged = dict(promises.acknowledged)
            self.truncated = set(promises.truncated)
            self._answered = (promises.term, promises.vote)
            self._saving = (promises.next_term, promises.next_vote)
            self.start, self._next_start = promises.start, promises.next_start
            self._dropped = set(promises.dropped)
            self._has_config = promises.has_config
        if on_call is not None:
            disk.on_call = lambda _what, _path: on_call(self)
        self.recovered = self.recover()
        if promises is not None:
            self._find_log_start()

    def _find_log_start(self) -> None:
        """A move of the log start that was cut is done now, or was never begun."""
        if self.recovered.start.index == self._next_start:
            self.start = self._next_start
            self.truncated |= self._dropped
        else:
            self._next_start = self.start
            self._dropped.clear()

    # --- the writer's part ---

    @property
    def writer(self) -> LogWriter:
        if self.recovered.writer is None:
            raise AssertionError("the log was not created")
        return self.recovered.writer

    def recover(self) -> Recovered:
        return recover(
            self.disk,
            FOLDER,
            OPTIONS,
            node=NODE,
            newest_level=self.newest_level,
            new_uuid=self._new_uuid,
            tick=lambda: None,
        )

    def restart(self) -> None:
        """The process dies, or the power comes back, and the writer starts again."""
        watch = self.disk.on_call
        self.disk.kill_process()
        self.disk.on_call = watch
        self.recovered = self.recover()

    def create_log(
        self, first_lsn: Lsn = FIRST_LSN, state: ReplicaState = ReplicaState.VOTER
    ) -> None:
        writer = create_log(
            self.disk,
            FOLDER,
            OPTIONS,
            self.recovered.meta,
            cluster_id=CLUSTER,
            first_lsn=first_lsn,
            new_uuid=self._new_uuid,
            state=state,
        )
        self.recovered = msgspec.structs.replace(self.recovered, writer=writer)

    def group(self, term: int, sizes: Sequence[int], *, commit: int = 0) -> list[EntryToWrite]:
        """Entries that continue the log, with bodies of these sizes; size 0 is a NOOP."""
        last = self.writer.last
        entries: list[EntryToWrite] = []
        for size in sizes:
            body = next(self._bodies).to_bytes(8, "little") * (size // 8)
            header = next_header(last, Term(term), body)
            last = Row.of(header)
            entries.append((header, last.chain, commit, [memoryview(body)]))
        return entries

    def append(self, term: int, sizes: Sequence[int], *, commit: int = 0) -> AppendedGroup:
        """Step 1, rolling first where it must."""
        entries = self.group(term, sizes, commit=commit)
        if self.writer.needs_roll(entries):
            self.writer.roll()
        return self.writer.append(entries)

    def finish(self, group: AppendedGroup) -> None:
        """Steps 2 to 4 and the acknowledgement."""
        self.writer.flush_data(group)
        self.writer.write_records(group)
        self.finish_records(group)

    def finish_records(self, group: AppendedGroup) -> None:
        self.writer.flush_records(group)
        for row in self._rows(group.first_index, group.last_index):
            self.acknowledged[row.header.index] = row.chain

    def commit(self, term: int, sizes: Sequence[int], *, commit: int = 0) -> None:
        self.finish(self.append(term, sizes, commit=commit))

    def raise_level(self, level: int) -> int:
        """An entry that raises the format level, flushed and acknowledged; its index."""
        last = self.writer.last
        plain = next_header(last, last.header.term, b"")
        header = msgspec.structs.replace(plain, kind=level_kind(level))
        entries: list[EntryToWrite] = [(header, header.chain(), 0, [memoryview(b"")])]
        if self.writer.needs_roll(entries):
            self.writer.roll()
        self.finish(self.writer.append(entries))
        return header.index

    def truncate(self, first_index: int) -> None:
        """What is truncated was never committed, so it is no promise any more; that it is gone is
        one."""
        last = self.writer.last.header.index
        gone = [(row.header.index, row.chain) for row in self._rows(first_index, last)]
        for index, _ in gone:
            self.acknowledged.pop(index, None)
        self.writer.truncate(Index(first_index))
        self.truncated.update(gone)

    def trim(self, index: int) -> None:
        """A TRIM to this entry, which carries it out: everything up to it is no promise any more,
        but the log start is one."""
        (row,) = self._rows(index, index)
        header, start = row.header, _start_after(row)
        trim = TrimEntry(TrimReason.OPERATOR, start, header.cumulative_bytes, header.timestamp_ns)
        self.commit_body(EntryKind.TRIM, encode_trim(trim), commit=index)
        self.move_start(start)

    def take_start(self, index: int) -> None:
        """A log start that the leader sent, to an entry that is flushed here; this log has no TRIM
        that says so."""
        (row,) = self._rows(index, index)
        self.move_start(_start_after(row))

    def commit_body(self, kind: EntryKind, body: bytes, *, commit: int = 0) -> None:
        """An entry of its own, flushed and acknowledged."""
        last = self.writer.last
        header = next_header(last, last.header.term, body, kind=kind)
        entries: list[EntryToWrite] = [(header, header.chain(), commit, [memoryview(body)])]
        if self.writer.needs_roll(entries):
            self.writer.roll()
        self.finish(self.writer.append(entries))

    def move_start(self, start: LogStart) -> None:
        """META first, then the pairs below it."""
        self._next_start = start.index
        for index in [each for each in self.acknowledged if each <= start.index]:
            del self.acknowledged[index]
        meta = self.recovered.meta
        meta.save(msgspec.structs.replace(meta.meta, log_start=start))
        self.writer.remove_pairs(self.writer.move_start(start))
        self.start = start.index

    def install(self, before: Row) -> None:
        """Drop the log and start over after the entry `before` (SAFETY G5a). Nothing of the old one
        is a promise any more, and none of it may be in the new one."""
        header, meta = before.header, self.recovered.meta
        self._dropped |= set(self.acknowledged.items())
        self.acknowledged.clear()
        self._next_start = header.index
        mark = InstallMark(header.cumulative_bytes, header.timestamp_ns)
        meta.save(
            msgspec.structs.replace(meta.meta, log_start=log_start_at(before), installing=mark)
        )
        self.writer.drop(before)
        self.writer.open_first()
        meta.save(msgspec.structs.replace(meta.meta, installing=None))
        self.start = header.index
        self.truncated |= self._dropped

    def vote(self, term: int, vote: int) -> None:
        meta = self.recovered.meta
        self._saving = (Term(term), NodeId(vote))
        meta.save(msgspec.structs.replace(meta.meta, term=Term(term), vote=NodeId(vote)))
        self._answered = self._saving

    def know_config(self) -> None:
        """The log has had a CONFIG."""
        meta = self.recovered.meta
        meta.save(msgspec.structs.replace(meta.meta, level=CONFIG_LEVEL, has_config=True))
        self._has_config = True

    # --- what was promised, what was found ---

    def promises(self) -> Promises:
        return Promises(
            dict(self.acknowledged),
            frozenset(self.truncated),
            *self._answered,
            *self._saving,
            self.start,
            self._next_start,
            frozenset(self._dropped),
            self._has_config,
        )

    def _rows(self, first_index: int, last_index: int) -> list[Row]:
        """The entries of this range; their files are closed again."""
        reader = LogReader(self.disk, FOLDER)
        rows = [reader.row(Index(index)) for index in range(first_index, last_index + 1)]
        reader.close()
        return rows

    def _new_uuid(self) -> bytes:
        return next(self._uuids).to_bytes(16, "little")


def _start_after(row: Row) -> LogStart:
    header = row.header
    return LogStart(header.index, header.term, row.chain, header.next_lsn)


def entry_elsewhere(index: int, term: int) -> Row:
    """An entry of a leader's log, at the log start there."""
    return base_row(
        Index(index), Term(term), 0xC0FFEE00 + index,
        next_lsn=Lsn(10 * index + 1), timestamp_ns=1_000 * index, cumulative_bytes=100 * index,
    )  # fmt: skip


def next_header(
    last: Row, term: Term, body: bytes, count: int = 1, *, kind: EntryKind = EntryKind.DATA
) -> EntryHeader:
    """The header of an entry with this body behind `last`: of this kind, with `count` payloads if
    it has LSNs, or NOOP if empty."""
    before = last.header
    return EntryHeader(
        kind=kind if body else EntryKind.NOOP,
        count=count if body and takes_lsns(kind) else 0,
        term=term,
        index=Index(before.index + 1),
        prev_term=before.term,
        first_lsn=before.next_lsn,
        timestamp_ns=before.timestamp_ns + 1,
        cumulative_bytes=before.cumulative_bytes + len(body),
        prev_chain=last.chain,
        body_size=len(body),
        body_crc=crc32c(body) if body else 0,
    )


def look(disk: SimulatedDisk, *, newest_level: int = NEWEST_LEVEL) -> Found:
    """Recover `disk` with the shipped code and read every entry back."""
    uuids = itertools.count(1 << 60)
    recovered = recover(
        disk,
        FOLDER,
        OPTIONS,
        node=NODE,
        newest_level=newest_level,
        new_uuid=lambda: next(uuids).to_bytes(16, "little"),
        tick=lambda: None,
    )
    kept: dict[Index, int] = {}
    faulty = {
        Index(index) for each in recovered.faulty for index in range(each.first, each.last + 1)
    }
    reader = LogReader(disk, FOLDER)
    for number in range(recovered.first_index, recovered.last.header.index + 1):
        index = Index(number)
        if index in faulty:
            continue
        try:
            reader.read_body(index)
            kept[index] = reader.row(index).chain
        except CorruptData:
            faulty.add(index)  # of a sealed segment: found when it is read, not at start
    return Found(kept, frozenset(faulty), recovered)
