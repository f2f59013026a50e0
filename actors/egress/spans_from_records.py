"""How the bytes of a range are spread over its LSNs, from the Raft records alone.

Knows the log reader; reads no body. It serves clients that split a range among readers, or measure
how far a reader lags. It looks at nothing above the visible bounds (SAFETY V7).
"""

from __future__ import annotations

from actors.egress.reads import Bounds
from logstore.format.client_messages import SPAN, SpansReply, SpansRequest
from logstore.model import Index, Lsn
from logstore.storage.log_reader import LogReader

# Two binary searches a span, each of about 15 records: 64 x 2 x 15 x 15 us are 30 ms of egress.
SPANS_MAX = 64


def read_spans(log: LogReader, bounds: Bounds, request: SpansRequest) -> SpansReply:
    """The spans of a range that begins within the bounds.

    Raises:
      CorruptData: a record that the search met is damaged.
    """
    last_lsn = Lsn(min(request.last_lsn, bounds.visible_lsn))
    if request.first_lsn > last_lsn:
        return SpansReply(bounds.log_start_lsn, bounds.visible_lsn, 0, b"")
    first = log.index_of_lsn(request.first_lsn, last_index=bounds.visible_index)
    last = log.index_of_lsn(last_lsn, last_index=bounds.visible_index)
    header = log.row(first).header
    timestamp_ns = header.timestamp_ns
    position = header.cumulative_bytes - header.body_size
    rows: list[bytes] = []
    next_lsn = request.first_lsn
    while next_lsn <= last_lsn and len(rows) < min(request.limit, SPANS_MAX):
        end = log.index_of_bytes(position + max(1, request.step_bytes), last_index=last)
        # An entry without LSNs may be as large as a whole span, and a span has at least one LSN.
        end = max(Index(min(end, last)), log.index_of_lsn(next_lsn, last_index=last))
        header = log.row(end).header
        next_lsn = Lsn(min(header.next_lsn, last_lsn + 1))
        size = header.cumulative_bytes - position
        position = header.cumulative_bytes
        rows.append(SPAN.pack(next_lsn - 1, size, header.timestamp_ns))
    return SpansReply(bounds.log_start_lsn, bounds.visible_lsn, timestamp_ns, b"".join(rows))
