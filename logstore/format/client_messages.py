"""Messages between clients and replicas: control, acknowledgements, reads and the tail.

Numbers 64-95 control port, 96-127 append port, 128-159 ack feed, 160-191 fetch port, 192-223 tail
feed. Replies carry the request's correlation number. Documents (metadata, status) are UTF-8 JSON,
everything else is fixed fields. A client sends a zero cluster id until it has learned the
cluster's; after that a replica of another cluster answers WRONG_CLUSTER. Decoding checks structure
only; the server refuses impossible values with an ErrorReply.

A pushed append is one frame, 8 bytes and the batch:
     0 magic u16 'LA' │ protocol version u16 │ round u32
     8 batch (batch.py)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from logstore.errors import FormatError, UnsupportedVersion
from logstore.format.fields import Buffer, check_room
from logstore.format.first_lsn import FIRST_LSN_SIZE
from logstore.format.message import register
from logstore.model import Index, Lsn, Term

LSN_MAX = (1 << 64) - 1  # "no upper bound" in FetchRequest.last_lsn
APPEND_PREFIX = struct.Struct("<HHI")
APPEND_MAGIC = 0x414C
APPEND_VERSION = 1
ACK_ROW = struct.Struct("<QQIIQ")  # sequence, first_lsn, count, code, detail
SPAN = struct.Struct(
    "<QQQ"
)  # last_lsn, size of the entries' bodies, timestamp_ns of the last entry
PIECE = struct.Struct("<QQQQII")  # first_lsn, index, term, timestamp_ns, count, size of the batches


def append_prefix(round_number: int) -> bytes:
    """The 8 bytes before a pushed batch, in this round of the producer (SAFETY E9)."""
    return APPEND_PREFIX.pack(APPEND_MAGIC, APPEND_VERSION, round_number)


def read_append_prefix(frame: Buffer) -> int:
    """The round of a pushed append; its batch begins at byte APPEND_PREFIX.size.

    Raises:
      UnsupportedVersion: a newer version of the protocol.
      FormatError: no append at all.
    """
    check_room(frame, 0, APPEND_PREFIX.size, "append")
    magic, version, round_number = APPEND_PREFIX.unpack_from(frame)
    if magic != APPEND_MAGIC:
        raise FormatError(f"append magic {magic:#06x}, expected {APPEND_MAGIC:#06x}")
    if version != APPEND_VERSION:
        raise UnsupportedVersion(f"append version {version}; this side reads {APPEND_VERSION}")
    return int(round_number)


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Batches of one entry in a fetch reply or tail group, at [start, end) of its second frame."""

    first_lsn: Lsn
    index: Index
    term: Term
    timestamp_ns: int
    count: int
    start: int
    end: int


def iterate_pieces(frame: Buffer) -> Iterator[Piece]:
    """The pieces of a second frame, in order. The reader verifies the batches in them.

    Raises:
      FormatError: the pieces do not fill the frame exactly.
    """
    offset, end = 0, len(frame)
    while offset < end:
        check_room(frame, offset, PIECE.size, "piece header")
        first_lsn, index, term, timestamp_ns, count, size = PIECE.unpack_from(frame, offset)
        start = offset + PIECE.size
        check_room(frame, start, size, "piece")
        offset = start + size
        yield Piece(first_lsn, index, term, timestamp_ns, count, start, offset)


class MetadataRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks for this replica's identity, the leader and the limits."""


class MetadataReply(msgspec.Struct, frozen=True, gc=False):
    """JSON: cluster_id (hex), node, leader (0: unknown), term, limits, and the nodes as a list of
    {node, host, port}."""

    document: bytes


class OpenSessionRequest(msgspec.Struct, frozen=True, gc=False):
    """`producer_id` 0 and an empty name: a new producer. A known id or name gets the next epoch."""

    producer_id: int
    mode: int
    ack_level: int
    window: int
    name: bytes


class OpenSessionReply(msgspec.Struct, frozen=True, gc=False):
    """`next_sequence`: the sequence to send first (monotone: the last one used + 1)."""

    producer_id: int
    producer_epoch: int
    window: int
    window_bytes: int
    batch_max_bytes: int
    next_sequence: int


class SessionStateRequest(msgspec.Struct, frozen=True, gc=False):
    producer_id: int
    producer_epoch: int
    round: int


class SessionStateReply(msgspec.Struct, frozen=True, gc=False):
    """Rows of ACK_ROW for the window: code OK is committed, OUTCOME_UNKNOWN is in the
    leader's log and will be acknowledged on the feed if it is committed. `next_sequence`:
    what the leader expects."""

    producer_id: int
    producer_epoch: int
    next_sequence: int
    rows: bytes


class SessionLookupRequest(msgspec.Struct, frozen=True, gc=False):
    """What has the session of this name committed? Linearizable, and changes nothing:
    unlike OpenSession it fences no producer. The answer is a SessionStateReply; producer
    id 0: no such session."""

    name: bytes


