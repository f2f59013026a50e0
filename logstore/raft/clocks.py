"""How far a leader's wall clock counts (SAFETY G2), and whose clock is off.

Owns what the replicas' wall clocks say, as their heartbeat answers tell it. Must not know what
stamps are for. A majority's clock is the latest time that the clocks of a majority, this node's
included, have reached; a clock that was not heard counts as one that has reached nothing. Between
two answers a clock goes on by this node's monotonic clock, for two election timeouts at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.limits import CLOCK_AHEAD_MAX_NS, SAY_AGAIN_NS
from logstore.model import NodeId
from logstore.raft.effects import Log
from logstore.raft.progress import Progress
from logstore.raft.quorum import majority_value
from logstore.raft.state import Leading, State

NS_PER_SECOND = 1_000_000_000
_UNKNOWN_NS = 0


def hear(state: State, progress: Progress, clock_ns: int) -> None:
    """The answer of a new round says what time it is there."""
    if clock_ns != _UNKNOWN_NS:
        progress.clock_ahead_ns = clock_ns - state.now_ns
        progress.clock_heard_ns = state.now_ns


def stamp_ns(state: State, *, previous_ns: int, wall_ns: int) -> int:
    """The time of a new entry: never before the previous one's, and never more than a second beyond
    a majority's clock. One wrong clock would else be in every later stamp for good."""
    leading = state.leading
    if leading is None:
        return previous_ns
    counted_ns = _majority_ns(state, leading, wall_ns)
    if counted_ns == _UNKNOWN_NS:
        return previous_ns
    return max(previous_ns, min(wall_ns, counted_ns + CLOCK_AHEAD_MAX_NS))


def skews_ns(state: State, leading: Leading) -> dict[NodeId, int]:
    """How far each clock that was heard, this node's included, is ahead of a majority's; empty
    while none is known."""
    counted_ns = _majority_ns(state, leading, state.wall_ns)
    if counted_ns == _UNKNOWN_NS:
        return {}
    skews = {state.config.node: state.wall_ns - counted_ns}
    for progress in leading.progress.values():
        clock_ns = _clock_ns(state, progress)
        if clock_ns != _UNKNOWN_NS:
            skews[progress.peer] = clock_ns - counted_ns
    return skews


def tell(state: State, leading: Leading) -> None:
    """Name every clock that is off by more than a second, each once a minute."""
    for node, skew_ns in skews_ns(state, leading).items():
        if abs(skew_ns) <= CLOCK_AHEAD_MAX_NS:
            continue
        told_ns = leading.skew_told_ns.get(node)
        if told_ns is None or state.now_ns - told_ns >= SAY_AGAIN_NS:
            leading.skew_told_ns[node] = state.now_ns
            state.emit(Log(_line(node, skew_ns)))


def _line(node: NodeId, skew_ns: int) -> str:
    side = "ahead of" if skew_ns > 0 else "behind"
    return (
        f"the clock of node {node} is {abs(skew_ns) / NS_PER_SECOND:.1f} s {side} the clocks of a "
        "majority: set it right, stamps follow the majority"
    )


def _majority_ns(state: State, leading: Leading, wall_ns: int) -> int:
    return majority_value([wall_ns, *_clocks(state, leading)])


def _clocks(state: State, leading: Leading) -> Iterator[int]:
    return (_clock_ns(state, progress) for progress in leading.progress.values())


def _clock_ns(state: State, progress: Progress) -> int:
    """What time it is there by now, if it was heard lately."""
    heard_ns = progress.clock_heard_ns
    if heard_ns is None or state.now_ns - heard_ns > 2 * state.config.election_timeout_ns:
        return _UNKNOWN_NS
    return progress.clock_ahead_ns + state.now_ns
