"""What a trim would give up, and who holds it. Owns no state, and changes nothing."""

from __future__ import annotations

import msgspec

from logstore.client.core.cursor_admin import Cursor, Cursors
from logstore.client.core.operating import Cluster, leader, lsn_at, watermarks
from logstore.client.core.replica_reader import ReplicaReader
from logstore.client.core.spans import read_spans
from logstore.client.core.start import AtTime
from logstore.client.core.steps import Steps
from logstore.errors import CorruptData, OutOfRange


class TrimPlan(msgspec.Struct, frozen=True):
    """What a trim to `lsn` would give up, as the leader shows it now.

    Attributes:
      lsn: what is to be the first LSN kept.
      kept_lsn: where the log would begin: batches that were committed together are kept together,
        so it may lie below `lsn`. The log start, if that is above.
      log_start_lsn: the first LSN that the log holds now.
      highest_lsn: what may be asked for: nothing above a held cursor, or above what is shown.
      payloads, size_bytes: from the log start up to `kept_lsn`. Where the leader's disk is damaged,
        which keeps no trim, bytes are None, and payloads may be those up to `lsn`.
      held_by: cursors that hold some of what is there, the lowest first.
    """

    lsn: int
    kept_lsn: int
    log_start_lsn: int
    highest_lsn: int
    payloads: int
    size_bytes: int | None
    held_by: tuple[Cursor, ...]


def plan_trim(cluster: Cluster, cursors: Cursors, to: int | AtTime) -> Steps[TrimPlan]:
    """As `Admin.plan_trim`."""
    node, _ = yield from leader(cluster)
    lsn = to if isinstance(to, int) else (yield from _lsn_at(cluster, node, to))
    shown = yield from watermarks(cluster, replica=node, min_lsn=0, is_linearizable=False)
    held = sorted((each for each in (yield from cursors.list()) if each.hold), key=_lsn_of)
    start_lsn, end_lsn = shown.log_start_lsn, shown.visible_lsn + 1
    while True:
        try:
            kept_lsn, size_bytes = yield from _kept(cluster, node, start_lsn, lsn, end_lsn)
            break
        except OutOfRange as moved:  # the log start, meanwhile; it only rises
            if moved.first <= start_lsn:
                raise
            start_lsn, end_lsn = moved.first, max(end_lsn, moved.last + 1)
    return TrimPlan(
        lsn=lsn,
        kept_lsn=kept_lsn,
        log_start_lsn=start_lsn,
        highest_lsn=min([end_lsn, *map(_lsn_of, held)]),
        payloads=kept_lsn - start_lsn,
        size_bytes=size_bytes,
        held_by=tuple(each for each in held if each.lsn < min(lsn, end_lsn)),
    )


def _lsn_at(cluster: Cluster, node: int, time: AtTime) -> Steps[int]:
    """The first LSN that is not older than the time; the next one to come only if nothing is there.

    The look-up says the next one to come, too, if all is older. A payload may come there meanwhile:
    only its own time tells.
    """
    # a follower may not have the time yet, and would keep more
    lsn = yield from lsn_at(cluster, time, replica=node)
    reader = cluster.reader(node)
    try:
        found = yield from read_spans(reader, lsn, lsn, timeout_s=cluster.timeout_s)
        if found.timestamp_ns >= time.timestamp_ns or lsn <= found.log_start_lsn:
            return lsn
        newest_lsn = found.visible_lsn
        newest = yield from read_spans(reader, newest_lsn, newest_lsn, timeout_s=cluster.timeout_s)
    except OutOfRange as bounds:
        if lsn > bounds.first:
            raise
        return lsn  # the log start is above by now
    finally:
        reader.close()
    raise OutOfRange(
        f"no payload is as late as {time}: the newest, LSN {newest_lsn}, is of "
        f"{AtTime(newest.timestamp_ns)}; to give up everything, name the LSN: {newest_lsn + 1}",
        first=found.log_start_lsn,
        last=newest_lsn + 1,
    )


def _kept(
    cluster: Cluster, node: int, start_lsn: int, lsn: int, end_lsn: int
) -> Steps[tuple[int, int | None]]:
    """Where the log of [start_lsn, end_lsn) would begin if it keeps `lsn`, and how many bytes lie
    below; None: damage hides it."""
    if lsn <= start_lsn:
        return start_lsn, 0
    kept_lsn = min(lsn, end_lsn)
    reader = cluster.reader(node)
    try:
        if lsn < end_lsn:
            kept_lsn = yield from _first_lsn_of_entry(reader, start_lsn, lsn, cluster.timeout_s)
        if kept_lsn == start_lsn:
            return start_lsn, 0
        below = yield from read_spans(reader, start_lsn, kept_lsn - 1, timeout_s=cluster.timeout_s)
        return kept_lsn, below.size_bytes
    except CorruptData:
        return kept_lsn, None
    finally:
        reader.close()


def _first_lsn_of_entry(
    reader: ReplicaReader, start_lsn: int, lsn: int, timeout_s: float
) -> Steps[int]:
    """The first LSN of the entry that holds `lsn`, from `start_lsn` on. No message tells it: it
    takes as many small requests as the LSNs in between have binary digits."""
    low, high = start_lsn, lsn
    while low < high:
        middle = (low + high) // 2
        spans = yield from read_spans(
            reader, middle, lsn, step_bytes=1, limit=2, timeout_s=timeout_s
        )
        if len(spans.rows) == 1:
            high = middle
        else:
            low = middle + 1
    return low


def _lsn_of(cursor: Cursor) -> int:
    return cursor.lsn
