"""What the leader gives up by itself: the [retention] of its configuration (SAFETY G1, G2, G7).

Decides from the headers of the leader's own segments, which are in memory: each says how many
payloads and bytes come before it, and how old the newest of them is. So a TRIM begins the log
with one of these segments, and none is proposed that frees none. It never passes a held cursor, and
waits for a follower that catches up. Where only the newest SESSION snapshot is in the way, another
is taken, once for each segment, unless full disks have no room for it (S9). Where only the newest
CONFIG is in the way, the same members are committed once more. Below format level 2
nothing is given up, and no snapshot is taken for it (S11). Must not know requests.

Other replicas' segments may begin elsewhere: what they give back follows a segment later at most.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing

import msgspec

from actors.host import Clock
from actors.ingress.admission import Admission
from actors.ingress.sockets_and_rings import Log
from actors.ingress.trim_bounds import TrimBounds
from actors.ingress.trim_requests import lowest_held, needed_by_followers, trim_to
from actors.station import Station
from actors.topology import Counter
from logstore.errors import CorruptData
from logstore.format.entry import EntryHeader
from logstore.format.segment_header import SegmentHeader
from logstore.format.trim_entry import TrimReason
from logstore.limits import CLOCK_DRIFT_MAX_NS, LOG_AGAIN_NS, POSITION_MAX
from logstore.model import NO_INDEX, Index, Term
from logstore.settings import RetentionSettings
from logstore.storage.log_reader import BelowLogStart
from logstore.storage.segment import row_before

_log = logging.getLogger(__name__)

# Segments last seconds at least, and a look costs some microseconds.
LOOK_EVERY_NS = 1_000_000_000
NEVER_NS = 1 << 62
_STAMPS_AHEAD = (
    "nothing is given up for its age: the newest entry's time is %.0f s ahead of this machine's "
    "clock; set the clocks right if they are wrong; once they have reached that time it goes on, "
    "until then trim by hand"
)
_CLOCK_WAS_SET = (
    "nothing is given up for its age: this machine's wall clock was set by %+.0f s since this "
    "replica leads; the next leader goes by its own clock: before leadership moves, set the clocks "
    "right, and see by `logstore trim --dry-run` that nothing looks older than it is"
)


class Kept(msgspec.Struct, frozen=True):
    """What is kept at least; 0: that measure gives up nothing."""

    age_ns: int
    size_bytes: int
    payloads: int

    @classmethod
    def of(cls, settings: RetentionSettings) -> Kept:
        return cls(settings.age_ns, settings.size_bytes, settings.payloads)

    @property
    def is_bounded(self) -> bool:
        """Whether any measure gives up anything."""
        return bool(self.age_ns or self.size_bytes or self.payloads)


class Retention:
    """Of one replica; it works while this replica leads and may propose."""

    def __init__(
        self, station: Station, admission: Admission, bounds: TrimBounds, clock: Clock
    ) -> None:
        self._kept = Kept.of(station.config.retention)
        self._admission = admission
        self._bounds = bounds
        self._clock = clock
        self._slots = station.slots
        self._gen: tuple[Term, int] | None = None
        self._snapshot_for = NO_INDEX  # the segment for which a snapshot was asked for in this gen
        self._due_ns = 0
        self._logged_ns: dict[str, int] = {}  # by text

    @property
    def next_timer_ns(self) -> int:
        is_needed = self._admission.gen is not None and self._kept.is_bounded
        return self._due_ns if is_needed else NEVER_NS

    def do_work(self, now_ns: int) -> int:
        """Look whether a segment is to be given up, once in a while; propose the TRIM if so."""
        gen = self._admission.gen
        if gen is None:
            self._slots[Counter.AGE_TRIMS_OFF] = self._slots[Counter.RETENTION_OFF] = 0
            return 0
        if now_ns < self.next_timer_ns:
            return 0
        self._due_ns = now_ns + LOOK_EVERY_NS
        if gen != self._gen:
            self._gen, self._snapshot_for = gen, NO_INDEX
        if self._is_forbidden(now_ns):
            return 0
        try:
            with closing(self._bounds.opened_log()) as log:
                return self._look(log, now_ns)
        except OSError as error:  # no descriptor is left, say: there may be one at the next look
            self._log_again("nothing is given up: %s", error.strerror, now_ns=now_ns)
            return 0
        except CorruptData as damage:
            self._log_again("nothing is given up: %s", damage, now_ns=now_ns)
            return 0
        except BelowLogStart:
            return 0  # the log start moved at this moment

    def _is_forbidden(self, now_ns: int) -> bool:
        """Whether the log's format level allows no trim (S11)."""
        why = self._bounds.why_never_trimmed
        self._slots[Counter.RETENTION_OFF] = int(bool(why))
        if why:
            self._log_again("nothing is given up: %s", why, now_ns=now_ns)
        return bool(why)

    def _log_again(self, text: str, *args: object, now_ns: int) -> None:
        logged_ns = self._logged_ns.get(text)
        if logged_ns is None or now_ns - logged_ns >= LOG_AGAIN_NS:
            self._logged_ns[text] = now_ns
            _log.error(text, *args)

    def _look(self, log: Log, now_ns: int) -> int:
        admission, table = self._admission, self._admission.table
        if table is None or not admission.may_take_request:
            return 0
        newest_index = Index(self._slots[Counter.VISIBLE_INDEX])
        if newest_index <= log.start.index:
            return 0
        first_kept = max(log.start.index, admission.trimmed.index) + 1
        pairs = [each for each in log.pairs() if first_kept < each.first_index <= newest_index]
        newest = log.row(newest_index).header
        kept = self._kept_now(newest.timestamp_ns, now_ns)
        count, reason = given_up(pairs, newest, kept)
        held = lowest_held(table)
        while count and held is not None and pairs[count - 1].first_lsn > held.lsn:
            count -= 1
        count = self._not_needed(log, pairs[:count])
        snapshot = admission.snapshot_index
        wanted = pairs[count - 1].first_index if count else NO_INDEX
        bound = self._bounds.configurations
        if NO_INDEX < bound.index < wanted:
            bound.want()
        highest = min(snapshot, bound.index or snapshot)
        while count and pairs[count - 1].first_index > highest:
            count -= 1
        if count:
            trim = trim_to(reason, row_before(pairs[count - 1]), level=admission.level)
            admission.take(trim)
            text = "the log exceeds [retention] %s: it is to start at LSN %d"
            _log.info(text, reason.name.lower(), trim.start.next_lsn)
        # Only now, for nothing is taken while one is due: a log that gets more between two looks
        # than it keeps wants one at each look.
        is_missing = wanted > max(snapshot, self._snapshot_for)
        has_room = is_missing and self._bounds.full_disks.have_room_for_snapshot
        if has_room and admission.want_snapshot():
            self._snapshot_for = wanted
        return int(count > 0)

    def _not_needed(self, log: Log, pairs: Sequence[SegmentHeader]) -> int:
        """With how many of these the log may begin without taking from a follower that catches up
        what it needs (G7)."""
        held = self._bounds.held
        if not pairs or held is None:
            return len(pairs)
        if needed_by_followers(log, held, row_before(pairs[-1]).header) is None:
            return len(pairs)
        return sum(pair.first_index <= held + 1 for pair in pairs)

    def _kept_now(self, newest_ns: int, now_ns: int) -> Kept:
        """Without the age while it may be wrong (G2): the clocks were ahead once, and by the stamps
        since then all that came before looks too old; or this machine's two clocks disagree, so one
        of them was set, and stamps follow the wall clock."""
        kept = self._kept
        ahead_ns = drift_ns = 0
        if kept.age_ns:
            ahead_ns = newest_ns - self._clock.wall_ns()
            drift_ns = self._admission.clock_drift_ns
        is_ahead, is_apart = ahead_ns > CLOCK_DRIFT_MAX_NS, abs(drift_ns) > CLOCK_DRIFT_MAX_NS
        self._slots[Counter.AGE_TRIMS_OFF] = int(is_ahead or is_apart)
        if is_ahead:
            text, off_ns = _STAMPS_AHEAD, ahead_ns
        elif is_apart:
            text, off_ns = _CLOCK_WAS_SET, drift_ns
        else:
            return kept
        self._log_again(text, off_ns / 1e9, now_ns=now_ns)
        return msgspec.structs.replace(kept, age_ns=0)


def given_up(
    pairs: Sequence[SegmentHeader], newest: EntryHeader, kept: Kept
) -> tuple[int, TrimReason]:
    """With how many of these pairs, less one, the log no longer begins: the last of them is the
    first one kept; 0: all are kept. And which measure reaches furthest.

    Args:
      pairs: those that the log may begin with, by rising index.
      newest: the newest entry that counts as kept.
    """
    last_lsn, last_bytes = newest.next_lsn, newest.cumulative_bytes
    found = {
        TrimReason.AGE: sum(
            newest.timestamp_ns - pair.base_timestamp_ns > (kept.age_ns or POSITION_MAX)
            for pair in pairs
        ),
        TrimReason.BYTES: sum(
            last_bytes - pair.base_cumulative_bytes >= (kept.size_bytes or POSITION_MAX)
            for pair in pairs
        ),
        TrimReason.PAYLOADS: sum(
            last_lsn - pair.first_lsn >= (kept.payloads or POSITION_MAX) for pair in pairs
        ),
    }
    reason = max(found, key=found.__getitem__)
    return found[reason], reason
