"""Which sessions expire: for their age, or to make room for a new one (SAFETY E8).

Age is measured in committed time, the timestamps of committed entries. The leader's own clock only
puts the end off: a session ends a minute after the leader has heard of its producer, or has begun
to lead, at the earliest. Batches that a full disk kept from being committed are old when they are,
and their producer, which asks for its session all the time, is not idle. To make room, the leader
uses its own clock alone, and ends only sessions without a name. Both become EXPIRE entries, which
`admission` proposes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from actors.host import Clock
from logstore.format.session_entries import ExpireEntry
from logstore.session.session import Session
from logstore.session.table import SessionTable

# All sessions are looked at after each such part of session_expiry: every 40 minutes of 7 days.
_LOOKS = 256
# A look at all sessions finds up to so many idle ones without a name, for as many OPENs. One that
# found fewer is not repeated for a second (this part of `idle_min_ns`): each of many OPENs that are
# refused would take milliseconds.
_NAMELESS_FOUND = 64


class Expiry:
    """Expiry in one gen. `used_ns`: producer → when it last sent a batch or asked for its session,
    by the leader's monotonic clock."""

    def __init__(self, expiry_ns: int, *, idle_min_ns: int) -> None:
        self._expiry_ns = expiry_ns
        self._idle_min_ns = idle_min_ns
        self._look_ns = 0  # committed time
        self._found: list[int] = []  # producers that were idle when all were looked at
        self._nameless: list[int] = []  # those without a name, the idlest last
        self._nameless_look_ns = 0  # the leader's monotonic clock
        self.used_ns: dict[int, int] = {}

    def begin(self, table: SessionTable, now_ns: int) -> None:
        self.used_ns = {each.producer_id: now_ns for each in table.sessions()}
        self._look_ns = self._nameless_look_ns = 0

    def clear(self) -> None:
        self.used_ns.clear()
        self._found.clear()
        self._nameless.clear()

    def heard_of(
        self, table: SessionTable, producer_id: int, producer_epoch: int, now_ns: int
    ) -> None:
        """A batch of this epoch came that is not new: its producer is not idle."""
        session = table.get(producer_id)
        if session is not None and session.producer_epoch == producer_epoch:
            self.used_ns[producer_id] = now_ns

    def due(
        self, table: SessionTable, committed_ns: int, clock: Clock, count_max: int
    ) -> Iterator[ExpireEntry]:
        """At most `count_max` sessions that were idle for too long, with or without a name. The
        caller ends each before it asks for the next: its name may be the last that can be kept."""
        before_ns = committed_ns - self._expiry_ns
        if not self._found and committed_ns >= self._look_ns:
            self._look_ns = committed_ns + max(1, self._expiry_ns // _LOOKS)
            self._found = [
                each.producer_id for each in table.sessions() if _is_idle(each, before_ns)
            ]
        if not self._found:
            return
        heard_before_ns = clock.monotonic_ns() - min(self._idle_min_ns, self._expiry_ns)
        while self._found and count_max:
            session = table.get(self._found.pop())
            if (
                session is not None
                and _is_idle(session, before_ns)
                and self.used_ns[session.producer_id] <= heard_before_ns
                and table.can_expire(session)
            ):
                count_max -= 1
                yield _entry_of(session)

    def idlest_nameless(self, table: SessionTable, now_ns: int) -> ExpireEntry | None:
        """The nameless session that was idle longest, `idle_min_ns` at least.

        A name promises that the session can be asked for again; without one it belongs to one run
        of a producer.
        """
        oldest_ns = now_ns - self._idle_min_ns
        used_ns, found = self.used_ns, self._nameless
        if not found and now_ns >= self._nameless_look_ns:
            idle = (
                (used_ns[each.producer_id], each.producer_id)
                for each in table.sessions()
                if not each.name and used_ns[each.producer_id] <= oldest_ns
            )
            idlest = heapq.nsmallest(_NAMELESS_FOUND, idle)
            found.extend(producer_id for _, producer_id in reversed(idlest))
            if len(found) < _NAMELESS_FOUND:
                self._nameless_look_ns = now_ns + self._idle_min_ns // _NAMELESS_FOUND
        while found:
            session = table.get(found.pop())
            if session is None or used_ns[session.producer_id] > oldest_ns:
                continue
            if table.can_expire(session):
                return _entry_of(session)
        return None


def _is_idle(session: Session, before_ns: int) -> bool:
    return 0 < session.last_used_ns <= before_ns


def _entry_of(session: Session) -> ExpireEntry:
    return ExpireEntry(session.producer_id, session.producer_epoch, bool(session.name))


def note_use(table: SessionTable, producer_id: int, timestamp_ns: int) -> None:
    """A committed entry of that time is of this producer."""
    session = table.get(producer_id)
    if session is not None:
        session.last_used_ns = timestamp_ns
