"""Golden bytes of every format: what is on disk and on the wire today must decode for ever.

`format_golden.json` beside this file holds name -> hex. A test that fails for a new format prints
its line; an existing line is never changed, a new version gets a new one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from logstore.errors import FormatError, InvalidBatch, UnsupportedVersion
from logstore.format import client_messages, peer_messages
from logstore.format.batch import batch_payloads, encode_batch, read_batch_header, verify_batch
from logstore.format.conditional_prefix import (
    Expectation,
    conditional_prefix,
    read_conditional_prefix,
)
from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    decode_configuration,
    encode_configuration,
)
from logstore.format.cursor_entries import (
    Cursor,
    Hold,
    decode_cursor,
    decode_cursors,
    encode_cursor,
    encode_cursors,
)
from logstore.format.entry import EntryHeader, chain_start, unpack_entry_header
from logstore.format.first_lsn import pack_first_lsn
from logstore.format.group import FrameHeader, unpack_frame_header
from logstore.format.level import level_kind
from logstore.format.message import decode_message, encode_message, message_types
from logstore.format.meta import (
    Forgotten,
    ForgottenWhat,
    InstallMark,
    LogStart,
    Meta,
    unpack_meta,
)
from logstore.format.pair_summary import PairSummary, unpack_pair_summary
from logstore.format.peer_starts import PeerStart, pack_peer_starts, unpack_peer_starts
from logstore.format.raft_record import record_from_frame, unpack_raft_record
from logstore.format.segment_header import FileRole, SegmentHeader, unpack_segment_header
from logstore.format.session_entries import (
    ExpireEntry,
    OpenEntry,
    decode_expire,
    decode_open,
    encode_expire,
    encode_open,
)
from logstore.format.session_list import (
    ListedSession,
    decode_sessions,
    encode_sessions,
)
from logstore.format.session_snapshot import (
    KeptName,
    PartHead,
    SessionPart,
    SessionRow,
    WindowRow,
    decode_session_part,
)
from logstore.format.trim_entry import TrimEntry, TrimReason, decode_trim, encode_trim
from logstore.model import AckLevel, Codec, EntryKind, ReplicaState
from tests.unit.compressed_batches import with_block
from tests.unit.session_logs import encode_part, encode_version_1

GOLDEN = json.loads(Path(__file__).with_name("format_golden.json").read_text())
CLUSTER = bytes(range(16))
REPLICA = bytes(range(16, 32))
SEGMENT = bytes(range(32, 48))
PREVIOUS = bytes(range(48, 64))

BATCH = encode_batch(
    [b"one", b"", b"three"], producer_id=0x1122, producer_epoch=3, sequence=7, timestamp_ns=10**18
)
EXPECTATION = Expectation(round=7, expected_lsn=1 << 40, attempt=3)
# As these versions of the libraries made them, 2026-11-26. How they are read must stay.
COMPRESSED_PAYLOADS = [b"one one one one one one ", b"", b"threethreethreethreethree"]
LZ4_BLOCK = bytes.fromhex("4f6f6e65200400015b74687265650500507468726565")  # lz4 4.4.5
ZSTD_FRAME = bytes.fromhex(  # zstandard 0.25.0
    "28b52ffd20318d0000486f6e65207468726565020028b49e7644"
)
LZ4_BATCH, ZSTD_BATCH = (
    with_block(
        [24, 0, 25], block, codec, producer_id=0x1122, epoch=3, sequence=7, timestamp_ns=10**18
    )
    for codec, block in ((Codec.LZ4, LZ4_BLOCK), (Codec.ZSTD, ZSTD_FRAME))
)
HEADER = EntryHeader(
    kind=EntryKind.DATA, count=3, term=5, index=9, prev_term=4, first_lsn=21,
    timestamp_ns=10**18 + 5, cumulative_bytes=4096, prev_chain=0xFEDCBA9876543210,
    body_size=len(BATCH), body_crc=crc32c(BATCH),
)  # fmt: skip
LEVEL_HEADER = msgspec.structs.replace(HEADER, kind=level_kind(3), count=0, body_size=0, body_crc=0)
FRAME = FrameHeader(HEADER, segment=2, segment_uuid=SEGMENT, log_epoch=1, commit_known=8)
RECORD = record_from_frame(FRAME, 4608)
SEGMENT_HEADER = SegmentHeader(
    role=FileRole.RAFT, number=2, log_epoch=1, cluster_id=CLUSTER, replica_uuid=REPLICA,
    segment_uuid=SEGMENT, first_index=9, first_lsn=21, base_term=4, base_chain=0xFEDCBA9876543210,
    base_timestamp_ns=10**18, base_cumulative_bytes=4000, previous_number=1,
    previous_uuid=PREVIOUS, previous_first_index=1, previous_valid_end=8192,
)  # fmt: skip
SUMMARY = PairSummary(
    segment_uuid=PREVIOUS, first_index=9, end_index=1_009, commit_known=1_005,
    records_crc=0x01020304, term_starts=((9, 4), (700, 6)), trims=(12, 701), levels=((800, 2),),
)  # fmt: skip
META = Meta(
    state=ReplicaState.VOTER, cluster_id=CLUSTER, replica_uuid=REPLICA, node=2, vote=3, nonce=99,
    term=5, boot_counter=4, generation=11,
    log_start=LogStart(index=0, term=0, chain=chain_start(CLUSTER), next_lsn=1),
)  # fmt: skip
META_2 = msgspec.structs.replace(META, level=3)
META_3 = msgspec.structs.replace(META_2, installing=InstallMark(1 << 40, 10**18 + 7))
META_4 = msgspec.structs.replace(META_3, forgotten=Forgotten(ForgottenWhat.STARTS, 3, 4, 6))
META_5 = msgspec.structs.replace(META_4, level=4, has_config=True)
PEER_STARTS = (9, (PeerStart(REPLICA, 4, 0x0102030405060708), PeerStart(CLUSTER, 1, 1 << 63)))
OPEN = OpenEntry(
    producer_id=0x1122, producer_epoch=3, mode=2, ack_level=1, window=64, window_bytes=1 << 25,
    name="Prüfung".encode(),
)  # fmt: skip
EXPIRE = ExpireEntry(producer_id=0x1122, producer_epoch=3)
EXPIRE_KEPT = ExpireEntry(producer_id=0x1122, producer_epoch=3, is_kept=True)
SNAPSHOT = SessionPart(
    PartHead(0, 0, 0, True),
    (
        SessionRow(
            0x1122, 3, 2, 1, 64, 1 << 25, 9, 0, b"query-1",
            (WindowRow(4, 11, 10, 0xAABBCCDD), WindowRow(8, 21, 3, 0x01020304)),
        ),
        SessionRow(0x3344, 1, 1, 1, 16, 1 << 20, 0, 0, b"", ()),
    ),
    (),
    (),
)  # fmt: skip
CURSOR = Cursor("Archiv für 2026".encode(), 0x0102030405060708, True)
CURSORS = (Cursor(b"archive", 21, True), Cursor(b"replay-1", 1, False))
WITH_CURSORS = SessionPart(SNAPSHOT.head, SNAPSHOT.sessions[1:], CURSORS, ())
PART = SessionPart(
    PartHead(5, 3, 0, True),
    tuple(msgspec.structs.replace(each, last_used_ns=10**18 + 7) for each in SNAPSHOT.sessions),
    CURSORS,
    (KeptName(0x5566, 7, 1 << 40, "früher".encode()),),
)
TRIM = TrimEntry(TrimReason.AGE, LogStart(1_234, 7, 0x0102030405060708, 5_678), 1 << 40, 10**18, 2)
VOTERS = (
    Member(1, bytes(range(64, 80)), "10.0.0.1", 7100, ("rack=r1", "zone=eu 1")),
    Member(2, NO_UUID, "node-2.example", 7100),
    Member(0xFFFF, bytes(range(80, 96)), "h", 65_535),
)
SUCCESSOR = Member(0xFFFF, bytes(range(96, 112)), "h", 65_535, ("empty=",))
LEARNER = Member(4, bytes(range(112, 128)), "12345678", 1)
JOINT = Configuration(1 << 40, VOTERS, (*VOTERS[:2], SUCCESSOR), (LEARNER,))
SETTLED = Configuration(1, VOTERS[:1])
LISTED = (
    ListedSession(0x1122, 3, 2, 1, 64, 1 << 25, 8, 10**18, "Prüfung".encode()),
    ListedSession((1 << 64) - 1, 1, 1, 1, 16, 1 << 22, 0, 0, b""),
)
LEVELS = tuple(ListedSession(level, 1, 1, 1, 16, 1 << 22, 0, 0, b"", level) for level in AckLevel)


def check_batch(data: bytes) -> bytes:
    header = read_batch_header(data)
    verify_batch(data, 0, header, batch_max_bytes=1 << 20)
    return bytes(data[: header.size])


# name: (value, its bytes, decoder)
BLOCKS: dict[str, tuple[Any, bytes, Callable[[bytes], Any]]] = {
    "client batch": (BATCH, BATCH, check_batch),
    "conditional prefix": (EXPECTATION, conditional_prefix(EXPECTATION), read_conditional_prefix),
    "lz4 client batch": (LZ4_BATCH, LZ4_BATCH, check_batch),
    "zstd client batch": (ZSTD_BATCH, ZSTD_BATCH, check_batch),
    "entry header": (HEADER, HEADER.pack(), unpack_entry_header),
    "entry header of a level": (LEVEL_HEADER, LEVEL_HEADER.pack(), unpack_entry_header),
    "group frame header": (
        FRAME, FRAME.pack(), lambda data: unpack_frame_header(data, segment_uuid=SEGMENT)
    ),
    "raft record": (
        RECORD, RECORD.pack(SEGMENT), lambda data: unpack_raft_record(data, segment_uuid=SEGMENT)
    ),
    "segment header": (SEGMENT_HEADER, SEGMENT_HEADER.pack(), unpack_segment_header),
    "pair summary": (
        SUMMARY,
        SUMMARY.pack(SEGMENT),
        lambda data: unpack_pair_summary(data, holder_uuid=SEGMENT),
    ),
    "meta": (META, META.pack(), unpack_meta),
    "meta 2": (META_2, META_2.pack(), unpack_meta),
    "meta 3": (META_3, META_3.pack(), unpack_meta),
    "meta 4": (META_4, META_4.pack(), unpack_meta),
    "meta 5": (META_5, META_5.pack(), unpack_meta),
    "peer starts": (PEER_STARTS, pack_peer_starts(PEER_STARTS[1], 9), unpack_peer_starts),
    "open body": (OPEN, encode_open(OPEN), decode_open),
    "expire body": (EXPIRE, encode_expire(EXPIRE), decode_expire),
    "expire body 2": (EXPIRE_KEPT, encode_expire(EXPIRE_KEPT), decode_expire),
    "session body": (SNAPSHOT, encode_version_1(SNAPSHOT), decode_session_part),
    "session body with cursors": (
        WITH_CURSORS, encode_version_1(WITH_CURSORS), decode_session_part
    ),
    "session body 2": (PART, encode_part(PART), decode_session_part),
    "cursor body": (CURSOR, encode_cursor(CURSOR), decode_cursor),
    "cursor rows": (CURSORS, encode_cursors(CURSORS), decode_cursors),
    "trim body": (TRIM, encode_trim(TRIM), decode_trim),
    "config body": (SETTLED, encode_configuration(SETTLED), decode_configuration),
    "config body of a joint configuration": (
        JOINT, encode_configuration(JOINT), decode_configuration
    ),
    "session rows": (LISTED, encode_sessions(LISTED), decode_sessions),
    "session rows of other ack levels": (LEVELS, encode_sessions(LEVELS), decode_sessions),
}  # fmt: skip
# rows say nothing of how many there are: what holds them does
ROW_ENDS = {
    "cursor rows": {len(encode_cursors(CURSORS[:n])): n for n in range(len(CURSORS))},
    "session rows": {len(encode_sessions(LISTED[:n])): n for n in range(len(LISTED))},
    "session rows of other ack levels": {
        len(encode_sessions(LEVELS[:n])): n for n in range(len(LEVELS))
    },
}
# where the CRC of each sealed block lies, and what seeds it
SEALS: dict[str, tuple[int, bytes]] = {
    "client batch": (28, b""), "lz4 client batch": (28, b""), "zstd client batch": (28, b""),
    "group frame header": (124, SEGMENT), "raft record": (124, SEGMENT),
    "segment header": (508, b""), "meta": (508, b""), "meta 2": (508, b""), "meta 3": (508, b""),
    "meta 4": (508, b""), "meta 5": (508, b""), "peer starts": (1020, b""),
    "open body": (28, b""),
    "expire body": (20, b""), "session body": (20, b""), "session body with cursors": (20, b""),
    "cursor body": (16, b""), "expire body 2": (20, b""), "session body 2": (20, b""),
    "trim body": (60, b""), "config body": (20, b""),
    "config body of a joint configuration": (20, b""), "pair summary": (508, SEGMENT),
}  # fmt: skip
NEWEST = {"expire body": 2, "session body": 2, "session body with cursors": 2, "meta": 5} | {
    "expire body 2": 2, "session body 2": 2, "meta 2": 5, "meta 3": 5, "meta 4": 5,
    "meta 5": 5,
}  # fmt: skip


CLIENT_BATCHES = {"client batch", "lz4 client batch", "zstd client batch"}
LATER_FIELDS = {
    peer_messages.Heartbeat: {"level": 0},
    peer_messages.HeartbeatReply: {
        "clock_ns": 0, "limits_digest": 0, "is_disk_full": False, "newest_level": 0, "level": 0,
        "room_bytes": 0,
    },
}  # fmt: skip


def message_of(cls: type[Any]) -> Any:
    """A message whose fields all differ: 1, 2, 3, …, facts true, bytes by their field's size."""
    values: list[Any] = []
    for number, name in enumerate(cls.__struct_fields__, 1):
        kind = cls.__annotations__[name]
        if name == "header":
            values.append(HEADER.pack())
        elif name in LATER_FIELDS.get(cls, ()):
            values.append(LATER_FIELDS[cls][name])
        elif name == "cluster_id":
            values.append(CLUSTER)
        elif name == "replica_uuid":
            values.append(REPLICA)
        elif name == "first_lsn" and kind == "bytes":
            values.append(pack_first_lsn(1))
        elif cls is client_messages.SpansReply and name == "rows":
            values.append(client_messages.SPAN.pack(7, 21, 3))
        elif name == "rows":
            values.append(client_messages.ACK_ROW.pack(7, 21, 3, 0, 0))
        elif kind == "bytes":
            values.append(f'{{"{name}": "é"}}'.encode())
        else:
            values.append(True if kind == "bool" else number)
    if cls is peer_messages.AppendFrame:
        values[0] = HEADER.term
    return cls(*values)


