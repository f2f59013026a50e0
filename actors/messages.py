"""The messages on the command rings between a replica's processes, and their codec.

Most are raft's own events and effects: a ring carries msgspec arrays with integer tags. This module
adds messages that only actors exchange (tags 180 and up). None of them leaves the host.
"""

from __future__ import annotations

import msgspec

from logstore.errors import ErrorCode
from logstore.format.configuration_body import Configuration
from logstore.format.entry import Row
from logstore.format.level import FIRST_LEVEL
from logstore.format.meta import Forgotten
from logstore.format.peer_messages import InitMessage, JoinMessage, StartMessage
from logstore.format.peer_starts import PeerStart
from logstore.model import NO_RANGE, Index, IndexRange, Lsn, NodeId, Term
from logstore.raft import effects, events
from logstore.raft.bootstrap import SaveInit, SendInit

# Ingress and egress both ask raft for read indexes. Ids of ingress have this bit; ids of egress are
# times and do not. So raft's driver can route the answer, and the core need not know who asked.
READS_OF_INGRESS = 1 << 63
# Ids of ingress that are of no request, but of appends that were refused for what they expect.
READS_OF_COMPARISONS = READS_OF_INGRESS | 1 << 62
NO_LSN = Lsn(0)


class Identity(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=180):
    """raft to all: this replica's identity. `cluster_id` is zero until the bootstrap has set one,
    `boot` is META's counter, `state` a ReplicaState. Sent at start and at every change."""

    cluster_id: bytes
    replica_uuid: bytes
    boot: int
    state: int


class InitReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=181):
    """ingress or a replicator to raft: a bootstrap message of a peer."""

    sender: NodeId
    sender_uuid: bytes
    message: InitMessage


class InitRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=182):
    """ingress to raft: an operator asks this node to coordinate the bootstrap of a log that begins
    at `first_lsn`."""

    request_id: int
    first_lsn: Lsn


class InitAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=183):
    """raft to ingress: the cluster is formed as requested (OK), or why it is not."""

    request_id: int
    code: ErrorCode
    reason: str


class InitSaved(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=184):
    """writer to raft: SaveInit `seq` is durable."""

    seq: int


class CreateLog(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=185):
    """raft to writer: the bootstrap is done, create the first segment pair."""

    cluster_id: bytes


class FaultyRange(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Entries [first_index, last_index] are damaged on this disk. They hold [first_lsn, last_lsn]
    if the writer could read it from the entries around them, else 0."""

    first_index: Index
    last_index: Index
    first_lsn: Lsn = NO_LSN
    last_lsn: Lsn = NO_LSN


class LogRecovered(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=186):
    """writer to raft: what recovery found, or CreateLog created. `last_row` None: an empty log.
    `trims`: the TRIM entries in the log, whether they have acted or not. `level` is META's format
    level, `levels` are the entries that raise it (S11). `start_bytes` and `start_timestamp_ns` are
    of the entry at log start; 0 where damage hides them. `configurations`, `config_hidden` and
    `has_config` are as in `RecoveredLog` (C5, C12). `starts`: those of peers, as seen (L7).
    `was_named`: a committed CONFIG in the log names this replica (C9)."""

    cluster_id: bytes
    replica_uuid: bytes
    boot: int
    state: int
    nonce: int
    term: Term
    vote: NodeId
    start_index: Index
    start_term: Term
    start_chain: int
    start_next_lsn: Lsn
    last_row: Row | None
    term_runs: tuple[tuple[Index, Term], ...]
    commit_floor: Index
    persisted: Index
    faulty: tuple[FaultyRange, ...]
    damage: str
    trims: tuple[Index, ...] = ()
    level: int = FIRST_LEVEL
    levels: tuple[tuple[Index, int], ...] = ()
    start_bytes: int = 0
    start_timestamp_ns: int = 0
    configurations: tuple[tuple[Index, Configuration], ...] = ()
    config_hidden: IndexRange = NO_RANGE
    starts: tuple[PeerStart, ...] = ()
    has_config: bool = False
    was_named: bool = False


class ProcessGone(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=187):
    """supervisor to raft: a replicator or egress died with its process, which starts again (M3)."""

    process: str


class StopRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=188):
    """supervisor to raft: an orderly stop begins, hand leadership over."""


class StopReady(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=189):
    """raft to supervisor: leadership is handed over, or cannot be."""


class StatusRequested(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=190):
    request_id: int


class StatusReported(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=191):
    """raft to ingress: the status as JSON (role, term, leader, commit, match, faulty, …)."""

    request_id: int
    document: bytes


class ReadersWaiting(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=192):
    """egress to raft: whether readers wait for the visible LSN to move. raft answers `True` with
    egress' bell, so that no move in between is missed (M7)."""

    are_waiting: bool


class RotReported(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=193):
    """A reader to raft: the live entry `index`, which holds [first_lsn, last_lsn], is damaged on
    disk (Q5). 0, 0: the entries around it do not say which LSNs it holds either."""

    index: Index
    first_lsn: Lsn
    last_lsn: Lsn


class Part(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=194):
    """Piece `number`, from 0 on, of an encoded message that is too large for its ring.
    The pieces of one message follow each other. `station` cuts and joins, so actors
    see only whole messages."""

    number: int
    is_last: bool
    piece: bytes


class RecoveryDelayed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=195):
    """writer to raft: recovery waits for space or for the folder's lock, and is tried again."""

    reason: str


