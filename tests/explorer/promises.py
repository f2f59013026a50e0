"""The promises of three replicas together, checked against what was true before.

Owns the ledger: the leader of each term, and the committed entries with the term of their commit.
Must not know cores or messages. Checked: one leader per term (I9); entries of one index and term
are equal, with all before them (I3); committed entries never change (I1, I3), are in the log of
every later leader, and are durable on a majority in every later state (I1, I10).
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.raft.quorum import majority
from tests.explorer.bound import REPLICAS
from tests.explorer.local_states import Facts, Log

# Computed now, since a test may break `majority` on purpose.
MAJORITY = majority(REPLICAS)


class Ledger(NamedTuple):
    """`leaders`: of terms 1, 2, …, numbered from 1 (0: none); `chains`: of the committed entries;
    `terms`: in which they were committed."""

    leaders: tuple[int, ...]
    chains: tuple[int, ...] = ()
    terms: tuple[int, ...] = ()


class Broken(NamedTuple):
    """Which promise was broken, and how."""

    text: str


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
        ledger = ledger._replace(chains=now.log.chains[: now.commit], terms=terms)
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
    holders = sum(each.durable.chains[count - 1 : count] == ledger.chains[-1:] for each in facts)
    if holders < MAJORITY:
        return Broken(f"I10: committed entry {count} is on {holders} disks")
    return None
