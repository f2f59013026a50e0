"""The promises of three replicas together, checked against what was true before.

Owns the ledger: the leader of each term, and the committed entries with the term of their commit.
Must not know cores or messages. Checked: one leader per term (I9); entries of one index and term
are equal, with all before them (I3); committed entries never change (I1, I3), are in the log of
every later leader, and are durable on a majority in every later state (I1, I10): where members
change, of each set of voters by the CONFIG that was the newest one in the log of the replica that
committed them first. Committed CONFIGs follow one another, and each is appended once the one before
it and an entry of its term are committed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from logstore.raft.quorum import majority
from tests.explorer.bound import REPLICAS
from tests.explorer.explored_changes import Voting
from tests.explorer.local_states import Facts, Log

# Computed now, since a test may break `majority` on purpose.
MAJORITY = majority(REPLICAS)


class Ledger(NamedTuple):
    """`leaders`: of terms 1, 2, …, numbered from 1 (0: none); `chains`: of the committed entries;
    `terms`: in which they were committed; `votings`: by which CONFIG, where the log has one."""

    leaders: tuple[int, ...]
    chains: tuple[int, ...] = ()
    terms: tuple[int, ...] = ()
    votings: tuple[Voting, ...] = ()


class Broken(NamedTuple):
    """Which promise was broken, and how."""

    text: str


def first_ledger(terms: int, facts: Facts) -> Ledger:
    """Nobody led yet; `facts` are of any replica: each knows that its first entries are committed,
    of a term before the first."""
    ledger = Ledger((0,) * terms, facts.log.chains, facts.log.terms)
    return ledger._replace(votings=facts.votings[-1:] * len(facts.log.chains))


def after(ledger: Ledger, facts: tuple[Facts, ...], changed: int) -> Ledger | Broken:
    """The ledger after replica `changed` did a step to these `facts`, or the promise it broke."""
    now = facts[changed]
    if now.leading_term:
        known = ledger.leaders[now.leading_term - 1]
        if known not in (0, changed + 1):
            return Broken(f"I9: two replicas led term {now.leading_term}")
        leaders = list(ledger.leaders)
        leaders[now.leading_term - 1] = changed + 1
        ledger = ledger._replace(leaders=tuple(leaders))
    for other in range(REPLICAS):
        if other != changed and not _is_matching(facts[other].log, now.log):
            return Broken("I3: two logs do not match")
    common = min(now.commit, len(ledger.chains))
    if now.log.chains[:common] != ledger.chains[:common]:
        return Broken("I3: a replica committed other entries than another did")
    if now.commit > common:
        terms = (*ledger.terms, *[now.term] * (now.commit - common))
        votings = (*ledger.votings, *now.votings[-1:] * (now.commit - common))
        ledger = Ledger(ledger.leaders, now.log.chains[: now.commit], terms, votings)
        if text := _out_of_order([each for each in now.votings if each.at <= now.commit]):
            return Broken(text)
    if text := _too_early(now, committed=len(ledger.chains)):
        return Broken(text)
    return _lost(ledger, facts) or ledger


def _is_matching(one: Log, other: Log) -> bool:
    """Log Matching: equal index and term, equal chain."""
    pairs = zip(one.terms, other.terms, one.chains, other.chains, strict=False)
    return all(a != b or first == second for a, b, first, second in pairs)


def _lost(ledger: Ledger, facts: tuple[Facts, ...]) -> Broken | None:
    """Committed entries that a later leader lacks, or that no majority has on disk."""
    count = len(ledger.chains)
    if not count:
        return None
    for each in facts:
        held = sum(term < each.leading_term for term in ledger.terms)
        if each.log.chains[:held] != ledger.chains[:held]:
            return Broken(f"I1: the leader of term {each.leading_term} lacks committed entries")
    if ledger.votings:
        return _lost_by_voting(ledger, facts)
    holders = sum(each.durable.chains[count - 1 : count] == ledger.chains[-1:] for each in facts)
    if holders < MAJORITY:
        return Broken(f"I10: committed entry {count} is on {holders} disks")
    return None


def _lost_by_voting(ledger: Ledger, facts: tuple[Facts, ...]) -> Broken | None:
    """Committed entries that some set of voters, which had to have them, has on no majority of its
    disks. Removed replicas keep what they have."""
    for at, (chain, voting) in enumerate(zip(ledger.chains, ledger.votings, strict=True)):
        holders = {
            number
            for number, each in enumerate(facts, start=1)
            if each.durable.chains[at : at + 1] == (chain,)
        }
        for voters in filter(None, (voting.voters, voting.incoming)):
            if 2 * len(holders.intersection(voters)) <= len(voters):
                return Broken(
                    f"I10: committed entry {at + 1} is on the disks of nodes {sorted(holders)}, "
                    f"the voters are {voters}"
                )
    return None


def _too_early(now: Facts, *, committed: int) -> str:
    """Which CONFIG was appended before the one below it, or the first entry of its term, was
    committed; empty: none."""
    above = [each for each in now.votings if each.at > committed]
    for each in above:
        term = now.log.terms[each.at - 1]
        if each != above[0] or now.log.terms.index(term) >= committed:
            return f"too early: {each} was appended when {committed} entries were committed"
    return ""


def _out_of_order(committed: list[Voting]) -> str:
    """Which CONFIG cannot follow the one before it; empty: each can."""
    for one, other in pairwise(committed):
        is_next = other.id == one.id + 1
        if one.incoming:
            is_next = is_next and other.voters == one.incoming and not other.incoming
        else:
            is_next = is_next and other.voters == one.voters
        if not is_next:
            return f"the committed CONFIG {other} follows {one}"
    return ""