class TransferRequest(msgspec.Struct, frozen=True, gc=False):
    """`target` 0: the voter that is most up to date."""

    target: int


class StatusRequest(msgspec.Struct, frozen=True, gc=False):
    pass


class StatusReply(msgspec.Struct, frozen=True, gc=False):
    """JSON: this replica's part of `logstore status --json`."""

    document: bytes


class TraceRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks for what this replica has measured of itself: counters, usage, sampled stamps."""


class TraceReply(msgspec.Struct, frozen=True, gc=False):
    """JSON: node, leader, term, now_ns, groups_in_flight_max, counters, processes, stamps. All
    times are of this replica's monotonic clock."""

    document: bytes


class DoneReply(msgspec.Struct, frozen=True, gc=False):
    """`value`: the LSN of a cursor before it was set, 0: it did not exist; the producer id of a
    session that was ended; the log's format level after it was raised; the first LSN that a trim
    keeps; else 0."""

    value: int


class ErrorReply(msgspec.Struct, frozen=True, gc=False):
    """`leader`: node id for NOT_LEADER; first, last: the bounds for OUT_OF_RANGE; first: the
    cursor's LSN for CURSOR_MOVED; text: UTF-8."""

    code: int
    leader: int
    first: int
    last: int
    text: bytes


class InitializeRequest(msgspec.Struct, frozen=True, gc=False):
    """`logstore init`: this node coordinates the bootstrap (L2). DoneReply or ErrorReply.

    `first_lsn`: where the log is to begin, as in first_lsn.py; a log that begins elsewhere refuses.
    """

    first_lsn: bytes = b""


class SetCursorRequest(msgspec.Struct, frozen=True, gc=False):
    """Set the cursor to `lsn`, 0: delete it. DoneReply with its LSN before, or ErrorReply.

    `expected_lsn`: set it only if this is its LSN now; 0: only if it does not
    exist; 2**64 - 1: in any case. `hold`: one of `Hold`; versions that do not
    know AS_IT_IS refuse it as INVALID_REQUEST.
    """

    lsn: Lsn
    expected_lsn: Lsn
    hold: int
    name: bytes


class CursorsRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks for every cursor, linearizably; the leader answers once a quorum has confirmed it."""


class CursorsReply(msgspec.Struct, frozen=True, gc=False):
    """Rows of cursor_entries, ascending by name."""

    cursors: bytes


class SessionsRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks for a page of the sessions, linearizably: those of the lowest producer ids above
    `after`, at most `limit`; 0: as many as a page holds."""

    after: int
    limit: int


class SessionsReply(msgspec.Struct, frozen=True, gc=False):
    """Rows of session_list, ascending by producer id. `next_after`: ask for the next page with it;
    0: this is the last page."""

    next_after: int
    sessions: bytes


class EndSessionRequest(msgspec.Struct, frozen=True, gc=False):
    """End the session of this producer id, or forget what is kept of it. DoneReply with the id once
    the EXPIRE entry is committed, or ErrorReply."""

    producer_id: int


class RaiseLevelRequest(msgspec.Struct, frozen=True, gc=False):
    """Raise the log to format level `level`, which is the next one (S11). DoneReply with the log's
    level once the entry is committed, or ErrorReply."""

    level: int


class TrimRequest(msgspec.Struct, frozen=True, gc=False):
    """Move the log start, so that `lsn` is kept and every entry below the one that holds it is not.
    DoneReply with the first LSN kept once the TRIM is committed, or ErrorReply: the bounds of
    OUT_OF_RANGE are those that may be asked for."""

    lsn: Lsn


class ImportRequest(msgspec.Struct, frozen=True, gc=False):
    """Pushed to the append port: `batch`, unchanged from another log, is to be appended at
    `first_lsn`, where this log ends.

    Answered on the ack feed under the topic `importer`, a number that the sender has drawn: an Acks
    of producer id `importer`, epoch and round 0, whose row has the requested first LSN as its
    sequence. GAP: `detail` is where the log ends.
    """

    importer: int
    first_lsn: Lsn
    batch: bytes


class Acks(msgspec.Struct, frozen=True, gc=False):
    """Second frame of the ack feed, after the topic (producer id, u64 little-endian).

    Rows of ACK_ROW: code OK is committed; other codes are refusals, `detail` is the expected
    sequence for GAP and the leader's node id for NOT_LEADER.
    """

    producer_id: int
    producer_epoch: int
    round: int
    rows: bytes


