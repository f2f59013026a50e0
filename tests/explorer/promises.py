"""What three replicas together must keep, with a memory of what was true before.

Owns the ledger: who led which term, and which entries were committed, in which term. Must not know
cores or messages. Checked: one leader a term (I9); entries of one index and term are the same, with
all before them (I3); what was committed never changes (I1, I3); every later leader has it; it is
durable on a majority from then on, in every state (I1, I10).
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.raft.quorum import majority
from tests.explorer.bound import REPLICAS
from tests.explorer.local_states import Facts, Log

# Not `majority` at the time of the check: a test may break that one on purpose.
MAJORITY = majority(REPLICAS)


class Ledger(NamedTuple):
    """What was true once. `leaders`: of terms 1, 2, …, counted from 1, 0 for none yet; `chains`: of
    the committed entries; `terms`: those in which they were committed."""

    leaders: tuple[int, ...]
    chains: tuple[int, ...] = ()
    terms: tuple[int, ...] = ()


class Broken(NamedTuple):
    """A promise and how it was broken."""

    text: str


def after(ledger: Ledger, facts: tuple[Facts, ...], changed: int) -> Ledger | Broken:
    """The ledger once replica `changed` is as `facts` say, or the promise that it breaks."""
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
    """Log Matching: the same index and term, the same chain."""
    pairs = zip(one.terms, other.terms, one.chains, other.chains, strict=False)
    return all(a != b or first == second for a, b, first, second in pairs)


def _lost(ledger: Ledger, facts: tuple[Facts, ...]) -> Broken | None:
    """Committed entries that a later leader lacks, or that no majority holds on disk."""
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
