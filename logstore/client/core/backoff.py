"""How long to wait before the next attempt: longer each time, and not equally long for all clients.

Owns no attempt and no deadline. Without chance, all the clients that lost one leader would ask in
the same moments (as Kafka's `retry.backoff.ms`, with the same fifth).
"""

from __future__ import annotations

from logstore.client.core.steps import Host, Wait

FIRST_S = 0.025
# A change of leader takes some election timeouts: what a client waits beyond it is a part of that.
MAX_S = 0.2
# Each pause is longer or shorter by up to this part of it.
JITTER = 0.2


class Backoff:
    """Pauses of `first_s`, then twice as long each time, up to `max_s`."""

    def __init__(self, host: Host, *, first_s: float = FIRST_S, max_s: float = MAX_S) -> None:
        self._host = host
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first again."""
        self._next_s = self._first_s

    def next_ns(self) -> int:
        """The monotonic time of the next attempt."""
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, self._max_s)
        return self._host.deadline_ns(pause_s * self._host.random.uniform(1 - JITTER, 1 + JITTER))

    def wait(self, *, deadline_ns: int) -> Wait:
        """A wait until the next attempt, or the deadline if that comes first (monotonic)."""
        return Wait(min(deadline_ns, self.next_ns()))
