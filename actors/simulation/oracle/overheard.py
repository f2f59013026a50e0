"""What storage and sessions return, told to the must-reach marks for the time of one run.

Owns which functions of the product are listened to; each does what it did, and what it returned or
left behind is told. Must not know what a mark means, nor change anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from actors.ingress.rebuild import Rebuild
from actors.simulation.oracle.reach import ReachObserver
from logstore.errors import ErrorCode
from logstore.format.session_entries import ExpireEntry
from logstore.session.session import Duplicate, Refused
from logstore.session.table import SessionTable
from logstore.storage import recovery
from logstore.storage.log_writer import LogWriter
from logstore.storage.meta_store import MetaStore

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


@contextmanager
def overheard(reach: ReachObserver) -> Iterator[None]:
    """Inside, `reach` hears of every start, roll, retry and rebuilt table."""

    def load_meta(store: MetaStore | None) -> None:
        if store is not None:
            reach.meta_loaded(whole_copies=store.copies_whole)

    wraps_of: tuple[tuple[Any, str, Wrap], ...] = (
        (recovery, "judge", _telling(reach.judged)),
        (recovery, "load_meta", _telling(load_meta)),
        (LogWriter, "roll", _rolling(reach)),
        (LogWriter, "truncate", _rolling(reach)),
        (SessionTable, "offer", _offering(reach)),
        (SessionTable, "apply_expire", _expiring(reach)),
        (Rebuild, "step", _rebuilding(reach)),
    )
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in wraps_of]
    for owner, name, wrap in wraps_of:
        setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def _telling(tell: Callable[[Any], None]) -> Wrap:
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def told(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            tell(result)
            return result

        return told

    return wrap


def _rolling(reach: ReachObserver) -> Wrap:
    """A segment is opened by each call that returns."""

    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def told(writer: LogWriter, *args: Any) -> None:
            had_spare = not writer.needs_spare
            function(writer, *args)
            reach.rolled(had_spare=had_spare)

        return told

    return wrap


def _offering(reach: ReachObserver) -> Wrap:
    """Hot: one call a batch."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def told(table: SessionTable, *batch: Any) -> Any:
            verdict = function(table, *batch)
            if type(verdict) is Duplicate:
                reach.retried(is_committed=verdict.row.is_committed(table.commit))
            elif type(verdict) is Refused and verdict.code is ErrorCode.UNKNOWN_PRODUCER:
                reach.unknown(batch[0])
            return verdict

        return told

    return wrap


def _expiring(reach: ReachObserver) -> Wrap:
    def wrap(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def told(table: SessionTable, entry: ExpireEntry) -> None:
            function(table, entry)
            reach.expired(entry.producer_id)

        return told

    return wrap


def _rebuilding(reach: ReachObserver) -> Wrap:
    def wrap(function: Callable[..., bool]) -> Callable[..., bool]:
        @wraps(function)
        def told(rebuild: Rebuild) -> bool:
            is_done = function(rebuild)
            if is_done:
                reach.table_rebuilt(parts=rebuild.snapshot_parts, passed_over=rebuild.passed_over)
            return is_done

        return told

    return wrap
