"""Sessions of level `leader` and `none`: what is answered, when, and what a full window does
(SAFETY E10)."""

from __future__ import annotations

import pytest

from logstore.errors import ErrorCode
from logstore.format.client_messages import ErrorReply, SessionStateReply, SessionStateRequest
from logstore.format.level import ACK_LEVELS_LEVEL
from logstore.format.session_entries import decode_open
from logstore.limits import PROVISIONAL_WINDOW_MIN
from logstore.model import AckLevel, EntryKind, SequenceMode
from logstore.raft import effects
from tests.unit.ingress_stage import Stage, StageProducer, ack_rows, open_request

WINDOW = 16
PROVISIONAL = ErrorCode.PROVISIONAL


@pytest.fixture
def stage() -> Stage:
    stage = Stage(provisional_window_min=WINDOW)
    stage.level = ACK_LEVELS_LEVEL
    stage.lead()
    stage.commit()
    return stage


def producer_of(stage: Stage, level: AckLevel, **changes: object) -> StageProducer:
    return stage.producer(ack_level=level, window=WINDOW, **changes)


def flush(stage: Stage, index: int, term: int = 1) -> None:
    stage.tell(effects.Flushed(term, index))


def test_a_batch_of_level_leader_is_provisional_once_the_leader_has_flushed_it(
    stage: Stage,
) -> None:
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0, [b"x", b"y"])
    producer.push(1)
    ((first, _), (second, _)) = proposals = stage.take_proposals()
    assert first.waits_for_flush
    assert second.waits_for_flush
    headers = [stage.append_entry(EntryKind.DATA, body, each.count) for each, body in proposals]
    for (each, _), header in zip(proposals, headers, strict=True):
        stage.tell(effects.Accepted(1, 1, each.prop, header.index, header.first_lsn))
    flush(stage, headers[0].index - 1)
    assert producer.acks() == []
    flush(stage, headers[0].index)
    assert producer.acks() == [(1, [(0, 0, 2, PROVISIONAL, 0)])]
    stage.commit()
    assert producer.acks() == []  # the commit is told to nobody
    flush(stage, headers[1].index)
    assert producer.acks() == [(1, [(1, 0, 2, PROVISIONAL, 0)])]


def test_a_batch_of_level_none_is_answered_by_nothing_but_refusals(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.NONE)
    producer.push(0)
    ((proposed, _),) = proposals = stage.take_proposals()
    assert not proposed.waits_for_flush
    header = stage.append_entry(EntryKind.DATA, proposals[0][1], proposed.count)
    stage.tell(effects.Accepted(1, 1, proposed.prop, header.index, header.first_lsn))
    flush(stage, header.index)
    stage.commit()
    assert producer.acks() == []
    producer.push(5)
    assert producer.acks() == [(1, [(5, 0, 2, ErrorCode.GAP, 1)])]


def test_in_one_group_each_producer_hears_what_its_level_gives(stage: Stage) -> None:
    levels = (AckLevel.QUORUM, AckLevel.LEADER, AckLevel.NONE)
    producers = [producer_of(stage, level) for level in levels]
    for each in producers:
        each.queue(0)
    stage.work()
    (header,) = stage.accept()
    flush(stage, header.index)
    told = [[row[3] for _, rows in each.acks() for row in rows] for each in producers]
    assert told == [[], [PROVISIONAL], []]
    stage.commit()
    told = [[row[3] for _, rows in each.acks() for row in rows] for each in producers]
    assert told == [[ErrorCode.OK], [], []]


def test_a_flush_that_is_told_in_another_term_answers_nothing(stage: Stage) -> None:
    """SAFETY E4: what was accepted in term 1 may be truncated, and its index be another's."""
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0)
    (header,) = stage.accept()
    flush(stage, header.index, term=2)
    assert producer.acks() == []
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    flush(stage, header.index)
    assert producer.acks() == []
    stage.lead(term=2, gen=2)
    flush(stage, 100, term=2)
    assert producer.acks() == []


def test_what_a_closed_gen_had_accepted_is_still_provisional_at_its_flush(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0)
    (header,) = stage.accept()
    stage.tell(effects.AdmissionClosed(1, 2, "transfer"))
    flush(stage, header.index)
    assert producer.acks() == [(1, [(0, 0, 2, PROVISIONAL, 0)])]


def test_a_batch_that_comes_twice_is_stored_once_and_not_answered(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0)
    (header,) = stage.accept()
    flush(stage, header.index)
    producer.acks()
    producer.push(0, round_=2)
    stage.commit()
    producer.push(0, round_=3)
    assert stage.take_proposals() == []
    assert producer.acks() == []


def test_session_state_says_what_is_committed_and_the_feed_does_not(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0)
    client = stage.client()
    client.ask(SessionStateRequest(producer.id, producer.epoch, 2))
    state = client.answer()
    assert isinstance(state, SessionStateReply)
    assert (state.next_sequence, [row[3] for row in ack_rows(state)]) == (
        1, [ErrorCode.OUTCOME_UNKNOWN],
    )  # fmt: skip
    stage.accept_and_commit()
    assert producer.acks() == []
    client.ask(SessionStateRequest(producer.id, producer.epoch, 2))
    assert ack_rows(client.answer()) == [(0, 1, 2, ErrorCode.OK, 0)]


