"""Which replica a node number is: the named one at once, another after a silence (SAFETY M6)."""

from __future__ import annotations

import pytest

from actors.ingress.peer_table import NUMBERS_MAX, PeerTable, Speaker
from logstore.model import NodeId

SILENCE_NS = 1_000
TURN_NS = SILENCE_NS // 10
ONE, TWO, THREE = b"1" * 16, b"2" * 16, b"3" * 16
NODE = NodeId(2)
NUMBERS = frozenset(map(NodeId, range(1, 2 * NUMBERS_MAX)))
STRANGER = 3 * NUMBERS_MAX


class Stage:
    """A table whose owner has a turn every `TURN_NS`."""

    def __init__(self) -> None:
        self.table = PeerTable(SILENCE_NS, NUMBERS)
        self.now_ns = 0
        self.table.begin_turn(0)

    def pass_time(self, ns: int) -> None:
        for _ in range(ns // TURN_NS):
            self.now_ns += TURN_NS
            self.table.begin_turn(self.now_ns)

    def take(self, uuid: bytes, number: int = NODE) -> Speaker | None:
        return self.table.take(NodeId(number), uuid)

    def current(self, number: int = NODE) -> bytes | None:
        speaker = self.table.speaker(NodeId(number))
        return None if speaker is None else speaker.uuid


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_second_replica_is_taken_only_once_the_first_was_silent(stage: Stage) -> None:
    assert stage.take(ONE) is not None
    stage.pass_time(SILENCE_NS - TURN_NS)
    assert stage.take(TWO) is None
    assert stage.take(ONE) is not None  # its silence begins again
    stage.pass_time(SILENCE_NS - TURN_NS)
    assert stage.take(TWO) is None
    stage.pass_time(TURN_NS)
    assert stage.take(TWO) is not None
    assert stage.take(ONE) is None
    assert stage.current() == TWO


def test_what_is_refused_does_not_count_as_heard(stage: Stage) -> None:
    stage.take(ONE)
    for _ in range(9):
        stage.pass_time(TURN_NS)
        assert stage.take(TWO) is None
    stage.pass_time(TURN_NS)
    assert stage.take(TWO) is not None


def test_the_named_replica_wins_at_once_and_nothing_returns_to_the_stranger(stage: Stage) -> None:
    stranger = stage.take(TWO)
    assert stranger is not None
    stranger.control_route = stranger.bulk_route = b"to the stranger"
    stage.table.name({NODE: ONE}, NUMBERS)
    assert stage.current() == TWO  # until the named one is heard
    named = stage.take(ONE)
    assert named is not None
    assert (named.control_route, named.bulk_route) == (None, None)
    assert stage.take(TWO) is None
    assert stage.take(ONE) is named


def test_a_stranger_may_speak_while_the_named_one_is_silent_and_no_longer(stage: Stage) -> None:
    stage.table.name({NODE: ONE}, NUMBERS)
    stage.take(ONE)
    stage.pass_time(SILENCE_NS)
    assert stage.take(TWO) is not None
    assert stage.take(THREE) is None
    assert stage.take(ONE) is not None
    assert stage.take(TWO) is None


def test_another_member_that_is_named_later_takes_its_number(stage: Stage) -> None:
    stage.table.name({NODE: ONE}, NUMBERS)
    stage.take(ONE)
    stage.table.name({NODE: TWO}, NUMBERS)
    assert stage.take(TWO) is not None
    assert stage.take(ONE) is None


def test_a_pause_of_this_process_is_not_the_silence_of_a_peer(stage: Stage) -> None:
    """After it the messages of both lie in the sockets, in no order."""
    stage.take(ONE)
    stage.now_ns += 100 * SILENCE_NS
    stage.table.begin_turn(stage.now_ns)
    assert stage.take(TWO) is None
    assert stage.take(ONE) is not None


def test_as_many_numbers_are_kept_as_are_needed_and_members_longest(stage: Stage) -> None:
    stage.table.name({NodeId(1): ONE}, frozenset(map(NodeId, range(1, 100 * NUMBERS_MAX))))
    for number in range(1, NUMBERS_MAX + 1):
        stage.take(ONE, number)
        stage.pass_time(TURN_NS)
    stage.take(ONE, 3)
    for number in (1_000, 1_001):
        assert stage.take(ONE, number) is not None
    found = {number for number in range(1, 1_100) if stage.current(number) is not None}
    assert len(found) == NUMBERS_MAX
    assert {1, 3, 1_000, 1_001} <= found
    assert not {2, 4} & found


def test_a_number_that_is_no_members_is_heard_while_no_member_is(stage: Stage) -> None:
    """This replica may not have the CONFIG yet that names it."""
    assert stage.take(ONE, STRANGER) is not None
    assert stage.take(TWO) is not None
    assert stage.take(ONE, STRANGER) is None
    stage.pass_time(SILENCE_NS)
    assert stage.take(ONE, STRANGER) is not None


def test_a_leader_hears_no_number_that_is_no_members(stage: Stage) -> None:
    stage.table.begin_turn(stage.now_ns, is_leading=True)
    assert stage.take(ONE, STRANGER) is None
    assert stage.take(ONE) is not None


def test_a_configuration_says_which_numbers_are_members(stage: Stage) -> None:
    stage.table.name({NodeId(STRANGER): ONE}, frozenset({NodeId(STRANGER)}))
    assert stage.take(ONE, STRANGER) is not None
    assert stage.take(TWO) is None
