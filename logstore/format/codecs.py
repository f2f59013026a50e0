"""The codecs of compressed batches: one block of bytes in, one block out.

Owns which codecs there are, by their number in a batch's flags, and what each needs installed. The
packages are imported when a block is first packed or unpacked, so a process that does neither needs
none: replicas never do. Knows no batches. A block that does not give exactly what its batch
announces is refused, before memory is taken where the block itself says so, and with no more memory
than announced otherwise.

    lz4   the LZ4 block format, without a size before it
    zstd  one Zstandard frame (RFC 8878) with its content size, without a dictionary
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from logstore.errors import CodecMissing, InvalidBatch, InvalidRequest
from logstore.limits import MESSAGE_MAX_BYTES, MIB
from logstore.model import Codec

# Of the text of logs, 64 KiB at a time, level 1 makes an 8.3th at 221 MB/s, the library's own
# default of 3 an 8.1th at 171 MB/s, 9 a 9.2th at 20 MB/s (2026-11-26, one of two busy cores).
ZSTD_LEVEL = 1
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# A frame of a batch needs a window of its content at most. Encoders round it up to a power of two.
_ZSTD_WINDOW_MAX_BYTES = 32 * MIB


class Compressor(Protocol):
    """Packs the payload bytes of batches; used by one thread at a time."""

    @property
    def codec(self) -> int:
        """Its number in a batch's flags."""
        ...

    def compress(self, data: bytes) -> bytes:
        """One block, which `decompress` gives back as these bytes."""
        ...


class _Compressor(msgspec.Struct, frozen=True):
    codec: int
    compress: Callable[[bytes], bytes]


def _lz4_compress() -> Callable[[bytes], bytes]:
    from lz4.block import compress

    def pack(data: bytes) -> bytes:
        block: bytes = compress(data, store_size=False)
        return block

    return pack


def _lz4_decompress(block: bytes | memoryview, plain_bytes: int) -> bytes:
    from lz4.block import LZ4BlockError, decompress

    try:
        plain: bytes = decompress(block, uncompressed_size=plain_bytes)
    except LZ4BlockError as error:
        raise InvalidBatch(f"no LZ4 block of {plain_bytes} bytes: {error}") from error
    return plain


def _zstd_compress() -> Callable[[bytes], bytes]:
    from zstandard import ZstdCompressor

    return ZstdCompressor(level=ZSTD_LEVEL).compress


def _zstd_decompress(block: bytes | memoryview, plain_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError, get_frame_parameters

    if block[:4] != _ZSTD_MAGIC:  # a skippable frame has another one
        raise InvalidBatch("no Zstandard frame")
    try:
        frame = get_frame_parameters(block)
        if frame.content_size != plain_bytes:
            raise InvalidBatch(f"a Zstandard frame that does not say {plain_bytes} bytes")
        if frame.dict_id:
            raise InvalidBatch(f"a Zstandard frame with dictionary {frame.dict_id}")
        return ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX_BYTES).decompress(
            block, max_output_size=plain_bytes, read_across_frames=False, allow_extra_data=False
        )
    except ZstdError as error:
        raise InvalidBatch(f"no Zstandard frame of {plain_bytes} bytes: {error}") from error


class _Row(msgspec.Struct, frozen=True):
    """`package`: what to install, which is an extra of this package, too."""

    name: str
    package: str
    compress: Callable[[], Callable[[bytes], bytes]]
    decompress: Callable[[bytes | memoryview, int], bytes]


_ROWS: dict[int, _Row] = {
    Codec.LZ4: _Row("lz4", "lz4", _lz4_compress, _lz4_decompress),
    Codec.ZSTD: _Row("zstd", "zstandard", _zstd_compress, _zstd_decompress),
}
NO_COMPRESSION = "none"
NAMES = (NO_COMPRESSION, *(row.name for row in _ROWS.values()))


def make_compressor(name: str) -> Compressor | None:
    """What packs batches by the codec of this name; None for "none".

    Raises:
      InvalidRequest: there is no such codec.
      CodecMissing: its package is not installed.
    """
    if name == NO_COMPRESSION:
        return None
    for number, row in _ROWS.items():
        if row.name == name:
            try:
                return _Compressor(number, row.compress())
            except ImportError as error:
                raise _missing(row) from error
    raise InvalidRequest(f"compression {name!r}: give one of {', '.join(NAMES)}")


def decompress(codec: int, block: bytes | memoryview, plain_bytes: int) -> bytes:
    """The bytes that `block` was packed from; exactly `plain_bytes`, at least one.

    Raises:
      InvalidBatch: it does not give so many, or holds anything besides.
      CodecMissing: the codec's package is not installed.
    """
    if not 0 < plain_bytes <= MESSAGE_MAX_BYTES:
        raise InvalidBatch(f"a block of {plain_bytes} bytes, at most {MESSAGE_MAX_BYTES}")
    row = _ROWS[codec]
    try:
        plain = row.decompress(block, plain_bytes)
    except ImportError as error:
        raise _missing(row) from error
    if len(plain) != plain_bytes:
        raise InvalidBatch(f"a {row.name} block of {len(plain)} bytes, {plain_bytes} announced")
    return plain


def name_of(codec: int) -> str:
    """ "none", or the codec's name."""
    row = _ROWS.get(codec)
    return NO_COMPRESSION if row is None else row.name


def _missing(row: _Row) -> CodecMissing:
    return CodecMissing(
        f"batches compressed with {row.name} need the package {row.package}, which is not "
        f"installed here: pip install logstore[{row.package}]"
    )
