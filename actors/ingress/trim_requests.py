"""How far the log start may move, and the TRIM entry that moves it (SAFETY G1).

Decides from the session table and the log's files. A TRIM never reaches above the newest committed
SESSION snapshot, without which no session table could be made again, nor above the newest committed
CONFIG, without which no replica would campaign (C12), nor above a held cursor; for a follower that
catches up it waits (G7). No TRIM is written below format level 2: older versions take
it and keep the log (S11). Must not know who asks, or how a request is answered. A lower TRIM
changes nothing, so who asks twice does no harm.
"""

from __future__ import annotations

import msgspec

from actors.ingress.sockets_and_rings import Log
from logstore.errors import CorruptData, ErrorCode
from logstore.format.client_messages import DoneReply, ErrorReply
from logstore.format.cursor_entries import Cursor
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import TRIM_LEVEL
from logstore.format.meta import LogStart
from logstore.format.trim_entry import TrimEntry, TrimReason
from logstore.limits import INSTALL_HOLD_ELECTION_TIMEOUTS, INSTALL_HOLD_MAX_BYTES
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn
from logstore.session.table import SessionTable
from logstore.storage.log_reader import BelowLogStart

_BY_END = "no more is committed"
_BY_FOLLOWER = (
    "a follower that catches up needs what follows; ask again once it has it (`logstore status`); "
    f"one that is down stops counting after {INSTALL_HOLD_ELECTION_TIMEOUTS} election timeouts"
)


class SnapshotFirst(msgspec.Struct, frozen=True, gc=False):
    """Only the newest SESSION snapshot is in the way: another one must be committed first."""


class ConfigurationFirst(msgspec.Struct, frozen=True, gc=False):
    """Only the newest CONFIG is in the way: the same members must be committed once more first."""


def why_level_forbids(level: int) -> str:
    """Why a log at this format level cannot be trimmed; empty: it can (S11)."""
    if level >= TRIM_LEVEL:
        return ""
    return f"the log is at format level {level}: run `logstore upgrade` first"


def decide_by_bounds(
    table: SessionTable, start_lsn: Lsn, lsn: Lsn, end_lsn: Lsn
) -> DoneReply | ErrorReply | None:
    """The answer to a request that asks for less than is trimmed already, or for more than can be;
    None: the log's files have to say.

    Args:
      start_lsn: where the log begins.
      end_lsn: the LSN after the newest visible one.
    """
    if lsn <= start_lsn:
        return DoneReply(start_lsn)
    highest, why = _bound(table, end_lsn)
    if lsn <= highest:
        return None
    text = f"the log can be trimmed up to LSN {highest}: {why}"
    return _refusal(ErrorCode.OUT_OF_RANGE, start_lsn, highest, text)


def decide_trim(
    log: Log,
    lsn: Lsn,
    *,
    snapshot: Index,
    configuration: Index,
    held: Index | None,
    level: int,
    may_take_snapshot: bool,
) -> TrimEntry | DoneReply | ErrorReply | SnapshotFirst | ConfigurationFirst:
    """The TRIM that keeps `lsn`, which is within the bounds, and what follows, or the answer
    without one.

    Args:
      snapshot: the first part of the newest committed SESSION snapshot; NO_INDEX: there is none.
      configuration: the newest committed CONFIG; NO_INDEX: the log has none.
      held: what followers that catch up have; None: none does.
      level: the committed log's format level, at which trims are allowed.
      may_take_snapshot: full disks have room for another one (S9).
    """
    try:
        before = _decide(log, lsn, snapshot, configuration, held)
        if isinstance(before, SnapshotFirst) and not may_take_snapshot:
            return _refuse_beyond(log, snapshot)
        if not isinstance(before, Row):
            return before
        return trim_to(TrimReason.OPERATOR, before, level=level)
    except CorruptData as damage:
        text = f"{damage}; ask for another LSN, or transfer leadership to a node that is whole"
        return _refusal(ErrorCode.CORRUPT_DATA, Lsn(0), Lsn(0), text)
    except BelowLogStart:
        text = "the log start moved at this moment: ask again"
        return _refusal(ErrorCode.NOT_READY, Lsn(0), Lsn(0), text)


