"""What raft hears of a replicator whose peer has just changed (SAFETY C6, M7)."""

from __future__ import annotations

from actors.messages import PeerTaken, RingMessage, RotReported
from actors.raft.replicator_inbox import ReplicatorInbox
from logstore.model import Index, Lsn, NodeId
from logstore.raft.events import ConnectionLost

LIMIT = 4
OF_A_PEER = ConnectionLost(NodeId(2))
ROT = RotReported(Index(7), Lsn(0), Lsn(0))


class Ring:
    """The receiving end of a ring with these messages."""

    def __init__(self, *waiting: RingMessage) -> None:
        self.waiting = list(waiting)

    def receive(self, limit: int) -> list[RingMessage]:
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken


def inbox(*waiting: RingMessage) -> ReplicatorInbox:
    made = ReplicatorInbox(Ring(*waiting))  # type: ignore[arg-type]
    made.expect(9)
    return made


def test_what_comes_before_the_answer_to_the_newest_peer_is_dropped_but_damage() -> None:
    early, older, newest = (OF_A_PEER, ROT), PeerTaken(8), PeerTaken(9)
    assert inbox(*early, older, newest).receive(9) == [ROT]
    assert inbox(older, OF_A_PEER, newest, OF_A_PEER).receive(9) == [OF_A_PEER]


def test_m7_what_is_dropped_hides_no_message_that_waits_behind_it() -> None:
    """Raft would think that the ring is empty, and nothing rings its bell for what is left."""
    dropped = [OF_A_PEER] * 2 * LIMIT
    assert inbox(*dropped, PeerTaken(9), ROT, OF_A_PEER).receive(LIMIT) == [ROT, OF_A_PEER]


def test_m7_a_turn_that_may_have_left_some_returns_as_many_as_were_asked_for() -> None:
    taken = inbox(OF_A_PEER, PeerTaken(9), *[OF_A_PEER] * 3 * LIMIT)
    assert len(taken.receive(LIMIT)) >= LIMIT
