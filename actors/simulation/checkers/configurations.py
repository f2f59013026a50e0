"""The configurations of the cluster (I18; SAFETY C5 to C12): each committed one follows the one
before it, and their majorities meet; only a voter campaigns; no log start passes the newest one;
what a core says of its members is what its log says.

Owns the newest committed CONFIG. `electorates` has what each one says.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from actors.simulation.checkers.consequences import ConfigCommitted, LevelCommitted, TrimRead
from actors.simulation.checkers.electorates import Electorate, Place
from actors.simulation.checkers.facts import Converged, Stepped
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.checkers.reads import reads, reads_after
from actors.simulation.checkers.record import Record
from actors.simulation.checkers.replica_promises import Replica
from logstore.errors import FormatError
from logstore.format.configuration_body import (
    NO_UUID,
    Configuration,
    Member,
    decode_configuration,
    roles,
)
from logstore.format.level import CONFIG_LEVEL
from logstore.format.peer_messages import PreVoteRequest, VoteRequest
from logstore.model import EntryKind
from logstore.raft.effects import InstallLog, MembersChanged, Persist, Send
from logstore.raft.events import AppendReceived, LogStartMoved, MetaPersisted, Proposed


class Configurations:
    """Checks all of them."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._electorates = record.electorates
        self._level = 0
        self._committed_index = 0  # of the newest one; 0: there is none

    # --- entries ---

    @reads(Persist)
    def on_persist(self, replica: Replica, persist: Persist, step: Stepped) -> None:
        """The bytes of the entry are known by now, if at all."""
        if persist.header.kind != EntryKind.CONFIG:
            return
        replica.counted_since_ns = replica.clock_ns
        before = replica.log.configs[-2:-1]
        if isinstance(step.event, Proposed) and before and before[0] > replica.commit:
            text = f"node {replica.node} appends CONFIG {persist.header.index}, and the one at"
            self._report(f"{text} entry {before[0]} is not committed")
        if self._electorates.of_chain(persist.chain) is None:
            self._learn(replica, persist, step)
        known = self._electorates.of_chain(persist.chain)
        if isinstance(step.event, Proposed) and known is not None:
            self._record.newest_proposed = known

    def _learn(self, replica: Replica, persist: Persist, step: Stepped) -> None:
        body = self._record.entries.bodies.get(persist.chain)
        if body is not None:
            try:
                configuration = decode_configuration(body)
            except FormatError as error:
                self._report(f"CONFIG {persist.header.index} of node {replica.node}: {error}")
                return
        elif isinstance(step.event, Proposed | AppendReceived) and step.event.configuration:
            configuration = step.event.configuration
        else:
            return
        self._electorates.learn(persist.chain, configuration)
        for fault in _faults(configuration):
            self._report(f"CONFIG {persist.header.index} of node {replica.node} {fault}")

    @reads(ConfigCommitted)
    def on_committed(self, committed: ConfigCommitted) -> None:
        found = self._electorates.of_chain(committed.chain)
        if found is None:
            return
        for fault in _why_no_successor(self._record.newest_committed, found):
            self._report(f"CONFIG {found.configuration.id} at entry {committed.index} {fault}")
        self._committed_index, self._record.newest_committed = committed.index, found

    # --- what a core says, and who campaigns ---

    @reads_after(MembersChanged)
    def on_members(self, replica: Replica, changed: MembersChanged, step: Stepped) -> None:
        """Of several in one step the last one counts."""
        newest = [each for each in step.effects if type(each) is MembersChanged][-1]
        if changed is not newest or self._record.is_excused(replica.node):
            return
        configs = replica.log.configs
        if not configs:
            return  # after an installed start it may know one that its log has no more
        known = self._electorates.of(replica).configuration
        told = (changed.index, changed.is_committed, changed.configuration)
        if told != (configs[-1], configs[-1] <= step.core.commit, known):
            text = f"node {replica.node} says {changed}, its log has {known}"
            self._report(f"{text} at entry {configs[-1]}")

    @reads((Send, PreVoteRequest), (Send, VoteRequest))
    def on_campaign(self, replica: Replica, send: Send, step: Stepped) -> None:
        """The newest configuration that it knows to be committed, or a later one in its log, has
        it as a voter (C9). A log that has none says nothing of a first disk. A pre-vote that had to
        wait for META was right when it was due."""
        if type(step.event) is MetaPersisted and type(send.message) is PreVoteRequest:
            return
        log = replica.log
        above = [index for index in log.configs if index > replica.commit]
        below = [index for index in log.configs if index <= replica.commit][-1:]
        known = [self._electorates.of_chain(log.chain_at(each) or 0) for each in (*below, *above)]
        if not known and log.newest_config == 0:
            known = [self._electorates.first]
        if known and not any(each is None or each.counts(replica) for each in known):
            text = f"node {replica.node} asks node {send.peer} for a vote"
            self._report(f"{text}, no configuration that it knows has it as a voter")

    # --- log starts ---

    @reads(LogStartMoved)
    def on_start_moved(self, replica: Replica, moved: LogStartMoved, _step: Stepped) -> None:
        self._check_start(f"the log of node {replica.node}", moved.start.position.index)

    @reads(InstallLog)
    def on_install(self, replica: Replica, install: InstallLog, _step: Stepped) -> None:
        self._check_start(f"the log of node {replica.node}", install.start.position.index)

    @reads(TrimRead)
    def on_trim(self, trim: TrimRead) -> None:
        self._check_start(f"TRIM {trim.index}", trim.entry.start.index)

    def _check_start(self, what: str, start: int) -> None:
        """A replica without the newest committed CONFIG would not know who votes (G4, C12)."""
        if 0 < self._committed_index <= start:
            text = f"{what} begins after entry {start}, and the newest committed CONFIG is"
            self._report(f"{text} entry {self._committed_index}")

    @reads(Converged)
    def on_converged(self, _converged: Converged) -> None:
        """A log at that level has a CONFIG, unless a founder was lost that is not known (C5a)."""
        record = self._record
        is_due = self._level >= CONFIG_LEVEL and not record.gone and record.is_replica_known
        if is_due and not self._committed_index and not self._is_damaged:
            record.findings.report(Invariant.I13, "the log has no configuration in the end")

    @reads(LevelCommitted)
    def on_level(self, committed: LevelCommitted) -> None:
        self._level = max(self._level, committed.level)

    @property
    def _is_damaged(self) -> bool:
        return any(map(self._record.is_excused, self._record.replicas))

    def _report(self, text: str) -> None:
        self._record.findings.report(Invariant.I18, text)


