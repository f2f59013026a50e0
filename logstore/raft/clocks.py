"""How far a leader's wall clock counts in stamps (SAFETY G2), and which clocks are wrong.

Owns the replicas' wall clocks, as their heartbeat answers report them. Must not know what stamps
are for. The majority's clock is the latest time that the clocks of a majority, this node's
included, have reached. A clock that was not reported has reached nothing. Between two answers a
clock advances with this node's monotonic clock, for two election timeouts at most.
"""

from __future__ import annotations

from logstore.limits import CLOCK_AHEAD_MAX_NS, LOG_AGAIN_NS
from logstore.model import NodeId
from logstore.raft.effects import Log
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, State

NS_PER_SECOND = 1_000_000_000
_UNKNOWN_NS = 0


def record(state: State, progress: Progress, clock_ns: int) -> None:
    """Record a peer's wall clock, from its answer to a new heartbeat round."""
    if clock_ns != _UNKNOWN_NS:
        progress.clock_ahead_ns = clock_ns - state.now_ns
        progress.clock_recorded_ns = state.now_ns


def stamp_ns(state: State, *, previous_ns: int, wall_ns: int) -> int:
    """The timestamp of a new entry: not before the previous entry's, and at most a second after the
    majority's clock. Stamps never go back, so one wrong clock would spoil every later stamp."""
    leading = state.leading
    if leading is None:
        return previous_ns
    counted_ns = _majority_ns(state, leading, wall_ns)
    if counted_ns == _UNKNOWN_NS:
        return previous_ns
    return max(previous_ns, min(wall_ns, counted_ns + CLOCK_AHEAD_MAX_NS))


def skews_ns(state: State, leading: Leading) -> dict[NodeId, int]:
    """How far each reported clock, this node's included, is ahead of the majority's. Empty while
    the majority's is unknown."""
    counted_ns = _majority_ns(state, leading, state.wall_ns)
    if counted_ns == _UNKNOWN_NS:
        return {}
    skews = {state.config.node: state.wall_ns - counted_ns}
    for progress in leading.progress.values():
        clock_ns = _clock_ns(state, progress)
        if clock_ns != _UNKNOWN_NS:
            skews[progress.peer] = clock_ns - counted_ns
    return skews


def log_skews(state: State, leading: Leading) -> None:
    """Log every clock that is wrong by more than a second, each once a minute."""
    for node, skew_ns in skews_ns(state, leading).items():
        if abs(skew_ns) <= CLOCK_AHEAD_MAX_NS:
            continue
        logged_ns = leading.skew_logged_ns.get(node)
        if logged_ns is None or state.now_ns - logged_ns >= LOG_AGAIN_NS:
            leading.skew_logged_ns[node] = state.now_ns
            state.emit(Log(_line(node, skew_ns)))


def _line(node: NodeId, skew_ns: int) -> str:
    side = "ahead of" if skew_ns > 0 else "behind"
    return (
        f"the clock of node {node} is {abs(skew_ns) / NS_PER_SECOND:.1f} s {side} the clocks of a "
        "majority: set it right, stamps follow the majority"
    )


def _majority_ns(state: State, leading: Leading, wall_ns: int) -> int:
    clocks = {peer: _clock_ns(state, progress) for peer, progress in leading.progress.items()}
    clocks[state.config.node] = wall_ns
    return state.voters.reached(clocks)


def _clock_ns(state: State, progress: Progress) -> int:
    """The peer's time now, if it was reported lately."""
    heard_ns = progress.clock_recorded_ns
    if heard_ns is None or state.now_ns - heard_ns > 2 * state.config.election_timeout_ns:
        return _UNKNOWN_NS
    return progress.clock_ahead_ns + state.now_ns
