"""Which place a replica gets that asks to join (SAFETY L4, L5).

Owns when a voter or a learner counts as lost. Must not know how a change goes on.
"""

from __future__ import annotations

from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.model import NodeId
from logstore.raft import configuration
from logstore.raft.configuration import Refusal, Refused
from logstore.raft.state import Leading, State

# A replica that was not heard for so many election timeouts may be replaced by one that has its
# number and address. Counted from the leader's taking office.
LOST_AFTER_TIMEOUTS = 10


def wanted(state: State, leading: Leading, joining: Member) -> Configuration | Refused | None:
    """The configuration in which the replica has a place, or will find one reserved; None: it is a
    member already."""
    in_force = state.configurations.in_force
    held = next(
        (each for each in configuration.members(in_force) if each.number == joining.number), None
    )
    if held is None:
        return _not_reserved(joining)
    if held.uuid == joining.uuid:
        return None
    if (held.host, held.port) != (joining.host, joining.port):
        return Refused(
            Refusal.NUMBER_TAKEN,
            f"node {held.number} is at {held.host}:{held.port}: join under another number, or from "
            "that address",
        )
    if held in in_force.learners and (held.uuid == NO_UUID or is_lost(state, leading, held.number)):
        return configuration.take_place(in_force, held, joining.uuid)
    if held not in in_force.learners and held.number == state.config.node:
        return Refused(Refusal.NUMBER_TAKEN, f"node {held.number} is this leader")
    if answers := why_not_lost(state, leading, held.number):
        return Refused(Refusal.NUMBER_TAKEN, answers)
    if not state.config.replaces_lost:
        return Refused(
            Refusal.NUMBER_TAKEN,
            f"node {held.number} is lost, and replace_lost is manual: `logstore member replace "
            f"{held.number}` lets this replica take its place",
        )
    return configuration.replace_in_place(in_force, held)


def why_not_lost(state: State, leading: Leading, number: NodeId) -> str:
    """Why no replica that joins may have the place of the one that has it; empty: it may."""
    if is_lost(state, leading, number):
        return ""
    return f"another replica answers as node {number}: one of the two must stop"


def is_lost(state: State, leading: Leading, number: NodeId) -> bool:
    """Whether the peer was not heard for so long that it counts as lost."""
    progress = leading.progress.get(number)
    since_ns = state.now_ns - LOST_AFTER_TIMEOUTS * state.config.election_timeout_ns
    return leading.began_ns <= since_ns and (
        progress is None or not progress.was_heard_since(since_ns)
    )


def _not_reserved(joining: Member) -> Refused:
    return Refused(
        Refusal.NO_MEMBER,
        f"no place is reserved for node {joining.number}: `logstore member add {joining.number} "
        f"{joining.host}:{joining.port}` reserves one",
    )
