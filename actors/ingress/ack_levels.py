"""What the acknowledgement level of a session means for its batches (SAFETY E10).

Owns the batches of level `leader` that wait for the flush of this leader's own disk. A batch of
another level than quorum is in the stream and in the session table like any other. But its commit
is not reported: `leader` is answered once this leader has flushed it, `none` never. What such a
producer does not know, it cannot wait for, so a batch that its session's window has no room for is
held at the append port, and never refused for that. Must not know sockets.

Invariants: a batch is answered as provisional by a Flushed of the term of its Accepted only (E4),
and never as committed; at TermEnded those that wait are forgotten without an answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum

from actors.ingress.groups import Group, Origin
from logstore.errors import ErrorCode
from logstore.format.batch import BatchHeader
from logstore.format.level import ACK_LEVELS_LEVEL
from logstore.model import AckLevel, Index
from logstore.session.session import Refused
from logstore.session.table import OpenRequest, SessionTable


class Held(Enum):
    """A verdict on a batch: its session's window is full, and its producer cannot know (E10). Offer
    it again once more is committed."""

    WINDOW_FULL = "the window is full of batches that are not committed"


# Refusals that a producer of another level than quorum is not told, and what comes in their place:
# a full window holds the batch; of a copy nothing is said, for its producer sends nothing twice.
UNTOLD = {ErrorCode.OVERLOADED: Held.WINDOW_FULL, ErrorCode.COMMITTED_LSN_UNKNOWN: None}


class FlushWaits:
    """Batches of accepted groups, until this leader has flushed them."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Index, list[Origin]]] = deque()

    def add(self, group: Group) -> None:
        """Raft has accepted `group`. Hot: mostly nothing in it waits."""
        if group.await_flush:
            self._waiting.append((group.index, group.await_flush))

    def take(self, index: Index) -> list[Origin]:
        """Everything up to `index` is flushed: the batches that waited for it, in order."""
        waiting = self._waiting
        flushed: list[Origin] = []
        while waiting and waiting[0][0] <= index:
            flushed += waiting.popleft()[1]
        return flushed

    def forget(self) -> None:
        """The term ended."""
        self._waiting.clear()


def mark(group: Group, origin: Origin, level: int) -> None:
    """`group` has a batch of a session of this level, which is not QUORUM."""
    group.unanswered.add(origin[0])
    if level == AckLevel.LEADER:
        group.await_flush.append(origin)


def answered_at_commit(group: Group) -> Iterable[Origin]:
    """The batches of a committed group whose producers are told so. Hot: mostly all."""
    unanswered = group.unanswered
    if not unanswered:
        return group.origins
    return [origin for origin in group.origins if origin[0] not in unanswered]


def has_window_room(table: SessionTable, header: BatchHeader) -> bool:
    """Whether the window of the batch's session takes it now, or refuses it for good."""
    ids = header.producer_id, header.producer_epoch
    known = table.check(*ids, header.sequence, header.count, header.crc)
    return not isinstance(known, Refused) or known.code is not ErrorCode.OVERLOADED


def why_refused(request: OpenRequest, level: int | None) -> Refused | None:
    """Why a session of this ack level may not be opened now; None: it may.

    Args:
      level: the committed log's format level; None: this leader does not know it yet.
    """
    if request.ack_level not in (AckLevel.LEADER, AckLevel.NONE):
        return None
    if level is None:
        return Refused(ErrorCode.NOT_READY, 0, "this leader is not ready yet: ask again")
    if level < ACK_LEVELS_LEVEL:
        text = (
            f"the log is at format level {level}, other ack levels than quorum need level "
            f"{ACK_LEVELS_LEVEL}: run `logstore upgrade`, or use quorum"
        )
        return Refused(ErrorCode.LEVEL_REFUSED, 0, text)
    return None
