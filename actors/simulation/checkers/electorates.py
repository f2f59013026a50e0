"""Who counts in a majority at a replica: the voters of the newest configuration in its log (SAFETY
C5 to C8).

Owns what each CONFIG entry says, by the bytes that were ordered, and the arithmetic of majorities.
Must not ask the product for either. While no CONFIG is in a log, the founders count: by number, for
nothing else is known of them, and never on a disk that took the place of a lost one (L1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from actors.simulation.checkers.replica_promises import Replica
from logstore.format.configuration_body import NO_UUID, Configuration, Member

AUTOMATIC = frozenset(("promote=auto",))  # labels of a learner that becomes a voter by itself
REPLACES = "replaces="  # the label of one that takes a voter's place by itself
Place = tuple[int, bytes]  # of a voter: its number, its uuid; NO_UUID: that of a founder


class Electorate:
    """The sets of voters of one configuration; a majority of each is needed."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        parts = (configuration.voters, configuration.incoming)
        self.sets = tuple(tuple(map(_place, part)) for part in parts if part)

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Of all voters."""
        return frozenset(number for part in self.sets for number, _ in part)

    @cached_property
    def members(self) -> frozenset[int]:
        """The numbers of all that are replicas: not of places that are reserved."""
        learners = (each.number for each in self.configuration.learners if each.uuid != NO_UUID)
        return self.numbers.union(learners)

    @cached_property
    def uuids(self) -> dict[int, bytes]:
        """Of all that are replicas, by number."""
        parts = (self.configuration.voters, self.configuration.incoming)
        voters = {int(each.number): each.uuid for part in parts for each in part}
        learners = [each for each in self.configuration.learners if each.uuid != NO_UUID]
        return {int(each.number): each.uuid for each in learners} | voters

    @property
    def awaits_voter(self) -> bool:
        """A learner has joined that becomes a voter by itself, once it has caught up."""
        return any(
            each.uuid != NO_UUID
            and any(label in AUTOMATIC or label.startswith(REPLACES) for label in each.labels)
            for each in self.configuration.learners
        )

    def is_open(self, replica: Replica) -> bool:
        """Something is still to be done for this number: it is a voter under another uuid, or a
        place from which a voter is to come."""
        others = [
            each
            for each in (*self.configuration.voters, *self.configuration.incoming)
            if each.number == replica.node and not _is_at(replica, _place(each))
        ]
        return bool(others) or any(
            each.number == replica.node and AUTOMATIC.intersection(each.labels)
            for each in self.configuration.learners
        )

    def counts(self, replica: Replica) -> bool:
        """Whether the replica is a voter."""
        return any(_is_at(replica, place) for part in self.sets for place in part)

    def has(self, replica: Replica) -> bool:
        """Whether the replica is a member: a voter, or a learner that has joined."""
        learners = (_place(each) for each in self.configuration.learners if each.uuid != NO_UUID)
        return self.counts(replica) or any(_is_at(replica, place) for place in learners)

    def is_majority(self, replicas: Iterable[Replica]) -> bool:
        """Whether these have a majority of each set; others do not count."""
        present = tuple(replicas)
        return all(
            sum(any(_is_at(each, place) for each in present) for place in part) > len(part) // 2
            for part in self.sets
        )

    def is_majority_of(self, numbers: Collection[int]) -> bool:
        """The same by number alone. Hot."""
        return all(
            sum(number in numbers for number, _ in part) > len(part) // 2 for part in self.sets
        )

    def reached(self, values: Mapping[int, int], otherwise: int) -> int:
        """What a majority of each set has reached, by number; `otherwise`: those without a value.
        Hot."""
        return min(
            sorted(values.get(number, otherwise) for number, _ in part)[(len(part) - 1) // 2]
            for part in self.sets
        )


class Electorates:
    """Of all replicas. `founders`: the numbers that count while there is no CONFIG."""

    __slots__ = ("_by_chain", "first")

    def __init__(self, founders: Sequence[int]) -> None:
        self.first = Electorate(founded(founders))
        self._by_chain: dict[int, Electorate] = {}

    def learn(self, chain: int, configuration: Configuration) -> None:
        """What the CONFIG entry with this chain says."""
        self._by_chain[chain] = Electorate(configuration)

    def of_chain(self, chain: int) -> Electorate | None:
        """What this CONFIG entry says; None: its bytes are not known."""
        return self._by_chain.get(chain)

    def of(self, replica: Replica) -> Electorate:
        """By the newest CONFIG in its log, or before a log start that was installed. Hot."""
        found = self._by_chain.get(replica.log.newest_config)
        return self.first if found is None else found


def founded(founders: Sequence[int]) -> Configuration:
    """That of no entry."""
    voters = tuple(Member(number, NO_UUID, "", 0) for number in founders)  # type: ignore[arg-type]
    return Configuration(0, voters)


def _place(member: Member) -> Place:
    return int(member.number), member.uuid


def _is_at(replica: Replica, place: Place) -> bool:
    number, uuid = place
    if replica.node != number:
        return False
    if uuid == NO_UUID:
        return replica.disk == 0
    return replica.uuid == uuid or (not replica.uuid and replica.disk == 0)
