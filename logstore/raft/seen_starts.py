"""Which starts of each replica were seen, and what a replica that hears of its own learns (SAFETY
L7).

Owns the rule. Must not know messages, files or times. A verdict is a replica's own, about itself:
others say only what they have seen. That is a fact of the past, which no delay makes false: a
folder is locked by one writer, which raised the boot counter durably before it said anything. So
while this writer holds it, a higher boot that was seen before is one that the folder has forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from logstore.format.peer_starts import PeerStart
from logstore.limits import PEER_STARTS_MAX


class PeerStarts:
    """The newest start seen of each replica uuid; of PEER_STARTS_MAX uuids, those heard of last."""

    def __init__(self, known: Iterable[PeerStart]) -> None:
        self._known = {each.replica_uuid: each for each in known}

    @property
    def rows(self) -> tuple[PeerStart, ...]:
        return tuple(self._known.values())

    def seen(self, replica_uuid: bytes) -> PeerStart | None:
        return self._known.get(replica_uuid)

    def learn(self, start: PeerStart) -> bool:
        """Whether `start` is newer than what was known. Of two starts with one boot the first one
        seen stays: that the other one differs is what its replica is to hear."""
        known = self._known.get(start.replica_uuid)
        if known is not None and start.boot <= known.boot:
            return False
        self._known.pop(start.replica_uuid, None)
        self._known[start.replica_uuid] = start
        while len(self._known) > PEER_STARTS_MAX:
            del self._known[next(iter(self._known))]
        return True


def is_forgotten(seen: PeerStart, own: PeerStart) -> bool:
    """Whether `seen`, of which another replica tells, is a start of this one that its folder does
    not know: a later one, or another one of the same number. An unknown nonce is no evidence."""
    if seen.replica_uuid != own.replica_uuid:
        return False
    is_other = bool(seen.nonce and own.nonce) and seen.nonce != own.nonce
    return seen.boot > own.boot or (seen.boot == own.boot and is_other)
