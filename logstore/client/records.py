"""What a reader gets: batches as Arrow-shaped arrays over the bytes that came, and single records.

Owns the translation of pieces (the wire's unit of reading) into batches with LSNs. Every batch is
checked
before it is handed on: CRC, offsets, and that its LSNs follow from its place in the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from logstore.client.link import Frame
from logstore.errors import FormatError, InvalidRequest
from logstore.format.batch import (
    BATCH_HEADER_SIZE,
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
    read-only views of the message they came in, which lives as long as they do.

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


def batches_of(
    frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
) -> Iterator[RecordBatch]:
    """The batches of a piece within [first_lsn, last_lsn], verified, cut where they pass the
    bounds.

    Raises:
      FormatError: a batch is damaged, or its payloads are not those the piece's header counts.
    """
    body = memoryview(frame)[piece.start : piece.end]
    lsn, offset, end = int(piece.first_lsn), 0, len(body)
    while offset < end:
        header = read_batch_header(body, offset)
        next_lsn = lsn + header.count
        if next_lsn > first_lsn and lsn <= last_lsn:
            batch = _read_batch(body, piece, offset, header, lsn)
            part = batch.cut(first_lsn, last_lsn)
            if part is not None:
                yield part
        lsn, offset = next_lsn, offset + BATCH_HEADER_SIZE + header.body_size
    if lsn != piece.first_lsn + piece.count or offset != end:
        raise FormatError(
            f"a piece of {piece.count} payloads holds {lsn - piece.first_lsn}, its batches end at "
            f"{offset} of {end} bytes"
        )


def _read_batch(
    body: memoryview, piece: Piece, offset: int, header: BatchHeader, lsn: int
) -> RecordBatch:
    try:
        verify_batch(body, offset, header, batch_max_bytes=MESSAGE_MAX_BYTES)
    except InvalidRequest as error:
        raise FormatError(f"the batch at LSN {lsn} came damaged: {error}") from error
    offsets, values = batch_arrays(body, offset, header)
    return RecordBatch(
        lsn, offsets, values, piece.index, piece.term, piece.timestamp_ns, header, True, lsn
    )
