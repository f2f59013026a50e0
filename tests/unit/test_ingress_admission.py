"""Opening, closing and rebuilding (SAFETY E3 to E6), with a raft that is driven by hand."""

from __future__ import annotations

import pytest

from actors import messages
from actors.ingress import control, waiting_producers
from actors.messages import RotReported
from actors.topology import Counter
from logstore import limits
from logstore.errors import CorruptData, ErrorCode, InvariantViolated
from logstore.format.client_messages import (
    ErrorReply,
    OpenSessionReply,
    SessionStateReply,
    SessionStateRequest,
)
from logstore.model import EntryKind
from logstore.raft import effects
from tests.unit.ingress_stage import Stage, ack_rows, open_request
from tests.unit.session_logs import encode_snapshot


@pytest.fixture
def stage():
    return leading()


def leading(**limits):
    stage = Stage(**limits)
    stage.lead()
    return stage


def reopen(stage, *, term, gen):
    """The same replica leads again, in a new term or a new gen of the same."""
    stage.term = term
    stage.tell(effects.LeaderChanged(term, 1), effects.Admit(term, gen, len(stage.entries), 0))


def test_proposals_are_stamped_with_term_gen_and_a_prop_that_counts_from_zero(stage):
    """SAFETY E3."""
    producer = stage.producer()
    stage.tell(effects.AdmissionClosed(1, 1, "transfer"))
    reopen(stage, term=1, gen=2)
    producer.push(0)
    ((proposed, _),) = stage.take_proposals()
    assert (proposed.term, proposed.gen, proposed.prop, proposed.wall_ns) == (1, 2, 0, 42)


def test_committed_of_another_term_acknowledges_nothing(stage):
    """SAFETY E4."""
    producer = stage.producer()
    producer.push(0)
    stage.accept()
    stage.tell(effects.Committed(2, 100))
    stage.tell(effects.Committed(0, 100))
    assert producer.acks() == []
    stage.commit()
    assert len(producer.acks()) == 1


def test_at_term_ended_pending_batches_are_forgotten_without_an_answer(stage):
    """SAFETY E4: what the next leader does with them is not ours to say."""
    producer = stage.producer()
    producer.push(0)
    stage.accept()
    producer.push(1)
    stage.tell(
        effects.AdmissionClosed(1, 2, "step_down"),
        effects.TermEnded(1),
        effects.LeaderChanged(2, 3),
        effects.Committed(1, 100),
        effects.Committed(2, 100),
    )
    assert producer.acks() == []
    producer.push(2)
    assert producer.acks() == [(1, [(2, 0, 2, ErrorCode.NOT_LEADER, 3)])]


def test_what_was_accepted_before_admission_closed_is_still_acknowledged_in_its_term(stage):
    """SAFETY E3: the accepted of a gen are a prefix; the rest is in no log."""
    producer = stage.producer()
    producer.push(0)
    stage.accept()
    producer.push(1)
    stage.tell(effects.AdmissionClosed(1, 2, "transfer"))
    producer.push(2)
    stage.commit()
    assert [row[0] for _, rows in producer.acks() for row in rows] == [0]


def test_while_admission_is_closed_a_leader_leaves_batches_in_the_socket(stage):
    producer = stage.producer()
    stage.take_proposals()
    stage.tell(effects.AdmissionClosed(1, 1, "disk_full"))
    producer.push(0)
    assert producer.acks() == []
    assert stage.ingress._ports.append not in stage.ingress.wait_on()
    reopen(stage, term=1, gen=2)
    assert len(stage.accept()) == 1


