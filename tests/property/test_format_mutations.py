"""Mutated bytes of every format are answered with a typed error or decode to what was written
(FAULTS X8).

The originals are the golden bytes. Two ways of mutation: as the network and the disk do it (the CRC
tells), and with the CRC made good again, as a broken or hostile sender does it (the structure must
tell, or the bytes are a canonical value: encoding what was decoded gives them back).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptData, FormatError, InvalidBatch, InvalidRequest
from logstore.format import client_messages, peer_messages
from logstore.format.batch import (
    batch_offsets,
    batch_payloads,
    encode_batch,
    iterate_batches,
    stored_block,
    verify_batch,
)
from logstore.format.configuration_body import decode_configuration, encode_configuration
from logstore.format.cursor_entries import (
    decode_cursor,
    decode_cursors,
    encode_cursor,
    encode_cursors,
)
from logstore.format.entry import unpack_entry_header
from logstore.format.first_lsn import pack_first_lsn, unpack_first_lsn
from logstore.format.group import unpack_frame_header
from logstore.format.message import decode_message, encode_message, message_types
from logstore.format.meta import unpack_meta
from logstore.format.pair_summary import unpack_pair_summary
from logstore.format.raft_record import unpack_raft_record
from logstore.format.segment_header import unpack_segment_header
from logstore.format.session_entries import (
    decode_expire,
    decode_open,
    encode_expire,
    encode_open,
)
from logstore.format.session_snapshot import decode_session_part
from logstore.format.trim_entry import decode_trim, encode_trim
from tests.unit.compressed_batches import with_block
from tests.unit.session_logs import encode_part

UNIT = Path(__file__).parents[1] / "unit"
GOLDEN = {
    name: bytes.fromhex(data)
    for name, data in json.loads((UNIT / "format_golden.json").read_text()).items()
}
MESSAGES = [name for name in GOLDEN if name.startswith("message ")]
SEGMENT = bytes(range(32, 48))
REFUSALS = (FormatError, InvalidBatch, InvalidRequest, CorruptData)


class Format(msgspec.Struct):
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    crc_at: int
    seed: bytes = b""


def decode_batches(data: bytes) -> list[bytes]:
    """Every batch of a body, verified and encoded again from what was read; of a compressed one,
    what a server reads."""
    batches = []
    for offset, header in iterate_batches(data):
        verify_batch(data, offset, header, batch_max_bytes=1 << 20)
        if header.codec:
            ends = batch_offsets(data, offset, header).tolist()
            block = bytes(stored_block(data, offset, header))
            batches.append(
                with_block(
                    [end - start for start, end in pairwise(ends)], block, header.codec,
                    producer_id=header.producer_id, epoch=header.producer_epoch,
                    sequence=header.sequence, timestamp_ns=header.timestamp_ns,
                )
            )  # fmt: skip
            continue
        batches.append(
            encode_batch(
                batch_payloads(data, offset, header),
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                sequence=header.sequence,
                timestamp_ns=header.timestamp_ns,
            )
        )
    return batches


def encode_again(decoded: tuple[Any, Any]) -> bytes:
    envelope, message = decoded
    if isinstance(message, peer_messages.AppendFrame):
        message = peer_messages.AppendFrame.of(message.append())
    return encode_message(
        message,
        cluster_id=envelope.cluster_id,
        sender_uuid=envelope.sender_uuid,
        sender=envelope.sender,
        target=envelope.target,
        correlation=envelope.correlation,
    )


FORMATS = {
    "client batch": Format(decode_batches, b"".join, 28),
    "lz4 client batch": Format(decode_batches, b"".join, 28),
    "zstd client batch": Format(decode_batches, b"".join, 28),
    "group frame header": Format(
        lambda data: unpack_frame_header(data, segment_uuid=SEGMENT),
        lambda frame: frame.pack(), 124, SEGMENT,
    ),
    "raft record": Format(
        lambda data: unpack_raft_record(data, segment_uuid=SEGMENT),
        lambda record: record.pack(SEGMENT), 124, SEGMENT,
    ),
    "segment header": Format(unpack_segment_header, lambda header: header.pack(), 508),
    "pair summary": Format(
        lambda data: unpack_pair_summary(data, holder_uuid=SEGMENT),
        lambda summary: summary.pack(SEGMENT), 508, SEGMENT,
    ),
    "meta": Format(unpack_meta, lambda meta: meta.pack(), 508),
    "open body": Format(decode_open, encode_open, 28),
    "expire body": Format(decode_expire, encode_expire, 20),
    "expire body 2": Format(decode_expire, encode_expire, 20),
    "session body": Format(decode_session_part, encode_part, 20),
    "session body with cursors": Format(decode_session_part, encode_part, 20),
    "session body 2": Format(decode_session_part, encode_part, 20),
    "cursor body": Format(decode_cursor, encode_cursor, 16),
    "trim body": Format(decode_trim, encode_trim, 60),
    "config body": Format(decode_configuration, encode_configuration, 20),
    "config body of a joint configuration": Format(
        decode_configuration, encode_configuration, 20
    ),
    **{name: Format(decode_message, encode_again, 12) for name in MESSAGES},
}  # fmt: skip
FIXED_SIZE = {"group frame header", "raft record", "segment header", "pair summary", "meta"}

EXTREMES = st.sampled_from(
    [bytes(size) for size in (1, 2, 4, 8)]
    + [b"\xff" * size for size in (1, 2, 4, 8)]
    + [b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1", b"\2", b"\1\0\0\0", bytes(7) + b"\x80"]
)


@st.composite
def mutated(draw: st.DrawFn, original: bytes) -> bytes:
    """The original with up to four bits flipped, parts overwritten, cut off or added."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 3)):
            case 0 if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                patch = draw(EXTREMES | st.binary(min_size=1, max_size=16))
                data[at : at + len(patch)] = patch
            case 2:
                del data[at : at + draw(st.integers(1, 64))]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=64))
    return bytes(data)


