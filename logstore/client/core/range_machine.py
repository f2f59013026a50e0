"""Range reads: batches of given LSNs, from any replica, without copying a payload.

Owns the loop over fetches. At most one fetch is in flight, so a reader holds one reply at most, or
two if it reads ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from logstore.client.core.replica_reader import ReplicaReader, replica_wait_ms
from logstore.client.core.routing import Routing
from logstore.client.core.steps import Frame, Host, Steps
from logstore.client.records import RawBatch, RecordBatch
from logstore.client.refusal import explain_bounds
from logstore.errors import FormatError, InvalidRequest, OutOfRange
from logstore.format.client_messages import FetchReply, FetchRequest, Piece, iterate_pieces
from logstore.limits import FETCH_MAX_BYTES, MIB
from logstore.model import Lsn

READ_BYTES = 1 * MIB
_B = TypeVar("_B", RecordBatch, RawBatch)
_Got = TypeVar("_Got", RecordBatch, RawBatch, covariant=True)


class Decode(Protocol[_Got]):
    """Makes batches from a piece of a fetch."""

    def __call__(
        self, frame: Frame, piece: Piece, *, first_lsn: int, last_lsn: int
    ) -> Iterator[_Got]: ...


class RangeMachine:
    """Fetches ranges, one at a time."""

    def __init__(
        self,
        host: Host,
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
        self._max_bytes = max_bytes
        self._reads_ahead = reads_ahead
        self._replica = ReplicaReader(host, routing, replica=replica, timeout_s=timeout_s)

    @property
    def node(self) -> int:
        """The replica that is read now."""
        return self._replica.node

    def close(self) -> None:
        self._replica.close()

    def begin(self) -> None:
        """Begin another range. A request that was sent ahead is older than the range, so its answer
        may show less than the caller knows to be there (SAFETY V5)."""
        self._replica.forget_ahead()

    def fetch(
        self, first_lsn: int, last_lsn: int, min_lsn: int, *, is_linearizable: bool
    ) -> Steps[tuple[FetchReply, Frame]]:
        """One reply's worth of [first_lsn, last_lsn]."""
        try:
            reply, frame = yield from self._replica.request(
                self._request(first_lsn, last_lsn, min_lsn, is_linearizable),
                FetchReply,
                timeout_s=self._timeout_s,
                answer_timeout_s=self._timeout_s,
            )
        except OutOfRange as bounds:
            raise explain_bounds(first_lsn, bounds) from None
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


class RangeWalk(Generic[_B]):
    """From the first to the last LSN of one range; `next_batches` until it `is_at_end`."""

    def __init__(
        self,
        machine: RangeMachine,
        decode: Decode[_B],
        first_lsn: int,
        last_lsn: int,
        *,
        min_lsn: int,
        is_linearizable: bool,
    ) -> None:
        if first_lsn < 1 or last_lsn < first_lsn:
            raise InvalidRequest(f"LSNs {first_lsn} to {last_lsn}: give 1 <= first <= last")
        machine.begin()
        self._machine = machine
        self._decode: Decode[_B] = decode
        self._first_lsn, self._last_lsn = first_lsn, last_lsn
        self._min_lsn = min_lsn
        self._is_linearizable = is_linearizable
        self._next_lsn = first_lsn

    @property
    def is_at_end(self) -> bool:
        return self._next_lsn > self._last_lsn

    def next_batches(self) -> Steps[list[_B]]:
        """The next batches, at least one.

        Raises: as `RangeReader.read`.
        """
        next_lsn, last_lsn = self._next_lsn, self._last_lsn
        reply, frame = yield from self._machine.fetch(
            next_lsn, last_lsn, self._min_lsn, is_linearizable=self._is_linearizable
        )
        batches = [
            batch
            for piece in iterate_pieces(frame)
            for batch in self._decode(frame, piece, first_lsn=next_lsn, last_lsn=last_lsn)
        ]
        if not batches:
            raise OutOfRange(
                f"LSN {next_lsn} is not committed yet: the replica shows up to {reply.visible_lsn}",
                first=reply.log_start_lsn,
                last=reply.visible_lsn,
            )
        for batch in batches:
            # only the first whole batch may begin below what is due
            if batch.first_lsn > next_lsn or batch.first_lsn < next_lsn != self._first_lsn:
                raise FormatError(f"LSN {batch.first_lsn} came where {next_lsn} is due")
            next_lsn = batch.last_lsn + 1
        self._next_lsn = next_lsn
        return batches
