"""That a leader whose entries reach no majority, though its heartbeats do, gives its place up (V6),
and that it does not if only disks are full (S9).

Owns the judgement; what a replica was seen with at the last look is with it. Looks twice an
election timeout, by the replica's own clock, so that a leader may have stood still for one timeout
more than is found. Not judged: one whose own flush is late (another rule's), and one that gave up
before and has seen nothing committed since, for it waits longer each time. Time in which too many
followers are full, by their own word, does not count.
"""

from __future__ import annotations

from actors.simulation.checkers.invariant import Findings, Invariant
from actors.simulation.checkers.ports import Core
from actors.simulation.checkers.replica import NEVER_NS, Replica
from logstore.model import Role

# The rule's four, one for a handover, one for what lies between two looks.
TIMEOUTS_MAX = 6


class Stalls:
    """All leaders. `election_timeout_ns`: their patience."""

    __slots__ = ("_findings", "_look_ns", "_majority", "_stalled_ns", "_timeout_ns")

    def __init__(self, findings: Findings, *, majority: int, election_timeout_ns: int) -> None:
        self._findings = findings
        self._majority = majority
        self._timeout_ns = election_timeout_ns
        self._look_ns = election_timeout_ns // 2
        self._stalled_ns = TIMEOUTS_MAX * election_timeout_ns

    def on_leader(self, replica: Replica) -> None:
        """It leads from now on."""
        replica.full_peers = set()
        replica.moved_ns = replica.clock_ns
        is_judged = replica.commit != replica.commit_left
        replica.stall_look_ns = replica.clock_ns + self._look_ns if is_judged else NEVER_NS

    def on_end(self, replica: Replica) -> None:
        """It leads no more."""
        replica.stall_look_ns = NEVER_NS
        replica.commit_left = replica.commit

    def on_moved(self, replica: Replica, peer: int, place: tuple[int, int]) -> None:
        """A follower speaks of where it is: (0, its match) or (1, where its log ends)."""
        if replica.places.get((peer, place[0])) != place[1]:
            replica.places[peer, place[0]] = place[1]
            replica.moved_ns = replica.clock_ns

    def on_heard(self, replica: Replica, peer: int, *, is_full: bool) -> None:
        """A follower speaks; whom it has heard is as before that. Hot."""
        if replica.full_peers and self._lacks_space(replica):
            replica.moved_ns = replica.clock_ns
        if is_full:
            replica.full_peers.add(peer)
        else:
            replica.full_peers.discard(peer)

    def on_ticked_out(self, replica: Replica, at_ns: int) -> None:
        """It stopped leading of its own accord: not because of full disks, while a majority
        answers. Who has damage may have given up for that."""
        heard = len(self._heard(replica))
        if replica.faulty or 1 + heard < self._majority or not self._lacks_space(replica):
            return
        full = ", ".join(str(peer) for peer in sorted(replica.full_peers))
        text = f"node {replica.node} gives term {replica.led_term} up, and full are the disks of"
        self._findings.report(Invariant.I13, f"{text} {full}", at_ns)

    def on_look(self, replica: Replica, core: Core, at_ns: int) -> None:
        """The step of a tick after `stall_look_ns` is done."""
        if core.role is not Role.LEADER:
            self.on_end(replica)
            return
        seen, last_index = replica.stall_seen, replica.log.last_index
        replica.stall_seen = (core.commit, replica.claim_index, last_index)
        replica.stall_look_ns = replica.clock_ns + self._look_ns
        is_late = replica.claim_index == seen[1] < seen[2]
        if core.commit != seen[0] or core.commit >= min(replica.claim_index, last_index) or is_late:
            replica.moved_ns = replica.clock_ns
        if self._lacks_space(replica):
            replica.moved_ns = replica.clock_ns
        for_ns = replica.clock_ns - replica.moved_ns
        if for_ns > self._stalled_ns:
            replica.stall_look_ns = NEVER_NS
            text = f"node {replica.node} leads term {core.term}, and entry {core.commit + 1} has"
            text = f"{text} reached no majority for {for_ns / 1e9:.3f} s in which nothing moved"
            self._findings.report(Invariant.I13, text, at_ns)

    def _lacks_space(self, replica: Replica) -> bool:
        """With the leader, fewer than a majority take entries."""
        if not replica.full_peers:
            return False
        return 1 + len(self._heard(replica) - replica.full_peers) < self._majority

    def _heard(self, replica: Replica) -> set[int]:
        since_ns = replica.clock_ns - self._timeout_ns
        return {peer for peer, at_ns in replica.heard_ns.items() if at_ns >= since_ns}
