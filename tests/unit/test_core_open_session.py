"""A session is opened once the log's format level allows its level of acknowledgement."""

from __future__ import annotations

import pytest

from logstore.client.core.connection import Session
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.sessions import open_session
from logstore.client.core.steps import Steps
from logstore.errors import ErrorCode, LevelRefused
from logstore.format.client_messages import ErrorReply, OpenSessionReply, OpenSessionRequest
from logstore.model import AckLevel, SequenceMode
from tests.unit.core_stage import SECOND_NS, World


def test_a_session_waits_for_the_level_of_a_new_log_and_no_longer() -> None:
    """It is raised by itself, moments after the log has formed."""
    world = World()
    low = ErrorReply(ErrorCode.LEVEL_REFUSED, 0, 0, 0, b"because")
    granted = OpenSessionReply(1, 1, 16, 1_000, 1_000, 0)
    answers = [low, ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b""), low]
    world.on[OpenSessionRequest] = lambda *_: answers.pop(0) if answers else granted
    request = OpenSessionRequest(0, SequenceMode.DENSE, AckLevel.LEADER, 0, b"")

    def opening(timeout_s: float) -> Steps[Session]:
        return open_session(world.host, world.routing, request, timeout_s=timeout_s)

    assert world.finish(opening(20.0)).producer_id == 1
    assert not answers
    world.on[OpenSessionRequest] = lambda *_: low
    for timeout_s, waited_s in ((20.0, 5), (2.0, 2)):
        begun_ns = world.now_ns
        with pytest.raises(LevelRefused):
            world.finish(opening(timeout_s))
        assert waited_s * SECOND_NS <= world.now_ns - begun_ns < (waited_s + 1) * SECOND_NS
    begun_ns = world.now_ns
    other = LeaderRequest(world.host, world.routing, timeout_s=5.0)  # for a trim of an old log
    with pytest.raises(LevelRefused):
        world.finish(other.ask(request, OpenSessionReply))
    assert world.now_ns - begun_ns < SECOND_NS


@pytest.mark.parametrize(("name", "in_doubt"), [(b"name", 2), (b"", 0)])
def test_a_session_knows_of_the_opens_before_it_that_had_no_answer(
    name: bytes, in_doubt: int
) -> None:
    """By its name they open the same one, maybe after the one that was granted."""
    world = World()
    unknown = ErrorReply(ErrorCode.OUTCOME_UNKNOWN, 0, 0, 0, b"")
    answers = [None, unknown, ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"")]
    granted = OpenSessionReply(1, 1, 16, 1_000, 1_000, 0)
    world.on[OpenSessionRequest] = lambda *_: answers.pop(0) if answers else granted
    request = OpenSessionRequest(0, SequenceMode.DENSE, AckLevel.LEADER, 0, name)
    session = world.finish(open_session(world.host, world.routing, request, timeout_s=9.0))
    assert session.opens_in_doubt == in_doubt
