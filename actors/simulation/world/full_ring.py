"""What found no room in a command ring, and what becomes of it (SAFETY M8).

Owns one ring's account of it: an order waits and goes first, before everything behind it; of entry
descriptors the newest is offered again as soon as there is room. Must not know how a sender keeps
what waits; it sees only what is offered. What raft's timers say again may be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors import messages
from logstore.raft.bootstrap import SendInit
from logstore.raft.effects import Describe, Send
from transport.command_ring import record_bytes

# A sender that has just sent orders that waited may offer the descriptor in its next work.
_LATE_MAX = 1


class FullRing:
    """`report` hears of what must not be. `has_waiting`: nothing is looked at while it is False."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        self.has_waiting = False
        self._name = name
        self._report = report
        self._order: bytes | None = None  # the oldest order that found no room
        self._newest: bytes | None = None  # the newest descriptor that found none
        self._late = 0

    def refused(self, message: bytes) -> None:
        """There was no room for `message`."""
        decoded: Any = messages.decode(message)
        if isinstance(decoded, Describe):
            self._newest, self._late = message, 0
        elif not isinstance(decoded, Send | SendInit) and self._order is None:
            self._order = message
        self.has_waiting = self._order is not None or self._newest is not None

    def taken(self, message: bytes) -> None:
        """`message` found room, while something waits."""
        if message == self._order:
            self._order = None
        elif self._order is not None:
            late, early = messages.decode(self._order), messages.decode(message)
            self._report(f"{self._name}: {early} passes {late}, which waits for room")
        if self._newest is not None and isinstance(messages.decode(message), Describe):
            self._newest = None
        self.has_waiting = self._order is not None or self._newest is not None

    def looked_at(self, free_bytes: int) -> None:
        """The sender has done its work, and leaves so much room."""
        newest = self._newest
        if newest is None or self._order is not None or record_bytes(len(newest)) > free_bytes:
            self._late = 0
            return
        self._late += 1
        if self._late > _LATE_MAX:
            text = f"{self._name}: {messages.decode(newest)} is not offered again"
            self._report(f"{text}, and there is room")
            self.forget()

    def forget(self) -> None:
        """The receiver is dead: nothing that waits was meant for the next one."""
        self._order = self._newest = None
        self._late = 0
        self.has_waiting = False
