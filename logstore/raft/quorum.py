"""Majority arithmetic, for odd and even cluster sizes (SAFETY V1,
FAULTS.R22). Only pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from logstore.model import Index


def majority(voters: int) -> int:
    """The smallest number of voters such that any two sets of it share a member: n // 2 + 1."""
    return voters // 2 + 1


def majority_value(values: Iterable[int]) -> int:
    """The highest value that a majority has reached. One value per voter, self included."""
    descending = sorted(values, reverse=True)
    return descending[majority(len(descending)) - 1]


def commit_candidate(matches: Iterable[Index]) -> Index:
    """The highest index that a majority has persisted; the caller checks its term (SAFETY V1)."""
    return Index(majority_value(matches))
