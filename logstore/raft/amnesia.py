"""That this replica's log ends before what it had acknowledged in this term (FAULTS O4, D33).

Owns how it is noticed here: a heartbeat names the newest entry that its sender knows to be flushed
at this replica in this term, and no log gets shorter than that by itself. A folder was put back
from an older copy, or a device forgot what it had flushed. Nothing follows from it yet but that
everybody is told; after a change of leader the entries are sent again, as to any replica that lags.
"""

from __future__ import annotations

from logstore.limits import SAY_AGAIN_NS
from logstore.model import Index, NodeId
from logstore.raft.effects import Log
from logstore.raft.state import Lost, State


def look(state: State, sender: NodeId, acknowledged: Index) -> None:
    """A heartbeat of this term's leader came, which says that we have `acknowledged`."""
    last_index = state.log.last_index
    if acknowledged <= last_index:
        return
    lost = state.lost
    if lost is None or acknowledged > lost.acknowledged:
        told_ns = None if lost is None else lost.told_ns
        state.lost = lost = Lost(acknowledged, last_index, state.term, told_ns)
    if lost.told_ns is None or state.now_ns - lost.told_ns >= SAY_AGAIN_NS:
        lost.told_ns = state.now_ns
        state.emit(
            Log(
                f"node {state.config.node} has LOST entries {last_index + 1} to {acknowledged}: it "
                f"had flushed and acknowledged them in term {state.term}, says its leader, node "
                f"{sender}. Its data folder is an older copy, or its device forgot what it had "
                "flushed: do not trust either"
            )
        )
