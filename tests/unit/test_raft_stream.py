"""FollowerStream: what a replicator sends next, and when it begins again (SAFETY W1, W2, W4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from logstore.errors import InvariantViolated
from logstore.format.peer_messages import AppendAccepted, AppendPersisted, AppendReject
from logstore.limits import DESCRIPTORS_KEPT, GROUP_MAX_BYTES
from logstore.model import Index, NodeId, Term
from logstore.raft.effects import Describe, Lead, Rewind, StopLeading
from logstore.raft.stream import NEVER_NS, FollowerStream, SendFromFile, SendFromRing
from tests.paper.one_node import rows_of

PEER = NodeId(2)
BASE = 1 << 32
TERM = Term(1)
ROWS = rows_of([1] * 40)
TIMEOUT = 1_000


def make(mode: str = "streaming", **changes: Any) -> FollowerStream:
    values: dict[str, Any] = {
        "mode": mode,
        "window_bytes": 35,
        "window_entries": 8,
        "resend_timeout_ns": TIMEOUT,
    }
    return FollowerStream(PEER, **(values | changes))


def lead(stream: FollowerStream, *, next_index: int = 1, last: int = 0, seq: int = 0) -> None:
    stream.on_lead(Lead(PEER, TERM, BASE, Index(next_index), Index(last), seq, Index(0)))


def describe(stream: FollowerStream, *indexes: int, commit: int = 0) -> None:
    for index in indexes:
        row = ROWS[index - 1]
        end = index * 10
        stream.on_describe(Describe(TERM, row.header, end - 10, end, index, Index(commit)))


def send_all(stream: FollowerStream, written: int = 0, now_ns: int = 0) -> list[Any]:
    steps = []
    while (step := stream.next_send(written, now_ns)) is not None:
        steps.append(step)
    return steps


def indexes(steps: list[Any]) -> list[int]:
    return [each.header.index if isinstance(each, SendFromRing) else each.index for each in steps]


def persisted(index: int, term: int = 1) -> AppendPersisted:
    return AppendPersisted(Term(term), Index(index))


def accepted(stream: int, index: int) -> AppendAccepted:
    return AppendAccepted(TERM, stream, Index(index))


def rejected(stream: int) -> AppendReject:
    return AppendReject(TERM, stream, Index(0), Index(0), Term(0), Index(0))


def test_nothing_is_sent_before_lead_or_after_stop() -> None:
    stream = make()
    describe(stream, 1)
    assert stream.next_send(9, 0) is None
    assert stream.hold_position is None
    lead(stream)
    describe(stream, 1)
    stream.on_stop(StopLeading(Term(0)))
    assert indexes(send_all(stream)) == [1]
    stream.on_stop(StopLeading(TERM))
    describe(stream, 2)
    assert send_all(stream) == []
    assert stream.on_answer(1, persisted(1), 0) == []
    assert stream.is_empty
    assert stream.deadline_ns == NEVER_NS


def test_paper_mode_has_one_append_unpersisted() -> None:
    stream = make("paper")
    lead(stream)
    describe(stream, 1, 2, 3)
    assert indexes(send_all(stream)) == [1]
    stream.on_answer(1, accepted(BASE, 1), 0)
    assert send_all(stream) == []
    assert stream.on_answer(1, persisted(1), 0) == [persisted(1)]
    assert indexes(send_all(stream)) == [2]


def test_streaming_mode_fills_a_window_of_bytes_and_entries() -> None:
    stream = make()
    lead(stream)
    describe(stream, *range(1, 10))
    assert indexes(send_all(stream)) == [1, 2, 3]
    stream.on_answer(1, persisted(2), 0)
    assert indexes(send_all(stream)) == [4, 5]
    wide = make(window_bytes=1_000)
    lead(wide)
    describe(wide, *range(1, 12))
    assert indexes(send_all(wide)) == list(range(1, 9))


def test_one_entry_larger_than_the_window_may_always_be_in_flight() -> None:
    stream = make(window_bytes=1)
    lead(stream)
    describe(stream, 1, 2)
    assert indexes(send_all(stream)) == [1]
    stream.on_answer(1, persisted(1), 0)
    assert indexes(send_all(stream)) == [2]


def test_a_step_carries_what_the_append_needs() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, commit=0)
    describe(stream, 2, commit=1)
    steps = send_all(stream)
    header = ROWS[0].header
    assert steps[0] == SendFromRing(header, 0, 10, 1, BASE, Index(1), TERM)


def test_older_entries_come_from_the_files_once_they_are_written() -> None:
    stream = make(window_bytes=10 * GROUP_MAX_BYTES)
    lead(stream, next_index=2, last=4, seq=3)
    assert stream.next_send(2, 0) is None
    assert send_all(stream, 3) == [
        SendFromFile(Index(index), BASE, Index(0), TERM) for index in (2, 3, 4)
    ]


def test_missed_descriptors_are_read_from_the_files() -> None:
    stream = make(window_bytes=10 * GROUP_MAX_BYTES)
    lead(stream)
    describe(stream, 1, 4)
    assert stream.next_send(2, 0) is None, "entry 1's descriptor made room for what is contiguous"
    steps = send_all(stream, 3)
    assert indexes(steps) == [1, 2, 3, 4]
    assert [type(each) for each in steps] == [SendFromFile] * 3 + [SendFromRing]
    describe(stream, 4)
    assert send_all(stream, 9) == []


def test_the_queue_of_descriptors_is_bounded() -> None:
    stream = make()
    lead(stream)
    for index in range(1, DESCRIPTORS_KEPT + 3):
        header = msgspec.structs.replace(ROWS[0].header, index=Index(index))
        stream.on_describe(Describe(TERM, header, index, index + 1, index, Index(0)))
    assert isinstance(stream.next_send(2, 0), SendFromFile)
    assert stream.hold_position == DESCRIPTORS_KEPT + 3


def test_what_was_read_from_files_counts_as_a_full_group_until_measured() -> None:
    stream = make(window_bytes=4 * GROUP_MAX_BYTES)
    lead(stream, last=9, seq=1)
    steps = send_all(stream, 1)
    assert indexes(steps) == [1, 2, 3, 4]
    assert stream.next_send(1, 0) is None
    stream.on_size_known(steps[-1], 10)
    fifth = stream.next_send(1, 0)
    assert fifth is None, "three full groups, a small one and a guess are above the window"
    stream.on_size_known(steps[0], 10)
    assert stream.next_send(1, 0) is None, "only the newest is measured"


def test_a_window_below_a_full_group_still_pipelines_what_is_read_from_files() -> None:
    stream = make(window_bytes=1_000)
    lead(stream, last=9, seq=1)
    sent = 0
    while (step := stream.next_send(1, 0)) is not None:
        stream.on_size_known(step, 10)
        sent += 1
    assert sent == 8, "window_entries, not the guess, ends it"


def test_an_append_that_could_not_be_sent_is_taken_back() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2)
    step = stream.next_send(0, 0)
    assert step is not None
    stream.unsend(step)
    assert stream.deadline_ns == NEVER_NS
    assert indexes(send_all(stream)) == [1, 2]
    stream.unsend(step)
    stream.on_rewind(Rewind(PEER, TERM, BASE, Index(1)))
    stream.unsend(step)
    assert indexes(send_all(stream)) == [1, 2]


def test_only_a_rewind_of_the_current_stream_counts_and_raises_its_id() -> None:
    stream = make()
    lead(stream, next_index=3, last=2)
    stream.on_rewind(Rewind(PEER, TERM, BASE - 1, Index(1)))
    stream.on_rewind(Rewind(PEER, Term(2), BASE, Index(1)))
    assert stream.stream == BASE
    stream.on_rewind(Rewind(PEER, TERM, BASE, Index(1)))
    assert stream.stream == BASE + 1
    assert indexes(send_all(stream, 1))[:1] == [1]
    stream.on_rewind(Rewind(PEER, TERM, BASE, Index(2)))
    assert stream.stream == BASE + 1


def test_a_rewind_never_goes_below_match_plus_one() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2, 3)
    send_all(stream)
    stream.on_answer(1, persisted(2), 0)
    stream.on_rewind(Rewind(PEER, TERM, BASE, Index(1)))
    assert indexes(send_all(stream)) == [3]


def test_a_reject_of_the_current_stream_is_passed_on_once_and_stops_sending() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2, 3, 4)
    send_all(stream)
    assert stream.on_answer(1, rejected(BASE - 1), 0) == []
    assert stream.on_answer(1, rejected(BASE), 5) == [rejected(BASE)]
    assert stream.on_answer(1, rejected(BASE), 6) == []
    stream.on_answer(1, persisted(3), 5)
    assert send_all(stream) == []
    stream.on_tick(TIMEOUT + 4)
    assert stream.stream == BASE
    stream.on_tick(TIMEOUT + 5)
    assert stream.stream == BASE + 1, "raft's rewind was lost: it begins again by itself"


def test_silence_rewinds_to_what_is_known_to_be_there() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2, 3)
    stream.on_tick(10**12)
    assert stream.stream == BASE, "nothing waits for an answer"
    send_all(stream, now_ns=100)
    stream.on_answer(1, accepted(BASE, 1), 600)
    assert stream.deadline_ns == 600 + TIMEOUT
    stream.on_tick(600 + TIMEOUT)
    assert stream.stream == BASE + 1
    assert indexes(send_all(stream, now_ns=2_000)) == [2, 3]
    assert stream.deadline_ns == 2_000 + TIMEOUT
    stream.on_answer(1, accepted(BASE + 1, 3), 2_100)
    assert stream.deadline_ns == NEVER_NS, "a slow flush is no silence"


def test_answers_of_an_earlier_stream_do_not_count_as_accepted() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1)
    send_all(stream)
    assert stream.on_answer(1, accepted(BASE - 1, 1), 0) == []
    assert stream.deadline_ns != NEVER_NS
    stream.on_answer(1, accepted(BASE, 1), 0)
    stream.on_answer(1, accepted(BASE, 1), 0)
    assert stream.deadline_ns == NEVER_NS


def test_what_an_earlier_stream_brought_is_not_sent_again() -> None:
    stream = make(window_bytes=1_000)
    lead(stream)
    describe(stream, 1, 2, 3, 4)
    assert indexes(send_all(stream)) == [1, 2, 3, 4]
    stream.on_tick(TIMEOUT)
    step = stream.next_send(0, TIMEOUT)
    assert step is not None
    stream.on_answer(1, accepted(BASE + 1, 3), TIMEOUT)
    assert indexes(send_all(stream)) == [4]


def test_a_new_boot_counter_rewinds_to_match_plus_one() -> None:
    stream = make(window_bytes=1_000)
    lead(stream)
    describe(stream, 1, 2, 3, 4)
    send_all(stream)
    stream.on_answer(7, persisted(1), 0)
    stream.on_answer(7, accepted(BASE, 4), 0)
    stream.on_answer(6, persisted(1), 0)
    assert stream.stream == BASE
    assert stream.on_answer(8, persisted(2), 0) == [persisted(2)]
    assert stream.stream == BASE + 1
    assert indexes(send_all(stream, 9)) == [3, 4]


def test_a_match_is_passed_on_again_but_an_older_one_is_not() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2)
    send_all(stream)
    assert stream.on_answer(1, persisted(2), 0) == [persisted(2)]
    assert stream.on_answer(1, persisted(2), 0) == [persisted(2)]
    assert stream.on_answer(1, persisted(1), 0) == []
    assert stream.is_empty


def test_answers_of_another_term_are_raft_s_or_nobody_s() -> None:
    stream = make()
    lead(stream)
    assert stream.on_answer(1, persisted(1, term=2), 0) == [persisted(1, term=2)]
    assert stream.on_answer(1, persisted(1, term=0), 0) == []


def test_claims_beyond_what_was_described_stop_the_replicator() -> None:
    stream = make()
    lead(stream)
    with pytest.raises(InvariantViolated, match="never described"):
        stream.on_answer(1, persisted(1), 0)


def test_a_lead_must_be_newer_than_the_last() -> None:
    stream = make()
    lead(stream)
    with pytest.raises(InvariantViolated):
        lead(stream)


def test_a_new_lead_of_the_same_term_keeps_the_match() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2)
    send_all(stream)
    stream.on_answer(1, persisted(1), 0)
    stream.on_lead(Lead(PEER, TERM, 2 * BASE, Index(1), Index(2), 2, Index(0)))
    assert indexes(send_all(stream, 2)) == [2]
    stream.on_lead(Lead(PEER, Term(2), 3 * BASE, Index(1), Index(2), 2, Index(0)))
    assert stream.match == 0


def test_hold_is_the_oldest_unsent_range_then_the_newest_end() -> None:
    stream = make()
    lead(stream)
    assert stream.hold_position is None
    noop = rows_of([1], noops=[1])[0]
    stream.on_describe(Describe(TERM, noop.header, 0, 0, 1, Index(0)))
    assert stream.hold_position is None
    describe(stream, 2, 3, 4, 5)
    assert stream.hold_position == 10
    assert indexes(send_all(stream)) == [1, 2, 3, 4]
    assert stream.hold_position == 40
    stream.on_answer(1, persisted(4), 0)
    assert indexes(send_all(stream)) == [5]
    assert stream.hold_position == 50
    assert not stream.is_empty


def test_descriptors_of_another_term_are_ignored() -> None:
    stream = make()
    lead(stream)
    row = ROWS[0]
    stream.on_describe(Describe(Term(3), row.header, 0, 10, 1, Index(0)))
    assert send_all(stream) == []


def test_w5_contiguity_is_asserted_on_send() -> None:
    stream = make()
    lead(stream)
    describe(stream, 1, 2, 3)
    del stream._described[1]
    with pytest.raises(InvariantViolated, match="entry 3 where 2 belongs"):
        send_all(stream)
