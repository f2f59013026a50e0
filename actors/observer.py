"""The observer of a process: none on a real machine, the simulator's ledger in a simulation.

This is the only place where the product can be observed; a `Host` brings its observer. An observer
changes nothing, and no decision depends on what it sees. It may make the core of a class that
reports its steps. The rest is rare, and is reported as data because it cannot be seen from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:  # each process starts with this module, and only one of them has a core
    from logstore.raft.core import RaftCore
    from logstore.raft.log_view import LogView, RecoveredLog
    from logstore.raft.raft_config import RaftConfig
    from logstore.session.table import SessionTable

    CoreType = Callable[[RaftConfig, RecoveredLog, LogView, Random], RaftCore]


class FolderRecovered(msgspec.Struct, frozen=True):
    """The writer has opened its folder. `meta_copies_whole`: of two; `records_rebuilt`: records
    written for frames that had none."""

    meta_copies_whole: int
    records_rebuilt: int
    has_torn_tail: bool


class SpareUsed(msgspec.Struct, frozen=True):
    """The writer has opened a segment in files that were prepared ahead."""


class PairsRemoved(msgspec.Struct, frozen=True):
    """The writer has carried out a TRIM; so many segment pairs lay wholly below the log start."""

    pairs: int


class AdmissionOpened(msgspec.Struct, frozen=True):
    """Ingress begins `gen` with this table, before a batch has changed it.

    `snapshot_parts`: parts of the snapshot that the rebuild began at. `passed_over`: newer
    snapshots without an end.
    """

    gen: int
    table: SessionTable
    snapshot_parts: int
    passed_over: int


class RetryKnown(msgspec.Struct, frozen=True):
    """A producer sent a batch that its session has already, committed or not."""

    is_committed: bool


Seen = FolderRecovered | SpareUsed | PairsRemoved | AdmissionOpened | RetryKnown


class Observer(Protocol):
    """Observes one process."""

    def core_type(self, real: CoreType) -> CoreType:
        """The class of raft's core: `real`, or one derived from it that reports its steps."""
        ...

    def saw(self, seen: Seen) -> None: ...


class NoObserver:
    """Observes nothing: for a real machine."""

    def core_type(self, real: CoreType) -> CoreType:
        return real

    def saw(self, seen: Seen) -> None:
        """Ignore it."""