def test_the_table_is_rebuilt_from_the_log_uncommitted_tail_included(stage):
    """SAFETY E5, FAULTS K2, I17."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    producer.push(1)
    stage.accept()
    kept = encode_snapshot(stage.ingress.admission.table)
    stage.tell(effects.AdmissionClosed(1, 3, "step_down"), effects.TermEnded(1))
    producer.acks()
    reopen(stage, term=2, gen=2)
    assert encode_snapshot(stage.ingress.admission.table) == kept
    producer.push(1, round_=2)
    assert stage.take_proposals() == []
    assert producer.acks() == []
    stage.commit()
    assert producer.acks() == [(2, [(1, 3, 2, ErrorCode.OK, 0)])]


def test_rebuilding_waits_for_written_and_goes_in_slices_of_two_milliseconds(stage):
    """SAFETY E5."""
    producer = stage.producer()
    for sequence in range(6):
        producer.push(sequence)
        stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 7, "step_down"), effects.TermEnded(1))
    stage.clock.step_ns = limits.REBUILD_SLICE_NS
    count = len(stage.logs)
    stage.term = 2
    stage.tell(effects.LeaderChanged(2, 1), effects.Admit(2, 2, len(stage.entries), 9))
    assert len(stage.logs) == count
    assert stage.ingress.next_timer_ns() <= stage.clock.now_ns + 1_000_000
    stage.slots[Counter.WRITTEN] = 9
    admission = stage.ingress.admission
    assert stage.ingress.do_work(stage.clock.now_ns) > 0
    assert admission.is_rebuilding
    assert len(stage.logs[-1].reads) <= 1
    stage.work()
    assert not admission.is_rebuilding
    assert stage.logs[-1].is_closed
    assert len(stage.logs[-1].reads) == 7


def test_v7_a_rebuild_that_lasts_lets_go_of_files_that_are_removed_meanwhile(stage):
    producer = stage.producer()
    for sequence in range(3):
        producer.push(sequence)
        stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 4, "step_down"), effects.TermEnded(1))
    stage.clock.step_ns = limits.REBUILD_SLICE_NS
    stage.term = 2
    stage.slots[Counter.WRITTEN] = 9
    stage.raft_ring.offer(messages.encode(effects.Admit(2, 2, len(stage.entries), 9)))
    for removals in (0, 1, 1, 2):
        stage.slots[Counter.MAP_GENERATION] = 7 + removals
        stage.ingress.do_work(stage.clock.now_ns)
        assert stage.ingress.admission.is_rebuilding
        assert stage.logs[-1].refreshes == removals


def test_g1_a_log_that_was_trimmed_has_a_snapshot(stage, monkeypatch):
    """Without one the table would lack what was trimmed."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.slots[Counter.WRITTEN] = 9
    open_log = stage._open_log

    def trimmed():
        log = open_log()
        log.start.index = 2
        return log

    stage.term = 2
    monkeypatch.setattr(stage.ingress.admission, "_open_log", trimmed)
    with pytest.raises(InvariantViolated, match="has no snapshot"):
        stage.tell(effects.Admit(2, 2, 2, 9))


def test_a_trimmed_log_whose_snapshot_has_a_damaged_record_keeps_admission_closed(monkeypatch):
    """The search does not find the snapshot. The batches before it are of sessions that were opened
    in what was trimmed: they follow from no table, and that is damage of this disk."""
    stage = leading(snapshot_every_batches=3)  # the OPEN counts
    producer = stage.producer()
    for sequence in range(2):
        producer.push(sequence)
    stage.accept()
    stage.accept_and_commit()
    kinds = [header.kind for header, _ in stage.entries[2:]]
    assert kinds == [EntryKind.DATA, EntryKind.DATA, EntryKind.SESSION]
    stage.tell(effects.AdmissionClosed(1, 4, "step_down"), effects.TermEnded(1))
    stage.heard()
    open_log = stage._open_log

    def damaged():
        log = open_log()
        log.start.index = 3
        row = log.row

        def row_or_damage(index):
            if index == 5:
                raise CorruptData("00.raft", 0, expected="a record", got="rot")
            return row(index)

        log.row, log.newest_of_kind = row_or_damage, lambda _kind, _last_index: None
        return log

    monkeypatch.setattr(stage.ingress.admission, "_open_log", damaged)
    reopen(stage, term=2, gen=2)
    assert [report.index for report in stage.heard()] == [5]
    assert not stage.ingress.admission.is_ready


def test_a_damaged_entry_keeps_admission_closed_and_is_reported(stage):
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.damaged.add(3)
    stage.heard()
    reopen(stage, term=2, gen=2)
    assert stage.heard() == [RotReported(3, 1, 2)]
    client = stage.client()
    client.ask(open_request())
    assert client.answer().code == ErrorCode.NOT_READY


def test_a_truncation_under_the_rebuild_is_not_mistaken_for_damage(stage):
    """The old leader's files change before it has heard that its term ended."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.heard()
    stage.damaged.add(3)
    for message in (effects.LeaderChanged(2, 1), effects.Admit(2, 2, len(stage.entries), 0)):
        assert stage.raft_ring.offer(messages.encode(message))
    assert stage.ingress.do_work(stage.clock.now_ns) > 0
    stage.tell(effects.AdmissionClosed(2, 0, "step_down"), effects.TermEnded(2))
    assert stage.heard() == []
    assert not stage.ingress.admission.is_rebuilding


def test_a_truncation_after_a_segment_has_gone_is_not_mistaken_for_damage(stage):
    """Each entry that reads as damaged is read again: what was seen before was another place."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.heard()
    stage.damaged |= {0, 3}
    for message in (effects.LeaderChanged(2, 1), effects.Admit(2, 2, len(stage.entries), 0)):
        assert stage.raft_ring.offer(messages.encode(message))
    for _ in range(2):  # the segment, then the entry
        assert stage.ingress.do_work(stage.clock.now_ns) > 0
    stage.tell(effects.AdmissionClosed(2, 0, "step_down"), effects.TermEnded(2))
    assert stage.heard() == []


