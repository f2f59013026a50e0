"""The client batch: its layout, what verification refuses, and reading payloads back."""

from __future__ import annotations

import struct
from array import array

import numpy as np
import pytest
from crc32c import crc32c

from logstore.errors import BatchTooLarge, FormatError, InvalidBatch
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
    PackedPayloads,
    batch_arrays,
    batch_payloads,
    batch_size,
    encode_batch,
    encode_batch_body,
    iterate_batches,
    pack_batch_header,
    read_batch_header,
    verify_batch,
)
from logstore.limits import BATCH_MAX_PAYLOADS

LIMIT = 1 << 20


def encoded(payloads: list[bytes], sequence: int = 1) -> bytes:
    return encode_batch(
        payloads, producer_id=9, producer_epoch=2, sequence=sequence, timestamp_ns=5
    )


def resealed(batch: bytearray) -> bytes:
    crc = crc32c(batch[32:], crc32c(batch[:28]))
    batch[28:32] = crc.to_bytes(4, "little")
    return bytes(batch)


def with_offsets(payloads: list[bytes], offsets: list[int]) -> bytes:
    """A batch with a good CRC whose offsets are these."""
    batch = bytearray(encoded(payloads))
    packed = struct.pack(f"<{len(offsets)}i", *offsets)
    batch[BATCH_HEADER_SIZE : BATCH_HEADER_SIZE + len(packed)] = packed
    return resealed(batch)


def verify(batch: bytes) -> None:
    verify_batch(batch, 0, read_batch_header(batch), batch_max_bytes=LIMIT)


@pytest.mark.parametrize("count", [1, 2, 3, 95, 96, 500])
def test_payloads_of_all_lengths_come_back(count: int) -> None:
    payloads = [bytes([n % 251]) * (n % 9) for n in range(count)]
    batch = encoded(payloads)
    header = read_batch_header(batch)
    verify(batch)
    assert (header.count, header.producer_id, header.producer_epoch) == (count, 9, 2)
    assert header.size == len(batch) == batch_size(count, sum(map(len, payloads)))
    assert header.body_size % 8 == 0
    assert batch_payloads(batch, 0, header) == payloads


def test_the_body_is_an_arrow_binary_array_without_copies() -> None:
    batch = bytes(16) + encoded([b"ab", b"", b"cde"])
    header = read_batch_header(batch, 16)
    offsets, values = batch_arrays(batch, 16, header)
    assert offsets.tolist() == [0, 2, 2, 5]
    assert values.tobytes() == b"abcde"
    assert not offsets.flags.owndata
    assert not values.flags.owndata
    assert offsets.dtype == np.int32


def test_a_batch_of_one_empty_payload_is_allowed() -> None:
    batch = encoded([b""])
    verify(batch)
    assert len(batch) == 56
    assert batch_payloads(batch, 0, read_batch_header(batch)) == [b""]


def test_packing_as_one_goes_gives_the_same_batch() -> None:
    batch = encode_batch_body(
        [b"abc", b"defgh"], array("i", [0, 3, 3, 8]),
        producer_id=9, producer_epoch=2, sequence=1, timestamp_ns=5,
    )  # fmt: skip
    assert batch == encoded([b"abc", b"", b"defgh"])


def test_offsets_that_do_not_end_where_the_payloads_end_are_not_packed() -> None:
    with pytest.raises(InvalidBatch, match="offsets end at 4"):
        encode_batch_body(
            [b"abc"], array("i", [0, 4]),
            producer_id=9, producer_epoch=2, sequence=1, timestamp_ns=5,
        )  # fmt: skip


def test_a_batch_without_payloads_is_neither_made_nor_read() -> None:
    with pytest.raises(InvalidBatch, match="at least one"):
        encoded([])
    batch = bytearray(encoded([b"abc"]))
    batch[12:16] = bytes(4)
    with pytest.raises(InvalidBatch, match="at least one"):
        read_batch_header(batch)


def test_more_payloads_than_the_limit_are_neither_made_nor_read() -> None:
    with pytest.raises(BatchTooLarge, match="split it"):
        encoded([b""] * (BATCH_MAX_PAYLOADS + 1))
    batch = bytearray(encoded([b"abc"]))
    batch[12:16] = (BATCH_MAX_PAYLOADS + 1).to_bytes(4, "little")
    with pytest.raises(InvalidBatch, match="at most"):
        read_batch_header(batch)


class HugePayload(bytes):
    """Says that it has 2 GiB."""

    def __len__(self) -> int:
        return 1 << 31


def test_more_payload_bytes_than_offsets_can_count_are_not_packed() -> None:
    with pytest.raises(BatchTooLarge, match="2\\*\\*31"):
        encoded([HugePayload()])


