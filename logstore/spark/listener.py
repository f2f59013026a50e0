"""How far queries are behind the log: in records, bytes and seconds, from Spark's own progress.

Pure but for the lock: the numbers come with each micro-batch, from the source that planned it.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

_T = TypeVar("_T")
# Queries remembered, the newest: as many as Spark keeps progress of.
QUERIES_MAX = 100


class Lag(msgspec.Struct, frozen=True):
    """Between the end of a query's newest micro-batch and the end of the log, when it was planned.

    Attributes:
      records: not in any batch yet.
      size_bytes: of the Raft entries that those lie in.
      seconds: since the oldest of them was accepted; 0 if there is none.
      lost_records: left out of batches since the query was started, because they were trimmed
        before a batch with them was planned (failOnDataLoss=false).
    """

    records: int
    size_bytes: int
    seconds: float
    lost_records: int = 0


class LagListener(StreamingQueryListener):
    """Add it by `spark.streams.addListener(listener)`; ask it from any thread.

    A query with several sources of this kind lags by the sum of records and bytes, and by the
    longest time.
    """

    def __init__(self, on_lag: Callable[[str, Lag], None] | None = None) -> None:
        """`on_lag` is called with a query's id and each new lag, from Spark's thread."""
        self._on_lag = on_lag
        self._lock = threading.Lock()
        self._lags: OrderedDict[str, Lag] = OrderedDict()
        self._ids: OrderedDict[str, str] = OrderedDict()

    def lag(self, query: str) -> Lag | None:
        """Of a query by name or id, the last known one if it has ended; None: nothing is known."""
        with self._lock:
            return self._lags.get(self._ids.get(query, query))

    def lags(self) -> dict[str, Lag]:
        """Query id to lag."""
        with self._lock:
            return dict(self._lags)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        if event.name:
            with self._lock:
                _remember(self._ids, event.name, str(event.id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        found = lag_of(source.latestOffset for source in progress.sources)
        if found is None:
            return
        with self._lock:
            _remember(self._lags, str(progress.id), found)
        if self._on_lag is not None:
            self._on_lag(str(progress.id), found)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """What it lagged by at its end stays known."""


def lag_of(latest_offsets: Iterable[str | None]) -> Lag | None:
    """The lag that the sources' latest offsets report; None if none of them is of this kind."""
    found = [
        offset
        for offset in map(_offset, latest_offsets)
        if {"lagRecords", "lagBytes", "lagMs"} <= offset.keys()
    ]
    if not found:
        return None
    return Lag(
        sum(offset["lagRecords"] for offset in found),
        sum(offset["lagBytes"] for offset in found),
        max(offset["lagMs"] for offset in found) / 1_000,
        sum(offset.get("lostRecords", 0) for offset in found),
    )


def _remember(known: OrderedDict[str, _T], key: str, value: _T) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > QUERIES_MAX:
        known.popitem(last=False)


def _offset(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
