"""A leader whose entries reach no majority, though its heartbeats do, steps down (V6), but not if
only disks are full (S9).

Owns the rule; `Replica.stall_checked` has what the last check saw. Checks twice per election
timeout, by the replica's own clock, so that a leader may have made no progress for one timeout more
than is found. Not checked: a leader whose own flush is late, which is against another rule, and one
that stepped down before and has seen nothing committed since, for it waits longer each time. Time
in which too many followers report full disks does not count.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import LeaderBegan
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import NEVER_NS, Replica
from logstore.format.peer_messages import AppendPersisted, HeartbeatReply
from logstore.model import Role
from logstore.raft.effects import StopLeading
from logstore.raft.events import ControlReceived, StreamAnswer, Tick

# Four by the rule, one for a handover, one for the time between two checks.
TIMEOUTS_MAX = 6


class Stalls:
    """Checks all leaders."""

    def __init__(self, record: Record) -> None:
        self._findings = record.findings
        self._electorate = record.electorate
        self._timeout_ns = record.election_timeout_ns
        self._interval_ns = self._timeout_ns // 2
        self._stall_max_ns = TIMEOUTS_MAX * self._timeout_ns

    @reads(LeaderBegan)
    def on_leader(self, began: LeaderBegan) -> None:
        replica = began.replica
        replica.full_peers = set()
        replica.progressed_ns = replica.clock_ns
        is_judged = replica.commit != replica.commit_at_stop
        replica.stall_check_ns = replica.clock_ns + self._interval_ns if is_judged else NEVER_NS

    def _end(self, replica: Replica, commit: int) -> None:
        """It leads no more."""
        replica.stall_check_ns = NEVER_NS
        replica.commit_at_stop = commit

    @reads((ControlReceived, HeartbeatReply))
    def on_reply(self, replica: Replica, event: ControlReceived, step: Stepped) -> None:
        reply = event.message
        if isinstance(reply, HeartbeatReply) and step.leads(reply.term):
            self._update_full_peers(replica, event.sender, is_full=reply.is_disk_full)
            self._on_position(replica, event.sender, (1, reply.last_index))

    @reads(StreamAnswer)
    def on_answer(self, replica: Replica, event: StreamAnswer, step: Stepped) -> None:
        peer, answer = event.sender, event.message
        if step.leads(answer.term):
            self._update_full_peers(replica, peer, is_full=peer in replica.full_peers)
            if isinstance(answer, AppendPersisted):
                self._on_position(replica, peer, (0, answer.index))

    def _on_position(self, replica: Replica, peer: int, place: tuple[int, int]) -> None:
        """A follower reports its position: (0, its match index) or (1, its last index)."""
        if replica.positions.get((peer, place[0])) != place[1]:
            replica.positions[peer, place[0]] = place[1]
            replica.progressed_ns = replica.clock_ns

    def _update_full_peers(self, replica: Replica, peer: int, *, is_full: bool) -> None:
        """A leader hears a follower; `peers_heard_ns` is as before that. Hot."""
        if replica.full_peers and self._lacks_space(replica):
            replica.progressed_ns = replica.clock_ns
        if is_full:
            replica.full_peers.add(peer)
        else:
            replica.full_peers.discard(peer)

    @reads(StopLeading)
    def on_stop(self, replica: Replica, stop: StopLeading, step: Stepped) -> None:
        if stop.peer:
            return
        if type(step.event) is Tick:
            self._check_reason_to_stop(replica)
        self._end(replica, step.core.commit)

    def _check_reason_to_stop(self, replica: Replica) -> None:
        """A leader stepped down by itself. Full disks are no reason to, while a majority answers;
        damaged entries are one, and so are entries that wait for its own full disk, and that it is
        no voter any more (C9)."""
        heard = {replica.node, *self._peers_heard(replica)}
        is_unfit = replica.faulty or replica.is_full or self._has_left(replica)
        is_heard = self._electorate(replica).is_majority_of(heard)
        if is_unfit or not is_heard or not self._lacks_space(replica):
            return
        full = ", ".join(str(peer) for peer in sorted(replica.full_peers))
        text = f"node {replica.node} gives term {replica.led_term} up, and full are the disks of"
        self._findings.report(Invariant.I13, f"{text} {full}")

    @reads_after(Tick)
    def on_tick(self, replica: Replica, _tick: Tick, step: Stepped) -> None:
        """After `stall_check_ns`."""
        core = step.core
        if replica.clock_ns <= replica.stall_check_ns:
            return
        if core.role is not Role.LEADER:
            self._end(replica, replica.commit)
            return
        seen, last = replica.stall_checked, replica.log.last_index
        replica.stall_checked = (core.commit, replica.flushed_index, last)
        replica.stall_check_ns = replica.clock_ns + self._interval_ns
        is_late = replica.flushed_index == seen[1] < seen[2]
        if core.commit != seen[0] or core.commit >= min(replica.flushed_index, last) or is_late:
            replica.progressed_ns = replica.clock_ns
        if self._lacks_space(replica):
            replica.progressed_ns = replica.clock_ns
        for_ns = replica.clock_ns - replica.progressed_ns
        if for_ns > self._stall_max_ns:
            replica.stall_check_ns = NEVER_NS
            text = f"node {replica.node} leads term {core.term}, and entry {core.commit + 1} has"
            text = f"{text} reached no majority for {for_ns / 1e9:.3f} s in which nothing moved"
            self._findings.report(Invariant.I13, text)

    def _has_left(self, replica: Replica) -> bool:
        """The newest CONFIG in its log is committed, and does not have it as a voter: it leads on
        only until another one does, or does not take over in time (C9)."""
        is_committed = all(index <= replica.commit for index in replica.log.configs)
        return is_committed and not self._electorate(replica).counts(replica)

    def _lacks_space(self, replica: Replica) -> bool:
        """With the leader, fewer than a majority take entries."""
        if not replica.full_peers:
            return False
        taking = {replica.node, *(self._peers_heard(replica) - replica.full_peers)}
        return not self._electorate(replica).is_majority_of(taking)

    def _peers_heard(self, replica: Replica) -> set[int]:
        since_ns = replica.clock_ns - self._timeout_ns
        return {peer for peer, at_ns in replica.peers_heard_ns.items() if at_ns >= since_ns}
