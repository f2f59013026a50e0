"""Requests to move the log start: how far, by what entry, answered when (SAFETY G1, G6)."""

from __future__ import annotations

import pytest

from actors.ingress import trim_requests
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    SetCursorRequest,
    TrimRequest,
)
from logstore.format.cursor_entries import Hold
from logstore.format.trim_entry import TrimReason, decode_trim
from logstore.limits import POSITION_MAX, REQUEST_TIMEOUT_NS
from logstore.model import EntryKind
from logstore.raft import effects
from logstore.raft.effects import ReadIndexAnswered
from tests.unit.ingress_stage import Stage
from tests.unit.test_ingress_cursors import asked_of_raft, confirm, set_cursor, set_request
from tests.unit.test_ingress_snapshots import lead_again, make_due, settle

EVERYTHING = 1 << 40


def leader_with_entries():
    """Entries: 1 a NOOP, 2 an OPEN, 3 to 6 with the LSNs 1 to 8, two each."""
    stage = Stage()
    stage.lead()
    stage.pushed = stage.producer()
    for sequence in range(4):
        stage.pushed.push(sequence)
        stage.accept_and_commit()
    stage.slots[Counter.LOG_START_LSN] = 1
    return stage


@pytest.fixture
def stage():
    return leader_with_entries()


@pytest.fixture
def client(stage):
    return stage.client()


def snapshot(stage):
    """A snapshot of the sessions is taken and committed; its index."""
    make_due(stage)
    stage.work()
    index = len(stage.entries) + 1
    assert set(settle(stage)) == {EntryKind.SESSION}
    make_due(stage, after=1_000)
    return index


def trim(client, lsn):
    client.ask(TrimRequest(lsn))
    return client.answer()


def refused(client, lsn):
    """The refusal, sent once raft has confirmed the leadership."""
    client.stage.heard()
    assert trim(client, lsn) is None
    confirm(client.stage)
    return client.answer()


def bounds(answer):
    assert isinstance(answer, ErrorReply)
    assert answer.code == ErrorCode.OUT_OF_RANGE
    return answer.first, answer.last


def proposed(stage):
    """The TRIM that is proposed, and nothing else."""
    ((proposal, body),) = stage.take_proposals()
    assert (proposal.kind, proposal.count) == (EntryKind.TRIM, 0)
    return decode_trim(body)


def test_f9_what_this_leader_has_not_flushed_is_not_taken_for_damage(stage, client):
    """The other two committed the snapshot; here it is not written yet."""
    index = snapshot(stage)
    stage.slots[Counter.VISIBLE_INDEX] = index - 1
    assert trim(client, 5).code == ErrorCode.NOT_READY
    stage.slots[Counter.VISIBLE_INDEX] = index
    assert trim(client, 5) is None
    assert proposed(stage)


def test_s11_no_log_is_trimmed_below_the_format_level_of_trims(stage, client):
    """Older versions would take the entry and keep the log. The leader knows the level as soon as
    it is committed, before META has it."""
    snapshot(stage)
    stage.level = 1
    stage.pushed.push(4)
    stage.accept_and_commit()
    answer = refused(client, 5)
    assert (answer.code, answer.text) == (
        ErrorCode.LEVEL_REFUSED,
        b"the log is at format level 1: run `logstore upgrade` first",
    )
    assert stage.take_proposals() == []
    stage.level = 2
    stage.pushed.push(5)
    stage.accept_and_commit()
    assert trim(client, 5) is None
    assert proposed(stage).level == 2


def test_g1_without_a_snapshot_of_the_sessions_one_is_taken_first(stage, client):
    assert trim(client, 5) is None
    (header,) = stage.accept()
    assert (header.kind, client.answer()) == (EntryKind.SESSION, None)
    stage.commit()
    assert proposed(stage).start.next_lsn == 5


@pytest.mark.parametrize(
    ("lsn", "index", "first_kept"),
    [(2, 2, 1), (3, 3, 3), (4, 3, 3), (5, 4, 5), (7, 5, 7), (8, 5, 7), (9, 6, 9)],
)
def test_g1_the_entry_that_holds_the_lsn_is_the_first_one_kept(
    stage, client, lsn, index, first_kept, caplog
):
    """At the snapshot's own LSN every batch goes, and no part of the snapshot."""
    stage.level = 3
    snapshot(stage)
    caplog.set_level("INFO")
    assert trim(client, lsn) is None
    entry = proposed(stage)
    said = f"an operator trims the log: it is to start at LSN {entry.start.next_lsn}"
    assert said in caplog.messages
    header = stage.entries[index - 1][0]
    assert (entry.reason, entry.start.index) == (TrimReason.OPERATOR, index)
    assert (entry.start.term, entry.start.next_lsn) == (header.term, first_kept)
    assert (entry.cumulative_bytes, entry.timestamp_ns) == (
        header.cumulative_bytes,
        header.timestamp_ns,
    )
    assert entry.level == 3


