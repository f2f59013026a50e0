"""What a reader gets: batches as Arrow-shaped arrays over the received bytes, and single records.

Owns the translation of pieces (the wire's unit of reading) into batches with LSNs. Every batch is
checked before it is handed on: CRC, offsets, and that its LSNs follow from its place in the group.
A compressed one is decompressed when its payloads are first asked for: a reader that wants none, or
only LSNs, needs no codec, and only what is looked at takes memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from logstore.client.core.steps import Frame
from logstore.errors import CorruptData, FormatError, InvalidBatch, InvalidRequest
from logstore.format.batch import (
    BatchHeader,
    BatchSizes,
    batch_offsets,
    plain_values,
    read_batch_header,
    verify_batch,
)
from logstore.format.client_messages import Piece
from logstore.format.codecs import name_of
from logstore.limits import MESSAGE_MAX_BYTES


class Record(msgspec.Struct, frozen=True, gc=False):
    """One payload. `timestamp_ns`: when the leader accepted it, since the Unix epoch, never
    falling."""

    lsn: int
    payload: bytes
    timestamp_ns: int


class WholeBatch:
    """A batch as it came, shared by its parts. Used by one thread, like what hands it out."""

    __slots__ = ("_values", "data", "first_lsn", "header", "sizes")

    def __init__(
        self, data: memoryview, first_lsn: int, header: BatchHeader, sizes: BatchSizes
    ) -> None:
        self.data = data
        self.first_lsn = first_lsn
        self.header = header
        self.sizes = sizes
        self._values: npt.NDArray[np.uint8] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Copies and pickles hold the bytes, of this batch only, as they came."""
        return _whole_batch, (bytes(self.data), self.first_lsn, self.header, self.sizes)

    def values(self) -> npt.NDArray[np.uint8]:
        """All payload bytes, read-only; decompressed once, and kept. Errors as `plain`."""
        if self._values is None:
            self._values = np.frombuffer(self.plain(), np.uint8)
        return self._values

    def plain(self) -> bytes | memoryview:
        """All payload bytes; not kept, if they are decompressed for it.

        Raises:
          CorruptData: they cannot be decompressed: the producer sent them so.
          CodecMissing: the codec's package is not installed.
        """
        if self._values is not None:
            return self._values.data
        header = self.header
        try:
            return plain_values(self.data, 0, header)
        except InvalidBatch as error:
            last_lsn = self.first_lsn + header.count - 1
            raise CorruptData(
                f"the batch of LSNs {self.first_lsn} to {last_lsn}",
                0,
                expected=f"{self.sizes.plain_bytes} payload bytes compressed with "
                f"{name_of(header.codec)}",
                got=f"{error}. Producer {header.producer_id} sent it so, and every replica has the "
                f"same bytes: to leave it out, go on at LSN {last_lsn + 1}",
                first_lsn=self.first_lsn,
                last_lsn=last_lsn,
            ) from error


def _whole_batch(data: bytes, first_lsn: int, header: BatchHeader, sizes: BatchSizes) -> WholeBatch:
    return WholeBatch(memoryview(data), first_lsn, header, sizes)


