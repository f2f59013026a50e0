"""Where reading begins: an LSN, one of the two ends of the log, a time or a cursor.

Pure: values only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from logstore.errors import InvalidRequest
from logstore.format.client_messages import TimeLookupRequest

TIMESTAMP_MAX_NS = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AtTime(msgspec.Struct, frozen=True):
    """A start: the first payload whose group is not older than this, ns since the Unix epoch. What
    is committed from now on and is older, by the leader's clock, is left out, too."""

    timestamp_ns: int

    def request(self) -> TimeLookupRequest:
        """The request for its LSN.

        Raises:
          InvalidRequest: no timestamp can be of this time.
        """
        if not 0 <= self.timestamp_ns <= TIMESTAMP_MAX_NS:
            raise InvalidRequest("the time to start at lies before 1970, or after July 2554")
        return TimeLookupRequest(self.timestamp_ns)

    def __str__(self) -> str:
        """ISO 8601 in UTC, cut to microseconds."""
        time = _EPOCH + timedelta(microseconds=self.timestamp_ns // 1_000)
        return time.isoformat().replace("+00:00", "Z")


class AtCursor(msgspec.Struct, frozen=True):
    """A start: where the cursor `name` stands, or, if there is none, the start `absent`; "error"
    raises `InvalidRequest` then."""

    name: str
    absent: int | str | datetime | AtTime = "earliest"


Start = int | str | datetime | AtTime | AtCursor


def at_datetime(start: datetime) -> AtTime:
    """The start at this time.

    Raises:
      InvalidRequest: it has no time zone.
    """
    if start.tzinfo is None:
        raise InvalidRequest(f"{start}: give the time with its time zone")
    return AtTime((start - _EPOCH) // timedelta(microseconds=1) * 1_000)
