"""Majority arithmetic, for odd and even cluster sizes, and for two sets of voters at a time (SAFETY
V1, C7; FAULTS.R22). Only pure functions and values; must not know who the voters are.

While voters are changed, whatever needs a majority needs one of the old and one of the new set:
elections, commit, read rounds, check-quorum, clocks, space (C7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import repeat
from typing import Generic, TypeVar

import msgspec

from logstore.model import Index

Key = TypeVar("Key")  # a node number or a replica uuid


def majority(voters: int) -> int:
    """The smallest number of voters such that any two sets of it share a member: n // 2 + 1."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """The highest value that a majority has reached. One value per voter, self included."""
    descending = sorted(values, reverse=True)
    return descending[majority(len(descending)) - 1]


class VoterSets(msgspec.Struct, Generic[Key], frozen=True, gc=False):
    """The sets of voters whose majorities decide, by the key under which they are heard.

    `incoming` is empty while no change is under way. A key that no replica has, of a voter that is
    not known yet (C5a), may stand in a set more than once: it is part of the set's size, and never
    among those that answer.
    """

    voters: tuple[Key, ...]
    incoming: tuple[Key, ...] = ()

    def is_majority(self, of: Collection[Key]) -> bool:
        """Whether `of` has a majority of each set. Others in `of` do not count."""
        return _is_majority(self.voters, of) and (
            not self.incoming or _is_majority(self.incoming, of)
        )

    def reached(self, values: Mapping[Key, int]) -> int:
        """The highest value that a majority of each set has reached; a voter without one is
        at 0. Values of others do not count. Hot: called for each answer of a follower."""
        value = majority_value(map(values.get, self.voters, repeat(0)))
        if not self.incoming:
            return value
        return min(value, majority_value(map(values.get, self.incoming, repeat(0))))


def _is_majority(voters: tuple[Key, ...], of: Collection[Key]) -> bool:
    return sum(map(of.__contains__, voters)) >= majority(len(voters))


def commit_candidate(voters: VoterSets[Key], matches: Mapping[Key, Index]) -> Index:
    """The highest index that a majority has persisted; the caller checks its term (SAFETY V1)."""
    return Index(voters.reached(matches))
