"""SessionState requests that reach a new leader before it can answer them (SAFETY E9).

Producers find a leader as soon as it is elected, while it still rebuilds the session table and its
no-op is not committed. They are answered once both is done, instead of asking again and again after
pauses. Owns the requests that wait. Must not know how they are answered.
"""

from __future__ import annotations

from collections import deque

from actors.ingress.pending_requests import NEVER_NS, Caller
from logstore.format.client_messages import SessionStateRequest
from logstore.limits import PRODUCERS_WAIT_MAX_NS, PRODUCERS_WAITING_MAX


class WaitingProducers:
    """First in, first out."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Caller, SessionStateRequest, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_timer_ns(self) -> int:
        return self._waiting[0][2] if self._waiting else NEVER_NS

    def try_add(self, caller: Caller, request: SessionStateRequest, now_ns: int) -> bool:
        """False: too many wait."""
        if len(self._waiting) >= PRODUCERS_WAITING_MAX:
            return False
        self._waiting.append((caller, request, now_ns + PRODUCERS_WAIT_MAX_NS))
        return True

    def take(self, most: int) -> list[tuple[Caller, SessionStateRequest]]:
        """The first of them, `most` at most: now they can be answered, or never."""
        count = min(most, len(self._waiting))
        return [self._waiting.popleft()[:2] for _ in range(count)]

    def take_expired(self, now_ns: int) -> list[Caller]:
        """Those that have waited long enough: their clients ask elsewhere soon."""
        waiting, expired = self._waiting, []
        while waiting and waiting[0][2] <= now_ns:
            expired.append(waiting.popleft()[0])
        return expired
