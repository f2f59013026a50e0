"""Histories of leaders whose entries reach no majority: which must step down, and which must
not."""

from __future__ import annotations

from collections.abc import Sequence

from logstore.model import Role
from logstore.raft.effects import StopLeading
from logstore.raft.events import Tick
from tests.simulation.histories.case import Collection
from tests.simulation.histories.stage import ELECTION_NS, Stage, batch_of
from tests.simulation.histories.term_histories import FIRST, replied

STALLS = Collection()
breaks = STALLS.breaks


def lead_in_vain(
    stage: Stage, timeouts: int, *, moves_at: int = 0, full: Sequence[int] = ()
) -> None:
    """Leader 1 has flushed entry 2, and its followers answer that they end at entry 1."""
    stage.elect_first()
    stage.data(1, batch_of(0))
    stage.flush(1)
    in_office_ns = stage.now_ns
    for half in range(1, 2 * timeouts + 1):
        stage.step(1, Tick(in_office_ns + half * (ELECTION_NS // 2 + 1_000)))
        stage.step(1, replied(2, half, is_full=2 in full))
        last = 2 if moves_at and half >= moves_at else 1
        stage.step(1, replied(3, half, last=last, is_full=3 in full))


@breaks("I13", says="leads term 1, and entry 2 has reached no majority for")
def a_leader_whose_entries_reach_no_majority_leads_on(stage: Stage, is_broken: bool) -> None:
    lead_in_vain(stage, 8 if is_broken else 6)


@breaks("I13", says="leads term 1, and entry 2 has reached no majority for")
def a_follower_that_took_something_once_is_no_excuse_for_ever(
    stage: Stage, is_broken: bool
) -> None:
    lead_in_vain(stage, 10, moves_at=3 if is_broken else 12)


@breaks("I13", says="gives term 1 up, and full are the disks of 2, 3")
def a_leader_steps_down_because_of_full_disks(stage: Stage, is_broken: bool) -> None:
    """Or because of something else that loses its entries."""
    stage.elect_first()
    for half in range(1, 16):
        stage.step(1, Tick(stage.now_ns + half * (ELECTION_NS // 2)))
        stage.step(1, replied(2, half, is_full=True))
        stage.step(1, replied(3, half, is_full=is_broken))
    stage.nodes[1].role = Role.FOLLOWER
    stage.step(1, Tick(stage.now_ns + 8 * ELECTION_NS), StopLeading(FIRST))


@breaks("I13", says="leads term 1, and entry 2 has reached no majority for")
def full_disks_excuse_a_leader_whose_entries_reach_no_majority(
    stage: Stage, is_broken: bool
) -> None:
    lead_in_vain(stage, 10, full=() if is_broken else (2, 3))


@breaks("I13", says="leads term 3, and entry 3 has reached no majority for")
def a_leader_waits_longer_after_it_stepped_down_in_vain(stage: Stage, is_broken: bool) -> None:
    """Something was committed since, or not."""
    stage.elect_first()
    stage.idle(1, StopLeading(FIRST))
    noop = stage.elect(2, 2)
    if is_broken:
        stage.spread(2, noop)
    stage.elect(1, 3)
    stage.flush(1)
    in_office_ns = stage.now_ns
    for half in range(1, 16):
        stage.step(1, Tick(in_office_ns + half * (ELECTION_NS // 2 + 1_000)))
        stage.step(1, replied(2, half, term=3))
