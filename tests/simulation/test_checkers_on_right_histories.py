"""Histories that only look wrong pass every checker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.histories.right_histories import RIGHT
from tests.simulation.histories.stage import Stage


@pytest.mark.parametrize("story", RIGHT, ids=lambda story: story.__name__.replace("_", "-"))
def test_what_only_looks_wrong_passes(story: Callable[[Stage], None]) -> None:
    stage = Stage()
    story(stage)
    assert stage.ledger.violations == []
