"""Detects that this replica's log ends before an entry that it had acknowledged in this term
(FAULTS O4, D33).

A heartbeat names the newest entry that its sender knows to be flushed at this replica in this term.
No log gets shorter than that by itself: the data folder is an older copy, or the device lost what
it had flushed. The core only reports it; its driver takes no further part (SAFETY L7).

A heartbeat is for a node number. One that was sent to the lost replica of a number, and comes late,
says nothing of the replica that got its place: that has not acknowledged anything as a member
before its own log names it.
"""

from __future__ import annotations

from logstore.limits import LOG_AGAIN_NS
from logstore.model import Index, NodeId
from logstore.raft.configuration import members
from logstore.raft.effects import Log
from logstore.raft.state import Lost, State


def check(state: State, sender: NodeId, acknowledged: Index) -> None:
    """A heartbeat of this term's leader says that this replica has `acknowledged`."""
    last_index = state.log.last_index
    if acknowledged <= last_index or not _may_have_acknowledged(state):
        return
    lost = state.lost
    if lost is None or acknowledged > lost.acknowledged:
        logged_ns = None if lost is None else lost.logged_ns
        state.lost = lost = Lost(acknowledged, last_index, state.term, logged_ns, sender)
    if lost.logged_ns is None or state.now_ns - lost.logged_ns >= LOG_AGAIN_NS:
        lost.logged_ns = state.now_ns
        state.emit(
            Log(
                f"node {state.config.node} has LOST entries {last_index + 1} to {acknowledged}: it "
                f"had flushed and acknowledged them in term {state.term}, says its leader, node "
                f"{sender}. Its data folder is an older copy, or its device forgot what it had "
                "flushed: do not trust either"
            )
        )


def _may_have_acknowledged(state: State) -> bool:
    config = state.config
    who = config.node, config.replica_uuid
    return not config.has_joined or any(
        (each.number, each.uuid) == who for each in members(state.configurations.in_force)
    )
