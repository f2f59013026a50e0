"""What replicas did, as data: most of what checkers and must-reach marks read (FAULTS section 2).

The simulator, or a test that plays a history, tells each `Fact` once, at the moment it happens: the
record has the clock. What clients did is in `client_facts`, what follows in `consequences`. Must
not know what reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.world_view import Core
from logstore.format.cursor_entries import Cursor
from logstore.format.entry import EntryHeader
from logstore.format.peer_messages import Append
from logstore.format.session_snapshot import KeptName
from logstore.model import Role
from logstore.raft.effects import Effect
from logstore.raft.events import Event
from logstore.raft.log_view import RecoveredLog
from logstore.session.session import Session


class Fact(msgspec.Struct, frozen=True, gc=False):
    """Something happened."""


class NodeFact(Fact, frozen=True):
    """At one replica."""

    node: int


class PromiseBroken(Fact, frozen=True):
    """An observer reports a violation that it can judge alone."""

    invariant: Invariant
    text: str


# --- replicas ---


class Started(NodeFact, frozen=True):
    """A new incarnation of the replica begins; every earlier one is over (M1, M3)."""

    incarnation: int


class VersionStarted(NodeFact, frozen=True):
    """The present incarnation is of a version that reads format levels up to `newest_level`."""

    newest_level: int


class LevelRefused(NodeFact, frozen=True):
    """The replica gives up: its log is above what its version reads."""


class CoreMade(NodeFact, frozen=True):
    """Recovery of the present incarnation ended; `log` is what its core is made of. `uuid`: the
    replica's, by its disk; empty: not known."""

    log: RecoveredLog
    uuid: bytes = b""


class Stepped(NodeFact, frozen=True):
    """`core.step(event)` returned `effects`; none of them is carried out yet. Hot."""

    incarnation: int
    core: Core
    event: Event
    effects: Sequence[Effect]

    def leads(self, term: int) -> bool:
        """Whether the replica leads this term, when the step is done."""
        return self.core.role is Role.LEADER and self.core.term == term


class DiskLost(NodeFact, frozen=True):
    """The node has an empty disk from now on: the replica is gone, with its votes."""


class DiskSwapped(NodeFact, frozen=True):
    """The node has another one of its disks from now on; `disk` others were in before it came."""

    disk: int


class PlaceGiven(NodeFact, frozen=True):
    """An operator had the lost voter replaced in its place."""


class PowerCutAfterLie(NodeFact, frozen=True):
    """A power cut hits `node` after its device lied about a flush."""


class MetaWritten(NodeFact, frozen=True):
    """The writer of `node` begins to write this one of its two copies of META."""

    copy: int


class SavesExcused(NodeFact, frozen=True):
    """Saves of `node` may take any time until `until_ns`."""

    until_ns: int


class PairRemoved(NodeFact, frozen=True):
    """A process of `node` removes a file of this segment."""

    segment: int


class WrittenPublished(NodeFact, frozen=True):
    """The writer of `node` publishes that everything up to `seq` is written (W4)."""

    seq: int


class ReadAheadOfWriter(NodeFact, frozen=True):
    """A replicator of `node`, for `term`, read where no record is written yet (W4)."""

    term: int
    place: str


class DiskWritten(NodeFact, frozen=True):
    """A process of `node` hands these bytes to its disk."""

    path: str
    offset: int
    size_bytes: int


class ForbiddenWrite(NodeFact, frozen=True):
    """The replica wrote frames over others (S7) or into the sector of flushed ones (S6), or a
    header during a flush of the segment before (F6)."""

    how: str


class RingOverwritten(Fact, frozen=True):
    """A replicator copied a payload from the ring too late, and noticed that it was overwritten."""


class EntrySent(NodeFact, frozen=True):
    """A replicator of `node` handed an entry for `peer` to the network."""

    peer: int
    append: Append
    body: bytes


class AckSent(NodeFact, frozen=True):
    """`node` sends, received or not, that this batch is committed; `place`: first LSN, count."""

    producer_id: int
    sequence: int
    place: tuple[int, int]


class NextLsnSent(NodeFact, frozen=True):
    """`node` refuses, received or not, a batch because the log ends before `next_lsn` (E11)."""

    next_lsn: int


class ImportAckSent(NodeFact, frozen=True):
    """`node` sends, received or not, that an imported batch is committed."""

    place: tuple[int, int]


class TableRebuilt(NodeFact, frozen=True):
    """Ingress begins `gen` with this table of sessions, of cursors, and of names kept.

    `snapshot_parts`: how many parts the snapshot has that the rebuild began with; `passed_over`:
    how many newer snapshots had no last part.
    """

    gen: int
    table: tuple[Iterable[Session], Iterable[Cursor], Iterable[KeptName]]
    snapshot_parts: int
    passed_over: int


class SessionDenied(Fact, frozen=True):
    """A node refuses a batch, since it knows no session of this producer."""

    producer_id: int


class OpenReplySent(NodeFact, frozen=True):
    """`node` answers an OpenSession request with this producer epoch."""

    producer_id: int
    producer_epoch: int


class GroupPublished(NodeFact, frozen=True):
    """`node` publishes a group, or a notice of one, on its tail feed."""


class TipPublished(NodeFact, frozen=True):
    """`node` publishes a Tip."""


# --- processes ---


class ProcessFact(NodeFact, frozen=True):
    """At one process of one incarnation; the name "" stands for all of them."""

    process: str
    incarnation: int


class ProcessDied(ProcessFact, frozen=True):
    """The process has ended."""


class ProcessRespawned(ProcessFact, frozen=True):
    """The process was restarted alone, in the same incarnation."""


class ProcessActed(ProcessFact, frozen=True):
    """The process did something that others can see: sent, answered, wrote, flushed."""


class BellsNotRung(NodeFact, frozen=True):
    """A do_work is over, and has not rung the bells of `receivers` after it published for them."""

    process: str
    receivers: Sequence[str]


class ControlLaneUnread(Fact, frozen=True):
    """A do_work is over, and `oldest` is the first message that it left unread on a control lane,
    known by its identity."""

    process: str
    endpoint: str
    oldest: object


class BatchUnread(NodeFact, frozen=True):
    """A do_work of ingress is over, and `oldest` is the first batch that its leader left unread,
    known by its identity; None: it does not lead, or has read all."""

    oldest: object


class QueueSeen(Fact, frozen=True):
    """A bounded queue holds `length` of at most `bound`."""

    name: str
    length: int
    bound: int


class EndedByFullDisk(Fact, frozen=True):
    """A process ended because of a full disk, or does not start on a full disk that has lost
    nothing."""

    process: str
    error: str


# --- the end ---


class FaultsEnded(Fact, frozen=True):
    """The faults are over, and a majority is running: an append must be acknowledged in time."""

    append_within_ns: int


class ReplicasReturned(Fact, frozen=True):
    """All replicas are running again: they must become equal in time."""

    equal_within_ns: int


class Converged(Fact, frozen=True):
    """All replicas but excused ones hold and show the same, and nothing is under way."""


class DamageListed(NodeFact, frozen=True):
    """What the core of `node` calls damaged in the end: ranges of indexes."""

    named: Sequence[tuple[int, int]]


class LogRead(NodeFact, frozen=True):
    """All committed entries of `node`, with their bodies, after convergence."""

    entries: Iterable[tuple[EntryHeader, bytes]]


class Finished(Fact, frozen=True):
    """The run is over; what only the whole history can show is checked now."""
