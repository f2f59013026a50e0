"""Finds the smallest script that still fails: delta debugging over its faults, then its ground.

Owns the order of attempts. Must not know what a failure is: `fails` runs a script and decides. Each
fault has a random seed of its own, so leaving one out changes no other.

    1. faults: halves, quarters, …, single ones (ddmin)
    2. the horizon: no longer than the faults take, then half, …
    3. fewer clients, small payloads, ideal clocks and rings
    4. five replicas to three
    5. shorter faults
    6. faults once more, if anything changed
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import combinations
from typing import Any

import msgspec

from actors.simulation.faults.script import Fault, Ground, Script

Fails = Callable[[Script], bool]
# A shorter run has no time to elect a first leader.
SAFETY_SHORTEST_NS = 2_000_000_000
DURATION_SHORTEST_NS = 1_000_000
_SLACK_NS = 500_000_000
_CLIENTS = 0
_FEWER_REPLICAS = 3


class _OutOfTimeError(Exception):
    """The deadline has passed."""


def shrink(script: Script, fails: Fails, *, deadline: Callable[[], bool]) -> Script:
    """The smallest script found that still fails.

    Args:
      script: one for which `fails` is true.
      fails: runs a script; whether it shows the same failure.
      deadline: called before each run; True ends the search. The last run may end after it.
    """
    search = _Search(script, fails, deadline)
    with suppress(_OutOfTimeError):
        search.all_steps()
    return search.best


class _Search:
    """`best`: the smallest script so far that fails."""

    def __init__(self, script: Script, fails: Fails, deadline: Callable[[], bool]) -> None:
        self.best = script
        self._fails = fails
        self._deadline = deadline

    def all_steps(self) -> None:
        self._leave_out_faults()
        after_faults = self.best
        self._shorten_horizon()
        self._take_first(list(_with_fewer_clients(self.best)))
        for change in _PLAINER:
            self._try(_with_ground(self.best, **change))
        self._try(_with_ideal_clocks(self.best))
        self._take_first(list(_with_three_replicas(self.best)))
        self._shorten_faults()
        if self.best != after_faults:
            self._leave_out_faults()

    def _try(self, candidate: Script) -> bool:
        """Whether the candidate differs from the best and fails; then it is the best."""
        if candidate == self.best:
            return False
        if self._deadline():
            raise _OutOfTimeError
        if not self._fails(candidate):
            return False
        self.best = candidate
        return True

    def _take_first(self, candidates: list[Script]) -> None:
        for candidate in candidates:
            if self._try(candidate):
                return

    def _leave_out_faults(self) -> None:
        """ddmin: leave out pieces, then smaller ones; in the end single faults, until none can be
        left out."""
        if not self.best.faults or self._try(_with_faults(self.best, ())):
            return
        size = (len(self.best.faults) + 1) // 2
        while True:
            has_shrunk = self._leave_out_pieces(size)
            if size > 1:
                size = (size + 1) // 2
            elif not has_shrunk:
                return

    def _leave_out_pieces(self, size: int) -> bool:
        """Each piece once, the last first: late faults are the least likely causes."""
        has_shrunk = False
        start = (len(self.best.faults) - 1) // size * size
        while start >= 0:
            faults = self.best.faults
            rest = faults[:start] + faults[start + size :]
            if len(rest) < len(faults):
                has_shrunk = self._try(_with_faults(self.best, rest)) or has_shrunk
            start -= size
        return has_shrunk

    def _shorten_horizon(self) -> None:
        faults = self.best.faults
        end_ns = max((fault.at_ns + fault.for_ns for fault in faults), default=0) + _SLACK_NS
        safety_ns = self.best.ground.safety_ns
        if end_ns < safety_ns:
            self._try(_with_horizon(self.best, max(end_ns, SAFETY_SHORTEST_NS)))
        while True:
            half_ns = self.best.ground.safety_ns // 2
            if half_ns < SAFETY_SHORTEST_NS or not self._try(_with_horizon(self.best, half_ns)):
                return

    def _shorten_faults(self) -> None:
        """Halve each fault's duration and delay as often as possible."""
        for position in range(len(self.best.faults)):
            for field in ("for_ns", "delay_ns"):
                while True:
                    fault = self.best.faults[position]
                    half_ns = getattr(fault, field) // 2
                    if half_ns < DURATION_SHORTEST_NS:
                        break
                    shorter = msgspec.structs.replace(fault, **{field: half_ns})
                    faults = list(self.best.faults)
                    faults[position] = shorter
                    if not self._try(_with_faults(self.best, tuple(faults))):
                        break


