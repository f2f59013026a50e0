"""Splits the steps of cores for the checkers: event and effects, and the changes of the core.

Owns which incarnation may step. Checkers first read the parts of a step, then the changes (term,
leader, commit) that the core shows, then the parts again (`reads`). Must not know any rule but I15.
"""

from __future__ import annotations

from actors.simulation.checkers.consequences import CommitMoved, LeaderBegan, TermMoved
from actors.simulation.checkers.facts import Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import WITH_MESSAGE, Kind, Table
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from actors.simulation.checkers.world_view import Core
from logstore.model import Role
from logstore.raft.effects import Committed
from logstore.raft.events import Tick


class Steps:
    """Splits the steps of all replicas. `table` and `after` say which methods read which part."""

    __slots__ = ("_after", "_record", "_replicas", "_table", "_tick_readers")

    def __init__(self, record: Record, table: Table, after: Table) -> None:
        self._record = record
        self._replicas = record.replicas
        self._table = table
        self._after = after
        self._tick_readers = after[Tick]

    def on_step(self, step: Stepped) -> None:
        """Hot: 1,500 times a simulated second, half of them a Tick that changes nothing."""
        replica = self._replicas[step.node]
        if step.incarnation != replica.incarnation or not replica.is_running:
            text = f"incarnation {step.incarnation} of node {step.node} lives on after its end"
            self._record.findings.report(Invariant.I15, text)
            return
        event = step.event
        if type(event) is Tick:
            replica.clock_ns = now_ns = event.now_ns
            if not step.effects and not replica.dead_replicators and _is_idle(replica, step.core):
                if (
                    now_ns > replica.quorum_deadline_ns
                    or now_ns > replica.stall_check_ns
                    or now_ns > replica.handover_began_ns
                ):
                    for read in self._tick_readers:
                        read(replica, event, step)
                return
        dispatch_parts(self._table, replica, step)
        self._follow(replica, step)
        after = self._after
        for each in (event, *step.effects):
            for read in after[type(each)]:
                read(replica, each, step)

    def _follow(self, replica: Replica, step: Stepped) -> None:
        """Tells the checkers what has changed in the core: term, leader, commit."""
        core, tell = step.core, self._record.tell
        term, is_leader = core.term, core.role is Role.LEADER
        if term != replica.term:
            tell(TermMoved(replica, term))
        if is_leader and term != replica.led_term:
            tell(LeaderBegan(replica, term))
        commit = core.commit
        if commit != replica.commit:
            heard = [each.term for each in step.effects if type(each) is Committed]
            leader_term = term if is_leader else max(heard, default=0)
            tell(CommitMoved(replica, commit, leader_term))


def dispatch_parts(table: Table, replica: Replica, step: Stepped) -> None:
    """Calls the readers of the event and of each effect. Hot."""
    for each in (step.event, *step.effects):
        kind: Kind = type(each)
        if kind in WITH_MESSAGE:
            kind = (kind, type(each.message))  # type: ignore[union-attr]
        for read in table[kind]:
            read(replica, each, step)


def _is_idle(replica: Replica, core: Core) -> bool:
    """Whether term, commit and leadership are as before the step."""
    if core.term != replica.term or core.commit != replica.commit:
        return False
    return core.role is not Role.LEADER or replica.term == replica.led_term