class RecordBatch(msgspec.Struct, frozen=True):
    """Consecutive payloads of one append, as an Arrow binary array.

    Payload k has LSN first_lsn + k and the bytes values[offsets[k]:offsets[k + 1]]; both arrays are
    read-only views of the received message, which lives as long as they do. The values of a
    compressed batch are decompressed when they are first asked for.

    Attributes:
      offsets: int32, one more than there are payloads; the first one need not be 0.
      whole: the whole batch as it came.
      index, term: of the Raft entry that holds the batch.
      timestamp_ns: when the leader accepted it. `batch.timestamp_ns` is when the producer sent it.
      is_whole: False if the LSNs asked for cut the batch.
    """

    first_lsn: int
    offsets: npt.NDArray[np.int32]
    whole: WholeBatch
    index: int
    term: int
    timestamp_ns: int
    is_whole: bool

    @property
    def values(self) -> npt.NDArray[np.uint8]:
        """The payload bytes, uint8, of the whole batch; once decompressed, kept as long as it is.

        Raises:
          CorruptData: they cannot be decompressed, on any replica: go on after `batch`.
          CodecMissing: the codec's package is not installed.
        """
        return self.whole.values()

    def plain(self) -> memoryview:
        """The same as bytes, which are not kept if they are decompressed for it. Errors as
        `values`."""
        return memoryview(self.whole.plain())

    @property
    def batch(self) -> BatchHeader:
        """Header of the whole batch."""
        return self.whole.header

    @property
    def batch_first_lsn(self) -> int:
        """Of the whole batch, which has batch.count LSNs."""
        return self.whole.first_lsn

    @property
    def batch_stored_bytes(self) -> int:
        """Payload bytes of the whole batch as the log stores them: fewer if compressed."""
        return self.whole.sizes.stored_bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + len(self) - 1

    @property
    def payload_bytes(self) -> int:
        """Of these payloads, without compression."""
        return int(self.offsets[-1] - self.offsets[0])

    def payloads(self) -> list[bytes]:
        """The payloads, copied out. Errors as `values`."""
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        data = bytes(self.plain()[start:end])
        return [data[a - start : b - start] for a, b in pairwise(self.offsets.tolist())]

    def records(self) -> Iterator[Record]:
        """Record by record. Errors as `values`."""
        for lsn, payload in enumerate(self.payloads(), self.first_lsn):
            yield Record(lsn, payload, self.timestamp_ns)

    def cut(self, first_lsn: int, last_lsn: int) -> RecordBatch | None:
        """The part within [first_lsn, last_lsn], without a copy; None if there is none."""
        first, last = max(first_lsn, self.first_lsn), min(last_lsn, self.last_lsn)
        if first > last:
            return None
        if first == self.first_lsn and last == self.last_lsn:
            return self
        start, end = first - self.first_lsn, last - self.first_lsn + 2
        offsets = self.offsets[start:end]
        return RecordBatch(
            first, offsets, self.whole, self.index, self.term, self.timestamp_ns, False
        )


class RawBatch(msgspec.Struct, frozen=True, gc=False):
    """A whole batch and its LSNs: byte for byte what its producer sent, in every copy of the log.
    `data` is a read-only view of the received message, which lives as long as it does."""

    first_lsn: int
    count: int
    data: memoryview

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


def raw_batches_of(
    frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
) -> Iterator[RawBatch]:
    """The batches of a piece that have payloads within [first_lsn, last_lsn], verified, never cut.

    Errors as `batches_of`.
    """
    for lsn, offset, header in _walk(frame, piece):
        if lsn + header.count > first_lsn and lsn <= last_lsn:
            start = piece.start + offset
            _verify(frame, start, header, lsn)
            data = memoryview(frame)[start : start + header.size]
            yield RawBatch(lsn, header.count, data.toreadonly())


def batches_of(
    frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
) -> Iterator[RecordBatch]:
    """The batches of a piece within [first_lsn, last_lsn], verified, cut where they pass the
    bounds.

    Raises:
      FormatError: a batch is damaged, or its payloads are not those the piece's header counts.
    """
    for lsn, offset, header in _walk(frame, piece):
        if lsn + header.count > first_lsn and lsn <= last_lsn:
            batch = _read_batch(frame, piece, piece.start + offset, header, lsn)
            part = batch.cut(first_lsn, last_lsn)
            if part is not None:
                yield part


def _walk(frame: Frame, piece: Piece) -> Iterator[tuple[int, int, BatchHeader]]:
    """First LSN, offset in the piece and header of each of its batches."""
    body = memoryview(frame)[piece.start : piece.end]
    lsn, offset, end = int(piece.first_lsn), 0, len(body)
    while offset < end:
        header = read_batch_header(body, offset)
        yield lsn, offset, header
        lsn, offset = lsn + header.count, offset + header.size
    if lsn != piece.first_lsn + piece.count or offset != end:
        raise FormatError(
            f"a piece of {piece.count} payloads holds {lsn - piece.first_lsn}, its batches end at "
            f"{offset} of {end} bytes"
        )


def _verify(frame: Frame, offset: int, header: BatchHeader, lsn: int) -> BatchSizes:
    try:
        return verify_batch(frame, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
    except InvalidRequest as error:
        raise FormatError(f"the batch at LSN {lsn} came damaged: {error}") from error


def _read_batch(
    frame: Frame, piece: Piece, offset: int, header: BatchHeader, lsn: int
) -> RecordBatch:
    sizes = _verify(frame, offset, header, lsn)
    data = memoryview(frame)[offset : offset + header.size].toreadonly()
    whole = WholeBatch(data, lsn, header, sizes)
    offsets = batch_offsets(data, 0, header)
    return RecordBatch(lsn, offsets, whole, piece.index, piece.term, piece.timestamp_ns, True)
