"""SESSION snapshots in the stream: in parts, ended amid them, what waits for them (SAFETY E6)."""

from __future__ import annotations

import pytest

from logstore import limits
from logstore.errors import ErrorCode, InvalidRequest
from logstore.format.client_messages import DoneReply, OpenSessionReply
from logstore.format.session_snapshot import decode_session_part
from logstore.model import EntryKind, SequenceMode
from logstore.raft import effects
from logstore.session import fold
from tests.unit.ingress_stage import Stage, make_batch, open_request
from tests.unit.session_logs import encode_snapshot
from tests.unit.test_ingress_cursors import confirm, set_request

MONOTONE = SequenceMode.MONOTONE


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    return stage


@pytest.fixture
def small_parts(stage):
    stage.ingress.admission._snapshots._part_max_bytes = 512


def with_sessions(stage, count):
    """So many sessions with two batches each; all of it committed."""
    producers = [stage.producer(name=b"producer %d" % number) for number in range(count)]
    for producer in producers:
        for sequence in (0, 1):
            producer.push(sequence)
            stage.accept_and_commit()
    return producers


def make_due(stage, *, after=0):
    snapshot_every(stage, stage.ingress.admission._snapshots._since.batches + after)


def snapshot_every(stage, batches):
    stage.ingress.admission._snapshots._every_batches = batches


def settle(stage):
    """Accept and commit until nothing is proposed; the kinds of the entries."""
    kinds = []
    while headers := stage.accept_and_commit():
        kinds += [header.kind for header in headers]
    return kinds


def lead_again(stage, *, accepted, trim=0):
    """The gen ends with so many of its proposals accepted, and the next term begins, in a log whose
    newest TRIM is `trim`."""
    term = stage.term + 1
    stage.tell(
        effects.AdmissionClosed(stage.term, accepted, "step_down"), effects.TermEnded(stage.term)
    )
    stage.take_proposals()
    stage.term = term
    admit = effects.Admit(term, term, len(stage.entries), 0, trim)
    stage.tell(effects.LeaderChanged(term, 1), admit)
    stage.commit()


def test_entries_count_towards_a_snapshot(stage):
    producer = stage.producer()
    stage.ingress.admission._snapshots._every_entries = 4  # the no-op and the OPEN count
    producer.push(0)
    assert settle(stage) == [EntryKind.DATA]
    producer.push(1)
    assert settle(stage) == [EntryKind.DATA, EntryKind.SESSION]


def test_a_table_with_many_rows_is_written_down_after_as_many_entries(stage):
    producer = stage.producer()
    sequences = iter(range(100))

    def entries_until_a_snapshot():
        kinds = []
        while EntryKind.SESSION not in kinds:
            producer.push(next(sequences))
            kinds += settle(stage)
        return len(kinds) - 1

    for _ in range(8):
        producer.push(next(sequences))
        settle(stage)
    snapshots = stage.ingress.admission._snapshots
    snapshots._every_entries = 2
    assert entries_until_a_snapshot() == 1
    assert (snapshots._rows, snapshots._since.entries) == (8, 2)  # the snapshot, and one after it
    assert entries_until_a_snapshot() == 6


def test_all_parts_of_a_snapshot_for_which_there_is_room_leave_before_ingress_parks(
    stage, small_parts
):
    """Batches wait for the last one (E6), and no bell rings for the next one."""
    with_sessions(stage, 24)
    admission = stage.ingress.admission
    admission.proposals.in_flight_max = 1_000
    make_due(stage)
    while stage.ingress.do_work(stage.clock.now_ns) >= stage.ingress.full_turn:
        pass
    assert not admission._snapshots.is_due
    kinds = [header.kind for header in stage.accept()]
    assert set(kinds) == {EntryKind.SESSION}
    assert len(kinds) > 5  # as many as one do_work proposes


def test_a_snapshot_under_way_lets_no_batch_in_however_many_rows_it_has(stage, small_parts):
    """Its rows raise the number of entries after which the next one is due."""
    producers = with_sessions(stage, 24)
    snapshots = stage.ingress.admission._snapshots
    snapshots._rows, snapshots._every_entries = 0, snapshots._since.entries
    stage.work()
    assert snapshots.is_under_way
    producers[0].push(2)
    assert set(settle(stage)[:-1]) == {EntryKind.SESSION}


