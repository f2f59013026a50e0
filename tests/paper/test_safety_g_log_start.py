"""SAFETY G1, G3, G4, G6: when a TRIM acts, and what consensus knows of a log that was trimmed."""

from __future__ import annotations

import pytest

from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
)
from logstore.model import EntryKind, Index, Term
from logstore.raft.effects import ApplyTrim, Lead, LevelAnswered, Rewind, SaveLevel
from logstore.raft.events import LevelRequested, LogStartMoved, Proposed, ReplicatorGone
from logstore.raft.log_view import Position
from tests.paper.one_node import OneNode, of_type, rows_of, sent, streams
from tests.paper.virtual_node import whole_start

TERMS = [1, 1, 1, 2, 2, 3, 3, 3]


def trimmed(start: int, **state: object) -> OneNode:
    return OneNode(rows=rows_of(TERMS), trimmed_to=start, term=3, commit_floor=start, **state)


# --- when a TRIM acts ---


def test_g1_a_trim_acts_once_it_is_committed_and_flushed_here() -> None:
    node = OneNode()
    node.lead_and_commit()
    start, end = node.reserve(64)
    node.step(Proposed(node.core.term, 1, 0, EntryKind.TRIM, 0, 1, start, end, 0))
    trim = node.core.last_index
    assert not of_type(node.hear_match(2, trim), ApplyTrim)
    assert not of_type(node.hear_match(3, trim), ApplyTrim)
    assert node.core.commit == trim
    assert of_type(node.flush(), ApplyTrim) == [ApplyTrim(trim)]


def test_g1_a_follower_carries_it_out_as_well() -> None:
    rows = rows_of([1, 1, 1], trims=[2])
    node = OneNode()
    node.follow(2, 1)
    for row in rows[:2]:
        node.hear_append(2, row)
    node.flush()
    assert not of_type(node.hear_append(2, rows[2], commit=1), ApplyTrim)
    assert of_type(node.hear_heartbeat(2, term=1, commit=2), ApplyTrim) == [ApplyTrim(Index(2))]
    node.flush()
    assert not of_type(node.hear_heartbeat(2, term=1, commit=3), ApplyTrim)


def test_g1_a_trim_that_was_truncated_never_acts() -> None:
    node = OneNode(rows=rows_of([1, 1, 1], trims=[2, 3]), term=1)
    node.follow(2, 2)
    rows = rows_of([1, 1, 2], trims=[2])
    effects = node.hear_append(2, rows[2], commit=3)
    effects += node.flush()
    assert of_type(effects, ApplyTrim) == [ApplyTrim(Index(2))]


def test_g4_after_a_restart_those_in_the_log_act_once_a_commit_index_is_known() -> None:
    """Whether they have acted before, the writer knows."""
    rows = rows_of([1, 1, 1, 1, 1], trims=[2, 4, 5])
    node = OneNode(rows=rows, term=1, commit_floor=4)
    effects = node.hear_heartbeat(2, term=1, commit=4, prev=rows[4])
    assert of_type(effects, ApplyTrim) == [ApplyTrim(Index(2)), ApplyTrim(Index(4))]


# --- what begins at log start ---


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("start", range(1, 8))
def test_g6_bookkeeping_begins_at_log_start(start: int, is_moved: bool) -> None:
    """The same whether it moved or recovery found it there."""
    rows = rows_of(TERMS)
    if is_moved:
        node = OneNode(rows=rows, term=3, commit_floor=8)
        node.move_start(start)
    else:
        node = trimmed(start)
    log = node.core._state.log
    assert node.core.log_start == Position.after(rows[start - 1])
    for index in range(start, 9):
        assert log.term_at(Index(index)) == TERMS[index - 1]
        assert log.position(Index(index)) == Position.after(rows[index - 1])
        same = [at for at in range(start + 1, index + 1) if TERMS[at - 1] == TERMS[index - 1]]
        assert log.run_first(Index(index)) == (same[0] if index > start else start)
        expected = max(
            (at for at in range(1, index + 1) if TERMS[at - 1] <= 2 and at > start), default=start
        )
        assert log.last_at_or_below_term(Index(index), Term(2)) == expected
    assert node.core.row(Index(start)) is None
    with pytest.raises(InvariantViolated):
        log.term_at(Index(start - 1))