class PlacementReported(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=196):
    """supervisor to raft, whenever it changes: where and how the processes run, as JSON
    (`actors.supervisor.placement_report`). raft only repeats it in its status."""

    document: bytes


class StartReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=197):
    """ingress or a replicator to raft: what a peer tells or asks of a start (SAFETY L7)."""

    sender: NodeId
    sender_uuid: bytes
    boot: int
    message: StartMessage


class TellStart(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=202):
    """raft to a replicator, to report its start to `peer`; to ingress, to answer that one's."""

    peer: NodeId
    message: StartMessage


class JoinReceived(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=208):
    """ingress to raft: a replica asks to join (SAFETY L4); a replicator to raft: what a peer
    answers to that, or that this replica was removed (C10)."""

    sender: NodeId
    sender_uuid: bytes
    message: JoinMessage


class TellJoin(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=209):
    """raft to a replicator, to ask `peer` for a place in its cluster, or whether this replica was
    removed (C10); to ingress, to answer the replica `uuid` that asked under the number `peer`."""

    peer: NodeId
    message: JoinMessage
    uuid: bytes = b""


class SaveStart(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=198):
    """raft to writer: `start` is new among `starts`, all that are known; make them durable."""

    start: PeerStart
    starts: tuple[PeerStart, ...]


class StartSaved(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=199):
    """writer to raft: SaveStart is done. It is not answered where there is no space."""

    start: PeerStart


class SaveForgotten(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=200):
    """raft to writer: this replica must not go on (SAFETY L7); META keeps why."""

    forgotten: Forgotten


class ForgottenSaved(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=201):
    """writer to raft: META has it."""

    forgotten: Forgotten


class PeerIs(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=204):
    """raft to a replicator: from here on it talks to the replica `uuid` of number `node`, whose
    ports begin at `port` of `host`. `uuid` empty: the first one heard. `node` 0: to none. A change
    of it drops the stream and what is unsent. Answered with PeerTaken of this `seq`."""

    node: NodeId
    uuid: bytes
    host: str
    port: int
    seq: int = 0


class PeerTaken(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=205):
    """A replicator to raft: what follows comes from the peer of PeerIs `seq`, what came before from
    an earlier one."""

    seq: int


class ReplicatorWanted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=206):
    """raft to supervisor: start this spare replicator, in a process of its own."""

    actor: str


class ReplicatorStarted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=207):
    """supervisor to raft: the spare that was wanted is started for the first time in this
    incarnation. Its rings have memory now, and raft may use them."""

    actor: str


ToRaft = (
    events.Proposed | events.AppendReceived | events.ControlReceived | events.StreamAnswer
    | events.Persisted | events.MetaPersisted | events.TransferRequested
    | events.ReadIndexRequested | events.DiskFullChanged | events.LevelRequested
    | events.LogStartMoved | events.InstallReceived | events.ConnectionLost
    | events.ChangeRequested | RotReported
    | InitReceived | InitRequested | InitSaved | LogRecovered | ProcessGone | StopRequested
    | StatusRequested | ReadersWaiting | RecoveryDelayed | PlacementReported | StartReceived
    | StartSaved | ForgottenSaved | PeerTaken | ReplicatorStarted
    | JoinReceived
)  # fmt: skip
ToWriter = effects.WriterEffect | SaveInit | CreateLog | SaveStart | SaveForgotten
ToReplicator = effects.ReplicatorEffect | SendInit | TellStart | TellJoin | Identity | PeerIs
ToIngress = (
    effects.IngressEffect | effects.ReadIndexAnswered | SendInit | TellStart | TellJoin | Identity
    | InitAnswered | StatusReported
)  # fmt: skip
ToEgress = effects.EgressEffect | Identity
ToSupervisor = StopReady | ReplicatorWanted
RingMessage = ToRaft | ToWriter | ToReplicator | ToIngress | ToEgress | ToSupervisor | Part

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[RingMessage] = msgspec.msgpack.Decoder(RingMessage)

encode = _encoder.encode
decode = _decoder.decode
