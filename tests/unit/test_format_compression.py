"""Compressed batches: what is stored, what a server checks without decompressing, what a reader
refuses to believe."""

from __future__ import annotations

import sys
import tracemalloc
from array import array

import lz4.block
import pytest
import zstandard

from logstore.errors import (
    BatchTooLarge,
    CodecMissing,
    FormatError,
    InvalidBatch,
    InvalidRequest,
)
from logstore.format.batch import (
    BatchSizes,
    PackedPayloads,
    batch_arrays,
    batch_payloads,
    batch_size,
    batch_sizes,
    encode_batch,
    iterate_batches,
    read_batch_header,
    stored_block,
    verify_batch,
)
from logstore.format.codecs import NAMES, decompress, make_compressor
from logstore.limits import MESSAGE_MAX_BYTES, MIB
from logstore.model import Codec
from tests.unit.compressed_batches import TEXT, compressed, with_block

LIMIT = 1 << 20
CODECS = [Codec.LZ4, Codec.ZSTD]


def verified(batch: bytes, limit: int = LIMIT) -> BatchSizes:
    return verify_batch(batch, 0, read_batch_header(batch), batch_max_bytes=limit)


def block_of(data: bytes, codec: int) -> bytes:
    return (
        lz4.block.compress(data, store_size=False)
        if codec == Codec.LZ4
        else zstandard.compress(data)
    )


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_keeps_its_offsets_and_gives_its_payloads_back(codec: int) -> None:
    payloads = [*TEXT, b"", b"\0" * 9]
    batch, plain = compressed(payloads, codec), encode_batch(
        payloads, producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5
    )  # fmt: skip
    header, total = read_batch_header(batch), sum(map(len, payloads))
    assert (header.codec, header.count, header.size) == (codec, len(payloads), len(batch))
    assert len(batch) < len(plain) / 2
    end = 48 + 4 * (len(payloads) + 1)
    assert batch[48:end] == plain[48:end]
    sizes = verified(batch)
    assert sizes == batch_sizes(batch, 0, header)
    assert (sizes.count, sizes.plain_bytes) == (len(payloads), total)
    assert stored_block(batch, 0, header) == batch[end + 4 : end + 4 + sizes.stored_bytes]
    assert batch_payloads(batch, 0, header) == payloads
    offsets, values = batch_arrays(batch, 0, header)
    assert offsets.tolist()[-1] == total
    assert values.tobytes() == b"".join(payloads)


def test_without_compression_the_stored_bytes_are_the_payload_bytes() -> None:
    batch = encode_batch(TEXT, producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5)
    total = sum(map(len, TEXT))
    assert verified(batch) == BatchSizes(len(TEXT), total, total)


@pytest.mark.parametrize("codec", CODECS)
def test_packed_payloads_make_the_same_compressed_batch(codec: int) -> None:
    offsets = array("i", [0])
    for payload in TEXT:
        offsets.append(offsets[-1] + len(payload))
    packed = PackedPayloads(offsets, memoryview(b"".join(TEXT)))
    assert compressed(packed, codec) == compressed(TEXT, codec)


@pytest.mark.parametrize("name", NAMES[1:])
@pytest.mark.parametrize("payloads", [[b""], [b"", b""], [b"x"], [bytes(range(256))]])
def test_what_compression_does_not_make_smaller_stays_as_it_is(
    name: str, payloads: list[bytes]
) -> None:
    numbers = {"producer_id": 7, "producer_epoch": 1, "sequence": 0, "timestamp_ns": 5}
    plain = encode_batch(payloads, **numbers)
    assert encode_batch(payloads, **numbers, compressor=make_compressor(name)) == plain


def test_batches_of_all_codecs_follow_each_other_in_a_body() -> None:
    plain = encode_batch(TEXT, producer_id=7, producer_epoch=1, sequence=0, timestamp_ns=5)
    body = b"".join((plain, *(compressed(TEXT, codec) for codec in CODECS), plain))
    walked = list(iterate_batches(memoryview(body)))
    assert [header.codec for _, header in walked] == [0, 1, 2, 0]
    for offset, header in walked:
        verify_batch(body, offset, header, batch_max_bytes=LIMIT)
        assert batch_payloads(memoryview(body), offset, header) == TEXT


# --- what a server checks ---


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_without_compression_is_bounded_before_anything_else_is_done(codec: int) -> None:
    """FAULTS X9. A bomb: a megabyte of zeros in some bytes."""
    bomb = with_block([LIMIT], block_of(bytes(LIMIT), codec), codec)
    assert len(bomb) < LIMIT / 100
    with pytest.raises(BatchTooLarge, match="without compression"):
        verified(bomb)
    size = batch_size(1, LIMIT)
    assert verified(bomb, size).plain_bytes == LIMIT
    with pytest.raises(BatchTooLarge):
        verified(bomb, size - 1)


@pytest.mark.parametrize(
    ("sizes", "block", "changes"),
    [
        ([4], b"abcdefgh", {"stored_bytes": 13}),
        ([4], b"abcdefgh", {"stored_bytes": 0xFFFFFFFF}),
        ([4], b"abcdefgh", {"stored_bytes": 0}),
        ([4], b"a" * 16, {"stored_bytes": 5}),
        ([4], b"abcdefg", {"padding": b"\0\0\0\0\1"}),
        ([4], b"abcd", {"padding": bytes(16)}),
        ([4], b"", {}),
        ([0], b"abcd", {}),
        ([5, -1], b"abcdefgh", {}),
    ],
)
def test_a_server_refuses_sizes_that_do_not_fit_the_body(
    sizes: list[int], block: bytes, changes: dict[str, int]
) -> None:
    batch = with_block(sizes, block, Codec.LZ4, **changes)  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch):
        verified(batch)


