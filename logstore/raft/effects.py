"""The effects of the consensus core: every output of `RaftCore.step`, as data.

The driver's one rule: every effect may be carried out at once, in order per target; the core
withholds what must wait for the disk. Tags are unique among events and effects.
"""

from __future__ import annotations

import msgspec

from logstore.errors import ErrorCode
from logstore.format.configuration_body import Configuration
from logstore.format.entry import EntryHeader
from logstore.format.level import FIRST_LEVEL
from logstore.format.peer_messages import BulkAnswer, ControlMessage
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn, NodeId, Term
from logstore.raft.log_view import WholeLogStart

# --- to the writer, in order ---


class Persist(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=130):
    """Write and flush one entry. `seq` rises by one with every Persist, Truncate and InstallLog of
    an incarnation."""

    seq: int
    header: EntryHeader
    chain: int
    ring_start: int
    ring_end: int
    commit: Index


class Truncate(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=131):
    """Open a new segment pair at `first_index`; everything from there on in older pairs is dead
    (S7, F6). The term that caused it is durable already."""

    seq: int
    first_index: Index


class InstallLog(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=155):
    """Drop the log, and begin an empty one after `start` (G5a). The term of the leader that sent it
    is durable already."""

    seq: int
    start: WholeLogStart


class ApplyTrim(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=152):
    """The TRIM at `index` is committed and flushed here: make what it says the log start, if that
    is above the present one (G4)."""

    index: Index


class MoveLogStart(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=157):
    """The leader's log start is committed, and this log has the entry there, flushed: make it the
    log start, if it is above the present one, and keep what follows (G5)."""

    start: WholeLogStart


class SaveMeta(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=132):
    """Make term and vote durable. META has its own queue of flushes and its own
    `seq`. `vote` 0: none."""

    seq: int
    term: Term
    vote: NodeId


class SaveLevel(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=151):
    """The log is at format level `level`: make it durable in META (S11). `has_config`: it has a
    CONFIG, which may be damaged or dropped later (C12). What META says already, stays. Nothing
    waits for it."""

    level: int
    has_config: bool = False


# --- to one replicator ---


class Send(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=133):
    """Send a control message to `peer`, on our own pair of sockets to it."""

    peer: NodeId
    message: ControlMessage


class Lead(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=134):
    """This node leads `term`: begin stream `stream` to `peer` at `next_index`. Everything up to
    `last_index` can be read from files once WRITTEN has reached `persist_seq`. `install`: the log
    start, which ends before `next_index`; the peer needs it first (G5)."""

    peer: NodeId
    term: Term
    stream: int
    next_index: Index
    last_index: Index
    persist_seq: int
    commit: Index
    install: WholeLogStart | None = None


class Rewind(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=135):
    """Begin a new stream at `next_index`, because the peer rejected the one named by `stream`."""

    peer: NodeId
    term: Term
    stream: int
    next_index: Index


class Describe(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=136):
    """A new entry of this term, to every replicator. Its body is in the ring range for a while, and
    in the files once WRITTEN has reached `persist_seq`."""

    term: Term
    header: EntryHeader
    ring_start: int
    ring_end: int
    persist_seq: int
    commit: Index


class StopLeading(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=137):
    """Send nothing more of `term`: to every replicator, or to that of `peer`, which has left."""

    term: Term
    peer: NodeId = NO_NODE


# --- to ingress ---


class Answer(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=138):
    """Answer `peer` on its own pair of sockets to us. `uuid`: that replica's only, if it is not
    empty; another one may bear its number meanwhile (C6)."""

    peer: NodeId
    message: ControlMessage | BulkAnswer
    uuid: bytes = b""


class Admit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=139):
    """A gen opens (E3): rebuild the session table up to `last_index` once WRITTEN has reached
    `persist_seq`, then offer props 0, 1, … of this gen. `trim`: the newest TRIM entry of the log,
    which may not have acted yet; NO_INDEX: there is none. Without `takes_batches` disks are full,
    and the gen is for TRIMs and what they need (S9)."""

    term: Term
    gen: int
    last_index: Index
    persist_seq: int
    trim: Index = NO_INDEX
    takes_batches: bool = True


