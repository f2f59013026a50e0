"""A stream's offsets: where it is, in which cluster, as the checkpoint keeps it.

Pure. Spark writes them as JSON and compares the text, so keys have one order. `lsn` is the next LSN
to read; the first offset of a stream may be a word instead, kept as a number that is no LSN:

    0  EARLIEST: the log start, whatever it is when the first batch is planned
   -1  LATEST: what comes after; the first batch is empty, and its end pins the LSN
   -2  AT_TIMESTAMP: the first LSN at or after `timestampNs`

`initialOffset` is called twice before the first batch and once more if that batch is replayed, and
must return the same each time. The word stays the same; the LSN that it means may change. So the
end of the first batch says where it begins: one that is replayed and finds less there says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from logstore.errors import FormatError, InvalidRequest
from logstore.spark.read_options import AtLsn, AtTimestamp, Earliest, Latest, Start

EARLIEST = 0
LATEST = -1
AT_TIMESTAMP = -2


class Offset(msgspec.Struct, frozen=True):
    """`cluster_id`: 32 hexadecimal digits. `timestamp_ns` only with AT_TIMESTAMP. `begins`: the LSN
    that the start of the batch meant which ends here, where that was a word; 0: it was an LSN."""

    cluster_id: str
    lsn: int
    timestamp_ns: int = 0
    begins: int = 0

    @property
    def is_word(self) -> bool:
        return self.lsn <= EARLIEST

    def as_json(self) -> dict[str, Any]:
        """What Spark keeps."""
        found: dict[str, Any] = {"cluster": self.cluster_id, "lsn": self.lsn}
        if self.lsn == AT_TIMESTAMP:
            found["timestampNs"] = self.timestamp_ns
        if self.begins:
            found["begins"] = self.begins
        return found


def first_offset(start: Start, cluster_id: str) -> Offset:
    """The offset of a new stream."""
    match start:
        case AtLsn(lsn=lsn):
            return Offset(cluster_id, lsn)
        case AtTimestamp(timestamp_ns=timestamp_ns):
            return Offset(cluster_id, AT_TIMESTAMP, timestamp_ns)
        case Earliest():
            return Offset(cluster_id, EARLIEST)
        case Latest():
            return Offset(cluster_id, LATEST)


def parse_offset(found: Mapping[str, Any], cluster_id: str) -> Offset:
    """An offset from the checkpoint, of this cluster.

    Raises:
      FormatError: it is no offset of this source.
      InvalidRequest: it is of another cluster.
    """
    lsn, cluster = found.get("lsn"), found.get("cluster")
    timestamp_ns, begins = found.get("timestampNs", 0), found.get("begins", 0)
    if not (
        isinstance(lsn, int)
        and isinstance(cluster, str)
        and isinstance(timestamp_ns, int)
        and isinstance(begins, int)
    ):
        raise FormatError(
            f"the checkpoint's offset {dict(found)} is none of this source: give the query a new "
            "checkpointLocation"
        )
    if cluster != cluster_id:
        raise InvalidRequest(
            f"the checkpoint belongs to cluster {cluster}, the endpoints to cluster {cluster_id}: "
            "give the endpoints of the checkpoint's cluster, or a new checkpointLocation"
        )
    return Offset(cluster, lsn, timestamp_ns, begins)