def _faults(configuration: Configuration) -> Iterable[str]:
    """What no configuration may have."""
    replicas = [each for each, _ in roles(configuration) if each not in _reserved(configuration)]
    numbers = [each.number for each in replicas]
    if len(set(numbers)) != len(numbers):
        yield f"has two replicas of one number, {sorted(numbers)}"
    uuids = [each.uuid for each in replicas if each.uuid != NO_UUID]
    if len(set(uuids)) != len(uuids):
        yield "has one replica twice"
    if not configuration.voters:
        yield "has no voters"


def _reserved(configuration: Configuration) -> list[Member]:
    """Places that no replica has yet."""
    return [each for each in configuration.learners if each.uuid == NO_UUID]


def _why_no_successor(before: Electorate, found: Electorate) -> Iterable[str]:
    """What one committed configuration may not be after another."""
    old, new = before.configuration, found.configuration
    if new.id != old.id + 1:
        yield f"follows CONFIG {old.id}"
    if old.incoming and new.incoming:
        yield "changes the voters, and so does the one before it"
    expected = _places(old.incoming or old.voters)
    if old.id and _places(new.voters) != expected:
        yield f"has other voters than CONFIG {old.id} led to"
    if not old.id and [each for each, _ in _places(new.voters)] != [
        each for each, _ in _places(old.voters)
    ]:
        yield "has other voters than the configuration file"
    if old.id and not _meet(before, found):
        yield f"has a majority that shares no replica with one of CONFIG {old.id}"


def _places(members: Iterable[Member]) -> list[Place]:
    return sorted((int(each.number), each.uuid) for each in members)


def _meet(one: Electorate, other: Electorate) -> bool:
    """Whether each majority of one shares a replica with each of the other."""
    others = _majorities(other)
    return all(first & second for first in _majorities(one) for second in others)


def _majorities(electorate: Electorate) -> list[frozenset[Place]]:
    """Every set that is a majority, and no larger than it has to be."""
    everyone = sorted({place for part in electorate.sets for place in part})
    found: list[frozenset[Place]] = []
    for size in range(1, len(everyone) + 1):
        for some in combinations(everyone, size):
            chosen = frozenset(some)
            if any(each <= chosen for each in found):
                continue
            if all(
                sum(each in chosen for each in part) > len(part) // 2 for part in electorate.sets
            ):
                found.append(chosen)
    return found
