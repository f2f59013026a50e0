"""The session table's answers, rule by rule (SAFETY E1, E2, E7, E8; FAULTS K1 to K5)."""

from __future__ import annotations

import pytest

from logstore import limits
from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.session_entries import ExpireEntry, OpenEntry
from logstore.limits import MIB, POSITION_MAX
from logstore.model import AckLevel, Index, Lsn, SequenceMode
from logstore.session.grants import SessionLimits
from logstore.session.session import Duplicate, Refused, WindowRow
from logstore.session.table import OpenRequest, SessionTable, assign_lsns

PRODUCER = 77


def open_request(**changes):
    fields = {
        "producer_id": 0,
        "mode": SequenceMode.DENSE,
        "ack_level": AckLevel.QUORUM,
        "window": 16,
        "name": b"",
    }
    return OpenRequest(**{**fields, **changes})


def opened(mode=SequenceMode.DENSE, window=16, name=b"", producer_id=PRODUCER, **limits):
    table = SessionTable(SessionLimits(**limits))
    reopen(table, mode=mode, window=window, name=name, new_producer_id=producer_id)
    return table


def reopen(table, *, new_producer_id=PRODUCER, **fields):
    entry = table.decide_open(open_request(**fields), new_producer_id)
    assert isinstance(entry, OpenEntry), entry
    return table.apply_open(entry)


def offer(table, sequence, *, epoch=1, count=1, crc=5, producer_id=PRODUCER):
    return table.offer(producer_id, epoch, sequence, count, crc)


def offer_committed(table, sequence, *, index, epoch=1, count=1, crc=5):
    row = offer(table, sequence, epoch=epoch, count=count, crc=crc)
    assert isinstance(row, WindowRow), row
    assign_lsns([row], Index(index), Lsn(index * 10))
    table.commit = Index(index)
    return row


def code_of(verdict):
    assert isinstance(verdict, Refused), verdict
    return verdict.code


def test_dense_sequences_are_taken_in_order_and_a_retry_finds_the_first_copy():
    table = opened()
    first = offer(table, 0)
    assert isinstance(first, WindowRow)
    assert isinstance(offer(table, 1), WindowRow)
    again = offer(table, 0)
    assert isinstance(again, Duplicate)
    assert again.row is first


def test_a_retry_finds_its_first_copy_before_it_has_lsns():
    """FAULTS K2: dedup works against what is in flight."""
    table = opened()
    row = offer(table, 0)
    duplicate = offer(table, 0)
    assert not duplicate.row.is_committed(Index(100))
    assert assign_lsns([row], Index(4), Lsn(9)) == 10
    assert (duplicate.row.index, duplicate.row.first_lsn) == (4, 9)
    assert duplicate.row.is_committed(Index(4))
    assert not duplicate.row.is_committed(Index(3))


def test_a_used_dense_sequence_with_other_bytes_is_refused_for_ever():
    table = opened()
    offer(table, 0, crc=5)
    assert code_of(offer(table, 0, crc=6)) is ErrorCode.SEQUENCE_REUSED
    assert code_of(offer(table, 0, crc=5, count=2)) is ErrorCode.SEQUENCE_REUSED


def test_a_gap_is_refused_with_the_expected_sequence():
    table = opened()
    offer(table, 0)
    refused = offer(table, 2)
    assert (refused.code, refused.detail) == (ErrorCode.GAP, 1)
    assert isinstance(offer(table, 1), WindowRow)


def test_below_the_window_the_batch_is_committed_with_lsns_unknown():
    table = opened(window=16)
    for sequence in range(17):
        offer_committed(table, sequence, index=sequence + 1)
    assert code_of(offer(table, 0)) is ErrorCode.COMMITTED_LSN_UNKNOWN
    assert isinstance(offer(table, 1), Duplicate)


def test_an_uncommitted_batch_never_leaves_the_window():
    """So CommittedLsnUnknown never tells a lie: more than W unresolved is refused (E7)."""
    table = opened(window=16)
    rows = [offer(table, sequence) for sequence in range(16)]
    assert code_of(offer(table, 16)) is ErrorCode.OVERLOADED
    assign_lsns(rows, Index(1), Lsn(1))
    assert code_of(offer(table, 16)) is ErrorCode.OVERLOADED
    table.commit = Index(1)
    assert isinstance(offer(table, 16), WindowRow)


def test_monotone_sequences_may_skip_and_anything_at_or_below_the_last_is_a_duplicate():
    table = opened(SequenceMode.MONOTONE)
    assert isinstance(offer(table, 5), WindowRow)
    assert isinstance(offer(table, 9), WindowRow)
    assert isinstance(offer(table, 5, crc=1234, count=9), Duplicate)
    assert code_of(offer(table, 7)) is ErrorCode.COMMITTED_LSN_UNKNOWN