class AdmissionClosed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=140):
    """The gen is closed. Its first `accepted` props got an index, every other was dropped.
    `reason`: step_down, transfer, disk_full, disk_has_space."""

    gen: int
    accepted: int
    reason: str


class Accepted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=141):
    term: Term
    gen: int
    prop: int
    index: Index
    first_lsn: Lsn
    timestamp_ns: int = 0  # of the entry: committed time, by which sessions expire


class Committed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=142):
    """Cumulative. Acknowledge what was accepted in `term` at or below `index` (E4). `level`: the
    log's format level there (S11)."""

    term: Term
    index: Index
    level: int = FIRST_LEVEL


class Flushed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=158):
    """Cumulative. This leader's own disk has everything of `term` up to `index` (F9, E10). Sent
    only while a group waits for it."""

    term: Term
    index: Index


class TermEnded(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=143):
    """No Accepted, Committed or Flushed of `term` follows: forget pending batches (E4)."""

    term: Term


class LeaderChanged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=144):
    """`leader` 0: unknown."""

    term: Term
    leader: NodeId


class HoldLogStart(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=156):
    """While this node leads `term`, a TRIM should not pass `index`: a follower that catches up
    after an Install has no more (G7). None: nothing is held."""

    term: Term
    index: Index | None


class StreamAccepted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=145):
    """Bulk frames of this term that belong to other streams, or lie wholly at or below `index`,
    need not be copied. `is_dead`: the stream was rejected, so none of its frames is needed (W1)."""

    term: Term
    stream: int
    index: Index
    is_dead: bool


class TransferAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=146):
    request_id: int
    is_done: bool
    reason: str


class LevelAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=154):
    """How a LevelRequested ended: OK, or an error's code and the reason. `level`: the log's now."""

    request_id: int
    code: ErrorCode
    level: int
    reason: str


class ProposeConfiguration(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=159):
    """Offer a CONFIG entry with this content in the gen `gen` of `term`, once (C7). If the gen ends
    before, forget it."""

    term: Term
    gen: int
    configuration: Configuration


class ChangeAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=129):
    """How a ChangeRequested ended: OK once the last CONFIG of the change is committed, or an
    error's code and the reason."""

    request_id: int
    code: ErrorCode
    reason: str


class MembersChanged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=203):
    """The configuration that is in force, at a start and when it has changed (C5), and again once
    it is known to be committed. To ingress, and to the driver, which connects to the members.
    Configuration 0, at index 0: the log has none, the configuration file says who votes."""

    index: Index
    is_committed: bool
    configuration: Configuration


# --- to egress ---


class ReadIndexAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=147):
    """Wait until `lsn` is visible at this replica, then read. Not
    `is_leader`: ask another replica."""

    request_id: int
    is_leader: bool
    lsn: Lsn


# --- to the raft actor itself ---


class Settle(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=148):
    """The ring range was persisted or dropped: raft no longer needs it (M4). Each range once."""

    ring_start: int
    ring_end: int


class Visible(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=149):
    """The visible LSN (V3), which only rises; the first one means that the
    replica is ready (V4)."""

    lsn: Lsn
    index: Index


class Log(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=150):
    """A change of role or an alarm, for the operator's log."""

    text: str


WriterEffect = Persist | Truncate | InstallLog | ApplyTrim | MoveLogStart | SaveMeta | SaveLevel
ReplicatorEffect = Send | Lead | Rewind | Describe | StopLeading
IngressEffect = (
    Answer | Admit | AdmissionClosed | Accepted | Committed | Flushed | TermEnded | LeaderChanged
    | StreamAccepted | HoldLogStart | TransferAnswered | LevelAnswered | ProposeConfiguration
    | ChangeAnswered | MembersChanged
)  # fmt: skip
EgressEffect = ReadIndexAnswered
OwnEffect = Settle | Visible | Log
Effect = WriterEffect | ReplicatorEffect | IngressEffect | EgressEffect | OwnEffect
