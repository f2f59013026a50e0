"""Ending a session, over played links."""

from __future__ import annotations

import pytest

from logstore.client.core.session_admin import SessionAdmin
from logstore.errors import ErrorCode, LogStoreError, OutcomeUnknown, Overloaded
from logstore.format.client_messages import EndSessionRequest, ErrorReply
from tests.unit.core_stage import World


@pytest.mark.parametrize(
    ("code", "expected", "words"),
    [
        (ErrorCode.OVERLOADED, Overloaded, "stop its producer"),
        (ErrorCode.TIMED_OUT, OutcomeUnknown, "may be ended"),
    ],
)
def test_a_session_that_is_busy_all_the_time_says_so(
    code: ErrorCode, expected: type[LogStoreError], words: str
) -> None:
    """On a real clock the deadline may cut off the last answer, and then the outcome is unknown."""
    world = World()
    world.on[EndSessionRequest] = lambda *_: ErrorReply(code, 0, 0, 0, b"stop its producer")
    with pytest.raises(expected, match=words):
        world.finish(SessionAdmin(world.host, world.routing, timeout_s=3.0).end(7))
    asked = [each for _, each in world.requests if isinstance(each, EndSessionRequest)]
    assert len(asked) > 1