def test_monotone_window_outlives_the_producer_epoch_and_a_dense_one_does_not():
    monotone = opened(SequenceMode.MONOTONE, name=b"query")
    offer(monotone, 5)
    session = reopen(monotone, mode=SequenceMode.MONOTONE, name=b"query")
    assert (session.producer_epoch, session.next_sequence) == (2, 6)
    assert isinstance(offer(monotone, 5, epoch=2), Duplicate)

    dense = opened()
    offer(dense, 0)
    session = reopen(dense, producer_id=PRODUCER)
    assert (session.producer_epoch, session.next_sequence) == (2, 0)
    assert isinstance(offer(dense, 0, epoch=2), WindowRow)


def test_a_newer_producer_epoch_fences_the_older():
    """SAFETY E2, FAULTS K4."""
    table = opened()
    reopen(table, producer_id=PRODUCER)
    assert code_of(offer(table, 0, epoch=1)) is ErrorCode.FENCED
    assert code_of(table.state_of(PRODUCER, 1)) is ErrorCode.FENCED
    assert table.state_of(PRODUCER, 2).producer_epoch == 2


def test_an_unknown_producer_gets_an_explicit_error_also_after_expiry():
    """SAFETY E2, FAULTS K3."""
    table = opened(name=b"once")
    assert code_of(offer(table, 0, producer_id=78)) is ErrorCode.UNKNOWN_PRODUCER
    assert code_of(offer(table, 0, epoch=2)) is ErrorCode.UNKNOWN_PRODUCER
    table.apply_expire(ExpireEntry(PRODUCER, 1))
    assert code_of(offer(table, 0)) is ErrorCode.UNKNOWN_PRODUCER
    assert reopen(table, name=b"once", new_producer_id=80).producer_id == 80


