"""The nouns of the system: ids, positions and small enumerations. Knows only integers.

An index counts Raft entries, an LSN counts payloads, an offset counts bytes in a file, and a
position counts bytes in a ring since its incarnation began. They are never interchangeable.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NewType

Index = NewType("Index", int)  # Raft entry number; the first entry is 1, 0 is "before the first"
Term = NewType("Term", int)  # Raft term; 0 is "before any election"
Lsn = NewType("Lsn", int)  # payload number; the first is 1, or what the cluster was formed with
NodeId = NewType("NodeId", int)  # a configured replica, 1..65535; 0 is "none" or "a client"

NO_INDEX = Index(0)
IndexRange = tuple[Index, Index]  # the first and the last one
NO_RANGE: IndexRange = (NO_INDEX, NO_INDEX)
NO_TERM = Term(0)
NO_NODE = NodeId(0)
FIRST_LSN = Lsn(1)


class EntryKind(IntEnum):
    """What a Raft entry carries. Only DATA and IMPORT take LSNs; every kind has
    an index and a frame."""

    NOOP = 1
    DATA = 2
    CONFIG = 3
    SESSION = 4
    OPEN = 5
    EXPIRE = 6
    CURSOR = 7
    TRIM = 8
    INSTALL = 9  # reserved
    REPAIR = 10  # reserved
    IMPORT = 11  # batches of another log, unchanged: of no session of this one


class Codec(IntEnum):
    """How a batch's payload bytes are compressed: its flags."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class SequenceMode(IntEnum):
    """How a producer numbers its batches (SAFETY E1)."""

    DENSE = 1  # 0, 1, 2, … in each producer epoch
    MONOTONE = 2  # rising, across producer epochs


class AckLevel(IntEnum):
    """When a producer is answered (E10): once a majority has flushed a batch, once the leader has,
    or not at all."""

    QUORUM = 1
    LEADER = 2
    NONE = 3


class Role(IntEnum):
    """A voter's role in its term."""

    FOLLOWER = 1
    PRE_CANDIDATE = 2
    CANDIDATE = 3
    LEADER = 4


class ReplicaState(IntEnum):
    """How far a replica's bootstrap has come (SAFETY L2), or that it joined (L4)."""

    EMPTY = 1
    STARTING = 2
    VOTER = 3
    LEARNER = 4  # of a cluster that was formed without it; its log says what it is now


# Of a replica of a cluster that is formed: META has its id, and speaks of a log.
FORMED_STATES = frozenset({ReplicaState.VOTER, ReplicaState.LEARNER})
