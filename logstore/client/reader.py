"""Range reads: batches of given LSNs, from any replica, without copying a payload.

Owns the loop over fetches. One fetch is in flight at most: what a reader holds is bounded by one
reply, by two if it reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from logstore.client.link import Context, Frame
from logstore.client.records import RawBatch, RecordBatch, batches_of, raw_batches_of
from logstore.client.replica_reader import ReplicaReader, replica_wait_ms
from logstore.client.routing import Routing
from logstore.client.turn import Turn
from logstore.errors import FormatError, InvalidRequest, OutOfRange
from logstore.format.client_messages import FetchReply, FetchRequest, Piece, iterate_pieces
from logstore.limits import FETCH_MAX_BYTES, MIB
from logstore.model import Lsn

READ_BYTES = 1 * MIB
_B = TypeVar("_B", RecordBatch, RawBatch)
_Got = TypeVar("_Got", RecordBatch, RawBatch, covariant=True)


class _Decode(Protocol[_Got]):
    """What makes batches of the pieces of a fetch."""

    def __call__(
        self, frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
    ) -> Iterator[_Got]: ...


class RangeReader:
    """Reads ranges of LSNs. Used by one thread; close it, from any thread, or use it as a context
    manager."""

    def __init__(
        self,
        context: Context,
        routing: Routing,
        *,
        replica: int | None,
        timeout_s: float,
        max_bytes: int = READ_BYTES,
        reads_ahead: bool = False,
    ) -> None:
        if not 0 < max_bytes <= FETCH_MAX_BYTES:
            raise InvalidRequest(f"max_bytes {max_bytes}: give 1..{FETCH_MAX_BYTES}")
        self._timeout_s = timeout_s
        self._turn = Turn("reader", self._close_sockets)
        self._max_bytes = max_bytes
        self._reads_ahead = reads_ahead
        self._replica = ReplicaReader(context, routing, replica=replica, timeout_s=timeout_s)

    @property
    def is_closed(self) -> bool:
        return self._turn.is_closed

    def close(self) -> None:
        """Close it. Where another thread is amid a fetch, the sockets go with its end."""
        self._turn.close()

    def _close_sockets(self) -> None:
        self._replica.close()

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RecordBatch]:
        """The committed payloads [first_lsn, last_lsn], in order, none left out.

        Args:
          first_lsn, last_lsn: both included; a batch that passes them is cut.
          min_lsn: wait until the replica shows this LSN; 0: read what it shows now.
          linearizable: ask the leader to confirm that it leads before it answers.

        Raises:
          OutOfRange: the range is not wholly within what the replica serves; it says what is.
          NotReady, Unreachable: no replica could serve it in time.
          CorruptData: the replica's disk is damaged there.
          Closed: the reader or its client was closed, maybe while this call waited.
        """
        return self._read(batches_of, first_lsn, last_lsn, min_lsn, is_linearizable=linearizable)

    def read_batches(
        self,
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int = 0,
        linearizable: bool = False,
    ) -> Iterator[RawBatch]:
        """The whole batches that hold [first_lsn, last_lsn], in order, none left out or cut: the
        first may begin below first_lsn, the last may end above last_lsn.

        Arguments and errors as `read`.
        """
        return self._read(
            raw_batches_of, first_lsn, last_lsn, min_lsn, is_linearizable=linearizable
        )

    def _read(
        self,
        decode: _Decode[_B],
        first_lsn: int,
        last_lsn: int,
        min_lsn: int,
        *,
        is_linearizable: bool,
    ) -> Iterator[_B]:
        self._turn.check()
        if first_lsn < 1 or last_lsn < first_lsn:
            raise InvalidRequest(f"LSNs {first_lsn} to {last_lsn}: give 1 <= first <= last")
        next_lsn = first_lsn
        while next_lsn <= last_lsn:
            reply, frame = self._fetch(next_lsn, last_lsn, min_lsn, is_linearizable=is_linearizable)
            batches = [
                batch
                for piece in iterate_pieces(frame)
                for batch in decode(frame, piece, first_lsn=next_lsn, last_lsn=last_lsn)
            ]
            if not batches:
                raise OutOfRange(
                    f"LSN {next_lsn} is not committed yet: the replica shows up to "
                    f"{reply.visible_lsn}",
                    first=reply.log_start_lsn,
                    last=reply.visible_lsn,
                )
            for batch in batches:
                # only the first whole batch may begin below what is due
                if batch.first_lsn > next_lsn or batch.first_lsn < next_lsn != first_lsn:
                    raise FormatError(f"LSN {batch.first_lsn} came where {next_lsn} is due")
                next_lsn = batch.last_lsn + 1
                yield batch

    def _fetch(
        self, first_lsn: int, last_lsn: int, min_lsn: int, *, is_linearizable: bool
    ) -> tuple[FetchReply, Frame]:
        with self._turn:
            reply, frame = self._replica.request(
                self._request(first_lsn, last_lsn, min_lsn, is_linearizable),
                FetchReply,
                timeout_s=self._timeout_s,
                answer_timeout_s=self._timeout_s,
            )
            if self._reads_ahead and first_lsn < reply.next_lsn <= last_lsn:
                self._replica.send_ahead(
                    self._request(reply.next_lsn, last_lsn, min_lsn, is_linearizable)
                )
        return reply, frame

    def _request(
        self, first_lsn: int, last_lsn: int, min_lsn: int, is_linearizable: bool
    ) -> FetchRequest:
        wait_ms = replica_wait_ms(self._timeout_s)
        return FetchRequest(
            Lsn(first_lsn), Lsn(last_lsn), Lsn(min_lsn), self._max_bytes, wait_ms, is_linearizable
        )