def test_g1_it_is_answered_once_it_is_committed(stage, client):
    snapshot(stage)
    assert trim(client, 6) is None
    (header,) = stage.accept()
    assert (header.kind, client.answer()) == (EntryKind.TRIM, None)
    stage.commit()
    assert client.answer() == DoneReply(5)


def test_g1_no_trim_reaches_above_the_newest_committed_snapshot(stage, client):
    """The leader takes one where the newest is in the way, and the TRIM waits for its commit."""
    snapshot(stage)
    stage.pushed.push(4)
    stage.accept_and_commit()
    assert trim(client, 10) is None
    (header,) = stage.accept()
    assert (header.kind, header.first_lsn) == (EntryKind.SESSION, 11)
    stage.work()
    assert stage.take_proposals() == []  # in the log, and not committed
    stage.commit()
    (header,) = stage.accept()
    assert (header.kind, client.answer()) == (EntryKind.TRIM, None)
    stage.commit()
    assert client.answer() == DoneReply(9)


def test_g1_nothing_can_be_trimmed_that_is_not_committed(stage, client):
    stage.pushed.push(4)
    stage.accept()
    answer = refused(client, 10)
    assert bounds(answer) == (1, 9)
    assert b"no more is committed" in answer.text
    assert stage.take_proposals() == []


def test_g1_a_snapshot_counts_once_its_last_part_is_committed(stage, client):
    stage.ingress.admission._snapshots._part_max_bytes = 512
    for number in range(24):
        stage.producer(name=b"producer %d" % number)
    make_due(stage)
    stage.work()
    first = len(stage.entries) + 1
    parts = stage.accept()
    while more := stage.accept():
        parts += more
    assert len(parts) > 2
    make_due(stage, after=1_000)
    stage.commit(parts[-2].index)
    assert trim(client, 9) is None
    assert stage.take_proposals() == []  # no other one either: this one is on its way
    stage.commit(parts[-1].index)
    assert proposed(stage).start.index == first - 1


def test_g1_a_snapshot_counts_once_it_is_in_this_replicas_files(stage, client):
    """A majority of followers may have it on disk before the leader has."""
    assert trim(client, 5) is None
    stage.accept()
    stage.tell(effects.Committed(stage.term, len(stage.entries), stage.level))
    assert stage.take_proposals() == []
    stage.show(len(stage.entries))
    stage.work()
    assert proposed(stage).start.next_lsn == 5


def test_one_snapshot_serves_all_trims_that_wait_for_it(stage, client):
    other = stage.client()
    assert (trim(client, 3), trim(other, 7)) == (None, None)
    assert [header.kind for header in stage.accept_and_commit()] == [EntryKind.SESSION]
    assert [header.kind for header in stage.accept_and_commit()] == [EntryKind.TRIM] * 2
    assert (client.answer(), other.answer()) == (DoneReply(3), DoneReply(7))
    assert stage.take_proposals() == []


def test_a_trim_that_waits_for_a_snapshot_is_to_be_asked_for_again_when_the_gen_ends(stage, client):
    assert trim(client, 5) is None
    stage.tell(effects.AdmissionClosed(1, 5, "step_down"), effects.TermEnded(1))
    assert client.answer().code == ErrorCode.NOT_READY
    assert stage.ingress.do_work(stage.clock.now_ns) == 0


def test_a_trim_that_waited_too_long_is_forgotten(stage, client):
    assert trim(client, 5) is None
    stage.clock.now_ns += REQUEST_TIMEOUT_NS
    stage.work()
    assert client.answer().code == ErrorCode.TIMED_OUT
    stage.accept_and_commit()
    assert stage.take_proposals() == []


def test_a_cursor_that_is_held_while_a_trim_waits_counts(stage, client):
    assert trim(client, 7) is None
    other = stage.client()
    stage.accept()
    other.ask(set_request(b"late", 3, is_held=True))
    stage.heard()
    stage.accept_and_commit()
    confirm(stage)
    assert bounds(client.answer()) == (1, 3)


