"""The producer at the end of all sequences: what it waits for once the clients are stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.simulation.clients.brink import Brink


@pytest.mark.parametrize("is_over", [False, True])
def test_a_session_that_is_over_waits_for_nothing(is_over: bool) -> None:
    """Its producer is unknown to the log: the outcome of what was sent stays unknown."""
    host: Any = SimpleNamespace(name="brink-1", number=1)
    brink = Brink(host)
    session: Any = SimpleNamespace(
        is_over=is_over, unresolved=SimpleNamespace(waiting={1: "append"})
    )
    brink._session = session
    assert brink.is_asking is not is_over
