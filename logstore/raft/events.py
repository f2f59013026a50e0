"""The events of the consensus core: every input of `RaftCore.step`, as data.

The structs cross the command rings as they are (msgspec arrays with integer tags), so
tags are unique among events and effects. Ring ranges are positions [ring_start,
ring_end) of the payload ring.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.format.peer_messages import Append, BulkAnswer, ControlMessage, Install
from logstore.model import NO_NODE, Index, NodeId, Term
from logstore.raft.log_view import WholeLogStart


class Tick(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=100):
    """The monotonic clock is at `now_ns`; every other event happens at the last Tick's time.
    `wall_ns`: the wall clock then, 0 if unknown. It decides nothing but stamps (G2)."""

    now_ns: int
    wall_ns: int = 0


class Proposed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=101):
    """Ingress proposes a group (E3). `prop` counts 0, 1, … within the gen;
    `wall_ns` is wall clock time. `waits_for_flush`: a batch in it is answered once this leader's
    own disk has it (E10)."""

    term: Term
    gen: int
    prop: int
    kind: int
    count: int
    body_crc: int
    ring_start: int
    ring_end: int
    wall_ns: int
    waits_for_flush: bool = False
    configuration: Configuration | None = None  # what the body of a CONFIG holds


class AppendReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=102):
    """An append of a peer. Ingress has checked the body's CRC and copied the
    body to the ring range."""

    sender: NodeId
    boot: int
    append: Append
    ring_start: int
    ring_end: int
    configuration: Configuration | None = None  # what the body of a CONFIG holds


class ControlReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=103):
    """A peer's control message, or its answer to one of ours; `boot` is its boot counter, `uuid`
    the replica's, if the driver knows it."""

    sender: NodeId
    boot: int
    message: ControlMessage
    uuid: bytes = b""


class StreamAnswer(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=104):
    """A replicator passes on what its follower answered on the bulk lane."""

    sender: NodeId
    boot: int
    message: BulkAnswer


class Persisted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=105):
    """Every Persist and Truncate up to `seq` is flushed (F4)."""

    seq: int


class MetaPersisted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=106):
    """Every SaveMeta up to `seq` is flushed."""

    seq: int


class TransferRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=107):
    """An operator, or the orderly stop, asks to hand leadership over;
    `target` 0: to the best fit."""

    request_id: int
    target: NodeId


class ReadIndexRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=108):
    request_id: int


class DiskFullChanged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=109):
    """`room_bytes` and `room_entries`: what the open segment of a full disk still takes, besides
    all that was ordered up to `seq`."""

    is_full: bool
    room_bytes: int = 0
    room_entries: int = 0
    seq: int = 0


class IngressStalled(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=110):
    """Ingress' loop stood still for two election timeouts (V6): a leader steps down."""


class ReplicatorGone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=111):
    """The replicator to `peer` died or was started again, and has forgotten its
    stream: begin a new one."""

    peer: NodeId


class EntryRotted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=112):
    """A reader found a live entry damaged on disk (Q5): it becomes a faulty entry."""

    index: Index


class LevelRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=113):
    """An operator asks to raise the log to format level `level` (S11)."""

    request_id: int
    level: int


class LogStartMoved(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=114):
    """META says durably that the log starts after `start`, and has its format level at least; what
    lies wholly below is removed."""

    start: WholeLogStart


class InstallReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=115):
    """A peer's log start, for a log that ends below it."""

    sender: NodeId
    boot: int
    install: Install


class ConnectionLost(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=116):
    """The connection to `peer` ended, or a new one was refused. A hint, no more: the peer may be
    alive, and another connection to it work (C1)."""

    peer: NodeId


class ChangeKind(IntEnum):
    """A change of the configuration that an operator asks for."""

    FOUND = 1  # the first CONFIG, with the voters of the configuration file as `members`
    ADD = 2  # the only one of `members`, as a learner
    PROMOTE = 3  # the learner `node`
    REMOVE = 4  # the member `node`
    REPLACE = 5  # the voter `node`: by the learner `by`; where that is 0, by one that is to join
    JOIN = 6  # the only one of `members` asks to join (L4)
    RENEW = 7  # the same members once more, above what is to be trimmed (G4)


class ChangeRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=117):
    """Change the configuration: an operator asks for it, a replica that joins, or this one's driver
    (C7, C11, L4). `is_forced`: also where the new voters do not answer, or one that stays is
    damaged. ADD has a member without a uuid, for one that is to join under this number at this
    address; so has REPLACE where another address is to have the voter's place, with number 0.
    `uuid`: of the replica that is to leave; NO_UUID: whichever has the number."""

    request_id: int
    kind: ChangeKind
    node: NodeId = NO_NODE
    by: NodeId = NO_NODE
    members: tuple[Member, ...] = ()
    is_forced: bool = False
    uuid: bytes = NO_UUID


Event = (
    Tick | Proposed | AppendReceived | ControlReceived | StreamAnswer | Persisted | MetaPersisted
    | TransferRequested | ReadIndexRequested | DiskFullChanged | IngressStalled | ReplicatorGone
    | EntryRotted | LevelRequested | LogStartMoved | InstallReceived | ConnectionLost
    | ChangeRequested
)  # fmt: skip