def test_g1_no_trim_reaches_above_a_held_cursor(stage, client):
    snapshot(stage)
    set_cursor(stage, b"free", 3)
    set_cursor(stage, "hält".encode(), 6, is_held=True)
    answer = refused(client, 7)
    assert bounds(answer) == (1, 6)
    words = "cursor 'hält' holds what follows; trim --to 6, or delete the cursor"
    assert words in answer.text.decode()
    assert trim(client, 6) is None
    assert proposed(stage).start.next_lsn == 5


def test_to_trim_what_is_no_longer_there_is_done_at_once(stage, client):
    snapshot(stage)
    assert trim(client, 1) == DoneReply(1)
    assert stage.take_proposals() == []


def test_the_answer_does_not_go_back_while_a_trim_has_not_acted(stage, client):
    snapshot(stage)
    assert trim(client, 5) is None
    other = stage.client()
    assert trim(other, 1).code == ErrorCode.NOT_READY
    stage.accept_and_commit()
    assert client.answer() == DoneReply(5)
    assert trim(other, 1).code == ErrorCode.NOT_READY, "the log's files begin at 1 until it acts"


def test_g1_after_a_change_of_leader_the_snapshot_in_the_log_counts(stage, client):
    snapshot(stage)
    lead_again(stage, accepted=6)
    stage.work()
    assert bounds(refused(client, EVERYTHING)) == (1, 9)
    assert trim(client, 9) is None
    assert proposed(stage).start.index == 6


def test_a_replica_that_does_not_lead_or_is_not_ready_says_so(stage, client):
    snapshot(stage)
    stage.tell(effects.AdmissionClosed(1, 6, "step_down"), effects.TermEnded(1))
    assert trim(client, 5).code == ErrorCode.NOT_READY  # it leads, and rebuilds
    stage.tell(effects.LeaderChanged(2, 3))
    assert trim(client, 5).code == ErrorCode.NOT_LEADER


def test_e6_a_trim_waits_for_a_snapshot_that_is_due(stage, client):
    snapshot(stage)
    stage.pushed.push(4)
    make_due(stage)
    assert trim(client, 5).code == ErrorCode.OVERLOADED


def test_one_whose_term_ended_is_to_be_asked_for_again(stage, client):
    """Twice does no harm: a lower one changes nothing."""
    snapshot(stage)
    trim(client, 5)
    stage.accept()
    stage.tell(effects.AdmissionClosed(1, 7, "step_down"), effects.TermEnded(1))
    stage.tell(effects.LeaderChanged(2, 3))
    assert client.answer().code in (ErrorCode.NOT_LEADER, ErrorCode.NOT_READY)


def test_damage_where_the_log_is_to_begin_is_named(stage, client, monkeypatch):
    snapshot(stage)
    open_log = stage._open_log

    def damaged():
        log = open_log()
        stage.damaged.add(0)
        monkeypatch.setattr(log, "row", lambda _: log.newest_of_kind(0, 0))
        return log

    monkeypatch.setattr(stage.ingress._bounds, "_open_log", damaged)
    answer = trim(client, 5)
    assert answer.code == ErrorCode.CORRUPT_DATA
    assert b"transfer leadership" in answer.text
    assert stage.logs[-1].is_closed


def test_g1_a_cursor_cannot_hold_what_a_trim_under_way_takes(stage, client):
    """In the log it would come after the TRIM. Nor is a lower trim told as done before that one."""
    snapshot(stage)
    assert trim(client, 5) is None
    stage.accept()
    client.ask(set_request(b"archive", lsn=4, is_held=True))
    assert client.answer().code == ErrorCode.NOT_READY
    assert trim(client, 3).code == ErrorCode.NOT_READY
    client.ask(set_request(b"archive", lsn=5, is_held=True))
    assert client.answer() is None
    client.ask(set_request(b"reader", lsn=4))
    assert client.answer() is None


def test_g1_a_new_leader_knows_the_trim_of_its_log_that_has_not_acted(stage, client):
    index = snapshot(stage)
    trim(client, 5)
    stage.accept_and_commit()
    assert client.answer() == DoneReply(5)
    lead_again(stage, accepted=7, trim=index + 1)
    stage.work()
    client.ask(set_request(b"archive", lsn=4, is_held=True))
    assert client.answer().code == ErrorCode.NOT_READY
    assert trim(client, 3).code == ErrorCode.NOT_READY


