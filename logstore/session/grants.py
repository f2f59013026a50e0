"""How much window and memory a session may have (SAFETY E1, W6).

Decided once, by the leader, and written into the OPEN entry: whoever folds the log only obeys.
Knows how much the other sessions have, not how a window works.

Both shrink as they are given away, a 32nd of what is left, but at least 16 batches and one batch's
bytes: the first sessions get full windows and a hundred fit, instead of 32 and then none.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from logstore import limits
from logstore.format.cursor_entries import CURSOR_ROWS_MAX_BYTES
from logstore.format.session_entries import SESSION_SNAPSHOT_MAX_BYTES, session_size_max
from logstore.session.session import Session

_SHARE = 32
# What a snapshot needs beside its sessions: its head, and room for as many cursors as there may be.
_SNAPSHOT_HEAD_BYTES = 24 + CURSOR_ROWS_MAX_BYTES


class SessionLimits(msgspec.Struct, frozen=True):
    """Bounds of one replica's table, from its configuration; sizes in bytes."""

    batch_max_bytes: int = limits.BATCH_MAX_BYTES
    client_memory_bytes: int = limits.CLIENT_MEMORY_BYTES
    session_window_bytes: int = limits.SESSION_WINDOW_BYTES


class Grant(msgspec.Struct, frozen=True):
    """What one session may have unresolved: batches (E7) and bytes (W6)."""

    window: int
    window_bytes: int


def grant(
    limits_: SessionLimits,
    others: Iterable[Session],
    *,
    wished: int,
    floor: int,
    name_size_bytes: int,
) -> Grant | None:
    """What one more session beside `others` gets; None when there is no room for it.

    Args:
      wished: rows asked for; 0: as many as there are.
      floor: rows that a reopened monotone session has already and must not lose.
    """
    rows = bytes_ = snapshot_bytes = 0
    for other in others:
        rows += other.window_max
        bytes_ += other.window_bytes
        snapshot_bytes += session_size_max(other.window_max, len(other.name))
    rows_left = limits.SESSION_WINDOW_SUM_MAX - rows
    wish = min(wished or limits.SESSION_WINDOW_MAX, limits.SESSION_WINDOW_MAX, rows_left // _SHARE)
    window = max(wish, limits.SESSION_WINDOW_MIN, floor)
    bytes_left = limits_.client_memory_bytes - bytes_
    window_bytes = max(
        min(bytes_left // _SHARE, limits_.session_window_bytes), limits_.batch_max_bytes
    )
    snapshot_bytes += _SNAPSHOT_HEAD_BYTES + session_size_max(window, name_size_bytes)
    if (
        window > rows_left
        or window_bytes > bytes_left
        or snapshot_bytes > SESSION_SNAPSHOT_MAX_BYTES
    ):
        return None
    return Grant(window, window_bytes)
