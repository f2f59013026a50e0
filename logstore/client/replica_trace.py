"""What a replica has measured of itself, as it answers a TraceRequest.

Pure: the document in, typed values out. What is made of it, `logstore explain` knows.
"""

from __future__ import annotations

import msgspec

from logstore.errors import FormatError


class ReplicaTrace(msgspec.Struct, frozen=True):
    """One answer. All times are of this replica's monotonic clock, in ns.

    Attributes:
      boot: how often this replica was started; 0 of a version that does not tell.
      leader, term: who leads, as this replica knows; 0: nobody.
      groups_in_flight_max: so many groups a leader has between acceptance and commit.
      counters: as /metrics has them.
      processes: for each process its gauges and what its loop costs, by name.
      layout: the actors that each process runs; empty of a version without layouts.
      stamps: for each point, by name, when which entries passed it: index to time. Only some
        entries are stamped, the same on all replicas, and only the newest are kept.
    """

    node: int
    leader: int
    term: int
    now_ns: int
    groups_in_flight_max: int
    counters: dict[str, int]
    processes: dict[str, dict[str, int]]
    stamps: dict[str, dict[int, int]]
    boot: int = 0
    layout: dict[str, tuple[str, ...]] = {}

    def actors_of(self, process: str) -> tuple[str, ...]:
        return self.layout.get(process, (process,))


def parse_trace(document: bytes, *, node: int) -> ReplicaTrace:
    """The document in a TraceReply of this node.

    Raises:
      FormatError: it is not valid.
    """
    try:
        return msgspec.json.decode(document, type=ReplicaTrace)
    except ValueError as error:
        raise FormatError(
            f"what node {node} measured cannot be read ({error}): does it run another version? Ask "
            "with the `logstore` that it runs"
        ) from error
