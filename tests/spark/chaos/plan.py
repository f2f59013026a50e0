"""Which kills, in which order and how far into the stream: drawn from a seed, before anything runs.

Drivers, executors and leaders die, some of each in any run of six.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import cycle, islice
from random import Random

import msgspec


class Kind(StrEnum):
    """What is killed, always by SIGKILL."""

    DRIVER_BETWEEN = "driver, between the sink's commit and Spark's"
    DRIVER_JVM = "driver's JVM, at any moment"
    EXECUTOR = "executor"
    PYTHON = "Python process of an executor"
    SOURCE_LEADER = "leader replica of the source"
    TARGET_LEADER = "leader replica of the target"


# A start of a driver costs most, some 28 s of a processor: a quarter, the rest by halves.
_DRIVER_SHARE = 0.25
# Of each share in turn. A driver's JVM that dies alone leaves the sink's process behind for a
# moment: that is the driver that others must fence.
_DRIVERS = (Kind.DRIVER_BETWEEN,) * 4 + (Kind.DRIVER_JVM,)
_EXECUTORS = (Kind.EXECUTOR, Kind.PYTHON)
_LEADERS = (Kind.SOURCE_LEADER, Kind.TARGET_LEADER)
# Kills are spread evenly over the rows, each somewhere in the first part of its stretch, so that
# rows are left for it.
_STRETCH_PART = 0.6
# A few micro-batches in each stretch; the delay is about one on a small machine.
_BATCHES_A_STRETCH = 3
DELAY_MAX_S = 0.5


class Kill(msgspec.Struct, frozen=True):
    """One kill: once `at_row` rows are in the target, and then `delay_s` later."""

    kind: Kind
    at_row: int
    delay_s: float


def draw_kills(count: int, *, rows: int, random: Random) -> list[Kill]:
    """`count` kills across `rows` rows, by rising row."""
    drivers = round(count * _DRIVER_SHARE)
    executors = (count - drivers) // 2
    shares = ((_DRIVERS, drivers), (_EXECUTORS, executors), (_LEADERS, count - drivers - executors))
    kinds = [kind for each, share in shares for kind in islice(cycle(each), share)]
    random.shuffle(kinds)
    stretch = rows / (count + 1)
    return [
        Kill(
            kind,
            int(stretch * (number + random.random() * _STRETCH_PART)),
            random.random() * DELAY_MAX_S,
        )
        for number, kind in enumerate(kinds)
    ]


def records_a_batch(count: int, *, rows: int) -> int:
    """maxRecordsPerTrigger: so that some micro-batches lie between two kills."""
    return max(1, rows // (_BATCHES_A_STRETCH * (count + 1)))
