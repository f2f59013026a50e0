"""The core's producer over played links: what a lost answer, a slow network, a full link
or the end of the producer does."""

from __future__ import annotations

import pytest

from logstore.errors import (
    BatchTooLarge,
    Closed,
    ErrorCode,
    Fenced,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
    SequenceReused,
    WrongCluster,
)
from logstore.settings import PortOffset
from tests.property.test_core_producer_model import Producing
from tests.unit.core_stage import PlayedLink, World


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


def test_a_batch_that_a_restart_made_too_large_before_it_was_sent_fails_alone() -> None:
    """The replicas came back with a lower limit. The leader's refusal ended the producer."""
    world = World()
    producing = Producing(world)
    producing.append()
    producing.run_for(0.5)
    world.stop(1)
    producing.run_for(0.5)
    larger = producing.append()
    producing.source.size_bytes += 2_000 - larger.size_bytes
    larger.size_bytes = 2_000
    behind = producing.append()
    world.batch_max_bytes = 1_000
    world.lead(2)
    producing.run_for(3)
    assert isinstance(larger.outcome, BatchTooLarge)
    assert behind.outcome == (2, 1)
    assert producing.source.most_bytes == 1_000
    assert producing.source.size_bytes == 0


def test_a_lack_of_descriptors_at_a_change_of_leader_ends_no_producer() -> None:
    world = World()
    producing = Producing(world)
    producing.append()
    producing.run_for(0.5)
    world.has_descriptors = False
    world.stop(1)
    world.lead(2)
    later = producing.append()
    producing.run_for(0.5)
    assert not later.is_settled()
    world.has_descriptors = True
    producing.run_for(0.5)
    assert later.outcome == (2, 1)


def test_a_leader_is_found_over_a_slow_network() -> None:
    """An answer after 0.3 s, which is what a connection and a question take where a packet needs
    75 ms there and back, came too late for each look for the leader."""
    world = World()
    take = world.take

    def take_late(link: PlayedLink, frame: bytes) -> None:
        if link.offset == PortOffset.CONTROL:
            world.at(0.3, lambda: take(link, frame))
        else:
            take(link, frame)

    world.take = take_late  # type: ignore[method-assign]
    producing = Producing(world)
    pack = producing.append()
    producing.run_for(3.0)
    assert pack.outcome == (1, 1)


class FullLink(PlayedLink):
    """It takes nothing, as the leader reads nothing."""

    is_connected = False  # type: ignore[assignment]


def test_a_producer_sleeps_while_the_leader_takes_nothing() -> None:
    """An open pack that has lingered cannot be sent before what waits for the link."""
    world = World()
    world.pusher = lambda address: world._open(FullLink(world, address))  # type: ignore[method-assign]
    producing = Producing(world)
    producing.append()
    open_since_ns = world.now_ns
    producing.source.open_since_ns = lambda: open_since_ns  # type: ignore[method-assign]
    producing.run_for(0.0005)
    world.now_ns += 5_000_000
    world.work(producing.task)
    assert producing.task.wait.until_ns > world.now_ns


@pytest.mark.parametrize(
    ("ending", "of_sent", "of_unsent"),
    [
        (WrongCluster("two clusters"), OutcomeUnknown, WrongCluster),
        (LogStoreError("error 99 of a newer version"), OutcomeUnknown, LogStoreError),
        (Closed("the client was closed"), OutcomeUnknown, NotCommitted),
        (Fenced("a newer producer epoch"), Fenced, Fenced),
    ],
)
def test_a_batch_under_way_is_told_nothing_that_may_be_false_when_its_producer_ends(
    ending: LogStoreError, of_sent: type[LogStoreError], of_unsent: type[LogStoreError]
) -> None:
    """An error that says "never in the log" is true of what was not sent only."""
    world = World()
    world.commits_at_once = False
    producing = Producing(world, window=1)
    sent, unsent = producing.append(), producing.append()
    producing.run_for(0.1)
    producing.task.close()
    producing.machine.settle_rest(ending)
    assert len(world.log) == 1
    assert type(sent.outcome) is of_sent
    assert type(unsent.outcome) is of_unsent


def test_a_sequence_that_was_reused_is_told_of_its_own_batch_only() -> None:
    world = World()
    world.commits_at_once = False
    producing = Producing(world, window=2)
    under_way, reused, unsent = (producing.append() for _ in range(3))
    producing.run_for(0.1)
    world.acknowledge(1, 0, 1, ErrorCode.SEQUENCE_REUSED)
    with pytest.raises(NotCommitted, match="its sequence 1 was refused") as ended:
        producing.run_for(0.1)
    producing.machine.settle_rest(ended.value)
    outcomes = [type(each.outcome) for each in (under_way, reused, unsent)]
    assert outcomes == [OutcomeUnknown, SequenceReused, NotCommitted]
