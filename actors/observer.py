"""Who looks on while an actor works: on a real machine nobody, in the simulator its ledger.

The one seam through which the product is observed; a `Host` brings its observer. An observer
changes nothing, and nothing follows from what it sees. It may make the core of a class that tells
its steps; the rest is rare and told as data, where nobody outside could see it.
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
    """The writer has opened its folder. `meta_copies_whole`: of two; `records_rebuilt`: of frames
    that had none."""

    meta_copies_whole: int
    records_rebuilt: int
    has_torn_tail: bool


class SpareUsed(msgspec.Struct, frozen=True):
    """The writer has opened a segment in files that were prepared before."""


class AdmissionOpened(msgspec.Struct, frozen=True):
    """Ingress begins `gen` with this table, before a batch has changed it.

    `snapshot_parts` of the snapshot that its rebuild began at; `passed_over`: newer ones without an
    end.
    """

    gen: int
    table: SessionTable
    snapshot_parts: int
    passed_over: int


class RetryKnown(msgspec.Struct, frozen=True):
    """A producer sent a batch that its session has already, committed or not."""

    is_committed: bool


Seen = FolderRecovered | SpareUsed | AdmissionOpened | RetryKnown


class Observer(Protocol):
    """Looks on at one process."""

    def core_type(self, real: CoreType) -> CoreType:
        """What raft makes its core of: `real`, or a class of it that tells its steps."""
        ...

    def saw(self, seen: Seen) -> None: ...


class NoObserver:
    """On a real machine."""

    def core_type(self, real: CoreType) -> CoreType:
        return real

    def saw(self, seen: Seen) -> None:
        """Nobody looks on."""