# Each is tried by itself.
_PLAINER: tuple[dict[str, Any], ...] = (
    {"groups": {}},
    {"joiners": 0},
    {"imports": 0},
    {"first_lsn": 1},
    {"comparers": 0},
    {"batch_max_payloads": 1},
    {"payload_max_bytes": 8},
    {"ring_delay_ns": 0, "counters_lag": False},
    {"stream_mode": "paper"},
)


def _with_faults(script: Script, faults: tuple[Fault, ...]) -> Script:
    return msgspec.structs.replace(script, faults=faults)


def _with_ground(script: Script, **changes: Any) -> Script:
    return msgspec.structs.replace(script, ground=msgspec.structs.replace(script.ground, **changes))


def _with_fewer_clients(script: Script) -> Iterator[Script]:
    """The fewest first."""
    ground = script.ground
    for producers in sorted({1, min(2, ground.producers), ground.producers}):
        yield _with_ground(script, producers=producers, consumers=1)


def _with_ideal_clocks(script: Script) -> Script:
    ideal = (0,) * script.ground.machines
    ground = msgspec.structs.replace(script.ground, clock_offset_ns=ideal, clock_drift_ppm=ideal)
    return msgspec.structs.replace(script, ground=ground)


def _with_horizon(script: Script, safety_ns: int) -> Script:
    """Faults beyond the horizon go with it."""
    ground = msgspec.structs.replace(script.ground, safety_ns=safety_ns)
    faults = tuple(fault for fault in script.faults if fault.at_ns < safety_ns)
    return msgspec.structs.replace(script, ground=ground, faults=faults)


def _with_three_replicas(script: Script) -> Iterator[Script]:
    """Every choice of three nodes, those with the most faults first."""
    ground = script.ground
    if ground.replicas <= _FEWER_REPLICAS:
        return
    nodes = range(1, ground.replicas + 1)
    scripts = [_only(script, kept, ground) for kept in combinations(nodes, _FEWER_REPLICAS)]
    yield from sorted(scripts, key=lambda each: -len(each.faults))


def _only(script: Script, kept: tuple[int, ...], ground: Ground) -> Script:
    """`kept` become nodes 1, 2, 3; faults of other nodes are left out."""
    names = {old: new for new, old in enumerate(kept, 1)} | {_CLIENTS: _CLIENTS}
    faults = (_renamed(fault, names) for fault in script.faults)
    fewer = msgspec.structs.replace(
        ground,
        replicas=len(kept),
        joiners=0,
        clock_offset_ns=tuple(ground.clock_offset_ns[node - 1] for node in kept),
        clock_drift_ppm=tuple(ground.clock_drift_ppm[node - 1] for node in kept),
    )
    remaining = tuple(fault for fault in faults if fault is not None)
    return msgspec.structs.replace(script, ground=fewer, faults=remaining)


def _renamed(fault: Fault, names: dict[int, int]) -> Fault | None:
    """The fault with its nodes renamed; None if its nodes are left out."""
    links = tuple((names[a], names[b]) for a, b in fault.links if a in names and b in names)
    nodes = tuple(names[node] for node in fault.nodes if node in names)
    process, _, peer = fault.process.partition("-")
    if peer.isdigit():
        if int(peer) not in names:
            return None
        process = f"{process}-{names[int(peer)]}"
    else:
        process = fault.process
    if fault.node not in names or bool(links) != bool(fault.links):
        return None
    if bool(nodes) != bool(fault.nodes):
        return None
    return msgspec.structs.replace(
        fault, node=names[fault.node], nodes=nodes, links=links, process=process
    )
