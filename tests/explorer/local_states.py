"""The numbered states of one replica, and the state that follows each by each event.

The core is a function of its state and an event. So each pair is computed once, on live objects,
and then looked up: there are thousands of pairs for millions of states of all three replicas. Owns
the numbering (by digest of the frozen state), the facts that promises are checked with, and the
promises that one replica can break by itself.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.errors import InvariantViolated
from logstore.format.entry import Row
from logstore.model import Role
from tests.explorer.bound import REPLICAS, Bound
from tests.explorer.events import (
    Campaign,
    Crash,
    Flushed,
    Happening,
    Local,
    Proposal,
    Saved,
)
from tests.explorer.explored_changes import Voting, possible, votings_of
from tests.explorer.explored_replica import (
    START,
    PromiseBroken,
    Replica,
    Sent,
    first_disk,
    written_rows,
)
from tests.explorer.freezing import Frozen, digest_of
from tests.explorer.messages_in_flight import ReceiverTerms
from tests.explorer.symmetry import mirror


class Log(NamedTuple):
    """(term, chain) of every entry; two logs with the same chain at an index are equal up to it."""

    terms: tuple[int, ...]
    chains: tuple[int, ...]


class Facts(NamedTuple):
    """What promises between replicas are checked with. `votings`: of the written log."""

    term: int
    leading_term: int
    commit: int
    log: Log
    durable: Log
    votings: tuple[Voting, ...]


class LocalState(NamedTuple):
    """One numbered state: its value, its possible events, its facts."""

    frozen: Frozen
    events: tuple[Local, ...]
    facts: Facts
    receiver_terms: ReceiverTerms
    is_cut: bool


class Step(NamedTuple):
    """The result of an event in a local state. `fault`: the promise that it breaks."""

    state: int
    sent: tuple[Sent, ...]
    fault: str | None = None


class LocalStates:
    """The table of one exploration. `first`: the states of the three that did nothing yet; where
    members do not change, all are state 0."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.states: list[LocalState] = []
        self.steps_taken = 0
        self._numbers: dict[bytes, int] = {}
        self._steps: dict[tuple[int, Happening], Step] = {}
        self._mirrored: dict[int, int] = {}
        disk, places = first_disk(bound), range(REPLICAS) if bound.changes else [0] * REPLICAS
        one, two, three = (
            self._number(Replica.started(bound, disk, boot=1, place=place)) for place in places
        )
        self.first = (one, two, three)

    def step(self, number: int, event: Happening) -> Step:
        """The result of `event` in the state of this number."""
        key = (number, event)
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._take(number, event)
            self.steps_taken += 1
        return known

    def mirrored(self, number: int) -> int:
        """The state that differs from this one in the numbers of its peers only."""
        known = self._mirrored.get(number)
        if known is None:
            replica = Replica.thawed(self.bound, self.states[number].frozen)
            mirror(self.bound, replica)
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
                replica.apply(event)
            sent = tuple(dict.fromkeys(replica.sent))
            after = self._number(replica)
        except (InvariantViolated, PromiseBroken) as broken:
            return Step(number, (), f"{type(broken).__name__}: {broken}")
        facts, old = self.states[after].facts, before.facts
        if not isinstance(event, Crash) and (facts.term, facts.commit) < (old.term, old.commit):
            return Step(after, sent, f"term or commit went back, {old} to {facts}")
        return Step(after, sent, _fault_of(replica))

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
    rows = written_rows(disk)
    facts = Facts(
        core.term,
        leading_term,
        core.commit,
        _log(rows),
        _log(list(disk.rows)),
        votings_of(rows),
    )
    return LocalState(
        frozen,
        tuple(_events(bound, replica)),
        facts,
        ReceiverTerms(disk.meta[0], candidate_term, leading_term),
        is_cut=core.last_index > bound.last_index
        or state.term > bound.terms
        or max(stream.stream for stream in replica.streams.values()) > bound.streams,
    )


def _events(bound: Bound, replica: Replica) -> list[Local]:
    """The possible events besides deliveries."""
    core, disk = replica.core, replica.disk
    events: list[Local] = []
    if disk.writes:
        events.append(Flushed())
    if disk.saves:
        events.append(Saved())
    if core.open_gen is not None and core.last_index < bound.last_index:
        if not bound.changes:
            events.append(Proposal())
        events.extend(possible(bound, replica.state))
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
    """The promise that this replica breaks by itself, if any."""
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
    return _fault_of_campaign(replica, votings_of(rows))


def _fault_of_campaign(replica: Replica, votings: tuple[Voting, ...]) -> str | None:
    """A candidate is a voter by the newest CONFIG that it knows to be committed, or by a later
    one."""
    if replica.core.role != Role.CANDIDATE or not votings:
        return None
    node, commit = replica.config.node, replica.core.commit
    committed = [each.at for each in votings if each.at <= commit]
    kept = [each for each in votings if each.at >= max(committed, default=0)]
    if any(node in (*each.voters, *each.incoming) for each in kept):
        return None
    return f"node {node} campaigns, and is no voter by {kept}"
