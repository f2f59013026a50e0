"""Which replica speaks under each node number now, and how an answer gets back to it (SAFETY M6).

Pure. Owns the current uuid of each number, when it was heard, and its newest routing ids. A number
may get another replica: its folder was lost, or its place was given to another one. The uuid that
the configuration in force names for the number always wins; any other is taken only once the
current one was silent for an election timeout, so that a copied folder or a replica that comes back
late does not take turns with the right one. A number that is no member's is heard while no member
is: this replica may be the one that is behind (C10), but where there is a cluster, nothing from
outside disturbs it.

Invariant: all routes of a number are of its current uuid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from logstore.model import NodeId

NUMBERS_MAX = 64  # far above the members of a configuration
_NONE_NAMED: Mapping[NodeId, bytes] = {}


class Speaker:
    """The replica that speaks under one number."""

    __slots__ = ("bulk_route", "control_route", "heard_ns", "uuid")

    def __init__(self, uuid: bytes) -> None:
        self.uuid = uuid
        self.heard_ns = 0  # by the table's own time
        self.control_route: bytes | None = None
        self.bulk_route: bytes | None = None


class PeerTable:
    """`silence_ns`: of the current replica, until another one that is not named may replace it, and
    of all members, until another number is heard. `numbers`: of the members that the configuration
    file names, as long as there is no CONFIG."""

    def __init__(self, silence_ns: int, numbers: Collection[NodeId]) -> None:
        self._silence_ns = silence_ns
        self._numbers = numbers
        self._member_heard_ns = -silence_ns
        self._speakers: dict[NodeId, Speaker] = {}
        self._named = _NONE_NAMED
        self._listened_ns = 0
        self._turn_ns: int | None = None

    def begin_turn(self, now_ns: int, *, is_leading: bool = False) -> None:
        """Messages are read now. After a pause of this process those of all replicas wait: silence
        is what passes between turns, but half of what is needed at most each time."""
        if self._turn_ns is not None:
            passed_ns = max(0, now_ns - self._turn_ns)
            self._listened_ns += min(passed_ns, -(-self._silence_ns // 2))
        self._turn_ns = now_ns
        if is_leading:  # members answer a leader on its own sockets
            self._member_heard_ns = self._listened_ns

    def name(self, named: Mapping[NodeId, bytes], numbers: Collection[NodeId]) -> None:
        """The uuids of the members of the configuration in force, where they are known, and the
        numbers of all."""
        self._named = named
        self._numbers = numbers

    def take(self, number: NodeId, uuid: bytes) -> Speaker | None:
        """A message of `uuid` has come: its entry, or None if another replica speaks there. Hot."""
        speaker = self._speakers.get(number)
        if number in self._numbers:
            self._member_heard_ns = self._listened_ns
        elif self._listened_ns - self._member_heard_ns < self._silence_ns:
            return None
        if speaker is None or speaker.uuid != uuid:
            if speaker is not None and not self._may_replace(speaker, number, uuid):
                return None
            speaker = self._speakers[number] = Speaker(uuid)
            self._forget_one_too_many(number)
        speaker.heard_ns = self._listened_ns
        return speaker

    def speaker(self, number: NodeId) -> Speaker | None:
        return self._speakers.get(number)

    def _may_replace(self, speaker: Speaker, number: NodeId, uuid: bytes) -> bool:
        is_silent = self._listened_ns - speaker.heard_ns >= self._silence_ns
        return is_silent or self._named.get(number) == uuid

    def _forget_one_too_many(self, newest: NodeId) -> None:
        """The one that was silent for longest; members last."""
        if len(self._speakers) > NUMBERS_MAX:
            others = (each for each in self._speakers.items() if each[0] != newest)
            number, _ = min(others, key=lambda each: (each[0] in self._named, each[1].heard_ns))
            del self._speakers[number]
