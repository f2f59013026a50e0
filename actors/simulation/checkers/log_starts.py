"""Where logs begin: nothing is removed above what a committed TRIM says (I19; SAFETY G1, G4, G6).

Owns what the committed log says of it: a TRIM keeps what a session table can be made of, and what a
held cursor stands before. A replica's log, and what anybody is told of it, begins where one of them
says, and nowhere else; it never goes back. Must not know who decided them.
"""

from __future__ import annotations

from actors.simulation.checkers import facts
from actors.simulation.checkers.client_facts import LogStartTold, TrimTold
from actors.simulation.checkers.consequences import (
    CursorCommitted,
    LogResumed,
    SnapshotPartCommitted,
    TrimCommitted,
    TrimRead,
)
from actors.simulation.checkers.cursor_history import State, state_after
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Durability
from logstore.errors import FormatError
from logstore.format.cursor_entries import decode_cursor
from logstore.format.session_snapshot import read_part_head
from logstore.format.trim_entry import TrimEntry, decode_trim
from logstore.model import NO_INDEX, EntryKind
from logstore.raft.effects import ApplyTrim, InstallLog, MoveLogStart, Visible
from logstore.raft.events import LogStartMoved, Persisted
from logstore.raft.log_view import WholeLogStart


class LogStarts:
    """All replicas'."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._committed = record.committed
        self._cursors: State = {}
        self._first_parts: dict[tuple[int, int], int] = {}  # (term, number) -> index
        self._snapshot_index = 0  # first part of the newest whole one; 0: there is none
        self._is_blind = False  # some entry's bytes are not known
        self._newest = (0, 0)  # TRIM entry, and its log start
        self._ordered: dict[int, int] = {}  # node → the newest TRIM since its start
        self._lsns: dict[int, int] = {}  # TRIM → the first LSN that it keeps
        # node → the highest of those where its log may begin, or that of a disk that is lost: a
        # reader's answer may be on its way
        self._acted = dict.fromkeys(record.replicas, 0)

    # --- the committed log ---

    @reads(CursorCommitted)
    def on_cursor(self, entry: CursorCommitted) -> None:
        if entry.body is None:
            self._is_blind = True
            return
        cursor = decode_cursor(entry.body)
        if cursor.is_held and cursor.lsn < max(self._record.start_lsns):
            self._report(f"{cursor} is to hold what a TRIM gave up before it")
        self._cursors = state_after(self._cursors, cursor)

    @reads(SnapshotPartCommitted)
    def on_part(self, part: SnapshotPartCommitted) -> None:
        if part.body is None:
            self._is_blind = True
            return
        head = read_part_head(part.body)
        if head.part == 0:
            self._first_parts[head.term, head.number] = part.index
        if head.is_last:
            self._snapshot_index = self._first_parts.get((head.term, head.number), 0)

    @reads(TrimCommitted)
    def on_trim(self, entry: TrimCommitted) -> None:
        if entry.body is None:
            self._is_blind = True
            return
        try:
            trim = decode_trim(entry.body)
        except FormatError as error:
            self._record.findings.report(Invariant.I11, f"TRIM {entry.index}: {error}")
            return
        if not self._is_blind:
            self._check_trim(entry.index, trim)
        self._record.trimmed_to(trim.start)
        self._newest = (entry.index, int(trim.start.index))
        self._lsns[entry.index] = int(trim.start.next_lsn)
        self._record.tell(TrimRead(entry.index, trim))

    def _check_trim(self, index: int, trim: TrimEntry) -> None:
        start, committed = trim.start, self._committed
        text = f"TRIM {index} to {start}"
        chain = committed.chain_at(start.index)
        if chain is None or start.index >= index:
            self._report(f"{text}: no such entry is committed before it")
            return
        header = self._record.entries.headers[chain]
        told = (start.term, start.chain, start.next_lsn, trim.cumulative_bytes, trim.timestamp_ns)
        known = (header.term, chain, header.next_lsn, header.cumulative_bytes, header.timestamp_ns)
        if told != known:
            self._report(f"{text} tells {told} of that entry, it is {known}")
        if start.index >= self._snapshot_index:
            self._report(f"{text}: the newest snapshot begins at {self._snapshot_index}")
        for cursor in self._cursors.values():
            if cursor.is_held and cursor.lsn < start.next_lsn:
                self._report(f"{text}: {cursor} holds more")

    # --- replicas ---

    @reads(LogResumed)
    def on_resumed(self, log: LogResumed) -> None:
        """An empty log says nothing: one that joins may have heard its first LSN from replicas that
        had trimmed theirs (L4)."""
        replica, start = log.replica, log.recovered.start
        is_empty = start.index == NO_INDEX and log.recovered.last is None
        if not (self._is_blind or is_empty or self._record.is_start(start)):
            self._report(f"node {replica.node} begins after {start}, no committed TRIM says so")
        if start.index < replica.start.index and not self._record.is_excused(replica.node):
            text = f"node {replica.node} begins after entry {start.index}, and did after"
            self._report(f"{text} {replica.start.index}")
        replica.start = start
        self._act(replica, start.next_lsn)
        self._ordered.pop(replica.node, None)
        self._check_pairs(replica)

    @reads(ApplyTrim)
    def on_order(self, replica: Replica, trim: ApplyTrim, _step: Stepped) -> None:
        self._ordered[replica.node] = int(trim.index)

    @reads_after(ApplyTrim)
    def on_ordered(self, replica: Replica, trim: ApplyTrim, _step: Stepped) -> None:
        """It acts where it is committed, and flushed on this disk (G1)."""
        index, port = int(trim.index), self._disk_of(replica)
        self._act(replica, self._lsns.get(index, 0))
        chain = replica.log.chain_at(index)
        text = f"node {replica.node} carries out TRIM {index}, which"
        if chain is None or chain != self._committed.chain_at(index):
            self._report(f"{text} is not committed")
        elif self._record.entries.headers[chain].kind != EntryKind.TRIM:
            self._report(f"{text} is no TRIM")
        elif port is not None and not port.has_entry(replica.node, index, chain):
            self._report(f"{text} is not flushed there")

    @reads_after(Visible)
    def on_shown(self, replica: Replica, visible: Visible, _step: Stepped) -> None:
        """What it shows, it has, and so a TRIM there acts at once."""
        index, start = self._newest
        if not replica.start.index < start <= index <= visible.index or self._is_blind:
            return
        if self._record.is_excused(replica.node):
            return  # the TRIM may be damaged here
        if self._ordered.get(replica.node, 0) < index:
            text = f"node {replica.node} shows entry {visible.index}, and does not carry out"
            self._report(f"{text} TRIM {index}")

    @reads(LogStartMoved)
    def on_moved(self, replica: Replica, moved: LogStartMoved, _step: Stepped) -> None:
        if replica.installing is not None:
            return  # of the log that is being dropped
        start, node, port = moved.start.position, replica.node, self._disk_of(replica)
        if not (self._is_blind or self._record.is_start(start)):
            self._report(f"node {node} begins after {start}, no committed TRIM says so")
        if start.index <= replica.start.index:
            text = f"node {node} begins after entry {start.index}, and did after"
            self._report(f"{text} {replica.start.index}")
        if port is not None and port.log_start(node).index < start.index:
            self._report(f"node {node} begins after {start}, which its META forgets")
        replica.start = start
        self._check_pairs(replica)

    @reads(InstallLog)
    def on_install(self, replica: Replica, install: InstallLog, _step: Stepped) -> None:
        """The log starts over where a committed TRIM says, with all that is known of that entry."""
        replica.installing = (install.seq, install.start.position)
        start, text = (
            install.start.position,
            f"node {replica.node} starts over with {install.start}",
        )
        self._act(replica, start.next_lsn)  # it is committed, whatever META has by now
        if start.index:
            self._check_whole(text, install.start)
        elif not (self._is_blind or self._record.is_start(start)):
            self._report(f"{text}, no log began there")

    @reads(MoveLogStart)
    def on_taken(self, replica: Replica, move: MoveLogStart, _step: Stepped) -> None:
        """What its leader sent, a committed TRIM says, and the entry there is flushed on this disk:
        so it acts, though the TRIM may not be in this log."""
        start, port = move.start.position, self._disk_of(replica)
        text = f"node {replica.node} is to begin with {move.start}"
        self._act(replica, start.next_lsn)
        self._check_whole(text, move.start)
        if port is not None and not port.has_entry(replica.node, start.index, start.chain):
            self._report(f"{text}, that entry is not flushed there")

    def _check_whole(self, text: str, whole: WholeLogStart) -> None:
        """A log start that a leader sent is that of a TRIM, and says the same of its entry."""
        start = whole.position
        if self._is_blind:
            return
        header = self._record.entries.headers.get(start.chain)
        if header is None or not self._record.is_start(start):
            self._report(f"{text}, no committed TRIM says so")
            return
        if whole.cumulative_bytes != header.cumulative_bytes:
            self._report(f"{text}, {header.cumulative_bytes} bytes lie before it")
        if whole.timestamp_ns not in (0, header.timestamp_ns):
            self._report(f"{text}, that entry is of {header.timestamp_ns}")

    @reads_after(Persisted)
    def on_persisted(self, replica: Replica, persisted: Persisted, _step: Stepped) -> None:
        """It has started over, the writer says: META says so, and nothing of before is left."""
        if replica.installing is None or persisted.seq < replica.installing[0]:
            return
        start, node, port = replica.installing[1], replica.node, self._disk_of(replica)
        replica.installing, replica.start = None, start
        if port is not None and port.log_start(node).index != start.index:
            self._report(f"node {node} starts over after {start}, which its META forgets")
        if port is not None and port.is_installing(node):
            self._report(f"node {node} starts over after {start}, its META still has the mark")
        self._check_pairs(replica)

    def _check_pairs(self, replica: Replica) -> None:
        """A replica that begins there has given back the pairs below."""
        node, port, start = replica.node, self._disk_of(replica), int(replica.start.index)
        if port is None:
            return
        for segment in port.pairs_below(node, start):
            self._report(f"node {node} begins after entry {start}, and keeps segment {segment}")

    @reads(facts.PairRemoved)
    def on_removed(self, removed: facts.PairRemoved) -> None:
        """META says durably that all of it is below."""
        node = removed.node
        port = self._disk_of(self._record.replicas[node])
        if port is None:
            return
        highest, start = port.highest_in(node, removed.segment), port.log_start(node).index
        if highest > start:
            text = f"node {node} removes segment {removed.segment}, which has entry {highest}"
            self._report(f"{text}; in META its log begins after {start}")

    @reads(facts.Converged)
    def on_converged(self, _converged: facts.Converged) -> None:
        """Every TRIM is carried out, in bounded time."""
        highest = self._record.highest_start
        for node, replica in self._record.replicas.items():
            is_counted = replica.is_running and self._record.is_member(node)
            is_sound = is_counted and not self._record.is_excused(node)
            if is_sound and replica.start.index != highest and not self._is_blind:
                text = f"node {node} begins after entry {replica.start.index} in the end"
                self._report(f"{text}, a committed TRIM says {highest}")

    # --- clients ---

    @reads(LogStartTold)
    def on_told(self, told: LogStartTold) -> None:
        """A reader may know before raft does or META is flushed, not before a TRIM acts."""
        if not self._record.is_replica_known or self._is_blind:
            return
        text = f"node {told.node} says that its log begins at LSN {told.lsn}"
        if told.lsn not in self._record.start_lsns:
            self._report(f"{text}, no committed TRIM does")
        if told.lsn > self._acted[told.node] and not self._record.is_excused(told.node):
            self._report(f"{text}, no TRIM has acted there that says so")

    @reads(TrimTold)
    def on_answered(self, told: TrimTold) -> None:
        if not self._record.is_replica_known or self._is_blind:
            return
        if told.lsn not in self._record.start_lsns:
            text = f"node {told.node} says that the log begins at LSN {told.lsn} from now on"
            self._record.findings.report(Invariant.I10, f"{text}, no committed TRIM does")

    def _act(self, replica: Replica, lsn: int) -> None:
        self._acted[replica.node] = max(self._acted[replica.node], lsn)

    def _disk_of(self, replica: Replica) -> Durability | None:
        """What is durable there; None: its medium lied or rotted, or nobody knows."""
        port = self._record.durability
        return None if port is None or port.is_excused(replica.node) else port

    def _report(self, text: str) -> None:
        self._record.findings.report(Invariant.I19, text)
