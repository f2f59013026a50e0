"""The core's producer of level `leader` and `none` against a played leader: nothing is sent twice,
what may be lost is counted (SAFETY E10)."""

from __future__ import annotations

import pytest

from logstore.client.core.sent_batches import SentBatches
from logstore.errors import (
    BatchTooLarge,
    ErrorCode,
    InvariantViolated,
    LogStoreError,
    NotCommitted,
    OutcomeUnknown,
)
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    SessionStateReply,
    SessionStateRequest,
)
from logstore.model import AckLevel
from tests.unit.core_stage import PRODUCER, SECOND_NS
from tests.unit.provisional_stage import WINDOW, Leaders, Producing


@pytest.fixture
def world() -> Leaders:
    return Leaders()


def test_leader_resolves_when_the_leader_has_flushed(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    packs = producing.append(3)
    producing.run_for(0.1)
    assert [pack.outcome for pack in packs] == ["flushed"] * 3
    assert producing.acked == [1, 1, 1]
    assert producing.source.size_bytes == 0


@pytest.mark.parametrize("level", [AckLevel.LEADER, AckLevel.NONE])
def test_a_lack_of_descriptors_at_a_change_of_leader_ends_no_producer(
    world: Leaders, level: AckLevel
) -> None:
    producing = Producing(world, level)
    producing.append(1)
    producing.run_for(0.5)
    world.has_descriptors = False
    world.stop(1)
    producing.run_for(0.5)
    world.lead(2)
    later = producing.append(1)[0]
    producing.run_for(0.5)
    assert not later.is_settled()
    world.has_descriptors = True
    producing.run_for(1)
    assert later.outcome in ("flushed", "handed over")


def test_none_resolves_when_it_is_handed_over_though_nothing_is_read(world: Leaders) -> None:
    world.reads = False
    producing = Producing(world, AckLevel.NONE)
    packs = producing.append(3)
    producing.run_for(0.1)
    assert [pack.outcome for pack in packs] == ["handed over"] * 3
    assert producing.acked == []


@pytest.mark.parametrize("level", [AckLevel.LEADER, AckLevel.NONE])
def test_a_batch_that_a_restart_made_too_large_before_it_was_sent_fails_alone(
    world: Leaders, level: AckLevel
) -> None:
    producing = Producing(world, level)
    producing.append(1)
    producing.run_for(0.5)
    world.stop(1)
    producing.run_for(0.5)
    larger = producing.append(1)[0]
    producing.source.size_bytes += 2_000 - larger.size_bytes
    larger.size_bytes = 2_000
    behind = producing.append(1)[0]
    world.batch_max_bytes = 1_000
    world.lead(2)
    producing.run_for(3)
    assert isinstance(larger.outcome, BatchTooLarge)
    assert behind.is_settled()
    assert producing.stored == [0, 2]
    assert producing.source.most_bytes == 1_000
    assert producing.source.size_bytes == 0


@pytest.mark.parametrize("level", [AckLevel.LEADER, AckLevel.NONE])
def test_at_most_a_window_is_sent_and_not_read(world: Leaders, level: AckLevel) -> None:
    world.reads = False
    producing = Producing(world, level)
    producing.append(3 * WINDOW)
    producing.run_for(5)
    assert len(world.unread) == WINDOW
    assert producing.told.reopened == 0, "a leader that reads nothing for a while is waited for"
    world.read()
    producing.run_for(1)
    assert producing.stored == list(range(3 * WINDOW))
    asked = [each for _, each in world.requests if isinstance(each, SessionStateRequest)]
    assert len(asked) < 60, "it does not ask without a pause"


def test_what_a_broken_connection_took_with_it_is_not_sent_again(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    producing.append(2)
    producing.run_for(0.1)
    world.reads = False
    lost = producing.append(3)
    producing.run_for(0.1)
    world.unread.clear()
    world.reads = True
    world.stop(1)
    world.lead(2)
    later = producing.append(2)
    producing.run_for(3)
    assert [type(pack.outcome) for pack in lost] == [OutcomeUnknown] * 3
    assert [pack.outcome for pack in later] == ["flushed"] * 2
    assert producing.stored == [0, 1, 5, 6]
    told = producing.told
    assert (told.reopened, told.possibly_lost_batches, told.possibly_lost_payloads) == (1, 3, 3)
    assert (told.sent_batches, told.provisional_batches) == (7, 4)
    assert producing.machine.session.producer_epoch == 2


def test_what_a_new_leader_does_not_have_counts_though_it_was_provisional(world: Leaders) -> None:
    world.uncommitted = 3
    producing = Producing(world, AckLevel.LEADER)
    packs = producing.append(5)
    producing.run_for(0.1)
    assert all(pack.outcome == "flushed" for pack in packs)
    del world.stored[2:]
    world.uncommitted = 0
    world.stop(1)
    world.lead(2)
    producing.append(1)
    producing.run_for(3)
    assert producing.stored == [0, 1, 5]
    assert producing.told.possibly_lost_batches == 3


def test_what_the_log_turns_out_to_have_is_provisional_and_not_lost(world: Leaders) -> None:
    world.flushes = False
    producing = Producing(world, AckLevel.LEADER)
    packs = producing.append(2)
    world.uncommitted = 2
    producing.run_for(0.1)
    assert [pack.outcome for pack in packs] == [None, None]
    world.uncommitted = 0
    world.stop(1)
    world.lead(2)
    producing.run_for(3)
    assert [pack.outcome for pack in packs] == ["flushed"] * 2
    assert producing.told.possibly_lost_batches == 0


def test_uncommitted_batches_of_the_leader_count_if_they_stay_so(world: Leaders) -> None:
    """They may be lost with it, though it has them."""
    producing = Producing(world, AckLevel.NONE)
    world.uncommitted = 3
    producing.append(5)
    producing.run_for(0.1)
    world.stop(1)
    world.start(1)
    producing.run_for(4)
    assert producing.told.possibly_lost_batches == 3
    assert producing.told.reopened == 1


def test_close_waits_until_the_leader_has_read_everything(world: Leaders) -> None:
    world.reads = False
    producing = Producing(world, AckLevel.NONE)
    producing.append(3)
    producing.run_for(0.1)
    world.at(0.5, world.read)
    producing.stop()
    assert producing.stored == [0, 1, 2]
    assert producing.told.possibly_lost_batches == 0


def test_close_does_not_wait_for_ever_and_counts(world: Leaders) -> None:
    world.reads = False
    producing = Producing(world, AckLevel.NONE)
    producing.append(3)
    producing.run_for(0.1)
    began_ns = world.now_ns
    producing.machine.stop()
    while not producing.task.is_done:
        producing.run_for(0.1)
    producing.machine.settle_rest(None)
    assert 1.9 < (world.now_ns - began_ns) / SECOND_NS < 4
    assert producing.told.possibly_lost_batches == 3


def test_close_says_that_a_batch_can_never_be_stored(world: Leaders) -> None:
    world.reads = False
    producing = Producing(world, AckLevel.NONE)
    producing.append(1)
    producing.run_for(0.1)
    ((round_number, batch),) = world.unread
    header = read_batch_header(batch)
    world.at(0.5, lambda: world.row(round_number, header, ErrorCode.INVALID_BATCH))
    producing.machine.stop()
    with pytest.raises(NotCommitted, match="sequence 0 was refused"):
        producing.run_for(10)


def test_a_batch_that_can_never_be_stored_ends_the_producer(world: Leaders) -> None:
    producing = Producing(world, AckLevel.LEADER)
    packs = producing.append(1)
    world.on_push = lambda _, round_, batch: world.row(
        round_, read_batch_header(batch), ErrorCode.BATCH_TOO_LARGE
    )
    with pytest.raises(NotCommitted, match="sequence 0 was refused"):
        producing.run_for(1)
    assert isinstance(packs[0].outcome, LogStoreError)
    assert packs[0].outcome.code == ErrorCode.BATCH_TOO_LARGE


def test_what_is_not_sent_in_time_was_never_sent(world: Leaders) -> None:
    world.stop(1)
    producing = Producing(world, AckLevel.NONE, delivery_timeout_s=1.0)
    packs = producing.append(2)
    producing.run_for(3)
    assert [type(pack.outcome) for pack in packs] == [NotCommitted] * 2
    assert producing.told.sent_batches == 0
    assert producing.source.size_bytes == 0


def test_the_window_counts_bytes_too() -> None:
    sent = SentBatches(window=8, window_bytes=100)
    assert sent.has_room(1_000), "one batch is always possible"
    assert sent.add(3, 60) == 0
    assert not sent.has_room(41)
    assert sent.has_room(40)
    assert sent.on_taken(1)
    assert sent.has_room(1_000)
    assert sent.missing == (1, 3)
    assert sent.on_state(SessionStateReply(PRODUCER, 1, 1, b""))
    assert sent.missing == (0, 0)
    with pytest.raises(InvariantViolated):
        sent.on_taken(2)


def test_what_is_not_known_to_be_stored_is_bounded() -> None:
    sent = SentBatches(window=2, window_bytes=100)
    while sent.has_room(1):
        sent.add(1, 1)
        sent.on_taken(sent.sent)
    assert sent.sent == 8
    rows = b"".join(ACK_ROW.pack(each, 0, 1, ErrorCode.OUTCOME_UNKNOWN, 0) for each in (6, 7))
    assert sent.on_state(SessionStateReply(PRODUCER, 1, 8, rows))
    assert (sent.stored, sent.missing) == (6, (2, 2))
    assert sent.has_room(1)