def test_a_server_looks_at_no_block() -> None:
    for codec in CODECS:
        assert verified(with_block([900], b"no block", codec)) == BatchSizes(1, 900, 8)


def test_a_body_too_short_for_its_sizes_and_an_unknown_codec_are_no_batches() -> None:
    batch = bytearray(with_block([4], b"", Codec.ZSTD, padding=b"\0" * 4))
    batch[8:12] = (8).to_bytes(4, "little")
    with pytest.raises(InvalidBatch, match="a body of 8 bytes"):
        read_batch_header(batch)
    batch[6] = 3
    with pytest.raises(FormatError, match="unknown bits"):
        read_batch_header(batch)
    with pytest.raises(FormatError):
        batch_sizes(compressed(TEXT, Codec.LZ4)[:-8], 0, read_batch_header(compressed(TEXT, 1)))


def test_stored_bytes_outside_of_an_unverified_body_are_not_read() -> None:
    batch = with_block([4], b"abcd", Codec.LZ4, stored_bytes=900)
    with pytest.raises(InvalidBatch, match="outside of the body"):
        stored_block(batch, 0, read_batch_header(batch))


# --- what a reader refuses ---

PLAIN = b"".join(TEXT)
ZSTD = zstandard.compress(PLAIN)
LZ4 = lz4.block.compress(PLAIN, store_size=False)
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
DICTIONARY = zstandard.ZstdCompressionDict(PLAIN * 4)
LIES = [
    (Codec.LZ4, "empty", b""),
    (Codec.LZ4, "truncated", LZ4[:-1]),
    (Codec.LZ4, "trailing zeros", LZ4 + bytes(4)),
    (Codec.LZ4, "twice", LZ4 + LZ4),
    (Codec.LZ4, "with a size before it", lz4.block.compress(PLAIN)),
    (Codec.LZ4, "fewer bytes", lz4.block.compress(PLAIN[:-1], store_size=False)),
    (Codec.LZ4, "more bytes", lz4.block.compress(PLAIN + b"x", store_size=False)),
    (Codec.LZ4, "another codec", ZSTD),
    (Codec.ZSTD, "empty", b""),
    (Codec.ZSTD, "truncated", ZSTD[:-1]),
    (Codec.ZSTD, "header only", ZSTD[:6]),
    (Codec.ZSTD, "trailing zeros", ZSTD + bytes(4)),
    (Codec.ZSTD, "two frames", zstandard.compress(PLAIN[:9]) + zstandard.compress(PLAIN[9:])),
    (Codec.ZSTD, "twice", ZSTD + ZSTD),
    (Codec.ZSTD, "a skippable frame before it", SKIPPABLE + ZSTD),
    (Codec.ZSTD, "a skippable frame after it", ZSTD + SKIPPABLE),
    (Codec.ZSTD, "a skippable frame alone", SKIPPABLE),
    (Codec.ZSTD, "fewer bytes", zstandard.compress(PLAIN[:-1])),
    (Codec.ZSTD, "more bytes", zstandard.compress(PLAIN + b"x")),
    (Codec.ZSTD, "a bomb", zstandard.compress(bytes(64 * MIB))),
    (Codec.ZSTD, "no content size",
     zstandard.ZstdCompressor(write_content_size=False).compress(PLAIN)),
    (Codec.ZSTD, "a dictionary",
     zstandard.ZstdCompressor(dict_data=zstandard.train_dictionary(
         1 << 10, [each * 9 for each in TEXT])).compress(PLAIN)),
    (Codec.ZSTD, "a dictionary without an id",
     zstandard.ZstdCompressor(dict_data=DICTIONARY).compress(PLAIN)),
    (Codec.ZSTD, "another codec", LZ4),
]  # fmt: skip


@pytest.mark.parametrize(
    ("codec", "block"),
    [pytest.param(codec, block, id=f"{codec.name} {what}") for codec, what, block in LIES],
)
def test_only_one_block_that_gives_just_the_announced_bytes_is_believed(
    codec: int, block: bytes
) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, block, len(PLAIN))


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_memory_is_taken_than_the_batch_announces(codec: int) -> None:
    """FAULTS X9."""
    bomb = block_of(bytes(32 * MIB), codec)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            decompress(codec, bomb, 1_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("size", [0, -1, MESSAGE_MAX_BYTES + 1])
def test_a_block_of_more_than_any_message_is_not_looked_at(size: int) -> None:
    with pytest.raises(InvalidBatch, match="at most"):
        decompress(Codec.LZ4, LZ4, size)


# --- codecs that are not there ---


def test_an_unknown_compression_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match="none, lz4, zstd"):
        make_compressor("gzip")
    assert make_compressor("none") is None


@pytest.mark.parametrize(("name", "module"), [("lz4", "lz4"), ("zstd", "zstandard")])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    codec = {"lz4": Codec.LZ4, "zstd": Codec.ZSTD}[name]
    batch = compressed(TEXT, codec)
    for each in [each for each in sys.modules if each.split(".")[0] == module]:
        monkeypatch.setitem(sys.modules, each, None)
    monkeypatch.setitem(sys.modules, module, None)
    hint = rf"pip install logstore\[{module}\]"
    with pytest.raises(CodecMissing, match=hint):
        make_compressor(name)
    with pytest.raises(CodecMissing, match=hint):
        batch_payloads(batch, 0, read_batch_header(batch))
    assert verified(batch).count == len(TEXT)  # a server needs no codec
