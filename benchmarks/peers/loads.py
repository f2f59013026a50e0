"""What is offered to every system: the same payloads, in the same sizes, within the same window.

Owns the loads, and the words for how durable a payload is when it is acknowledged. Must not know
any system.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from logstore.errors import InvalidRequest
from logstore.limits import MIB

FLUSHED_ON_MAJORITY = "flushed on a majority before the ack"
FLUSHED_IN_SYNC = "flushed on all in-sync replicas, two at least, before the ack"
CACHED_ON_MAJORITY = "in the page cache of a majority, flushed later"
CACHED_IN_SYNC = "in the page cache of all in-sync replicas, two at least, flushed later"


class Load(msgspec.Struct, frozen=True):
    """One load.

    Attributes:
      batch: payloads an append; above 1 in whatever the system has to send many at once.
      window_bytes: unacknowledged payload bytes at most, kept full; with a rate, more than come.
      rate: payloads a second, offered by a schedule that waits for nothing; 0: as many as the
        window lets in.
    """

    name: str
    payload_bytes: int
    batch: int
    window_bytes: int
    rate: float = 0.0


SINGLES = Load("1 KiB singles", 1_024, 1, 2_000_000)
ONE_IN_FLIGHT = Load("1 KiB one in flight", 1_024, 1, 1_024)
# Half a minute of it, more than a run has: what a session of ours is granted, and Kafka's buffer.
AT_A_RATE = Load("1 KiB at 1000/s", 1_024, 1, 32 * MIB, rate=1_000.0)
BATCHES = Load("1 KiB in 64s", 1_024, 64, 16_000_000)
SMALL = Load("128 B singles", 128, 1, 2_000_000)
SMALL_BATCHES = Load("128 B in 512s", 128, 512, 16_000_000)
LOADS = (SINGLES, ONE_IN_FLIGHT, AT_A_RATE, BATCHES, SMALL, SMALL_BATCHES)


class Way(msgspec.Struct, frozen=True):
    """How a system takes a load.

    Attributes:
      contender: the system with its settings, as tables and charts name it.
      durability: of a payload when it is acknowledged.
      arguments: what else the system's client is told.
    """

    contender: str
    load: Load
    durability: str
    arguments: tuple[str, ...] = ()


def choose(names: str, known: Sequence[str], *, option: str) -> list[str]:
    """Those of `known` that are named, with commas between them; all for "all".

    Raises:
      InvalidRequest: a name is not known.
    """
    wanted = list(known) if names == "all" else [name.strip() for name in names.split(",")]
    if unknown := [name for name in wanted if name not in known]:
        raise InvalidRequest(
            f"{option} {', '.join(unknown)}: name some of {', '.join(known)}, with commas between "
            "them, or all"
        )
    return [name for name in known if name in wanted]
