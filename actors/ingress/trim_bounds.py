"""How far the log may be trimmed now, on one replica (SAFETY G1, G7, S11).

Decides for requests from the open gen, the newest SESSION snapshot and CONFIG, the log's format
level, its files, and how far followers that catch up have come. Owns the reader of these files.
Must not know who asks, nor how a request is answered.

Invariant: however many ask for trims, the files are read for one new request in a do_work, and for
one that waited: some 30 records each, below a millisecond. Headers of segments are read once.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.ingress.admission import APPENDS_COME_FIRST, NOT_OPEN, Admission
from actors.ingress.configuration_bound import ConfigurationBound
from actors.ingress.full_disks import FullDisks
from actors.ingress.sockets_and_rings import Log
from actors.ingress.trim_requests import (
    ConfigurationFirst,
    SnapshotFirst,
    decide_by_bounds,
    decide_trim,
    why_level_forbids,
)
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, ErrorReply
from logstore.format.trim_entry import TrimEntry
from logstore.model import NO_TERM, Index, Lsn
from logstore.raft.effects import HoldLogStart
from logstore.session.session import Refused
from logstore.session.table import SessionTable

# A leader may commit what its own disk does not have yet (F9).
_DISK_IS_BEHIND = Refused(ErrorCode.NOT_READY, 0, "this leader's disk is behind: ask again")
_OTHERS_CAME_FIRST = Refused(ErrorCode.OVERLOADED, 0, "other trims come first: ask again")
_TRIM_UNDER_WAY = Refused(ErrorCode.NOT_READY, 0, "a trim beyond it is under way: ask again")


class TrimBounds:
    """Of one replica; meaningful while it leads."""

    def __init__(
        self,
        admission: Admission,
        open_log: Callable[[], Log],
        slots: memoryview,
        full_disks: FullDisks,
        configurations: ConfigurationBound,
    ) -> None:
        self._admission = admission
        self._open_log = open_log
        self._slots = slots
        self.full_disks = full_disks
        self.configurations = configurations
        self._hold = HoldLogStart(NO_TERM, None)
        self._log: Log | None = None
        self._generation = 0  # of its files
        self._may_read = True

    def hold_log_start(self, hold: HoldLogStart) -> None:
        """Raft says how far followers that catch up have come (G7)."""
        self._hold = hold

    @property
    def held(self) -> Index | None:
        """What followers that catch up have; None: none does."""
        return self._hold.index if self._hold.term == self._admission.term else None

    @property
    def why_never_trimmed(self) -> str:
        """Why nothing can be trimmed before an operator acts; empty: it can. While the admission
        is ready, for only a Committed of its term says it."""
        return why_level_forbids(self._admission.level)

    def opened_log(self) -> Log:
        """The log's files as they are now. Close them after use: only what is known of them is
        kept, since an open file keeps the space of one that is removed. A new reader
        reads a header of each segment: 4,000 take 45 ms (2026-11-23)."""
        generation = self._slots[Counter.MAP_GENERATION]
        if self._log is None:
            self._log = self._open_log()
        elif generation != self._generation:
            self._log.refresh()
        self._generation = generation
        return self._log

    def begin_do_work(self) -> None:
        """One more request may have the files read."""
        self._may_read = True

    def decide(
        self, lsn: Lsn
    ) -> TrimEntry | DoneReply | ErrorReply | SnapshotFirst | ConfigurationFirst | Refused:
        """The TRIM entry for a request, or why there is none (G1)."""
        admission, end_lsn = self._admission, Lsn(self._slots[Counter.VISIBLE])
        table = admission.table
        if table is None or not admission.is_ready or not end_lsn:
            return NOT_OPEN
        if not admission.may_take_request:
            return APPENDS_COME_FIRST
        if reason := self.why_never_trimmed:
            return Refused(ErrorCode.LEVEL_REFUSED, 0, reason)
        snapshot = admission.snapshot_index
        if self._slots[Counter.VISIBLE_INDEX] < snapshot:
            return _DISK_IS_BEHIND
        try:
            return self._decide_by_log(table, snapshot, lsn, end_lsn)
        except OSError as error:  # no descriptor is left, say
            text = f"the log cannot be read now, {error.strerror}: ask again"
            return Refused(ErrorCode.NOT_READY, 0, text)

    def _decide_by_log(
        self, table: SessionTable, snapshot: Index, lsn: Lsn, end_lsn: Lsn
    ) -> TrimEntry | DoneReply | ErrorReply | SnapshotFirst | ConfigurationFirst | Refused:
        admission, log = self._admission, self.opened_log()
        trimmed_lsn = admission.trimmed_lsn
        if log.start.next_lsn < trimmed_lsn and lsn <= trimmed_lsn:
            return _TRIM_UNDER_WAY
        if answer := decide_by_bounds(table, log.start.next_lsn, lsn, end_lsn):
            return answer
        if not self._may_read:
            return _OTHERS_CAME_FIRST
        self._may_read = False
        try:
            return decide_trim(
                log,
                lsn,
                snapshot=snapshot,
                configuration=self.configurations.index,
                held=self.held,
                level=admission.level,
                may_take_snapshot=self.full_disks.have_room_for_snapshot,
            )
        finally:
            log.close()