def test_a_batch_above_the_replicas_limit_is_refused_before_its_bytes_are_looked_at() -> None:
    """FAULTS X9."""
    header = read_batch_header(encoded([bytes(1000)]))
    with pytest.raises(BatchTooLarge, match="at most 1000"):
        verify_batch(b"", 0, header, batch_max_bytes=1000)


@pytest.mark.parametrize("flags", [3, 4, 0x100])
def test_unknown_flags_are_refused(flags: int) -> None:
    batch = bytearray(encoded([b"abc"]))
    batch[6:8] = flags.to_bytes(2, "little")
    with pytest.raises(FormatError, match="flags"):
        read_batch_header(resealed(batch))


@pytest.mark.parametrize("size", [0, 4, 12])
def test_a_body_too_small_for_its_offsets_or_unaligned_is_refused(size: int) -> None:
    batch = bytearray(encoded([b"abc"]))
    batch[8:12] = size.to_bytes(4, "little")
    with pytest.raises(InvalidBatch, match=f"body of {size} bytes"):
        read_batch_header(batch)


@pytest.mark.parametrize("position", [24, 32, 40, 48, 56, 60])
def test_one_flipped_bit_is_seen(position: int) -> None:
    batch = bytearray(encoded([b"abcdef"]))
    batch[position] ^= 4
    with pytest.raises(InvalidBatch, match="CRC"):
        verify(bytes(batch))


@pytest.mark.parametrize("count", [3, 200])
def test_offsets_must_start_at_zero_and_never_go_back(count: int) -> None:
    payloads = [b"abcd"] * count
    good = [4 * n for n in range(count + 1)]
    verify(with_offsets(payloads, good))
    for bad in ([1, *good[1:]], [0, 8, 4, *good[3:]], [-4, *good[1:]]):
        with pytest.raises(InvalidBatch, match="offsets"):
            verify(with_offsets(payloads, bad))


@pytest.mark.parametrize("last", [0, 3, 9, 1 << 30])
def test_the_last_offset_must_fill_the_body(last: int) -> None:
    with pytest.raises(InvalidBatch, match="do not fill"):
        verify(with_offsets([b"abcdefgh"], [0, last]))


def test_padding_must_be_zero() -> None:
    batch = bytearray(encoded([b"abc"]))
    batch[-1] = 1
    with pytest.raises(InvalidBatch, match="do not fill"):
        verify(resealed(batch))


def test_a_header_that_was_read_is_packed_to_the_same_bytes() -> None:
    for number in range(3):
        data = encode_batch(
            [b"x"] * (number + 1), producer_id=(1 << 64) - 1 - number, producer_epoch=7 * number,
            sequence=1 << 63, timestamp_ns=5,
        )  # fmt: skip
        assert pack_batch_header(read_batch_header(data)) == data[:BATCH_HEADER_SIZE]


def test_batches_concatenate_and_are_walked_by_their_headers() -> None:
    batches = [encoded([b"x" * n], sequence=n) for n in range(10)]
    body = b"".join(batches)
    walked = list(iterate_batches(memoryview(body)))
    assert [header.sequence for _, header in walked] == list(range(10))
    for offset, header in walked:
        assert offset % 8 == 0
        verify_batch(body, offset, header, batch_max_bytes=LIMIT)
        assert batch_payloads(body, offset, header) == [b"x" * header.sequence]
    assert list(iterate_batches(b"")) == []


def test_a_body_that_ends_within_a_batch_is_refused() -> None:
    body = encoded([b"abc"]) * 2
    for end in (len(body) - 8, len(body) - 40):
        with pytest.raises(FormatError):
            list(iterate_batches(body[:end]))


def test_payloads_are_not_read_beyond_the_buffer_or_the_body() -> None:
    batch = encoded([b"abc"])
    header = read_batch_header(batch)
    for read in (batch_payloads, batch_arrays):
        with pytest.raises(FormatError, match="batch needs"):
            read(batch[:-8], 0, header)
    liar = with_offsets([b"abcdefgh"], [0, 900])
    with pytest.raises(InvalidBatch, match="outside of the body"):
        batch_arrays(liar, 0, read_batch_header(liar))


def test_packed_payloads_make_the_same_batch_as_single_ones() -> None:
    payloads = [b"one", b"", b"three", b"\x00" * 9]
    packed = PackedPayloads(array("i", [0, 3, 3, 8, 17]), memoryview(b"".join(payloads)))
    assert list(packed) == payloads
    assert (packed[-1], packed[1:3]) == (payloads[-1], payloads[1:3])
    options = {"producer_id": 1, "producer_epoch": 2, "sequence": 3, "timestamp_ns": 4}
    assert encode_batch(packed, **options) == encode_batch(payloads, **options)
    with pytest.raises(IndexError):
        packed[4]


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 4]])
def test_packed_payloads_end_where_their_bytes_do(offsets: list[int]) -> None:
    with pytest.raises(InvalidBatch):
        PackedPayloads(array("i", offsets), b"abc")
