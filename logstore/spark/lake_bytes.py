"""A lake's file as bytes: digested while it is written, proved before anything in it is believed.

Owns the digest that the manifest names for a file's bytes. What a file says of itself, its footer,
page headers and statistics, has no checksum in Parquet; one wrong bit of them and a reader leaves
out rows without a word. So nothing is parsed of a file whose bytes are not those that were written.
"""

from __future__ import annotations

import io
from hashlib import blake2b
from typing import IO, Any

import pyarrow as pa

from logstore.errors import CorruptData
from logstore.limits import MIB
from logstore.spark.lake_manifest import LakeFile

# Up to here a file is read once, into memory, and parsed from there. A larger one (an archive with
# --file-size above the shipped 128MiB) is read twice: by blocks for the digest, then by its parts.
WHOLE_BYTES = 256 * MIB
_BLOCK_BYTES = 4 * MIB
_DIGEST_BYTES = 32


class DigestingFile(io.RawIOBase):
    """Writes through to `file`, which is written from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any) -> int:
        self._file.write(data)
        self._hash.update(data)
        size = memoryview(data).nbytes
        self._size_bytes += size
        return size

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def open_proved(path: str, told: LakeFile) -> Any:
    """What Arrow reads the file from, once its bytes are what the manifest says. Of a file that
    version 1 has written only the size is known: prove its batches.

    Raises:
      CorruptData: it is gone, cannot be read, or has other bytes.
    """
    try:
        raw = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by who reads, or below
    except OSError as error:
        raise _damage(path, told, _words(error)) from error
    try:
        return _proved(raw, path, told)
    except BaseException:
        raw.close()
        raise


def _proved(raw: io.FileIO, path: str, told: LakeFile) -> Any:
    try:
        size = raw.seek(0, io.SEEK_END)
        raw.seek(0)
        if size != told.file_bytes:
            raise _damage(path, told, f"{size} bytes")
        found = blake2b(digest_size=_DIGEST_BYTES)
        if size <= WHOLE_BYTES:
            data = raw.readall()
            raw.close()
            found.update(data)
            source: Any = pa.BufferReader(data)
        else:
            while block := raw.read(_BLOCK_BYTES):
                found.update(block)
            raw.seek(0)
            source = pa.PythonFile(raw, mode="r")
    except OSError as error:
        raise _damage(path, told, _words(error)) from error
    if told.file_digest and found.hexdigest() != told.file_digest:
        raise _damage(path, told, f"digest {found.hexdigest()}")
    return source


def _damage(path: str, told: LakeFile, got: str) -> CorruptData:
    digest = f" of digest {told.file_digest}" if told.file_digest else ""
    return CorruptData(
        path,
        0,
        expected=f"{told.file_bytes} bytes{digest}, as the manifest says",
        got=got,
        first_lsn=told.first_lsn,
        last_lsn=told.last_lsn,
    )


def _words(error: OSError) -> str:
    return error.strerror or str(error)