def test_a_segment_that_goes_under_the_search_makes_the_rebuild_begin_again(stage):
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.heard()
    stage.damaged.add(0)
    reopen(stage, term=2, gen=2)
    assert stage.heard() == []
    admission = stage.ingress.admission
    assert not admission.is_rebuilding
    assert [session.next_sequence for session in admission.table.sessions()] == [1]


def test_session_snapshots_enter_the_stream_and_shorten_the_next_rebuild():
    """SAFETY E6."""
    stage = leading(snapshot_every_batches=4)  # the OPEN counts
    producer = stage.producer()
    for sequence in range(3):
        producer.push(sequence)
    producer.push(3)
    kinds = [header.kind for header in stage.accept()]
    assert kinds == [EntryKind.DATA] * 3  # the snapshot waits until every batch has its LSNs
    kinds = [header.kind for header in stage.accept()]
    assert kinds == [EntryKind.SESSION]
    stage.commit()
    stage.accept_and_commit()
    acked = [row[0] for _, rows in producer.acks() for row in rows]
    assert acked == [0, 1, 2, 3]
    kept = encode_snapshot(stage.ingress.admission.table)
    stage.tell(
        effects.AdmissionClosed(1, len(stage.entries) - 1, "step_down"), effects.TermEnded(1)
    )
    reopen(stage, term=2, gen=2)
    assert stage.logs[-1].reads == [6, 7]
    assert encode_snapshot(stage.ingress.admission.table) == kept


def test_raft_and_ingress_must_agree_on_what_was_accepted(stage):
    producer = stage.producer()
    producer.push(0)
    with pytest.raises(InvariantViolated):
        stage.tell(effects.AdmissionClosed(1, 2, "step_down"))


def test_a_session_opens_when_its_entry_is_committed(stage):
    """SAFETY E8."""
    client = stage.client()
    client.ask(open_request(window=100, name=b"spark"))
    assert client.answer() is None
    (header,) = stage.accept()
    assert header.kind == EntryKind.OPEN
    assert client.answer() is None
    stage.commit()
    reply = client.answer()
    assert reply == OpenSessionReply(1001, 1, 100, 32 << 20, 64 << 10, 0)
    client.ask(open_request(name=b"spark"))
    stage.accept_and_commit()
    assert client.answer().producer_epoch == 2


def test_an_open_that_is_forgotten_with_its_term_may_be_opened_yet(stage):
    client = stage.client()
    client.ask(open_request())
    stage.accept()
    stage.tell(
        effects.LeaderChanged(2, 2),
        effects.AdmissionClosed(1, 1, "step_down"),
        effects.TermEnded(1),
    )
    assert client.answer().code == ErrorCode.OUTCOME_UNKNOWN


def test_an_open_without_a_commit_is_answered_after_its_time(stage):
    client = stage.client()
    client.ask(open_request())
    stage.accept()
    stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
    stage.work()
    assert client.answer().code == ErrorCode.TIMED_OUT
    stage.commit()
    assert client.answer() is None


def test_refused_open_requests_say_why(stage):
    client = stage.client()
    client.ask(open_request(mode=9))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    client.ask(open_request(producer_id=4))
    assert client.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_only_the_leader_opens_sessions_and_tells_their_state():
    """SAFETY E9."""
    stage = Stage()
    stage.identify()
    stage.tell(effects.LeaderChanged(4, 3))
    client = stage.client()
    for request in (open_request(), SessionStateRequest(5, 1, 1)):
        client.ask(request)
        reply = client.answer()
        assert isinstance(reply, ErrorReply)
        assert (reply.code, reply.leader) == (ErrorCode.NOT_LEADER, 3)


def test_session_state_is_told_only_once_the_terms_no_op_is_committed():
    """SAFETY E9."""
    stage = Stage()
    stage.lead()
    client = stage.client()
    client.ask(SessionStateRequest(1001, 1, 1))
    assert client.answer() is None
    stage.commit()
    assert client.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_who_asks_a_new_leader_too_early_is_told_when_it_leads_no_more():
    stage = Stage()
    stage.lead()
    client = stage.client()
    client.ask(SessionStateRequest(1001, 1, 1))
    stage.tell(effects.AdmissionClosed(1, 0, "step_down"), effects.TermEnded(1))
    stage.tell(effects.LeaderChanged(2, 3))
    reply = client.answer()
    assert (reply.code, reply.leader) == (ErrorCode.NOT_LEADER, 3)


