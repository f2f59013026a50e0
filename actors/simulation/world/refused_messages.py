"""Which messages a full command ring refused, and whether the sender treats them right (SAFETY M8).

An order must wait, and no later message may pass it. Of entry descriptors only the newest counts:
it must be offered again as soon as there is room, unless the replicator gets another peer. A `Send`
may be lost, since raft's timers repeat it. Owns one ring's record of this. Must not know how a
sender stores what waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors import messages
from logstore.raft.bootstrap import SendInit
from logstore.raft.effects import Describe, Send
from transport.command_ring import record_bytes

# A sender that has just sent orders that waited may offer the descriptor in its next do_work.
_LATE_MAX = 1
# What its sender sends again by itself.
_DROPPED = Send | SendInit | messages.TellStart | messages.TellJoin


class RefusedMessages:
    """`report` gets the text of each violation. While `has_waiting` is False there is nothing to
    check."""

    def __init__(self, name: str, report: Callable[[str], None]) -> None:
        self.has_waiting = False
        self._name = name
        self._report = report
        self._order: bytes | None = None  # the oldest order that was refused
        self._newest: bytes | None = None  # the newest descriptor that was refused
        self._late = 0  # how often the sender ended its work without offering it though it fits

    def on_refused(self, message: bytes) -> None:
        """The ring had no room for `message`."""
        decoded: Any = messages.decode(message)
        if isinstance(decoded, Describe):
            self._newest, self._late = message, 0
        elif not isinstance(decoded, _DROPPED) and self._order is None:
            self._order = message
        self.has_waiting = self._order is not None or self._newest is not None

    def on_accepted(self, message: bytes) -> None:
        """The ring took `message` while another one waits."""
        if message == self._order:
            self._order = None
        elif self._order is not None:
            late, early = messages.decode(self._order), messages.decode(message)
            self._report(f"{self._name}: {early} passes {late}, which waits for room")
        if isinstance(messages.decode(message), Describe | messages.PeerIs):
            self._newest = None
        self.has_waiting = self._order is not None or self._newest is not None

    def on_work_done(self, free_bytes: int) -> None:
        """A do_work of the sender is over; the ring has `free_bytes` then."""
        newest = self._newest
        if newest is None or self._order is not None or record_bytes(len(newest)) > free_bytes:
            self._late = 0
            return
        self._late += 1
        if self._late > _LATE_MAX:
            text = f"{self._name}: {messages.decode(newest)} is not offered again"
            self._report(f"{text}, and there is room")
            self.clear()

    def clear(self) -> None:
        """The receiver died. Its successor is not owed what waited for it."""
        self._order = self._newest = None
        self._late = 0
        self.has_waiting = False
