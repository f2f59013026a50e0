"""What a reader gets: batches as Arrow-shaped arrays over the received bytes, and single records.

Owns the translation of pieces (the wire's unit of reading) into batches with LSNs. Every batch is
checked before it is handed on: CRC, offsets, and that its LSNs follow from its place in the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from logstore.client.core.steps import Frame
from logstore.errors import FormatError, InvalidRequest
from logstore.format.batch import (
    BatchHeader,
    batch_arrays,
    read_batch_header,
    verify_batch,
)
from logstore.format.client_messages import Piece
from logstore.limits import MESSAGE_MAX_BYTES


class Record(msgspec.Struct, frozen=True, gc=False):
    """One payload. `timestamp_ns`: when the leader accepted it, since the Unix epoch, never
    falling."""

    lsn: int
    payload: bytes
    timestamp_ns: int


class RecordBatch(msgspec.Struct, frozen=True):
    """Consecutive payloads of one append, as an Arrow binary array.

    Payload k has LSN first_lsn + k and the bytes values[offsets[k]:offsets[k + 1]]; both arrays are
    read-only views of the received message, which lives as long as they do.

    Attributes:
      offsets: int32, one more than there are payloads; the first one need not be 0.
      index, term: of the Raft entry that holds the batch.
      timestamp_ns: when the leader accepted it. `batch.timestamp_ns` is when the producer sent it.
      batch: header of the whole batch.
      is_whole: False if the LSNs asked for cut the batch.
      batch_first_lsn: of the whole batch, which has batch.count LSNs.
    """

    first_lsn: int
    offsets: npt.NDArray[np.int32]
    values: npt.NDArray[np.uint8]
    index: int
    term: int
    timestamp_ns: int
    batch: BatchHeader
    is_whole: bool
    batch_first_lsn: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + len(self) - 1

    @property
    def payload_bytes(self) -> int:
        return int(self.offsets[-1] - self.offsets[0])

    def payloads(self) -> list[bytes]:
        """The payloads, copied out."""
        start, end = int(self.offsets[0]), int(self.offsets[-1])
        data = self.values[start:end].tobytes()
        return [data[a - start : b - start] for a, b in pairwise(self.offsets.tolist())]

    def records(self) -> Iterator[Record]:
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
        return RecordBatch(
            first,
            self.offsets[start:end],
            self.values,
            self.index,
            self.term,
            self.timestamp_ns,
            self.batch,
            False,
            self.batch_first_lsn,
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


def _verify(frame: Frame, offset: int, header: BatchHeader, lsn: int) -> None:
    try:
        verify_batch(frame, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
    except InvalidRequest as error:
        raise FormatError(f"the batch at LSN {lsn} came damaged: {error}") from error


def _read_batch(
    frame: Frame, piece: Piece, offset: int, header: BatchHeader, lsn: int
) -> RecordBatch:
    _verify(frame, offset, header, lsn)
    offsets, values = batch_arrays(frame, offset, header)
    return RecordBatch(
        lsn, offsets, values, piece.index, piece.term, piece.timestamp_ns, header, True, lsn
    )
