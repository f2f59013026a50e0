"""The states one replica can be in, numbered, and what every event makes of them.

The core is a function of its state and an event. So each pair is worked out once, on live objects,
and then looked up: there are thousands of such pairs where there are millions of states of the
three replicas together. Owns the numbering (by digest of the frozen state), the facts that promises
are checked with, and the promises that one replica can break by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import InvariantViolated
from logstore.format.entry import Row
from logstore.model import Role
from tests.explorer.bound import Bound
from tests.explorer.events import (
    Campaign,
    Crash,
    Flushed,
    Happening,
    Local,
    Proposal,
    Saved,
)
from tests.explorer.freezing import Frozen, digest_of
from tests.explorer.replica import (
    START,
    Disk,
    Posted,
    PromiseBroken,
    Replica,
    written_rows,
)
from tests.explorer.symmetry import mirror
from tests.explorer.wire import Ear


class Log(NamedTuple):
    """(term, chain) of every entry: chains say whether two logs are the same up to an index."""

    terms: tuple[int, ...]
    chains: tuple[int, ...]


class Facts(NamedTuple):
    """What the promises between replicas are checked with."""

    term: int
    leading_term: int
    commit: int
    log: Log
    durable: Log


class LocalState(NamedTuple):
    """One numbered state: its value, what may happen in it, what it shows."""

    frozen: Frozen
    events: tuple[Local, ...]
    facts: Facts
    ear: Ear
    is_cut: bool


class Step(NamedTuple):
    """What an event makes of a local state. `fault`: the promise it breaks."""

    state: int
    posted: tuple[Posted, ...]
    fault: str | None = None


class LocalStates:
    """The table of one exploration. State 0 is a replica that has never done anything."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.states: list[LocalState] = []
        self.steps_taken = 0
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[int, Happening], Step] = {}
        self._mirrored: dict[int, int] = {}
        self._number(Replica.started(bound, Disk(), boot=1))

    def step(self, number: int, event: Happening) -> Step:
        """What `event` makes of the state with this number."""
        key = (number, event)
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._take(number, event)
            self.steps_taken += 1
        return known

    def mirrored(self, number: int) -> int:
        """The state that differs from this one by the numbers of its peers only."""
        known = self._mirrored.get(number)
        if known is None:
            replica = Replica.thawed(self.bound, self.states[number].frozen)
            mirror(replica)
            known = self._number(replica)
            self._mirrored[number], self._mirrored[known] = known, number
        return known

    def _take(self, number: int, event: Happening) -> Step:
        before = self.states[number]
        replica = Replica.thawed(self.bound, before.frozen)
        try:
            if isinstance(event, Crash):
                replica = replica.after_crash(self.bound, event)
            else:
                replica.take(event)
            posted = tuple(dict.fromkeys(replica.posted))
            after = self._number(replica)
        except (InvariantViolated, PromiseBroken) as broken:
            return Step(number, (), f"{type(broken).__name__}: {broken}")
        facts, old = self.states[after].facts, before.facts
        if not isinstance(event, Crash) and (facts.term, facts.commit) < (old.term, old.commit):
            return Step(after, posted, f"term or commit went back, {old} to {facts}")
        return Step(after, posted, _fault_of(replica))

    def _number(self, replica: Replica) -> int:
        frozen = replica.frozen()
        digest = digest_of(frozen)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self.states)
            self.states.append(_described(self.bound, replica, frozen))
        return number


def _described(bound: Bound, replica: Replica, frozen: Frozen) -> LocalState:
    core, state, disk = replica.core, replica.state, replica.disk
    leading_term = core.term if core.role == Role.LEADER else 0
    candidate_term = core.term if core.role == Role.CANDIDATE else 0
    facts = Facts(
        core.term, leading_term, core.commit, _log(written_rows(disk)), _log(list(disk.rows))
    )
    return LocalState(
        frozen,
        tuple(_events(bound, replica)),
        facts,
        Ear(disk.meta[0], candidate_term, leading_term),
        is_cut=core.last_index > bound.entries
        or state.term > bound.terms
        or max(stream.stream for stream in replica.streams.values()) > bound.streams,
    )


def _events(bound: Bound, replica: Replica) -> list[Local]:
    """What may happen to the replica without a message."""
    core, disk = replica.core, replica.disk
    events: list[Local] = []
    if disk.writes:
        events.append(Flushed())
    if disk.saves:
        events.append(Saved())
    if core.open_gen is not None and core.last_index < bound.entries:
        events.append(Proposal())
    if core.term < bound.terms:
        events.append(Campaign())
    if replica.boot <= bound.crashes:
        events.extend(
            Crash(writes, saves)
            for writes in range(len(disk.writes) + 1)
            for saves in range(len(disk.saves) + 1)
        )
    return events


def _log(rows: list[Row]) -> Log:
    return Log(tuple(row.header.term for row in rows), tuple(row.chain for row in rows))


def _fault_of(replica: Replica) -> str | None:
    """The promise this replica breaks by itself, if any."""
    core, rows = replica.core, written_rows(replica.disk)
    last, next_lsn, last_term, chain = 0, START.next_lsn, 0, START.chain
    for row in rows:
        header = row.header
        if (header.index, header.first_lsn, header.prev_chain) != (last + 1, next_lsn, chain):
            return f"I2: entry {header} does not follow entry {last}, LSN {next_lsn}"
        if header.term < last_term or row.chain != header.chain():
            return f"I3: entry {header} follows one of term {last_term}"
        last, next_lsn, last_term, chain = header.index, header.next_lsn, header.term, row.chain
    durable = replica.disk.rows[: core.persisted]
    if [row.chain for row in durable] != [row.chain for row in rows[: core.persisted]]:
        return f"I12: claims {core.persisted} flushed entries, the disk holds others"
    if core.commit > core.last_index or core.last_index != last:
        return f"I8: commit {core.commit}, last {core.last_index}, {last} entries written"
    visible_lsn = core.visible_lsn
    if visible_lsn is not None and visible_lsn > core.commit_lsn:
        return f"I8: shows LSN {visible_lsn}, committed is {core.commit_lsn}"
    return None
