"""The core's producer over played links: what a lost answer, a slow network or a full link does."""

from __future__ import annotations

from tests.property.test_core_producer_model import Producing
from tests.unit.core_stage import World


def test_a_lost_acknowledgement_is_asked_for_though_others_keep_coming() -> None:
    """The feed lost one message and went on. Each later one counted as news, so nobody asked, and
    the batch failed after the delivery timeout though it was committed (SAFETY E9)."""
    world = World()
    producing = Producing(world, window=1_024)
    producing.run_for(0.1)
    world.loses_acks = True
    lost = producing.append()
    producing.run_for(0.1)
    world.loses_acks = False
    for _ in range(20):
        producing.append()
        producing.run_for(0.1)
    assert lost.outcome == (1, 1)
    assert all(pack.is_settled() for pack in producing.source.all)
