"""How large a window a new session gets (SAFETY E1, W6).

Decided once, by the leader, and written into the OPEN entry: whoever folds the log only obeys.
Knows how many other sessions there are and what they have, not how a window works.

Every session gets the least window. What is extra shrinks as it is given away, a 32nd of what is
left: the first sessions get full windows, and there is a least one for the last that may be. Bytes
are no gift: `window_bytes` says what one client may have unacknowledged, and shrinks as sessions
grow in number, down to one largest batch. What all of them may have is bounded where batches are
read (`Proposals.room_bytes`).
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


class Grant(msgspec.Struct, frozen=True):
    """What one session may have unresolved: batches (E7) and bytes (W6)."""

    window: int
    window_bytes: int


def grant(
    limits_: SessionLimits, *, others: int, extra_rows: int, requested: int, floor: int
) -> Grant | None:
    """What one more session beside `others` gets; None when there is no room for it.

    Args:
      others: how many other sessions there are.
      extra_rows: what their windows have above the least one, in sum.
      requested: rows asked for; 0: as many as there are.
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