def test_a_snapshot_is_written_in_parts_and_read_back(stage, small_parts):
    with_sessions(stage, 24)
    make_due(stage)
    stage.work()
    kinds = settle(stage)
    assert set(kinds) == {EntryKind.SESSION}
    assert len(kinds) > stage.config.limits.groups_in_flight
    assert all(header.body_size <= 512 for header, _ in stage.entries[-len(kinds) :])
    kept = encode_snapshot(stage.ingress.admission.table)
    snapshot_every(stage, 1_000)
    first = len(stage.entries) - len(kinds) + 1
    lead_again(stage, accepted=len(stage.entries) - 1)
    assert sorted(stage.logs[-1].reads) == list(range(first, len(stage.entries) + 1))
    assert encode_snapshot(stage.ingress.admission.table) == kept


def test_a_snapshot_whose_leader_ended_amid_its_parts_is_nothing(stage, small_parts):
    producers = with_sessions(stage, 8)
    snapshot_every(stage, 24)
    producers[0].push(2)  # is one too many, and behind it the snapshot
    settle(stage)
    whole = len(stage.entries)
    producers[0].push(3)
    stage.accept_and_commit()
    make_due(stage)
    for _ in range(3):  # three leaders in a row
        before = len(stage.entries)
        stage.work()
        stage.accept(most=2)
        stage.commit()
        assert [header.kind for header, _ in stage.entries[before:]] == [EntryKind.SESSION] * 2
        kept = encode_snapshot(stage.ingress.admission.table)
        gen_began = getattr(stage, "gen_began", 1)
        stage.gen_began = len(stage.entries)
        lead_again(stage, accepted=len(stage.entries) - gen_began)
        assert encode_snapshot(stage.ingress.admission.table) == kept
    assert min(stage.logs[-1].reads) <= whole
    assert stage.ingress.admission.table.get(producers[0].id).next_sequence == 4


def test_appends_go_on_behind_a_snapshot_and_nothing_is_between_its_parts(stage, small_parts):
    producers = with_sessions(stage, 8)
    make_due(stage, after=1)
    producers[0].push(2)
    producers[1].push(2)
    client = stage.client()
    client.ask(open_request(name=b"late"))
    assert client.answer().code == ErrorCode.OVERLOADED
    kinds = settle(stage)
    first = kinds.index(EntryKind.SESSION)
    last = len(kinds) - 1 - kinds[::-1].index(EntryKind.SESSION)
    assert kinds == [EntryKind.DATA] + [EntryKind.SESSION] * last + [EntryKind.DATA]
    assert first == 1
    assert [row[0] for _, rows in producers[1].acks() for row in rows][-1] == 2


def test_a_change_of_a_cursor_that_was_confirmed_late_is_not_between_the_parts(stage, small_parts):
    """The fold would replace it by what the first part knew, and a committed change were lost."""
    with_sessions(stage, 24)
    stage.heard()
    first, late = stage.client(), stage.client()
    late.ask(set_request(lsn=9, expected=7))
    first.ask(set_request(lsn=7, expected=0))
    stage.accept_and_commit()
    make_due(stage)
    stage.work()
    confirm(stage)  # by now the cursor stands where `late` expects it
    assert settle(stage).count(EntryKind.CURSOR) == 0
    assert first.answer() == DoneReply(0)
    assert late.answer().code == ErrorCode.OVERLOADED
    snapshot_every(stage, 1_000)
    kept = encode_snapshot(stage.ingress.admission.table)
    lead_again(stage, accepted=len(stage.entries) - 1)
    assert encode_snapshot(stage.ingress.admission.table) == kept


def test_openings_count_towards_a_snapshot(stage):
    snapshot_every(stage, 3)
    kinds = []
    for _ in range(4):
        client = stage.client()
        while True:
            client.ask(open_request(name=b"again and again"))
            kinds += settle(stage)
            if isinstance(client.answer(), OpenSessionReply):
                break
    assert kinds.count(EntryKind.OPEN) == 4
    assert kinds.count(EntryKind.SESSION) == 1


