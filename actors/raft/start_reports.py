"""Tells the others of this start, and hears what they have seen of this replica (SAFETY L7).

Owns who has answered and when to ask again. Must not know the core. A replica asks each peer at its
start until that has answered, and once more when a peer has started again, which may have lost what
it knew. A peer answers once its disk has the start. An older version does not answer: it is asked
once a minute.
"""

from __future__ import annotations

from actors.messages import LogRecovered, SaveStart, StartReceived, TellStart
from actors.raft.routes import Routes
from actors.station import Station
from logstore.format.meta import Forgotten, ForgottenWhat
from logstore.format.peer_messages import StartReport, StartSeen
from logstore.format.peer_starts import PeerStart
from logstore.model import NodeId
from logstore.raft.seen_starts import PeerStarts, is_forgotten
from logstore.raft.state import Lost

ASK_AGAIN_MAX_NS = 60_000_000_000
NEVER_NS = 1 << 62


class StartReports:
    """Of one incarnation of a voter."""

    def __init__(self, station: Station, routes: Routes, recovered: LogRecovered) -> None:
        self._routes = routes
        self._own = PeerStart(recovered.replica_uuid, recovered.boot, station.incarnation)
        self._starts = PeerStarts(recovered.starts)
        self._members = routes.members
        self._unanswered = dict.fromkeys(routes.members)
        self._unsaved: dict[bytes, NodeId] = {}  # whom to answer once the disk has their start
        self._first_wait_ns = self._wait_ns = station.config.raft.heartbeat_ns
        self.deadline_ns = 0 if self._unanswered else NEVER_NS

    def on_tick(self, now_ns: int) -> None:
        """Ask those that have not answered, each time after twice the wait."""
        if self._members is not self._routes.members:
            self._follow_members(self._routes.members)
        if now_ns < self.deadline_ns:
            return
        for peer in self._unanswered:
            self._routes.to_peer(TellStart(peer, StartReport(self._own.nonce)))
        self.deadline_ns = now_ns + self._wait_ns if self._unanswered else NEVER_NS
        self._wait_ns = min(2 * self._wait_ns, ASK_AGAIN_MAX_NS)

    def on_received(self, received: StartReceived) -> Forgotten | None:
        """A peer's message; what this replica has forgotten, if that says so."""
        message, sender = received.message, received.sender
        if isinstance(message, StartReport):
            self._on_report(sender, PeerStart(received.sender_uuid, received.boot, message.nonce))
            return None
        seen = PeerStart(message.replica_uuid, message.boot, message.nonce)
        if is_forgotten(seen, self._own):
            return Forgotten(ForgottenWhat.STARTS, sender, self._own.boot, seen.boot)
        if seen == self._own:
            self._unanswered.pop(sender, None)
            self.deadline_ns = self.deadline_ns if self._unanswered else NEVER_NS
        return None

    def on_saved(self, start: PeerStart) -> None:
        """The disk has it, and what was known before."""
        peer = self._unsaved.get(start.replica_uuid)
        if peer is not None and self._starts.seen(start.replica_uuid) == start:
            del self._unsaved[start.replica_uuid]
            self._answer(peer, start)

    def _follow_members(self, members: tuple[NodeId, ...]) -> None:
        """Ask those that came, and none that left."""
        before, self._members = self._members, members
        for peer in before:
            if peer not in members:
                self._unanswered.pop(peer, None)
        for peer in members:
            if peer not in before:
                self._ask_again(peer)

    def _on_report(self, peer: NodeId, start: PeerStart) -> None:
        uuid = start.replica_uuid
        if self._starts.learn(start):
            self._unsaved[uuid] = peer
            for each in [each for each in self._unsaved if self._starts.seen(each) is None]:
                del self._unsaved[each]  # forgotten for newer ones before a full disk had it
            self._ask_again(peer)
        seen = self._starts.seen(uuid)
        if seen == start and uuid in self._unsaved:  # new, or told again for want of space
            self._routes.to_writer(SaveStart(start, self._starts.rows))
        elif seen is not None:
            self._answer(peer, seen)

    def _ask_again(self, peer: NodeId) -> None:
        if peer in self._members and peer not in self._unanswered:
            self._unanswered[peer] = None
            self._wait_ns = self._first_wait_ns
            self.deadline_ns = 0

    def _answer(self, peer: NodeId, seen: PeerStart) -> None:
        message = StartSeen(seen.replica_uuid, seen.boot, seen.nonce)
        self._routes.ingress.send(TellStart(peer, message))


def entries_forgotten(lost: Lost) -> Forgotten:
    """What the core reports as lost, as META keeps it."""
    return Forgotten(ForgottenWhat.ENTRIES, lost.told_by, lost.last_index, lost.acknowledged)
