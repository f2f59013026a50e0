"""What a producer of level `leader` or `none` has sent in one epoch, and how much of it the log is
known to have (SAFETY E10).

Owns how many batches may be on their way. The leader answers in SessionState how many it has taken,
and how many of them are committed; of what it took it answers nothing else at level `none`. Pure:
no sockets, clock, threads. Invariants: stored <= taken <= sent; what is sent and not taken is at
most the session's window, in batches and in bytes, since it lies in sockets that the leader may
leave unread.
"""

from __future__ import annotations

from collections import deque

from logstore.client.core.reopening import uncommitted_rows
from logstore.errors import InvariantViolated
from logstore.format.client_messages import SessionStateReply

# Batches that are sent and not known to be stored, in windows: a leader takes a window that is not
# committed, another one may be on its way, and the news of both is late.
_UNSTORED_WINDOWS = 4


class SentBatches:
    """The batches of one producer epoch, by sequence from 0 on. `sent`, `taken` and `stored` count
    them: sent, in the leader's log as far as is known, committed as far as is known."""

    def __init__(self, *, window: int, window_bytes: int) -> None:
        self._window = max(1, window)
        self._window_bytes = window_bytes
        self.sent = self.taken = self.stored = 0
        self._payloads: deque[int] = deque()  # of each batch that is not stored
        self._untaken_sizes: deque[int] = deque()  # bytes of each batch that is not taken
        self._untaken_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether a batch of so many bytes may be sent now."""
        if self.sent == self.taken:
            return self.sent - self.stored < _UNSTORED_WINDOWS * self._window
        return (
            self.sent - self.taken < self._window
            and self._untaken_bytes + size_bytes <= self._window_bytes
            and self.sent - self.stored < _UNSTORED_WINDOWS * self._window
        )

    @property
    def is_half_full(self) -> bool:
        """Whether so much is on its way that it is time to ask how much has arrived."""
        return (
            2 * (self.sent - self.taken) >= self._window
            or 2 * self._untaken_bytes >= self._window_bytes
            or 2 * (self.sent - self.stored) >= _UNSTORED_WINDOWS * self._window
        )

    def add(self, payloads: int, size_bytes: int) -> int:
        """A batch is sent; returns its sequence."""
        sequence = self.sent
        self.sent += 1
        self._payloads.append(payloads)
        self._untaken_sizes.append(size_bytes)
        self._untaken_bytes += size_bytes
        return sequence

    def on_taken(self, count: int) -> bool:
        """The first `count` are in the leader's log; whether that is news."""
        if count <= self.taken:
            return False
        if count > self.sent:
            raise InvariantViolated(
                f"the log has {count} batches of an epoch that sent {self.sent}"
            )
        for _ in range(count - self.taken):
            self._untaken_bytes -= self._untaken_sizes.popleft()
        self.taken = count
        return True

    def on_state(self, state: SessionStateReply) -> bool:
        """A ready leader's answer; whether it is news. Rows that are not committed are the newest
        ones of its log, and may yet be lost with it."""
        is_news = self.on_taken(state.next_sequence)
        stored = state.next_sequence - uncommitted_rows(state)
        if stored <= self.stored:
            return is_news
        for _ in range(stored - self.stored):
            self._payloads.popleft()
        self.stored = stored
        return True

    @property
    def missing(self) -> tuple[int, int]:
        """Batches that are not known to be stored, and the payloads in them."""
        return len(self._payloads), sum(self._payloads)