def encoded(message: Any) -> bytes:
    return encode_message(
        message, cluster_id=CLUSTER, sender_uuid=REPLICA, sender=2, target=3, correlation=77
    )


def set_cursor_request(hold: Hold) -> client_messages.SetCursorRequest:
    request = message_of(client_messages.SetCursorRequest)
    assert isinstance(request, client_messages.SetCursorRequest)
    return msgspec.structs.replace(request, hold=hold)


LATER = pack_first_lsn(0x0102030405060708)
MESSAGES = {
    f"message {number} {cls.__name__}": message_of(cls) for number, cls in message_types().items()
} | {
    "message 76 SetCursorRequest": set_cursor_request(Hold.HELD),
    "message 76 SetCursorRequest that leaves the hold as it is": set_cursor_request(Hold.AS_IT_IS),
    "message 5 Heartbeat with a level": peer_messages.Heartbeat(1, 2, 3, 4, 5, 6, 7, 8),
    "message 6 HeartbeatReply with a clock": peer_messages.HeartbeatReply(1, 2, 3, 4, 5, 6),
    "message 6 HeartbeatReply with a clock and limits": peer_messages.HeartbeatReply(
        1, 2, 3, 4, 5, 6, 7
    ),
    "message 6 HeartbeatReply of a full disk": peer_messages.HeartbeatReply(
        1, 2, 3, 4, 5, 6, 7, True
    ),
    "message 6 HeartbeatReply with a level": peer_messages.HeartbeatReply(
        1, 2, 3, 4, 5, 6, 7, True, 9
    ),
    "message 6 HeartbeatReply with the log's level": peer_messages.HeartbeatReply(
        1, 2, 3, 4, 5, 6, 7, True, 9, 10
    ),
    "message 6 HeartbeatReply with the room of a full disk": peer_messages.HeartbeatReply(
        1, 2, 3, 4, 5, 6, 7, True, 9, 10, 11
    ),
    "message 9 InitStatus of a log that begins later": peer_messages.InitStatus(
        1, 2, CLUSTER, LATER
    ),
    "message 10 InitPrepare of a log that begins later": peer_messages.InitPrepare(
        1, CLUSTER, LATER
    ),
    "message 12 InitCommit of a log that begins later": peer_messages.InitCommit(1, CLUSTER, LATER),
    "message 75 InitializeRequest of a log that begins later": client_messages.InitializeRequest(
        LATER
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_has_its_golden_bytes_and_decodes_to_what_it_was(name: str) -> None:
    value, data, decode = BLOCKS[name]
    assert GOLDEN.get(name) == data.hex(), f'"{name}": "{data.hex()}"'
    assert decode(data) == value


@pytest.mark.parametrize("name", MESSAGES)
def test_every_registered_message_has_golden_bytes_and_a_round_trip(name: str) -> None:
    message = MESSAGES[name]
    data = encoded(message)
    assert GOLDEN.get(name) == data.hex(), f'"{name}": "{data.hex()}"'
    envelope, decoded = decode_message(memoryview(data))
    assert decoded == message
    assert name.startswith(f"message {envelope.type} ")
    assert msgspec.structs.astuple(envelope)[1:] == (CLUSTER, REPLICA, 2, 3, 77)


def test_no_golden_bytes_are_left_of_formats_that_are_gone() -> None:
    assert set(GOLDEN) == {*BLOCKS, *MESSAGES}


def with_version(name: str, version: int) -> bytes:
    position, seed = SEALS[name]
    data = bytearray(BLOCKS[name][1])
    data[4:6] = version.to_bytes(2, "little")
    crc = crc32c(data[:position], crc32c(seed))
    data[position : position + 4] = crc32c(data[position + 4 :], crc).to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize("name", SEALS)
def test_the_next_version_of_a_block_is_refused_as_such(name: str) -> None:
    version = int(name[-1]) if name[-1].isdigit() else 1
    assert with_version(name, version) == BLOCKS[name][1]
    newer = NEWEST.get(name, 1) + 1
    with pytest.raises(UnsupportedVersion, match=f"version {newer}"):
        BLOCKS[name][2](with_version(name, newer))


# A batch's header is read before its CRC; on disk the group's body_crc comes first.
@pytest.mark.parametrize("name", sorted(SEALS.keys() - CLIENT_BATCHES))
def test_a_rotted_version_field_is_damage_and_no_newer_version(name: str) -> None:
    data = bytearray(BLOCKS[name][1])
    data[4] ^= 3
    with pytest.raises(FormatError) as caught:
        BLOCKS[name][2](bytes(data))
    assert not isinstance(caught.value, UnsupportedVersion)


@pytest.mark.parametrize("name", BLOCKS)
def test_zero_bytes_and_every_shorter_block_are_refused(name: str) -> None:
    value, data, decode = BLOCKS[name]
    with pytest.raises(FormatError):
        decode(bytes(len(data)))
    for size in range(len(data)):
        if size in ROW_ENDS.get(name, ()):
            assert decode(data[:size]) == value[: ROW_ENDS[name][size]]  # fewer rows, whole ones
            continue
        with pytest.raises((FormatError, InvalidBatch)):
            decode(data[:size])


@pytest.mark.parametrize(
    "name", ["group frame header", "raft record", "segment header", "pair summary", "meta"]
)
def test_a_block_is_read_where_it_lies_in_a_larger_buffer(name: str) -> None:
    value, data, _ = BLOCKS[name]
    at = bytes(24) + data + bytes(8)
    match name:
        case "group frame header":
            assert unpack_frame_header(at, 24, segment_uuid=SEGMENT) == value
        case "raft record":
            assert unpack_raft_record(at, 24, segment_uuid=SEGMENT) == value
        case "segment header":
            assert unpack_segment_header(at, 24) == value
        case "pair summary":
            assert unpack_pair_summary(at, 24, holder_uuid=SEGMENT) == value
        case _:
            assert unpack_meta(at, 24) == value


@pytest.mark.parametrize("name", ["lz4 client batch", "zstd client batch"])
def test_blocks_of_these_versions_of_the_codecs_are_read_for_ever(name: str) -> None:
    data = bytes.fromhex(GOLDEN[name])
    assert batch_payloads(data, 0, read_batch_header(data)) == COMPRESSED_PAYLOADS
