"""Messages between replicas: the control lane (at most 4 KiB) and the bulk lane (appends).

Numbers 1-31 are the control lane, 32-63 the bulk lane; 19-31 and 37-63 are reserved for members
and repair. Raft uses these structs as they are. Fields mean what
they mean in the Raft thesis unless it is said otherwise.
"""

from __future__ import annotations

import msgspec

from logstore.errors import FormatError
from logstore.format.entry import ENTRY_HEADER_SIZE, EntryHeader, unpack_entry_header
from logstore.format.first_lsn import FIRST_LSN_SIZE
from logstore.format.message import register
from logstore.model import Index, Lsn, NodeId, Term

NO_ROUND = 0  # rounds begin at 1
NO_STREAM = 0  # no leader's stream has this id


class PreVoteRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """`term` is the one that the sender would campaign in; no term changes."""

    term: Term
    last_index: Index
    last_term: Term


class PreVoteReply(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """`term`: the request's when granted, else the replier's own."""

    term: Term
    is_granted: bool


class VoteRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """`is_transfer`: sent because of TimeoutNow; only such a request overrides stickiness (C2)."""

    term: Term
    last_index: Index
    last_term: Term
    is_transfer: bool


class VoteReply(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    term: Term
    is_granted: bool


class Heartbeat(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Leadership, the commit index and a quorum round. It verifies only its prev tuple (V2).

    `round` NO_ROUND (0) is commit news between heartbeats: it is not answered. `level`: the log's
    format level at `commit` (S11); 0: not reported, as at the first level.
    """

    term: Term
    commit: Index
    round: int
    prev_index: Index
    prev_term: Term
    prev_next_lsn: Lsn
    prev_chain: int
    level: int = 0


class HeartbeatReply(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=6):
    """`last_index`: the replier's last entry; faulty_*: its first faulty range (Q1), 0 if none;
    `clock_ns`: its wall clock (G2), 0 if not reported; `limits_digest`: equal for equal limits, 0
    if not reported; `is_disk_full`: it takes no entries (S9); `newest_level`: the newest format
    level that it reads (S11), 0 if not reported: then it reads level 1; `level`: as in a Heartbeat,
    at its own commit index; `room_bytes`: what a full disk still takes, each entry counted with
    what it needs at most besides its body, 0 from level 1 (S9)."""

    term: Term
    round: int
    last_index: Index
    faulty_first: Index
    faulty_last: Index
    clock_ns: int = 0
    limits_digest: int = 0
    is_disk_full: bool = False
    newest_level: int = 0
    level: int = 0
    room_bytes: int = 0


class TimeoutNow(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=7):
    term: Term


class InitStatusRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=8):
    """Bootstrap (L2): asks for the peer's state. The coordinator's `nonce` is echoed."""

    nonce: int


class InitStatus(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=9):
    """`state` is a ReplicaState; nonce and cluster id are zero while EMPTY. `first_lsn`: where that
    cluster's log begins, as in first_lsn.py."""

    state: int
    nonce: int
    cluster_id: bytes
    first_lsn: bytes = b""


class InitPrepare(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=10):
    nonce: int
    cluster_id: bytes
    first_lsn: bytes = b""


class InitPrepared(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=11):
    nonce: int


class InitCommit(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=12):
    nonce: int
    cluster_id: bytes
    first_lsn: bytes = b""


class StartReport(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=13):
    """Asks what the peer has seen of the sender's starts (SAFETY L7). This one drew `nonce`; its
    boot counter is in the envelope. Answered with StartSeen once the peer's disk has it; an older
    version does not know this message, and drops it."""

    nonce: int


class StartSeen(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=14):
    """The newest start of `replica_uuid` that the sender has seen. Whether it has forgotten one,
    that replica decides."""

    replica_uuid: bytes
    boot: int
    nonce: int


class JoinRequest(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=15):
    """Asks the leader for a place in the cluster (SAFETY L4), for the sender's number and uuid;
    `port` is the first one of its ports on `host`. An older version does not know this message, and
    drops it."""

    port: int
    host: bytes


class JoinAnswer(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=16):
    """`code` is an ErrorCode. OK: a committed CONFIG names the replica that asked; else `reason`
    says why not. `leader`: which node to ask, 0 if the sender knows none. NOT_LEADER: `reason` is
    HOST:PORT of that node's first port, empty if no CONFIG names it."""

    code: int
    leader: NodeId
    reason: bytes


class RemovedQuestion(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=17):
    """Of a member that hears no leader: is it one still (SAFETY C10)? `config_index`: of the newest
    CONFIG that it knows to be committed, 0 if it knows of none. A replica that names the sender
    does not answer, nor does an older version, which does not know this message."""

    config_index: Index


class Removed(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=18):
    """The CONFIG at `index` is committed, at or above the one that the question names, and names
    the replica that asked in no role (SAFETY C10)."""

    index: Index


class Append(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=32):
    """One entry of the leader of `term`. The previous entry's index, term, next LSN and chain are
    header.index - 1, header.prev_term, header.first_lsn and header.prev_chain (S3). The body, if
    `header.body_size` is not 0, is the message's second frame, covered by `header.body_crc`."""

    term: Term
    stream: int
    commit: Index
    header: EntryHeader


class AppendFrame(msgspec.Struct, frozen=True, gc=False):
    """The form in which an `Append` is sent, and the only one that is registered: the header is its
    72 bytes. To send: `encode_message(AppendFrame.of(append))`; on receipt: `frame.append()`."""

    term: Term
    stream: int
    commit: Index
    header: bytes

    @classmethod
    def of(cls, append: Append) -> AppendFrame:
        return cls(append.term, append.stream, append.commit, append.header.pack())

    def append(self) -> Append:
        """The append.

        Raises:
          FormatError: a header that no entry can have, or of a later term than the message's (U2).
        """
        header = unpack_entry_header(self.header)
        if header.term > self.term:
            raise FormatError(f"an entry of term {header.term} in an append of term {self.term}")
        return Append(self.term, self.stream, self.commit, header)


class Install(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=36):
    """The first message of a stream to a follower whose log ends below the leader's log start, or
    has another entry there (SAFETY G5). `start_*` are the entry at log start; `level` is the log's
    format level there (S11). Answered as an append of that entry would be."""

    term: Term
    stream: int
    start_index: Index
    start_term: Term
    start_next_lsn: Lsn
    start_chain: int
    start_cumulative_bytes: int
    start_timestamp_ns: int
    level: int


class AppendAccepted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=33):
    """Raft has verified the log up to `index` against this stream; nothing is durable yet."""

    term: Term
    stream: int
    index: Index


class AppendPersisted(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=34):
    """Everything up to `index` is verified in this term and flushed (F4): the follower's match."""

    term: Term
    index: Index


class AppendReject(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=35):
    """Once per stream. `prev_index` did not match. The follower's log ends at `last_index`, or has
    `hint_term` there, of which `hint_index` is the first entry in that log.

    `stream` NO_STREAM (0): the append was of an older term, and only `term` says something."""

    term: Term
    stream: int
    prev_index: Index
    last_index: Index
    hint_term: Term
    hint_index: Index


ControlMessage = (
    PreVoteRequest | PreVoteReply | VoteRequest | VoteReply | Heartbeat | HeartbeatReply
    | TimeoutNow
)  # fmt: skip
InitMessage = InitStatusRequest | InitStatus | InitPrepare | InitPrepared | InitCommit
StartMessage = StartReport | StartSeen
JoinMessage = JoinRequest | JoinAnswer | RemovedQuestion | Removed
BulkAnswer = AppendAccepted | AppendPersisted | AppendReject
PeerMessage = (
    ControlMessage | InitMessage | StartMessage | JoinMessage | BulkAnswer | Append | Install
)  # fmt: skip

register(1, PreVoteRequest, "QQQ")
register(2, PreVoteReply, "Q?")
register(3, VoteRequest, "QQQ?")
register(4, VoteReply, "Q?")
register(5, Heartbeat, "QQQQQQQ", later="I")
register(6, HeartbeatReply, "QQQQQ", later="QQ?IIQ")
register(7, TimeoutNow, "Q")
register(8, InitStatusRequest, "Q")
register(9, InitStatus, "QQ16s", has_tail=True, tail_unit=FIRST_LSN_SIZE)
register(10, InitPrepare, "Q16s", has_tail=True, tail_unit=FIRST_LSN_SIZE)
register(11, InitPrepared, "Q")
register(12, InitCommit, "Q16s", has_tail=True, tail_unit=FIRST_LSN_SIZE)
register(13, StartReport, "Q")
register(14, StartSeen, "16sQQ")
register(15, JoinRequest, "H", has_tail=True)
register(16, JoinAnswer, "HH", has_tail=True)
register(17, RemovedQuestion, "Q")
register(18, Removed, "Q")
register(32, AppendFrame, f"QQQ{ENTRY_HEADER_SIZE}s")
register(33, AppendAccepted, "QQQ")
register(34, AppendPersisted, "QQ")
register(35, AppendReject, "QQQQQQ")
register(36, Install, "QQQQQQQQI")