def test_who_asks_a_new_leader_too_early_waits_for_less_than_a_second():
    stage = Stage()
    stage.lead()
    client = stage.client()
    client.ask(SessionStateRequest(1001, 1, 1))
    due_ns = stage.ingress.next_timer_ns()
    assert due_ns - stage.clock.now_ns <= limits.PRODUCERS_WAIT_MAX_NS
    stage.clock.now_ns += limits.PRODUCERS_WAIT_MAX_NS
    stage.work()
    assert client.answer().code == ErrorCode.NOT_READY
    stage.commit()
    assert client.answer() is None


def test_only_so_many_producers_wait_for_a_new_leader(monkeypatch):
    monkeypatch.setattr(waiting_producers, "PRODUCERS_WAITING_MAX", 1)
    stage = Stage()
    stage.lead()
    first, second = stage.client(), stage.client()
    for client in (first, second):
        client.ask(SessionStateRequest(1001, 1, 1))
    assert second.answer().code == ErrorCode.NOT_READY
    stage.commit()
    assert first.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_who_waited_for_a_new_leader_is_answered_in_turns_of_a_bounded_length(monkeypatch):
    """A stranger's 1,024 requests for a window of 4,096 rows took 4 s at once: raft gave such a
    leader up for its ingress that stood still (V6)."""
    monkeypatch.setattr(control, "_REQUESTS_PER_WORK", 20)
    stage = Stage()
    stage.lead()
    clients = [stage.client() for _ in range(50)]
    for client in clients:
        client.ask(SessionStateRequest(1001, 1, 1))
    answered = []
    stage.show(1)
    assert stage.raft_ring.offer(messages.encode(effects.Committed(1, 1, stage.level)))
    while stage.ingress.do_work(stage.clock.now_ns) >= stage.ingress.full_turn:
        answered.append(sum(client.answer() is not None for client in clients))
    answered.append(sum(client.answer() is not None for client in clients))
    assert answered == [20, 20, 10]


def test_committed_that_comes_before_admit_counts_for_it():
    stage = Stage()
    stage.identify()
    stage.term = 1
    stage.append_entry(EntryKind.NOOP, b"", 0)
    stage.tell(effects.LeaderChanged(1, 1), effects.Committed(1, 1), effects.Admit(1, 1, 1, 0))
    assert stage.ingress.admission.is_ready


def test_session_state_tells_what_is_committed_and_promises_the_rest_in_the_new_round(stage):
    """SAFETY E9: the state is the authority, the feed tells the rest."""
    producer = stage.producer()
    producer.push(0)
    stage.accept_and_commit()
    producer.push(1)
    producer.acks()
    client = stage.client()
    client.ask(SessionStateRequest(producer.id, 1, 5))
    state = client.answer()
    assert isinstance(state, SessionStateReply)
    assert state.next_sequence == 2
    unknown = ErrorCode.OUTCOME_UNKNOWN
    assert ack_rows(state) == [(0, 1, 2, ErrorCode.OK, 0), (1, 0, 2, unknown, 0)]
    stage.accept_and_commit()
    row = (1, 3, 2, ErrorCode.OK, 0)
    assert producer.acks() == [(1, [row]), (5, [row])]


def test_idle_nameless_sessions_make_room_for_new_ones():
    stage = leading(sessions_max=3)
    named = stage.producer(window=16, name=b"kept")
    idle = stage.producer(window=16)
    stage.clock.now_ns += limits.SESSION_IDLE_MIN_NS
    busy = stage.producer(window=16)
    client = stage.client()
    client.ask(open_request(window=16))
    assert [header.kind for header in stage.accept_and_commit()] == [
        EntryKind.EXPIRE,
        EntryKind.OPEN,
    ]
    assert isinstance(client.answer(), OpenSessionReply)
    for producer, is_known in ((named, True), (busy, True), (idle, False)):
        producer.push(0)
        stage.accept_and_commit()
        codes = {row[3] for _, rows in producer.acks() for row in rows}
        assert codes == {ErrorCode.OK if is_known else ErrorCode.UNKNOWN_PRODUCER}
    client.ask(open_request(window=16))
    assert client.answer().code == ErrorCode.OVERLOADED