def test_g6_a_cursor_may_hold_what_a_trim_without_a_leader_left(stage, client):
    """The TRIM was never in the log."""
    snapshot(stage)
    trim(stage.client(), 5)
    lead_again(stage, accepted=6)
    client.ask(set_request(b"a", 3, is_held=True))
    stage.accept_and_commit()
    assert client.answer() == DoneReply(0)


def test_g6_a_cursor_cannot_hold_what_is_gone(stage, client):
    stage.slots[Counter.LOG_START_LSN] = 5
    client.ask(set_request(b"a", 4, is_held=True))
    answer = client.answer()
    assert bounds(answer) == (5, POSITION_MAX)
    client.ask(set_request(b"a", 4))
    stage.accept_and_commit()
    assert client.answer() == DoneReply(0)
    client.ask(set_request(b"a", 5, is_held=True))
    stage.accept_and_commit()
    assert client.answer() == DoneReply(4)
    client.ask(SetCursorRequest(4, 5, Hold.AS_IT_IS, b"a"))
    confirm(stage)
    assert bounds(client.answer()) == (5, POSITION_MAX)


# --- a follower that catches up ---


def held(stage, index, term=None):
    stage.tell(effects.HoldLogStart(stage.term if term is None else term, index))


def test_g7_the_log_start_waits_for_a_follower_that_catches_up(stage, client):
    snapshot(stage)
    held(stage, 4)
    answer = refused(client, 8)
    assert bounds(answer) == (1, 5)
    assert b"a follower that catches up needs what follows; ask again once" in answer.text
    assert b"stops counting after 10 election timeouts" in answer.text
    assert trim(client, 5) is None
    assert proposed(stage).start.index == 4


def test_g7_entries_without_lsns_that_a_follower_needs_refuse_no_lsn(stage, client):
    client.ask(set_request(b"a", 1))
    stage.accept_and_commit()
    assert client.answer() == DoneReply(0)
    snapshot(stage)
    held(stage, 6)
    assert trim(client, 9) is None
    assert proposed(stage).start.index == 6, "7 has the cursor, 8 the snapshot"


def test_g7_it_waits_no_longer_than_raft_says(stage, client):
    snapshot(stage)
    held(stage, 4)
    held(stage, None)
    assert trim(client, 8) is None
    assert proposed(stage).start.index == 5


def test_g7_it_does_not_wait_for_more_than_the_bound(stage, client, monkeypatch):
    snapshot(stage)
    monkeypatch.setattr(trim_requests, "INSTALL_HOLD_MAX_BYTES", 1)
    held(stage, 4)
    assert trim(client, 8) is None
    assert proposed(stage).start.index == 5


def test_g7_what_an_earlier_leader_waited_for_holds_nothing(stage, client):
    snapshot(stage)
    held(stage, 3, term=stage.term - 1)
    assert trim(client, 8) is None
    assert proposed(stage).start.index == 5


def test_g1_a_hold_that_is_allowed_only_later_is_compared_with_a_trim_that_came_meanwhile(
    stage, client
):
    """It is refused at first, and allowed once raft has confirmed the leadership. The TRIM lies
    between the two."""
    snapshot(stage)
    stage.heard()
    holder = stage.client()
    holder.ask(set_request(b"archive", lsn=4, expected=2, is_held=True))
    asked = asked_of_raft(stage)
    assert trim(client, 5) is None
    stage.accept_and_commit()
    set_cursor(stage, b"archive", 2)
    stage.tell(ReadIndexAnswered(asked, True, 0))
    stage.accept_and_commit()
    assert holder.answer().code == ErrorCode.NOT_READY


def test_g7_it_does_not_wait_for_what_is_damaged_here(stage, client, monkeypatch):
    """The follower stands before that entry for ever, and to trim it may be the only way out."""
    snapshot(stage)
    held(stage, 3)
    open_log = stage._open_log

    def damaged():
        log = open_log()
        row = log.row
        monkeypatch.setattr(log, "row", lambda at: log.newest_of_kind(0, 0) if at == 4 else row(at))
        stage.damaged.add(0)
        return log

    monkeypatch.setattr(stage.ingress._bounds, "_open_log", damaged)
    assert trim(client, 8) is None
    assert proposed(stage).start.index == 5