def test_g4_damage_at_or_below_the_log_start_is_forgotten() -> None:
    faulty = tuple((Index(first), Index(last)) for first, last in ((1, 2), (4, 6), (8, 8)))
    for start, left in ((1, ((2, 2), (4, 6), (8, 8))), (3, ((4, 6), (8, 8))), (5, ((6, 6), (8, 8))),
                        (6, ((8, 8),)), (7, ((8, 8),))):  # fmt: skip
        node = OneNode(rows=rows_of(TERMS), term=3, commit_floor=8, faulty=faulty)
        node.move_start(start)
        assert node.core.faulty == left


def test_g4_rows_in_memory_go_with_the_log_start() -> None:
    node = OneNode()
    node.follow(2, 1)
    rows = rows_of([1] * 5)
    for row in rows:
        node.hear_append(2, row, commit=4)
    node.flush()
    node.files.rows = rows
    node.move_start(3)
    assert [node.core.row(Index(index)) for index in range(6)] == [None] * 4 + rows[3:]
    row = rows_of([1] * 6)[5]
    assert sent(node.hear_append(2, row), AppendAccepted)


def test_g1_a_log_start_above_what_is_committed_is_a_broken_invariant() -> None:
    node = OneNode(rows=rows_of(TERMS), term=3, commit_floor=4)
    with pytest.raises(InvariantViolated, match="above the commit index"):
        node.move_start(5)


def test_g5_a_log_may_begin_after_its_last_entry_and_goes_on_there() -> None:
    """A TRIM lies above what it gives up. A log start that the leader sent may be the last."""
    rows = rows_of([*TERMS, 3, 3])
    for last_term in (3, 4):
        node = OneNode(rows=rows[:8], term=3, commit_floor=8)
        node.follow(2, 4)
        node.move_start(8)
        log = node.core._state.log
        assert (log.start, log.last) == (Position.after(rows[7]),) * 2
        assert (log.term_at(Index(8)), log.last_at_or_below_term(Index(8), Term(9))) == (3, 8)
        assert node.core.last_bytes == rows[7].header.cumulative_bytes
        more = rows_of([*TERMS, last_term, last_term])
        for row in more[8:]:
            assert sent(node.hear_append(2, row), AppendAccepted)
        assert (log.term_at(Index(9)), log.run_first(Index(10))) == (last_term, 9)
        with pytest.raises(InvariantViolated, match="log start"):
            log.move_start(whole_start(rows_of([*TERMS, 3, 3, 3])[10]))


# --- following ---


def test_g3_below_the_log_start_every_prev_matches_and_nothing_is_taken() -> None:
    node = trimmed(4)
    node.follow(2, 3)
    rows = rows_of(TERMS)
    for row in rows[:4]:
        effects = node.hear_append(2, row)
        assert sent(effects, AppendAccepted)
        assert not sent(effects, AppendReject)
    assert node.core.last_index == 8
    assert not node.unsettled


def test_s3_prev_at_the_log_start_is_compared_with_what_meta_says() -> None:
    node = trimmed(4)
    node.follow(2, 3)
    rows = rows_of(TERMS)
    assert sent(node.hear_append(2, rows[4]), AppendAccepted)
    other = rows_of(TERMS, noops=[1])
    with pytest.raises(InvariantViolated, match="different log"):
        node.hear_append(2, other[4])


def test_g4_a_row_that_the_files_no_longer_have_is_no_error() -> None:
    """The writer moved the log start a moment ago, and raft does not know yet."""
    node = OneNode(rows=rows_of(TERMS), term=3, commit_floor=8)
    node.follow(2, 3)
    node.files.start = Index(5)
    assert sent(node.hear_append(2, rows_of(TERMS)[3]), AppendAccepted)


