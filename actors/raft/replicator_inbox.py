"""What raft hears of a replicator, without what came of an earlier peer.

A replicator answers each `PeerIs`, in order with what it passes on. Until the answer to the newest
one, what it says of a peer may be of another replica under the same number, which must not be
counted for the new one (SAFETY C6).
"""

from __future__ import annotations

from actors.messages import PeerTaken, RingMessage, RotReported
from actors.station import DRAIN_MAX, Inbox


class ReplicatorInbox:
    """The receiving end of one replicator's ring."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._awaited = 0  # the `seq` of the newest PeerIs; 0: that was answered, or there is none

    def expect(self, seq: int) -> None:
        """PeerIs `seq` is sent: pass on nothing of a peer before its answer."""
        self._awaited = seq

    def receive(self, limit: int = DRAIN_MAX) -> list[RingMessage]:
        """The oldest messages. Fewer than `limit`: no more wait, however many were dropped (M7)."""
        received = self._inbox.receive(limit)
        if not received or not self._awaited:
            return received
        passed: list[RingMessage] = []
        for message in received:
            if isinstance(message, PeerTaken):
                self._awaited = 0 if message.seq == self._awaited else self._awaited
            elif not self._awaited or isinstance(message, RotReported):
                passed.append(message)
        return passed if len(received) < limit else passed + self.receive(limit)
