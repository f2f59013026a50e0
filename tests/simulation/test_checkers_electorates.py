"""Who counts in a majority, and who will by itself, as checkers and phases know it."""

from __future__ import annotations

import pytest

from actors.simulation.checkers.electorates import Electorate
from logstore.format.configuration_body import NO_UUID, Configuration, Member
from logstore.model import NodeId

VOTERS = tuple(Member(NodeId(node), bytes([node] * 16), f"n{node}", 7000) for node in (1, 2, 3))


@pytest.mark.parametrize(
    ("uuid", "labels", "awaits"),
    [
        (b"\4" * 16, ("promote=auto",), True),
        (b"\4" * 16, ("rack=1", "replaces=2"), True),
        (b"\4" * 16, ("rack=1",), False),
        (NO_UUID, ("promote=auto",), False),
    ],
)
def test_a_learner_that_has_joined_may_become_a_voter_by_itself(
    uuid: bytes, labels: tuple[str, ...], awaits: bool
) -> None:
    learner = Member(NodeId(4), uuid, "n4", 7000, labels)
    assert Electorate(Configuration(2, VOTERS, learners=(learner,))).awaits_voter == awaits
