"""When commit news leaves raft for a peer: with the next append where appends follow each other, at
once where they do not."""

from __future__ import annotations

import pytest

from actors import messages
from actors.raft.routes import COMMIT_NEWS_DELAY_NS, NEVER_NS, ReplicatorRoute
from logstore.format.peer_messages import NO_ROUND, Heartbeat
from logstore.raft.effects import Send

DELAY_NS = COMMIT_NEWS_DELAY_NS
ENTRY = b"an entry's description"


class Sent:
    """An outbox whose ring always has room."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def try_send_encoded(self, encoded: bytes) -> bool:
        self.messages.append(encoded)
        return True

    def flush(self) -> None:
        pass


class Stage:
    def __init__(self) -> None:
        self.sent = Sent()
        self.route = ReplicatorRoute(self.sent, memoryview(bytearray(1_024)).cast("Q"))

    def commit(self, index: int, now_ns: int) -> None:
        self.route.send_control(news(index))
        self.route.flush(now_ns)

    def append(self, now_ns: int) -> None:
        self.route.describe(ENTRY)
        self.route.flush(now_ns)

    def taken(self) -> list[bytes]:
        taken, self.sent.messages = self.sent.messages, []
        return taken


def news(index: int) -> Send:
    return Send(2, Heartbeat(1, index, NO_ROUND, index, 1, index + 1, 0))


def encoded(index: int) -> bytes:
    return messages.encode(news(index))


@pytest.fixture
def stage() -> Stage:
    """Appends follow each commit after a quarter of the delay."""
    made = Stage()
    for index in (1, 2):
        made.append((4 * index + 1) * DELAY_NS // 4 - DELAY_NS)
        made.commit(index, index * DELAY_NS)
    made.append(9 * DELAY_NS // 4)
    made.taken()
    return made


def test_the_first_commit_is_told_at_once() -> None:
    stage = Stage()
    stage.append(9 * DELAY_NS)
    stage.commit(1, 10 * DELAY_NS)
    assert stage.taken() == [ENTRY, encoded(1)]


def test_news_of_a_commit_that_appends_follow_leaves_with_the_next_one(stage: Stage) -> None:
    stage.commit(3, 3 * DELAY_NS)
    assert stage.taken() == []
    assert stage.route.deadline_ns == 4 * DELAY_NS
    stage.append(13 * DELAY_NS // 4)
    assert stage.taken() == [ENTRY]
    assert stage.route.deadline_ns == NEVER_NS
    stage.route.flush(5 * DELAY_NS)
    assert stage.taken() == []


def test_news_that_no_append_takes_along_leaves_when_its_time_is_up(stage: Stage) -> None:
    stage.commit(3, 3 * DELAY_NS)
    stage.route.flush(4 * DELAY_NS - 1)
    assert stage.taken() == []
    stage.route.flush(4 * DELAY_NS)
    assert stage.taken() == [encoded(3)]
    assert stage.route.deadline_ns == NEVER_NS


def test_news_is_held_again_only_when_an_append_has_followed_in_time(stage: Stage) -> None:
    stage.commit(3, 3 * DELAY_NS)
    stage.append(5 * DELAY_NS)  # too late
    stage.commit(4, 6 * DELAY_NS)
    assert stage.taken() == [ENTRY, encoded(4)]
    stage.append(13 * DELAY_NS // 2)
    stage.commit(5, 7 * DELAY_NS)
    assert stage.taken() == [ENTRY]


def test_an_append_of_the_same_turn_follows(stage: Stage) -> None:
    stage.route.send_control(news(3))
    stage.append(100 * DELAY_NS)
    stage.commit(4, 101 * DELAY_NS)
    assert stage.taken() == [ENTRY]
    assert stage.route.deadline_ns == 102 * DELAY_NS


def test_a_later_commit_is_told_in_place_of_the_one_that_waits(stage: Stage) -> None:
    stage.commit(3, 3 * DELAY_NS)
    stage.commit(4, 7 * DELAY_NS // 2)
    stage.route.flush(4 * DELAY_NS)
    assert stage.taken() == [encoded(4)]
