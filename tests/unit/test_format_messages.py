"""The message codec: strict about every bit it takes, and bounded (SAFETY M6, U2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from crc32c import crc32c
from msgspec.structs import replace

from logstore.errors import (
    DamagedMessage,
    FormatError,
    InvalidRequest,
    UnknownMessageType,
    UnsupportedVersion,
)
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    PIECE,
    Acks,
    DoneReply,
    FetchRequest,
    Piece,
    StatusReply,
    append_prefix,
    iterate_pieces,
    read_append_prefix,
)
from logstore.format.entry import EntryHeader
from logstore.format.message import (
    ENVELOPE_SIZE,
    checked_envelope,
    decode_message,
    encode_message,
    register,
)
from logstore.format.peer_messages import (
    Append,
    AppendFrame,
    HeartbeatReply,
    InitStatus,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
)
from logstore.limits import MESSAGE_MAX_BYTES, POSITION_MAX
from logstore.model import EntryKind

HEADER = EntryHeader(
    kind=EntryKind.NOOP, count=0, term=5, index=9, prev_term=4, first_lsn=21, timestamp_ns=3,
    cumulative_bytes=0, prev_chain=1, body_size=0, body_crc=0,
)  # fmt: skip


def encoded(message: Any, *, sender: int = 1, cluster_id: bytes = bytes(16)) -> bytes:
    return encode_message(
        message, cluster_id=cluster_id, sender_uuid=bytes(16), sender=sender, target=2,
        correlation=7,
    )  # fmt: skip


def resealed(frame: bytearray) -> bytes:
    frame[8:12] = (len(frame) - ENVELOPE_SIZE).to_bytes(4, "little")
    crc = crc32c(frame[16:], crc32c(frame[:12]))
    frame[12:16] = crc.to_bytes(4, "little")
    return bytes(frame)


def altered(message: Any, position: int, data: bytes) -> bytes:
    """The message's frame with bytes at `position` replaced and a good CRC."""
    frame = bytearray(encoded(message))
    frame[position : position + len(data)] = data
    return resealed(frame)


def test_the_next_version_of_the_envelope_is_refused_as_such() -> None:
    with pytest.raises(UnsupportedVersion, match="version 2"):
        decode_message(altered(DoneReply(1), 4, b"\2"))


def test_an_unknown_type_is_told_apart_from_damage() -> None:
    unknown = altered(DoneReply(1), 6, (999).to_bytes(2, "little"))
    with pytest.raises(UnknownMessageType) as caught:
        decode_message(unknown)
    assert caught.value.number == 999
    envelope = checked_envelope(unknown)
    assert envelope is not None
    assert (envelope.correlation, envelope.sender) == (7, 1)
    frame = bytearray(encoded(DoneReply(1)))
    frame[6] ^= 0x40
    with pytest.raises(DamagedMessage, match="CRC"):
        decode_message(bytes(frame))
    assert checked_envelope(bytes(frame)) is None


def test_a_foreign_magic_is_refused() -> None:
    with pytest.raises(FormatError, match="magic"):
        decode_message(altered(DoneReply(1), 0, b"HTTP"))


def test_a_length_that_is_not_the_frames_is_refused() -> None:
    frame = encoded(DoneReply(1))
    for other in (frame[:-1], frame + b"\0"):
        with pytest.raises(FormatError, match="body bytes"):
            decode_message(other)


def test_a_body_of_another_size_is_refused_even_with_a_good_crc() -> None:
    for size in (0, 7, 9, 16):
        frame = bytearray(encoded(DoneReply(1)))[:ENVELOPE_SIZE] + bytes(size)
        with pytest.raises(FormatError, match="fixed part is 8"):
            decode_message(resealed(frame))


def test_a_field_that_came_later_is_left_out_where_it_says_nothing() -> None:
    without = HeartbeatReply(1, 2, 3, 4, 5)
    plain, told = encoded(without), encoded(replace(without, clock_ns=6))
    assert len(plain) == len(told) - 8 == ENVELOPE_SIZE + 40
    assert [decode_message(each)[1].clock_ns for each in (plain, told)] == [0, 6]
    with pytest.raises(FormatError, match="later fields in a form that is never sent"):
        decode_message(altered(replace(without, clock_ns=6), ENVELOPE_SIZE + 40, bytes(8)))
    for size in (1, 7, 9, 15, 18):
        frame = bytearray(plain) + b"\1" * size
        with pytest.raises(FormatError, match="fixed part is 40"):
            decode_message(resealed(frame))
    with pytest.raises(FormatError, match="is above"):
        decode_message(altered(replace(without, clock_ns=6), ENVELOPE_SIZE + 40, b"\xff" * 8))
    with pytest.raises(InvalidRequest):
        encoded(replace(without, clock_ns=1 << 64))


def test_later_fields_are_left_out_from_the_end() -> None:
    """Whoever knows only some of them understands what says nothing in the others."""
    without = HeartbeatReply(1, 2, 3, 4, 5)
    told = {40: {}, 48: {"clock_ns": 6}, 56: {"limits_digest": 7}, 57: {"is_disk_full": True}}
    for size, fields in told.items():
        message = replace(without, **fields)
        assert len(encoded(message)) == ENVELOPE_SIZE + size
        assert decode_message(encoded(message))[1] == message
    full = replace(without, clock_ns=6, limits_digest=7, is_disk_full=True)
    for wrong in (b"\0", b"\2"):  # it would have been left out; it is no fact
        with pytest.raises(FormatError, match="later fields in a form that is never sent"):
            decode_message(altered(full, ENVELOPE_SIZE + 56, wrong))


