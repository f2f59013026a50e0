"""The producer at the end of all sequences: what it waits for once the clients are stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.simulation.clients.brink import Brink
from tests.simulation.scripted_replica import Stage


@pytest.mark.parametrize("is_over", [False, True])
def test_a_session_that_is_over_waits_for_nothing(is_over: bool) -> None:
    """Its producer is unknown to the log: the outcome of what was sent stays unknown."""
    brink = Brink(Stage().host("brink-1"))
    session: Any = SimpleNamespace(is_over=is_over, has_unresolved=not is_over)
    brink._session = session
    assert brink.is_asking is not is_over