def _decide(
    log: Log, lsn: Lsn, snapshot: Index, configuration: Index, held: Index | None
) -> Row | DoneReply | ErrorReply | SnapshotFirst | ConfigurationFirst:
    """The entry that is to become the log start, or the answer without a TRIM."""
    start = log.start
    if snapshot == NO_INDEX or lsn > log.row(snapshot).header.first_lsn:
        return SnapshotFirst()
    highest = snapshot
    if configuration != NO_INDEX:
        configuration = max(configuration, Index(start.index + 1))
        if lsn > log.row(configuration).header.first_lsn:
            return ConfigurationFirst()
        highest = min(snapshot, configuration)
    # entries without LSNs stand at the LSN of the next one: the snapshot's parts among them
    kept = min(log.index_of_lsn(lsn, highest), highest)
    if kept <= start.index + 1:
        return DoneReply(start.next_lsn)
    before = log.row(Index(kept - 1))
    needed = needed_by_followers(log, held, before.header)
    if held is not None and needed == lsn:
        # what it needs there has no LSNs, so `lsn` is still the first one kept
        return log.row(held) if held > start.index else DoneReply(start.next_lsn)
    if needed is not None:
        text = f"the log can be trimmed up to LSN {needed}: {_BY_FOLLOWER}"
        return _refusal(ErrorCode.OUT_OF_RANGE, start.next_lsn, needed, text)
    return before


def _refuse_beyond(log: Log, snapshot: Index) -> ErrorReply:
    """The refusal where full disks have no room for a snapshot that is newer."""
    start, lsn = log.start, log.start.next_lsn
    if snapshot > start.index:
        lsn = log.row(snapshot).header.first_lsn
    todo = f"trim --to {lsn}" if lsn > start.next_lsn else "free some space on a majority of nodes"
    why = "more needs a snapshot of the sessions, for which full disks have no room"
    text = f"the log can be trimmed up to LSN {lsn}: {why}; {todo} first"
    return _refusal(ErrorCode.OUT_OF_RANGE, start.next_lsn, lsn, text)


def trim_to(reason: TrimReason, before: Row, *, level: int) -> TrimEntry:
    """The TRIM that makes the entry `before` the log start."""
    header = before.header
    return TrimEntry(
        reason,
        LogStart(header.index, header.term, before.chain, header.next_lsn),
        header.cumulative_bytes,
        header.timestamp_ns,
        level,
    )


def lowest_held(table: SessionTable) -> Cursor | None:
    """The held cursor that no TRIM may pass; None: no cursor is held."""
    held = (cursor for cursor in table.cursors.rows() if cursor.is_held)
    return min(held, key=lambda cursor: cursor.lsn, default=None)


def needed_by_followers(log: Log, held: Index | None, before: EntryHeader) -> Lsn | None:
    """The LSN that a follower which catches up needs next, and that a TRIM up to `before` would
    take from it (G7). None: it would not, or what it needs is damaged here, or the log start would
    have to wait for more than INSTALL_HOLD_MAX_BYTES. What a TRIM takes that reaches less far is
    needed, too, from the entry after `held` on.

    Args:
      held: as in `decide_trim`.
    """
    if held is None or before.index <= held:
        return None
    try:
        following = log.row(Index(held + 1)).header
    except CorruptData:
        return None  # the follower cannot have it from here, however long this log waits
    held_back_bytes = before.cumulative_bytes - following.cumulative_bytes + following.body_size
    return following.first_lsn if held_back_bytes <= INSTALL_HOLD_MAX_BYTES else None


def _bound(table: SessionTable, end_lsn: Lsn) -> tuple[Lsn, str]:
    """The highest LSN that may become the first one kept, and what keeps the rest."""
    held = lowest_held(table)
    if held is not None and held.lsn < end_lsn:
        name = held.name.decode()
        todo = f"trim --to {held.lsn}, or delete the cursor"
        return held.lsn, f"cursor {name!r} holds what follows; {todo}"
    return end_lsn, _BY_END


def _refusal(code: ErrorCode, first: Lsn, last: Lsn, text: str) -> ErrorReply:
    return ErrorReply(code, NO_NODE, first, last, text.encode())