def test_a_fact_is_zero_or_one() -> None:
    reply = PreVoteReply(term=3, is_granted=True)
    assert decode_message(altered(reply, -1 + len(encoded(reply)), b"\0"))[1].is_granted is False
    with pytest.raises(FormatError, match="neither 0 nor 1"):
        decode_message(altered(reply, -1 + len(encoded(reply)), b"\2"))


def test_terms_and_indexes_of_peers_are_bounded() -> None:
    limit = encoded(PreVoteRequest(POSITION_MAX, POSITION_MAX, POSITION_MAX))
    assert decode_message(limit)[1].term == POSITION_MAX
    for field in range(3):
        with pytest.raises(FormatError, match="is above"):
            decode_message(altered(PreVoteRequest(1, 2, 3), ENVELOPE_SIZE + 8 * field, b"\xff" * 8))


def test_a_client_may_name_any_lsn_and_the_server_answers() -> None:
    request = FetchRequest(1, (1 << 64) - 1, 0, 1 << 20, 0, False)
    assert decode_message(encoded(request))[1] == request


def test_node_ids_are_bounded() -> None:
    with pytest.raises(FormatError, match="node ids"):
        decode_message(encoded(DoneReply(1), sender=0x10000))


def test_a_control_lane_message_has_at_most_4_kib() -> None:
    class Long(msgspec.Struct, frozen=True):
        text: bytes

    register(31, Long, "", has_tail=True)
    try:
        longest = encoded(Long(bytes(4096 - ENVELOPE_SIZE)))
        assert len(decode_message(longest)[1].text) == 4096 - ENVELOPE_SIZE
        with pytest.raises(InvalidRequest, match="at most 4096"):
            encoded(Long(bytes(4097 - ENVELOPE_SIZE)))
        with pytest.raises(FormatError, match="at most 4096"):
            decode_message(resealed(bytearray(longest) + b"\0"))
    finally:
        forget(31, Long)


def forget(number: int, cls: type[Any]) -> None:
    from logstore.format import message

    del message._BY_TYPE[number]
    del message._BY_CLASS[cls]


def test_a_number_or_class_is_registered_once() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        register(1, DoneReply, "Q")
    with pytest.raises(ValueError, match="registered twice"):
        register(255, DoneReply, "Q")


def test_no_message_is_above_the_limit_of_all_messages() -> None:
    with pytest.raises(InvalidRequest, match="StatusReply of"):
        encoded(StatusReply(bytes(MESSAGE_MAX_BYTES)))
    with pytest.raises(FormatError, match="a message of"):
        decode_message(bytes(MESSAGE_MAX_BYTES + 1))


def test_rows_are_whole() -> None:
    acks = Acks(1, 1, 0, ACK_ROW.pack(1, 2, 3, 0, 0) * 2)
    assert list(ACK_ROW.iter_unpack(decode_message(encoded(acks))[1].rows)) == [(1, 2, 3, 0, 0)] * 2
    with pytest.raises(InvalidRequest, match="rows of 32"):
        encoded(Acks(1, 1, 0, bytes(31)))
    with pytest.raises(FormatError, match="32 bytes each"):
        decode_message(resealed(bytearray(encoded(acks))[:-1]))


def test_what_would_be_cut_or_padded_silently_is_not_sent() -> None:
    with pytest.raises(InvalidRequest, match="another size"):
        encoded(InitStatus(1, 0, b""))
    with pytest.raises(InvalidRequest, match="16 bytes"):
        encoded(DoneReply(1), cluster_id=b"short")
    with pytest.raises(InvalidRequest, match="DoneReply"):
        encoded(DoneReply(-1))


def test_an_append_travels_as_its_frame() -> None:
    append = Append(term=6, stream=2, commit=8, header=HEADER)
    frame = decode_message(encoded(AppendFrame.of(append)))[1]
    assert frame.append() == append


def test_an_entry_of_a_later_term_than_its_message_is_refused() -> None:
    """SAFETY U2."""
    frame = AppendFrame.of(Append(term=4, stream=2, commit=8, header=HEADER))
    with pytest.raises(FormatError, match="term 5 in an append of term 4"):
        frame.append()


def test_an_append_whose_header_no_entry_has_is_refused() -> None:
    with pytest.raises(FormatError, match="kind 0"):
        AppendFrame(4, 1, 0, bytes(72)).append()


def test_control_messages_stay_small() -> None:
    assert len(encoded(TimeoutNow(1))) == ENVELOPE_SIZE + 8


def test_the_prefix_of_a_pushed_append_says_its_round() -> None:
    assert read_append_prefix(append_prefix(3) + b"batch") == 3
    with pytest.raises(FormatError, match="append needs"):
        read_append_prefix(b"LA")
    with pytest.raises(FormatError, match="magic"):
        read_append_prefix(bytes(8))
    with pytest.raises(UnsupportedVersion, match="version 2"):
        read_append_prefix(APPEND_PREFIX.pack(0x414C, 2, 0))


def test_pieces_fill_their_frame_exactly() -> None:
    frame = PIECE.pack(21, 9, 5, 77, 3, 8) + bytes(8) + PIECE.pack(24, 10, 5, 78, 1, 16) + bytes(16)
    assert list(iterate_pieces(frame)) == [
        Piece(21, 9, 5, 77, 3, 40, 48),
        Piece(24, 10, 5, 78, 1, 88, 104),
    ]
    assert list(iterate_pieces(b"")) == []
    for end in (20, 47, 60, 103):
        with pytest.raises(FormatError, match="piece"):
            list(iterate_pieces(frame[:end]))