class Welcome(msgspec.Struct, frozen=True, gc=False):
    """Sent on a feed once a subscription is in force: nothing after it is missed."""

    visible_lsn: Lsn


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks for payloads [first_lsn, last_lsn]: at most about `max_bytes`, at least one whole batch.

    Waits up to `wait_ms` until `min_lsn` is visible at the replica (0: do not wait).
    `is_linearizable`: after a ReadIndex round, on the leader only.
    """

    first_lsn: Lsn
    last_lsn: Lsn
    min_lsn: Lsn
    max_bytes: int
    wait_ms: int
    is_linearizable: bool


class FetchReply(msgspec.Struct, frozen=True, gc=False):
    """The second frame holds `pieces` times a PIECE header and its whole batches. Batches are never
    cut: the first piece may begin below first_lsn, the last may end above last_lsn."""

    log_start_lsn: Lsn
    visible_lsn: Lsn
    next_lsn: Lsn
    pieces: int


class WatermarksRequest(msgspec.Struct, frozen=True, gc=False):
    min_lsn: Lsn
    wait_ms: int
    is_linearizable: bool


class WatermarksReply(msgspec.Struct, frozen=True, gc=False):
    log_start_lsn: Lsn
    visible_lsn: Lsn


class TimeLookupRequest(msgspec.Struct, frozen=True, gc=False):
    timestamp_ns: int


class TimeLookupReply(msgspec.Struct, frozen=True, gc=False):
    """The first visible LSN whose group is not older than the time; visible_lsn
    + 1 if there is none."""

    lsn: Lsn


class VerifyRequest(msgspec.Struct, frozen=True, gc=False):
    """Recompute the chain from the bytes of `first_index` on, for about `max_bytes` of bodies."""

    first_index: int
    max_bytes: int


class VerifyReply(msgspec.Struct, frozen=True, gc=False):
    """[first_index, last_index] was read; `chain` is the one at last_index. Document: JSON list of
    faulty ranges {first_index, last_index, first_lsn, last_lsn, reason}."""

    last_index: int
    visible_index: int
    chain: int
    payloads: int
    size_bytes: int
    last_lsn: Lsn
    document: bytes


class SpansRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks how the bytes of [first_lsn, last_lsn] are spread: at most `limit` spans of whole
    entries, each of at least `step_bytes`, except the last one."""

    first_lsn: Lsn
    last_lsn: Lsn
    step_bytes: int
    limit: int


class SpansReply(msgspec.Struct, frozen=True, gc=False):
    """Rows of SPAN, one after the other from the entry that holds first_lsn. `timestamp_ns` is that
    entry's (0: nothing is visible there)."""

    log_start_lsn: Lsn
    visible_lsn: Lsn
    timestamp_ns: int
    rows: bytes


class TailGroup(msgspec.Struct, frozen=True, gc=False):
    """A group that became visible; the second frame is one PIECE header and its batches."""

    visible_lsn: Lsn


class TailNotice(msgspec.Struct, frozen=True, gc=False):
    """A group that is too large for the tail became visible: fetch it."""

    first_lsn: Lsn
    last_lsn: Lsn


class Tip(msgspec.Struct, frozen=True, gc=False):
    visible_lsn: Lsn


register(64, MetadataRequest, "")
register(65, MetadataReply, "", has_tail=True)
register(66, OpenSessionRequest, "QIII", has_tail=True)
register(67, OpenSessionReply, "QIIQQQ")
register(68, SessionStateRequest, "QII")
register(69, SessionStateReply, "QIQ", has_tail=True, tail_unit=ACK_ROW.size)
register(70, TransferRequest, "I")
register(71, DoneReply, "Q")
register(72, StatusRequest, "")
register(73, StatusReply, "", has_tail=True)
register(74, ErrorReply, "IIQQ", has_tail=True)
register(75, InitializeRequest, "", has_tail=True, tail_unit=FIRST_LSN_SIZE)
register(76, SetCursorRequest, "QQB", has_tail=True)
register(77, CursorsRequest, "")
register(78, CursorsReply, "", has_tail=True)
register(79, SessionLookupRequest, "", has_tail=True)
register(80, SessionsRequest, "QI")
register(81, SessionsReply, "Q", has_tail=True)
register(82, EndSessionRequest, "Q")
register(83, RaiseLevelRequest, "I")
register(84, TrimRequest, "Q")
register(85, TraceRequest, "")
register(86, TraceReply, "", has_tail=True)
register(96, ImportRequest, "QQ", has_tail=True)
register(128, Acks, "QII", has_tail=True, tail_unit=ACK_ROW.size)
register(129, Welcome, "Q")
register(160, FetchRequest, "QQQII?")
register(161, FetchReply, "QQQI")
register(162, WatermarksRequest, "QI?")
register(163, WatermarksReply, "QQ")
register(164, TimeLookupRequest, "Q")
register(165, TimeLookupReply, "Q")
register(166, VerifyRequest, "QI")
register(167, VerifyReply, "QQQQQQ", has_tail=True)
register(168, SpansRequest, "QQQI")
register(169, SpansReply, "QQQ", has_tail=True, tail_unit=SPAN.size)
register(192, TailGroup, "Q")
register(193, TailNotice, "QQ")
register(194, Tip, "Q")