@pytest.mark.parametrize("level", [AckLevel.LEADER, AckLevel.NONE])
def test_a_full_window_holds_the_batch_until_something_is_committed(
    stage: Stage, level: AckLevel
) -> None:
    producer = producer_of(stage, level)
    other = stage.producer()
    for sequence in range(WINDOW + 2):
        producer.queue(sequence)
    stage.work()
    other.queue(0)
    stage.work()
    headers = stage.accept()
    assert sum(header.count for header in headers) == 2 * WINDOW
    append = stage.ingress._ports.append
    assert append not in stage.ingress.wait_on()
    flush(stage, headers[-1].index)
    assert [row for _, rows in producer.acks() for row in rows if row[3] != PROVISIONAL] == []
    stage.commit()
    ((_, body),) = stage.take_proposals()
    held, next_one = producer.batch(WINDOW), producer.batch(WINDOW + 1)
    assert body in (held + next_one + other.batch(0), held + other.batch(0) + next_one)
    assert append in stage.ingress.wait_on()


def test_a_held_batch_is_refused_by_a_replica_that_leads_no_more(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.NONE)
    for sequence in range(WINDOW + 1):
        producer.queue(sequence)
    stage.work()
    stage.accept()
    stage.tell(
        effects.AdmissionClosed(1, stage.ingress._proposals._next_prop, "step_down"),
        effects.TermEnded(1),
        effects.LeaderChanged(2, 3),
    )
    assert producer.acks() == [(1, [(WINDOW, 0, 2, ErrorCode.NOT_LEADER, 3)])]
    assert stage.ingress._ports.append in stage.ingress.wait_on()


def test_a_held_batch_that_waits_for_room_in_the_ring_asks_to_be_woken(stage: Stage) -> None:
    """No bell rings for such room."""
    producer = producer_of(stage, AckLevel.NONE)
    for sequence in range(WINDOW + 1):
        producer.queue(sequence)
    stage.work()
    stage.accept()
    appends = stage.ingress._appends
    assert not appends.can_take_held
    while stage.bulk_ring.offer(bytes(1_000)):
        pass
    stage.ingress.admission._commit = len(stage.entries)
    stage.ingress.admission.table.commit = len(stage.entries)
    assert appends.can_take_held
    assert stage.ingress.next_timer_ns() <= stage.clock.now_ns + 1_000_000


def test_a_session_of_level_leader_needs_the_format_level(stage: Stage) -> None:
    """SAFETY S11."""
    stage.level = ACK_LEVELS_LEVEL - 1
    stage.commit(1)
    stage.append_entry(EntryKind.NOOP, b"", 0)
    stage.commit()
    client = stage.client()
    client.ask(open_request(ack_level=AckLevel.LEADER))
    refusal = client.answer()
    assert isinstance(refusal, ErrorReply)
    assert refusal.code == ErrorCode.LEVEL_REFUSED
    assert b"logstore upgrade" in refusal.text
    client.ask(open_request())
    assert [header.kind for header in stage.accept()] == [EntryKind.OPEN]


def test_a_leader_that_does_not_know_the_level_yet_says_ask_again() -> None:
    stage = Stage()
    stage.lead()
    client = stage.client()
    client.ask(open_request(ack_level=AckLevel.NONE))
    assert client.answer().code == ErrorCode.NOT_READY


def test_a_monotone_session_has_no_other_level_than_quorum(stage: Stage) -> None:
    client = stage.client()
    client.ask(open_request(ack_level=AckLevel.NONE, mode=SequenceMode.MONOTONE, name=b"n"))
    assert client.answer().code == ErrorCode.INVALID_REQUEST


def test_the_level_is_of_the_epoch_and_is_in_its_open_entry(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.LEADER, name=b"name")
    client = stage.client()
    client.ask(open_request(ack_level=AckLevel.QUORUM, name=b"name"))
    ((_, body),) = stage.take_proposals()
    assert decode_open(body).ack_level == AckLevel.QUORUM
    assert decode_open(body).producer_epoch == producer.epoch + 1
    assert stage.ingress.admission.table.other_levels == {}


def test_a_rebuilt_table_knows_the_levels(stage: Stage) -> None:
    """SAFETY E5."""
    producer = producer_of(stage, AckLevel.LEADER)
    producer.push(0)
    stage.accept()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.lead(term=2, gen=2)
    stage.commit()
    producer.push(1)
    (header,) = stage.accept()
    flush(stage, header.index, term=2)
    assert producer.acks() == [(1, [(1, 0, 2, PROVISIONAL, 0)])]


def test_other_producers_pay_nothing_for_levels(stage: Stage) -> None:
    """Raft is asked for no news of the flush."""
    stage.producer().push(0)
    ((proposed, _),) = stage.take_proposals()
    assert not proposed.waits_for_flush


def test_a_copy_below_the_window_is_not_answered(stage: Stage) -> None:
    producer = producer_of(stage, AckLevel.LEADER)
    for sequence in range(WINDOW + 1):
        producer.push(sequence)
        stage.accept_and_commit()
    producer.acks()
    producer.push(0)
    assert (producer.acks(), stage.take_proposals()) == ([], [])


def test_a_small_window_is_granted_to_sessions_of_level_quorum_only() -> None:
    """A full one stops all appends until a commit."""
    stage = Stage()
    stage.level = ACK_LEVELS_LEVEL
    stage.lead()
    stage.commit()
    granted = [
        producer_of(stage, level).session.window for level in (AckLevel.QUORUM, AckLevel.NONE)
    ]
    assert granted == [WINDOW, PROVISIONAL_WINDOW_MIN]


def test_requests_have_their_turn_while_a_batch_is_held() -> None:
    stage = Stage(provisional_window_min=WINDOW, requests_before_appends_max=1)
    stage.level = ACK_LEVELS_LEVEL
    stage.lead()
    stage.commit()
    producer = producer_of(stage, AckLevel.NONE)
    for sequence in range(WINDOW + 1):
        producer.queue(sequence)
    stage.work()
    stage.accept()
    assert stage.ingress._appends._held is not None
    for _ in range(2):
        stage.client().ask(open_request())
        stage.work()
        assert [header.kind for header in stage.accept()] == [EntryKind.OPEN]
