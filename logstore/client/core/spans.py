"""How the bytes of a range of LSNs are spread: to split the range, or to tell how far a reader is
behind.

Owns the loop over requests. No payload is sent for it.
"""

from __future__ import annotations

import msgspec

from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.steps import Steps
from logstore.client.refusal import explain_bounds
from logstore.errors import FormatError, InvalidRequest, OutOfRange
from logstore.format.client_messages import SPAN, SpansReply, SpansRequest
from logstore.limits import POSITION_MAX
from logstore.model import Lsn

_ROWS_ASKED = (1 << 32) - 1


class Span(msgspec.Struct, frozen=True, gc=False):
    """Whole entries that hold [first_lsn, last_lsn], a batch's part at the ends of the range asked.

    Attributes:
      size_bytes: of their bodies, cut ones in full.
      timestamp_ns: when the leader accepted the last of them.
    """

    first_lsn: int
    last_lsn: int
    size_bytes: int
    timestamp_ns: int


class Spans(msgspec.Struct, frozen=True):
    """The spans of a range as one replica sees it, in order and without gaps.

    Attributes:
      log_start_lsn, visible_lsn: what the replica served at the last request.
      timestamp_ns: when the leader accepted the first LSN asked for; 0: it is not there yet.
    """

    log_start_lsn: int
    visible_lsn: int
    timestamp_ns: int
    rows: tuple[Span, ...]

    @property
    def size_bytes(self) -> int:
        return sum(row.size_bytes for row in self.rows)


def read_spans(
    replica: ReplicaReader,
    first_lsn: int,
    last_lsn: int,
    *,
    step_bytes: int = POSITION_MAX,
    limit: int | None = None,
    timeout_s: float,
) -> Steps[Spans]:
    """Cut [first_lsn, last_lsn], as far as the replica shows it, at borders of entries into spans
    of at least `step_bytes`; the first `limit` of them.

    Raises:
      OutOfRange: it begins below the log start, or more than one above what is visible.
      InvalidRequest: no range, or a step or limit below 1.
      LogStoreError: no replica answered in time, or the disk is damaged there.
    """
    if not (1 <= first_lsn <= last_lsn and step_bytes >= 1 and (limit is None or limit >= 1)):
        raise InvalidRequest(
            f"LSNs {first_lsn} to {last_lsn} by {step_bytes} bytes, {limit} spans: give 1 <= first "
            "<= last, and numbers above 0"
        )
    rows: list[Span] = []
    first: SpansReply | None = None
    next_lsn = first_lsn
    while True:
        asked = _ROWS_ASKED if limit is None else min(limit - len(rows), _ROWS_ASKED)
        request = SpansRequest(
            Lsn(next_lsn), Lsn(min(last_lsn, POSITION_MAX)), min(step_bytes, POSITION_MAX), asked
        )
        try:
            reply, _ = yield from replica.request(request, SpansReply, timeout_s=timeout_s)
        except OutOfRange as bounds:
            raise explain_bounds(next_lsn, bounds) from None
        first = first or reply
        for end, size_bytes, timestamp_ns in SPAN.iter_unpack(reply.rows):
            if not next_lsn <= end <= last_lsn:
                raise FormatError(f"a span ends at LSN {end}; it begins at {next_lsn}")
            rows.append(Span(next_lsn, end, size_bytes, timestamp_ns))
            next_lsn = end + 1
        is_done = next_lsn > min(last_lsn, reply.visible_lsn) or len(rows) == limit
        if is_done or not reply.rows:
            return Spans(reply.log_start_lsn, reply.visible_lsn, first.timestamp_ns, tuple(rows))