def test_a_name_leads_to_its_producer():
    table = opened(name=b"writer-1")
    entry = table.decide_open(open_request(name=b"writer-1"), 99)
    assert (entry.producer_id, entry.producer_epoch) == (PRODUCER, 2)
    entry = table.decide_open(open_request(name=b"writer-2"), 99)
    assert (entry.producer_id, entry.producer_epoch) == (99, 1)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mode": 3}, ErrorCode.INVALID_REQUEST),
        ({"ack_level": 4}, ErrorCode.INVALID_REQUEST),
        (
            {"ack_level": AckLevel.LEADER, "mode": SequenceMode.MONOTONE},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"name": b"x" * 256}, ErrorCode.INVALID_REQUEST),
        ({"name": b"\xff"}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.UNKNOWN_PRODUCER),
        ({"producer_id": PRODUCER, "mode": SequenceMode.MONOTONE}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5, "name": b"named"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_open_requests_that_make_no_sense_are_refused(changes, code):
    """SAFETY E10: the level of a monotone session is quorum."""
    table = opened(name=b"named")
    assert code_of(table.decide_open(open_request(**changes), 99)) is code


def test_windows_stay_within_their_sum_and_the_last_session_gets_one_too():
    """SAFETY E1: 10,000 named sessions on one log; W shrinks for new ones only."""
    table = SessionTable(SessionLimits())
    granted = []
    for producer_id in range(1, limits.SESSIONS_MAX + 2):
        entry = table.decide_open(open_request(window=0, name=b"n%d" % producer_id), producer_id)
        if isinstance(entry, Refused):
            assert entry.code is ErrorCode.OVERLOADED
            break
        granted.append(entry.window)
        table.apply_open(entry)
    assert len(granted) == limits.SESSIONS_MAX >= 10_000
    assert granted == sorted(granted, reverse=True)
    assert (granted[0], granted[-1]) == (4_096, 16)
    assert [each.window_max for each in table.sessions()] == granted
    extra = limits.SESSION_WINDOW_EXTRA_MAX
    assert sum(granted) <= limits.SESSIONS_MAX * limits.SESSION_WINDOW_MIN + extra


def test_a_window_in_bytes_is_a_share_of_the_memory_and_one_batch_at_least():
    """SAFETY W6."""
    table = SessionTable(SessionLimits(client_memory_bytes=256 * MIB))
    granted = [
        reopen(table, new_producer_id=producer_id).window_bytes for producer_id in range(1, 100)
    ]
    assert granted[:32] == [8 * MIB] * 32
    assert granted[63] == granted[-1] == 4 * MIB


def test_an_expired_session_gives_its_window_back():
    table = opened(window=4_096, sessions_max=1)
    assert code_of(table.decide_open(open_request(), 5)) is ErrorCode.OVERLOADED
    table.apply_expire(ExpireEntry(PRODUCER, 1))
    assert reopen(table, new_producer_id=5, window=4_096).window_max == 4_096


# --- bounds ---


@pytest.mark.parametrize("beyond", [POSITION_MAX, POSITION_MAX + 1, (1 << 64) - 1])
def test_no_sequence_is_taken_that_a_snapshot_could_not_hold(beyond):
    """The one after the last, too: it is the next one, and the hot path looks at little else."""
    table = opened(SequenceMode.MONOTONE, name=b"m")
    for sequence in (POSITION_MAX - 2, POSITION_MAX - 1):
        assert isinstance(offer(table, sequence), WindowRow)
    assert code_of(offer(table, beyond)) is ErrorCode.INVALID_BATCH
    assert isinstance(offer(table, POSITION_MAX - 1), Duplicate)
    assert table.get(PRODUCER).next_sequence == POSITION_MAX


# --- sessions that were idle for too long ---


def expired(next_sequence=8, mode=SequenceMode.MONOTONE, **limits):
    table = opened(mode, name=b"query", **limits)
    table.get(PRODUCER).next_sequence = next_sequence
    table.apply_expire(ExpireEntry(PRODUCER, 1, is_kept=True))
    return table


def test_a_monotone_name_goes_on_behind_what_it_had_when_it_expired():
    table = expired()
    assert table.get(PRODUCER) is None
    assert code_of(offer(table, 9)) is ErrorCode.UNKNOWN_PRODUCER
    session = reopen(table, mode=SequenceMode.MONOTONE, name=b"query", new_producer_id=5)
    assert (session.producer_id, session.producer_epoch, session.next_sequence) == (PRODUCER, 2, 8)
    assert code_of(offer(table, 7, epoch=2)) is ErrorCode.COMMITTED_LSN_UNKNOWN
    assert isinstance(offer(table, 8, epoch=2), WindowRow)
    assert table.kept() == ()


def test_what_is_kept_of_a_name_is_told_and_keeps_its_id_and_mode():
    table = expired()
    assert table.named(b"query").next_sequence == 8
    assert table.is_used
    assert code_of(table.decide_open(open_request(name=b"query"), 5)) is ErrorCode.INVALID_REQUEST
    assert code_of(table.decide_open(open_request(), PRODUCER)) is ErrorCode.OVERLOADED
    by_id = open_request(producer_id=PRODUCER, mode=SequenceMode.MONOTONE)
    assert table.decide_open(by_id, 5).producer_epoch == 2


def test_a_dense_name_leaves_nothing_behind():
    table = expired(mode=SequenceMode.DENSE)
    assert table.named(b"query") is None
    assert not table.is_used


def test_nothing_expires_for_which_there_is_no_room_to_be_kept():
    table = expired(kept_names_max=1)
    session = reopen(table, mode=SequenceMode.MONOTONE, name=b"other", new_producer_id=5)
    assert not table.can_expire(session)
    dense = reopen(table, name=b"dense", new_producer_id=6)
    assert table.can_expire(dense)


def test_a_session_with_a_batch_under_way_does_not_expire():
    table = opened(name=b"dense")
    row = offer(table, 0)
    assert not table.can_expire(table.get(PRODUCER))
    assert code_of(table.decide_end(PRODUCER)) is ErrorCode.OVERLOADED
    assign_lsns([row], Index(3), Lsn(1))
    table.commit = Index(3)
    assert table.can_expire(table.get(PRODUCER))


def test_an_operator_ends_a_session_or_what_is_kept_of_it_for_good():
    for table in (opened(SequenceMode.MONOTONE, name=b"query"), expired()):
        entry = table.decide_end(PRODUCER)
        assert entry == ExpireEntry(PRODUCER, 1)
        table.apply_expire(entry)
        assert not table.is_used
        session = reopen(table, mode=SequenceMode.MONOTONE, name=b"query", new_producer_id=5)
        assert (session.producer_id, session.next_sequence) == (5, 0)
    assert code_of(table.decide_end(PRODUCER + 1)) is ErrorCode.UNKNOWN_PRODUCER


def test_a_reopened_monotone_window_does_not_shrink():
    """Rows that left it while uncommitted would be told committed."""
    table = opened(SequenceMode.MONOTONE, window=100)
    session = reopen(table, producer_id=PRODUCER, mode=SequenceMode.MONOTONE, window=16)
    assert session.window_max == 100


def test_entries_that_do_not_follow_from_the_table_break_an_invariant():
    table = opened()
    entry = table.decide_open(open_request(producer_id=PRODUCER), 99)
    table.apply_open(entry)
    with pytest.raises(InvariantViolated):
        table.apply_open(entry)
    with pytest.raises(InvariantViolated):
        table.apply_expire(ExpireEntry(PRODUCER, 1))
