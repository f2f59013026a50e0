"""SAFETY G2: an entry's stamp follows a majority's clocks, never the leader's alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from logstore.format.peer_messages import HeartbeatReply
from logstore.limits import CLOCK_AHEAD_MAX_NS
from logstore.model import Index, NodeId, Role
from logstore.raft.effects import Effect, Log, Persist
from logstore.raft.events import Tick
from tests.paper.one_node import OneNode, of_type, rows_of
from tests.paper.virtual_node import MS

SECOND = 1_000 * MS
HOUR = 3_600 * SECOND
NOON = 1_700_000_000 * SECOND
PREVIOUS = 2  # the stamp of the last entry that a leader begins with


class Clocks:
    """A leader of term 2 after two entries. `now_ns`: what time it is by a good clock."""

    def __init__(self, *, ahead_ns: int = 0, voters: Sequence[int] = (1, 2, 3)) -> None:
        self.node = OneNode(rows=rows_of([1, 1]), term=1, voters=voters)
        self.node.lead()
        self.node.flush()
        for peer in self.node.config.peers:
            self.node.hear_match(peer, 3)
        self.ahead_ns = ahead_ns
        self.round = 0
        self.prop = 0

    @property
    def now_ns(self) -> int:
        return NOON + self.node.now_ns

    def tick(self, milliseconds: int = 60) -> list[Effect]:
        """A heartbeat is due."""
        self.node.now_ns += milliseconds * MS
        self.round += 1
        return self.node.step(Tick(self.node.now_ns, self.now_ns + self.ahead_ns))

    def answer(self, peer: int, ahead_ns: int | None, *, round: int | None = None) -> list[Effect]:
        """`peer` says what time it is there, if it does."""
        clock_ns = 0 if ahead_ns is None else self.now_ns + ahead_ns
        last, none = self.node.core.last_index, Index(0)
        number = self.round if round is None else round
        reply = HeartbeatReply(self.node.core.term, number, last, none, none, clock_ns)
        return self.node.hear(peer, reply)

    def stamp(self) -> int:
        """Of the next entry."""
        effects = self.node.propose(self.prop, wall_ns=self.now_ns + self.ahead_ns)
        self.prop += 1
        (persist,) = of_type(effects, Persist)
        return persist.header.timestamp_ns


def test_g2_a_leader_three_hours_ahead_stamps_a_second_beyond_the_others() -> None:
    clocks = Clocks(ahead_ns=3 * HOUR)
    clocks.tick()
    clocks.answer(2, 0)
    clocks.answer(3, -5 * MS)
    assert clocks.stamp() == clocks.now_ns + CLOCK_AHEAD_MAX_NS


def test_g2_a_leader_whose_clock_is_right_stamps_its_own_time() -> None:
    clocks = Clocks()
    clocks.tick()
    clocks.answer(2, 3 * HOUR)
    clocks.answer(3, -900 * MS)
    assert clocks.stamp() == clocks.now_ns


def test_g2_stamps_never_go_back() -> None:
    clocks = Clocks()
    clocks.tick()
    clocks.answer(2, 0)
    before = clocks.stamp()
    clocks.ahead_ns = -HOUR
    assert clocks.stamp() == before


def test_g2_with_no_majority_heard_in_its_term_the_previous_stamp_is_repeated() -> None:
    clocks = Clocks()
    clocks.tick()
    assert clocks.stamp() == PREVIOUS
    clocks.answer(2, None)
    assert clocks.stamp() == PREVIOUS, "an older version tells no clock"
    clocks.answer(3, 0)
    assert clocks.stamp() == clocks.now_ns


def test_g2_two_clocks_of_five_are_no_majority() -> None:
    clocks = Clocks(voters=(1, 2, 3, 4, 5))
    clocks.tick()
    clocks.answer(2, 0)
    assert clocks.stamp() == PREVIOUS
    clocks.answer(3, -HOUR)
    assert clocks.stamp() == clocks.now_ns - HOUR + CLOCK_AHEAD_MAX_NS
    clocks.answer(4, 0)
    assert clocks.stamp() == clocks.now_ns


def test_g2_a_clock_that_jumps_while_its_node_leads_counts_no_more() -> None:
    clocks = Clocks()
    clocks.tick()
    clocks.answer(2, 0)
    clocks.answer(3, 0)
    assert clocks.stamp() == clocks.now_ns
    clocks.ahead_ns = 3 * HOUR
    clocks.tick()
    assert clocks.stamp() == clocks.now_ns + CLOCK_AHEAD_MAX_NS


def test_g2_a_clock_goes_on_between_answers_and_is_forgotten_after_two_timeouts() -> None:
    clocks = Clocks(ahead_ns=HOUR)
    clocks.tick()
    clocks.answer(2, 0)
    for _ in range(16):
        clocks.tick()
        clocks.node.hear_match(3, 3)  # it is heard, and says nothing of its clock
    assert clocks.stamp() == clocks.now_ns + CLOCK_AHEAD_MAX_NS
    last = clocks.stamp()
    for _ in range(2):
        clocks.tick()
        clocks.node.hear_match(3, 3)
    assert clocks.node.core.role == Role.LEADER
    assert clocks.stamp() == last


def test_g2_a_late_copy_of_an_answer_says_nothing_new() -> None:
    clocks = Clocks()
    clocks.tick()
    clocks.tick()
    clocks.answer(2, 0)
    clocks.answer(2, -HOUR, round=1)
    assert clocks.stamp() == clocks.now_ns


def test_g2_a_cluster_of_one_is_its_own_majority() -> None:
    clocks = Clocks(voters=(1,), ahead_ns=HOUR)
    assert clocks.stamp() == clocks.now_ns + HOUR


def named(effects: Sequence[Any]) -> list[str]:
    return [effect.text for effect in of_type(effects, Log) if "clock" in effect.text]


def test_g2_a_clock_that_is_off_is_named_once_a_minute() -> None:
    clocks = Clocks(ahead_ns=3 * HOUR)
    lines: list[str] = []
    for _ in range(1_050):
        lines += named(clocks.tick())
        clocks.answer(2, 0)
        clocks.answer(3, -HOUR)
    assert [line.split(" the clocks")[0] for line in lines] == 2 * [
        "the clock of node 1 is 10800.0 s ahead of",
        "the clock of node 3 is 3600.0 s behind",
    ]
    assert clocks.node.core.clock_skews_ns == {
        NodeId(1): 3 * HOUR, NodeId(2): 0, NodeId(3): -HOUR,
    }  # fmt: skip


def test_g2_clocks_within_a_second_are_not_named_and_followers_know_of_none() -> None:
    clocks = Clocks(ahead_ns=900 * MS)
    lines: list[str] = []
    for _ in range(20):
        lines += named(clocks.tick())
        clocks.answer(2, 0)
    assert lines == []
    clocks.node.hear_heartbeat(2, term=9)
    assert clocks.node.core.clock_skews_ns == {}


def test_g2_a_follower_tells_its_clock_with_each_answer() -> None:
    node = OneNode()
    node.follow(2, 1)
    node.now_ns += MS
    node.step(Tick(node.now_ns, NOON))
    effects = node.hear_heartbeat(2, term=1, round=2)
    (reply,) = [each.message for each in effects if isinstance(each.message, HeartbeatReply)]
    assert reply.clock_ns == NOON
