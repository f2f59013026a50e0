"""How large a window a new session gets (SAFETY E1, W6).

The leader decides it once and writes it into the OPEN entry; the fold only applies it. Knows how
many other sessions there are and what windows they have, not how a window works.

Every session gets the least window. Extra rows shrink as they are given away: each session gets a
32nd of what is left. So the first sessions get full windows, and the last possible one still gets
the least. `window_bytes`, which one client may have unacknowledged, shrinks as sessions grow in
number, down to one largest batch. The sum for all clients is bounded where batches are read
(`Proposals.room_bytes`).
"""

from __future__ import annotations

import msgspec

from logstore import limits

_SHARE = 32


class SessionLimits(msgspec.Struct, frozen=True):
    """Bounds of one replica's table, from its configuration and its limits; sizes in bytes."""

    batch_max_bytes: int = limits.BATCH_MAX_BYTES
    client_memory_bytes: int = limits.CLIENT_MEMORY_BYTES
    session_window_bytes: int = limits.SESSION_WINDOW_BYTES
    sessions_max: int = limits.SESSIONS_MAX
    kept_names_max: int = limits.KEPT_NAMES_MAX
    provisional_window_min: int = limits.PROVISIONAL_WINDOW_MIN


class Grant(msgspec.Struct, frozen=True):
    """What one session may have unresolved: batches (E7) and bytes (W6)."""

    window: int
    window_bytes: int


def grant(
    limits_: SessionLimits, *, others: int, extra_rows: int, requested: int, floor: int
) -> Grant | None:
    """The grant of one more session besides `others`; None when there is no room for it.

    Args:
      others: how many other sessions there are.
      extra_rows: the sum of what their windows have above the least one.
      requested: requested rows; 0: as many as possible.
      floor: rows that a reopened monotone session has already and must not lose.
    """
    if others >= limits_.sessions_max:
        return None
    share = max(0, limits.SESSION_WINDOW_EXTRA_MAX - extra_rows) // _SHARE
    window = min(
        requested or limits.SESSION_WINDOW_MAX,
        limits.SESSION_WINDOW_MAX,
        limits.SESSION_WINDOW_MIN + share,
    )
    window_bytes = min(
        limits_.session_window_bytes, limits_.client_memory_bytes // max(_SHARE, others + 1)
    )
    return Grant(
        max(window, limits.SESSION_WINDOW_MIN, floor), max(window_bytes, limits_.batch_max_bytes)
    )