def resealed(name: str, data: bytes) -> bytes:
    """The CRC, and a message's length, made good again as far as the bytes reach."""
    shape, changed = FORMATS[name], bytearray(data)
    at = shape.crc_at
    if len(changed) < at + 4:
        return data
    if name in MESSAGES:
        changed[8:12] = (len(changed) - 64 & 0xFFFFFFFF).to_bytes(4, "little")
    end = at + 4 if name in FIXED_SIZE else len(changed)
    crc = crc32c(changed[at + 4 : end], crc32c(changed[:at], crc32c(shape.seed)))
    changed[at : at + 4] = crc.to_bytes(4, "little")
    return bytes(changed)


def decoded_or_refused(name: str, data: bytes) -> bytes | None:
    """What was decoded, as its canonical bytes; None if the bytes were refused."""
    try:
        return FORMATS[name].encode(FORMATS[name].decode(data))
    except REFUSALS:
        return None


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_decode_to_the_original(name: str, data: Any) -> None:
    damaged = data.draw(mutated(GOLDEN[name]))
    again = decoded_or_refused(name, damaged)
    if name.endswith("client batch") and again is not None:
        assert again in (b"", damaged)  # an empty body holds no batch
    else:
        assert again in (None, GOLDEN[name])


@pytest.mark.parametrize("name", FORMATS)
@given(data=st.data())
def test_altered_bytes_with_a_good_crc_are_refused_or_canonical(name: str, data: Any) -> None:
    altered = resealed(name, data.draw(mutated(GOLDEN[name])))
    again = decoded_or_refused(name, altered)
    if again is not None:
        assert again == (altered[: len(again)] if name in FIXED_SIZE else altered)


@pytest.mark.parametrize("name", FORMATS)
@given(noise=st.binary(max_size=600))
def test_noise_is_refused(name: str, noise: bytes) -> None:
    assert decoded_or_refused(name, noise) in (None, b"")


@given(data=st.data())
def test_an_altered_entry_header_is_refused_or_canonical(data: Any) -> None:
    altered = data.draw(mutated(GOLDEN["entry header"]))
    try:
        header = unpack_entry_header(altered)
    except FormatError:
        return
    assert header.pack() == altered[:72]


@given(frame=st.binary(max_size=200))
def test_pieces_of_noise_are_refused_or_fill_the_frame(frame: bytes) -> None:
    try:
        pieces = list(client_messages.iterate_pieces(frame))
    except FormatError:
        return
    assert [piece.start for piece in pieces] == [
        end + client_messages.PIECE.size for end in [0, *(piece.end for piece in pieces[:-1])]
    ][: len(pieces)]


@given(data=st.data())
def test_altered_rows_of_cursors_are_refused_or_canonical(data: Any) -> None:
    altered = data.draw(mutated(GOLDEN["cursor rows"]))
    try:
        cursors = decode_cursors(altered)
    except FormatError:
        return
    assert encode_cursors(cursors) == altered


def test_every_message_type_is_mutated() -> None:
    assert {int(name.split()[1]) for name in MESSAGES} == set(message_types())


@given(tail=st.binary(max_size=16))
def test_a_first_lsn_is_refused_or_canonical(tail: bytes) -> None:
    try:
        first_lsn = unpack_first_lsn(tail)
    except FormatError:
        return
    assert pack_first_lsn(first_lsn) == tail