@pytest.mark.parametrize("is_due", [False, True])
def test_appends_have_their_turn_however_many_openings_are_asked_for(stage, is_due):
    """One client that opens its name without waiting would fill every place in the stream."""
    producer = stage.producer(name=b"patient")
    if is_due:
        make_due(stage, after=1)
    clients = [stage.client() for _ in range(20)]
    producer.queue(0)
    opened = 0
    for _ in range(20):
        for client in clients:
            client.ask(open_request(name=b"impatient"))
        opened += sum(header.kind == EntryKind.OPEN for header in stage.accept_and_commit())
        if producer.acks():
            break
    else:
        raise AssertionError("no append was taken")
    assert opened <= 2 * limits.REQUESTS_BEFORE_APPENDS_MAX


def test_a_sequence_at_the_last_bound_is_no_reason_to_end(stage):
    """2**63 - 2 is the last one; the one behind it was taken once, and ended every leader."""
    producer = stage.producer(mode=MONOTONE, name=b"brink")
    producer.push(limits.POSITION_MAX - 1)
    producer.push(limits.POSITION_MAX)
    make_due(stage)
    stage.work()
    assert settle(stage) == [EntryKind.DATA, EntryKind.SESSION]
    codes = [row[3] for _, rows in producer.acks() for row in rows]
    assert sorted(codes) == [ErrorCode.OK, ErrorCode.INVALID_BATCH]


@pytest.mark.parametrize("beyond", [1, 3])
def test_a_log_that_has_sequences_beyond_the_last_bound_goes_on(stage, beyond):
    """As 5f87717 wrote them: each was the next one, and nothing else was looked at."""
    producer = stage.producer(mode=MONOTONE, name=b"brink")
    for sequence in range(limits.POSITION_MAX - 1, limits.POSITION_MAX + beyond):
        body = make_batch(sequence, producer_id=producer.id)
        stage.append_entry(EntryKind.DATA, body, 2)
    lead_again(stage, accepted=1)
    other = stage.producer()
    make_due(stage)
    stage.work()
    assert settle(stage) == [EntryKind.SESSION]
    (session, _) = sorted(
        decode_session_part(stage.entries[-1][1]).sessions, key=lambda each: not each.name
    )
    assert session.next_sequence == limits.POSITION_MAX
    assert [row.sequence for row in session.rows] == [limits.POSITION_MAX - 1]
    snapshot_every(stage, 1_000)
    for sequence in (limits.POSITION_MAX - 1, limits.POSITION_MAX, limits.POSITION_MAX + beyond):
        producer.push(sequence)
    other.push(0)
    settle(stage)
    codes = [row[3] for _, rows in producer.acks() for row in rows]
    assert codes == [ErrorCode.OK, ErrorCode.INVALID_BATCH, ErrorCode.INVALID_BATCH]
    assert [row[3] for _, rows in other.acks() for row in rows] == [ErrorCode.OK]


def test_a_snapshot_that_cannot_be_encoded_is_put_off(stage, monkeypatch):
    """A mistake of ours must not end one leader after the other at the same place."""

    def fails(*_, **__):
        raise InvalidRequest("a row that no decoder would take")
        yield

    producer = stage.producer()
    monkeypatch.setattr(fold.session_snapshot, "encode_session_parts", fails)
    make_due(stage, after=1)
    for sequence in range(3):
        producer.push(sequence)
    assert set(settle(stage)) == {EntryKind.DATA}
    assert [row[0] for _, rows in producer.acks() for row in rows] == [0, 1, 2]


def test_a_log_at_its_end_of_lsns_is_not_admitted_to(stage):
    stage.next_lsn = limits.POSITION_MAX - 100
    stage.append_entry(EntryKind.NOOP, b"", 0)
    lead_again(stage, accepted=0)
    client = stage.client()
    client.ask(open_request())
    assert client.answer().code == ErrorCode.NOT_READY
