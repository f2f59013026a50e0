"""How far each follower and each cursor is behind what this leader shows: payloads, bytes, time.
And how much the log holds: the lag of a reader at its start.

Adds that to every status that raft reports while this replica leads, and publishes it for /metrics
once a second. Owns a log reader. It reads Raft records only, for SLICE_NS in a `do_work`, and keeps
what it found until the position moves: 256 cursors that do not move cost nothing. The log start may
move meanwhile (G6). Must not know who asks for a status.

A lag is exact for the position in its row. A follower stands at the end of what raft knows it has
flushed; it is silent since raft last heard from it, or since this replica leads if that is later. A
cursor stands where the session table has it, which may hold a change that is not committed yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from actors.host import Clock
from actors.ingress.admission import Admission
from actors.ingress.replica_info import ReplicaInfo
from actors.ingress.sockets_and_rings import ToRaft
from actors.ingress.trim_requests import lowest_held
from actors.messages import StatusReported, StatusRequested
from actors.station import Station
from actors.topology import Counter
from logstore.errors import CorruptData
from logstore.model import Index, Lsn
from logstore.storage.log_reader import BelowLogStart, LogReader

# A position is a binary search of about 15 records: 0.2 ms, or some ten reads of the disk where an
# old segment is not in memory. Ingress does its other work after each slice.
SLICE_NS = 2_000_000
PUBLISH_EVERY_NS = 1_000_000_000
# A search that meets damage reads META and lists the folder at every step: 256 cursors in a damaged
# segment take seconds of ingress. It may be repaired meanwhile, so it is looked at again.
DAMAGE_LOOKED_AT_EVERY_NS = 10_000_000_000
# Three values of a cursor with the longest name take 870 bytes: 50 cursors leave 4 KiB of the 48
# that the counters page has for followers.
CURSORS_PUBLISHED_MAX = 50
OWN_REQUEST = 0  # clients' requests are numbered from 1
NEVER_NS = 1 << 62


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """The entry that holds an LSN: its stamp, and the bytes of all bodies before and up to it."""

    timestamp_ns: int
    bytes_before: int
    bytes_up_to: int


class _Shown(msgspec.Struct, frozen=True, gc=False):
    """What this replica shows: [log_start_lsn, visible_lsn], in entries up to an index. `newest`
    holds the last LSN; None: nothing is shown, or that entry is damaged."""

    log_start_lsn: Lsn
    visible_lsn: Lsn
    visible_index: Index
    newest: _Entry | None


class Lags:
    """Of one replica. `answer` gets each status that `take` got, in their order; `is_pending`: its
    request has no answer yet."""

    def __init__(
        self,
        station: Station,
        admission: Admission,
        replica: ReplicaInfo,
        clock: Clock,
        to_raft: ToRaft,
        answer: Callable[[StatusReported], None],
        is_pending: Callable[[int], bool],
    ) -> None:
        self._station = station
        self._admission = admission
        self._replica = replica
        self._clock = clock
        self._to_raft = to_raft
        self._answer = answer
        self._is_pending = is_pending
        self._log: LogReader | None = None
        self._generation = 0
        self._entries: dict[Lsn, _Entry | None] = {}  # None: damaged
        self._reports: deque[StatusReported] = deque()  # of pending requests, which are bounded
        self._steps: Iterator[dict[str, Any] | None] | None = None  # of the first of them
        self._serves_metrics = station.config.process.metrics
        self._is_asked = False  # for a status of our own, which is not measured yet
        self._is_published = False
        self._due_ns = 0
        self._damage_due_ns = 0

    @property
    def next_timer_ns(self) -> int:
        is_waiting = self._serves_metrics and self._replica.is_leading and not self._is_asked
        return self._due_ns if is_waiting else NEVER_NS

    def take(self, reported: StatusReported) -> None:
        self._reports.append(reported)

    def do_work(self, now_ns: int) -> int:
        if not self._replica.is_leading:
            self._rest()
        elif now_ns >= self.next_timer_ns:
            self._is_asked = True
            self._due_ns = now_ns + PUBLISH_EVERY_NS
            self._to_raft.send(StatusRequested(OWN_REQUEST))
        if self._steps is None:
            self._close_if_stale()
            self._drop_late_reports()
        if not self._reports:
            return 0
        report = self._reports[0]
        if self._steps is None:
            self._steps = self._measure(msgspec.json.decode(report.document))
        document = next(self._steps)
        if document is not None:
            self._steps = None
            self._reports.popleft()
            if report.request_id == OWN_REQUEST:
                self._is_asked = False
            self._answer(StatusReported(report.request_id, msgspec.json.encode(document)))
        return 1

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        self._entries.clear()

    def _close_if_stale(self) -> None:
        """Some files may have been removed, and an open file keeps its space."""
        if (
            self._log is not None
            and self._station.slots[Counter.MAP_GENERATION] != self._generation
        ):
            self._log.close()

    def _drop_late_reports(self) -> None:
        """Measure nothing for requests that have timed out. Where a status takes long, more are
        asked for than can be answered."""
        reports = self._reports
        while reports and reports[0].request_id != OWN_REQUEST:
            if self._is_pending(reports[0].request_id):
                return
            reports.popleft()

    def _rest(self) -> None:
        """Another replica leads: it shows the lags."""
        if self._is_published:
            self._station.counters.publish({})
            self._is_published = False
        if not self._reports:
            self.close()

    # --- one status ---

    def _measure(self, document: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        """The status, with the lags if this replica leads; before it None, after each slice. If
        the log start moves past a position meanwhile, all are measured again."""
        while True:
            try:
                yield from self._measure_from_start(document)
                return
            except BelowLogStart:
                yield None
            except OSError:  # no descriptor is left, say: the next status may have them
                yield document
                return

    def _measure_from_start(self, document: dict[str, Any]) -> Iterator[dict[str, Any] | None]:
        """As `_measure`.

        Raises:
          BelowLogStart: the log start moved, and the reader knows it now.
        """
        slots = self._station.slots
        # the LSN first and the map generation after it (V7)
        visible, visible_index = slots[Counter.VISIBLE], Index(slots[Counter.VISIBLE_INDEX])
        if document["role"] != "leader" or not visible:
            yield document
            return
        log = self._readable(slots[Counter.MAP_GENERATION])
        start_lsn, visible_lsn = log.start.next_lsn, Lsn(visible - 1)
        newest = _entry_of(log, visible_lsn, visible_index) if visible_lsn >= start_lsn else None
        shown = _Shown(start_lsn, visible_lsn, visible_index, newest)
        followers = {
            int(node): _lsn_after(log, Index(match), shown)
            for node, match in document["match"].items()
        }
        table = self._admission.table if self._admission.is_ready else None
        cursors = None if table is None else {each.name: each.lsn for each in table.cursors.rows()}
        held = None if table is None else lowest_held(table)
        if held is not None and held.lsn > visible_lsn:
            held = None  # at the end or beyond: it holds nothing yet
        positions = (start_lsn, *followers.values(), *(cursors or {}).values())
        yield from self._find_entries(log, shown, (each for each in positions if each is not None))
        now_ns = self._clock.wall_ns()
        lag: dict[str, Any] = {
            "log_start_lsn": start_lsn,
            "visible_lsn": visible_lsn,
            "newest_ns": newest.timestamp_ns if newest else 0,
            "followers": [
                {"node": node}
                | self._row(lsn, shown, now_ns)
                | {"silent_seconds": document["silent_ms"][str(node)] / 1_000}
                for node, lsn in followers.items()
            ],
            "cursors": None,
            "log": self._row(start_lsn, shown, now_ns)
            | {"held_by": None if held is None else {"name": held.name.decode(), "lsn": held.lsn}},
        }
        if cursors is not None:
            lag["cursors"] = [
                {"name": name.decode()} | self._row(lsn, shown, now_ns)
                for name, lsn in cursors.items()
            ]
        self._publish(lag["followers"], lag["cursors"], lag["log"], now_ns)
        yield document | {"lag": lag}

    def _readable(self, generation: int) -> LogReader:
        if self._log is None:
            self._log = LogReader(self._station.host.disk, self._station.folder)
        elif generation != self._generation:
            self._log.refresh()
        self._generation = generation
        return self._log

    def _find_entries(
        self, log: LogReader, shown: _Shown, positions: Iterable[Lsn]
    ) -> Iterator[None]:
        """Find the entries in which these positions lie, and forget all others. Entries that are
        shown never change; damaged ones are looked at again from time to time."""
        # A cursor below a log start after which nothing is shown lacks what is not there yet.
        lacking = (max(lsn, shown.log_start_lsn) for lsn in positions)
        first = {lsn for lsn in lacking if lsn <= shown.visible_lsn}
        now_ns = self._clock.monotonic_ns()
        is_damage_due = now_ns >= self._damage_due_ns
        if is_damage_due:
            self._damage_due_ns = now_ns + DAMAGE_LOOKED_AT_EVERY_NS
        self._entries = {
            lsn: entry
            for lsn, entry in self._entries.items()
            if lsn in first and not (entry is None and is_damage_due)
        }
        deadline_ns = now_ns + SLICE_NS
        for lsn in sorted(first - self._entries.keys()):
            self._entries[lsn] = _entry_of(log, lsn, shown.visible_index)
            if self._clock.monotonic_ns() >= deadline_ns:
                yield None
                deadline_ns = self._clock.monotonic_ns() + SLICE_NS

    def _row(self, lsn: Lsn | None, shown: _Shown, now_ns: int) -> dict[str, Any]:
        """What who stands before `lsn` lacks; None where it is not known."""
        if lsn is None:
            return _row(lsn, None, None, None, now_ns)
        first = max(lsn, shown.log_start_lsn)
        payloads = max(0, shown.visible_lsn + 1 - first)
        if not payloads:
            return _row(lsn, 0, 0, 0, now_ns)
        entry, newest = self._entries[first], shown.newest
        if entry is None or newest is None:
            return _row(lsn, payloads, None, None, now_ns)
        size_bytes = newest.bytes_up_to - entry.bytes_before
        return _row(lsn, payloads, size_bytes, entry.timestamp_ns, now_ns)

    # --- /metrics ---

    def _publish(
        self,
        followers: list[dict[str, Any]],
        cursors: list[dict[str, Any]] | None,
        log: dict[str, Any],
        now_ns: int,
    ) -> None:
        """Show these to the supervisor: the first cursors by name, and what is known of them. Times
        are stamps: how long ago they are grows between two publications. The log's have the name of
        the lowest cursor that holds some of it, if one does."""
        if not (self._serves_metrics and self._replica.is_leading):
            return
        values = {
            f"follower_silent_since_ns.{row['node']}": now_ns - int(row["silent_seconds"] * 1e9)
            for row in followers
        }
        named = [("follower_lag", str(row["node"]), row) for row in followers]
        named.append(("log", (log["held_by"] or {"name": ""})["name"], log))
        if cursors is not None:
            shown = cursors[:CURSORS_PUBLISHED_MAX]
            named += [("cursor_lag", row["name"], row) for row in shown]
            values |= {"cursors": len(cursors), "cursors_left_out": len(cursors) - len(shown)}
        values |= {
            f"{kind}_{measure}.{name}": row[measure]
            for kind, name, row in named
            for measure in ("payloads", "bytes", "since_ns")
            if row[measure] is not None
        }
        self._station.counters.publish(values)
        self._is_published = True


def _lsn_after(log: LogReader, match: Index, shown: _Shown) -> Lsn | None:
    """The LSN before which a follower stands that has flushed everything up to `match`. None: the
    leader has not heard yet what it has, or the entry is damaged here or below log start."""
    if match <= log.start.index:
        return None
    if match >= shown.visible_index:
        return Lsn(shown.visible_lsn + 1)
    try:
        return log.row(match).header.next_lsn
    except CorruptData:
        return None


def _entry_of(log: LogReader, lsn: Lsn, visible_index: Index) -> _Entry | None:
    """The entry that holds a visible LSN; None: it is damaged."""
    try:
        header = log.row(log.index_of_lsn(lsn, visible_index)).header
    except CorruptData:
        return None
    total = header.cumulative_bytes
    return _Entry(header.timestamp_ns, total - header.body_size, total)


def _row(
    lsn: Lsn | None,
    payloads: int | None,
    size_bytes: int | None,
    since_ns: int | None,
    now_ns: int,
) -> dict[str, Any]:
    """`since_ns`: the stamp of the oldest payload that is lacking, 0: none is."""
    waited_ns = max(0, now_ns - since_ns) if since_ns else since_ns
    return {
        "next_lsn": lsn,
        "payloads": payloads,
        "bytes": size_bytes,
        "since_ns": since_ns,
        "seconds": None if waited_ns is None else waited_ns / 1e9,
    }
