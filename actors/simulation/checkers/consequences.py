"""What follows from facts, as data. Told by the module that records those facts."""

from __future__ import annotations

from actors.simulation.checkers.batches import StoredBatch
from actors.simulation.checkers.facts import Fact
from actors.simulation.checkers.replica_promises import Replica
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.format.trim_entry import TrimEntry
from logstore.raft.log_view import RecoveredLog


class Consequence(Fact, frozen=True):
    """Something follows from facts."""


class LogResumed(Consequence, frozen=True):
    """The replica's shadow log is what `CoreMade` says."""

    replica: Replica
    recovered: RecoveredLog


class TermMoved(Consequence, frozen=True):
    """The term of a core after a step, when it differs from the one before."""

    replica: Replica
    term: int


class LeaderBegan(Consequence, frozen=True):
    """The replica leads `term` from now on; its last entry is the term's no-op."""

    replica: Replica
    term: int


class CommitMoved(Consequence, frozen=True):
    """The commit index of a core after a step; `leader_term` 0: its leader reported it."""

    replica: Replica
    commit: int
    leader_term: int


class SessionOrdered(Consequence, frozen=True):
    """A leader put this entry into its log, committed or not."""

    entry: OpenEntry | ExpireEntry


class SessionCommitted(Consequence, frozen=True):
    """An OPEN or EXPIRE entry is committed."""

    entry: OpenEntry | ExpireEntry


class CursorCommitted(Consequence, frozen=True):
    """A CURSOR entry is committed; None: its bytes are not known."""

    body: bytes | None


class LevelCommitted(Consequence, frozen=True):
    """The entry at `index` is committed, which raises the log to this format level."""

    index: int
    level: int


class TrimCommitted(Consequence, frozen=True):
    """A TRIM entry is committed; None: its bytes are not known."""

    index: int
    body: bytes | None


class ConfigCommitted(Consequence, frozen=True):
    """The CONFIG entry at `index` is committed."""

    index: int
    chain: int


class TrimRead(Consequence, frozen=True):
    """What a committed TRIM entry says."""

    index: int
    entry: TrimEntry


class SnapshotPartCommitted(Consequence, frozen=True):
    """A part of a SESSION snapshot is committed; None: its bytes are not known."""

    index: int
    body: bytes | None


class BatchFound(Consequence, frozen=True):
    """A batch is committed, or in a log in the end."""

    batch: StoredBatch