# --- leading ---


def test_w2_nothing_is_presumed_of_a_peer_beyond_what_it_said() -> None:
    """A follower that ends below the log start must not hear that it has lost entries."""
    node = trimmed(5)
    effects = node.lead()
    assert set(node.core.match.values()) == {0}
    assert {beat.prev_index for _, beat in sent(effects, Heartbeat)} == {0}
    behind = OneNode(node=2, rows=rows_of([1, 1]))
    behind.follow(1, node.core.term)
    for _, beat in sent(effects, Heartbeat)[:1]:
        assert sent(behind.hear(1, beat), HeartbeatReply)
    assert behind.core.lost is None


def test_w1_a_stream_that_the_log_start_passes_goes_on_after_it() -> None:
    rows = rows_of(TERMS)
    node = OneNode(rows=rows, term=3, commit_floor=8)
    node.lead_and_commit()
    stream = node.step(ReplicatorGone(3))
    assert streams(stream)[3].next_index == 10
    node = OneNode(rows=rows, term=3, commit_floor=8)
    node.lead()
    node.flush()
    node.hear_match(2, 9)
    assert node.core.commit == 9
    effects = node.move_start(6)
    assert {peer: lead.next_index for peer, lead in streams(effects).items()} == {3: 7}
    # what it is sent has log start before it, which it may have
    node.hear_match(3, 9)
    assert not streams(node.move_start(7))


def test_w2_no_stream_begins_at_or_below_the_log_start() -> None:
    node = trimmed(5)
    lead = streams(node.lead())[2]
    node.hear_answer(2, AppendPersisted(node.core.term, Index(3)))
    late = AppendReject(node.core.term, lead.stream, Index(2), Index(8), Term(1), Index(1))
    (rewind,) = of_type(node.hear_answer(2, late), Rewind)
    assert rewind.next_index == 6
    restarted = node.hear_answer(2, AppendPersisted(node.core.term, Index(3)), boot=2)
    assert [each.next_index for each in of_type(restarted, Lead)] == [6]


def test_a_log_start_is_given_once() -> None:
    rows = rows_of(TERMS)
    node = OneNode(rows=rows, term=3, commit_floor=8)
    node.move_start(5)
    with pytest.raises(InvariantViolated):
        node.step(LogStartMoved(whole_start(rows[3])))


def test_s11_the_levels_of_entries_below_the_log_start_stay() -> None:
    rows = rows_of(TERMS, raises={Index(3): 2, Index(7): 3})
    node = OneNode(rows=rows, term=3, commit_floor=8, newest_level=3)
    assert node.core.level == 3
    node.move_start(5)
    assert [node.core._state.log.level_at(Index(at)) for at in (5, 6, 7)] == [2, 2, 3]


def test_s11_a_trim_says_the_level_where_damage_hides_the_entry_that_raised_it() -> None:
    node = OneNode(rows=rows_of(TERMS), term=3, commit_floor=8, newest_level=2)
    assert node.core.level == 1
    assert of_type(node.move_start(5, level=2), SaveLevel) == [SaveLevel(2)]
    assert node.core.level == 2
    assert not of_type(node.move_start(6, level=2), SaveLevel)


def test_s11_whoever_asks_for_a_level_meanwhile_is_told_that_the_log_has_it() -> None:
    """Damage hides the entry here. The one that is appended for the request raises nothing any
    more, so its commit would answer nothing."""
    node = OneNode(rows=rows_of(TERMS), term=3, commit_floor=8, newest_level=2)
    node.lead_and_commit()
    for peer in (2, 3):
        reply = HeartbeatReply(node.core.term, 1, Index(9), Index(0), Index(0), newest_level=2)
        node.hear(peer, reply)
    assert not of_type(node.step(LevelRequested(7, 2)), LevelAnswered)
    effects = node.move_start(5, level=2)
    assert of_type(effects, LevelAnswered) == [LevelAnswered(7, ErrorCode.OK, 2, "")]
