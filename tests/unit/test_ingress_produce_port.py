"""Batches and requests of producers that are answered on the connection they came over (SAFETY E1
to E4, E9, W6, W7)."""

from __future__ import annotations

from actors.ingress import appends
from actors.ingress.groups import Origin
from actors.ingress.retries import ROUTES_PER_BATCH_MAX, Retries
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    ImportRequest,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    SessionStateReply,
    SessionStateRequest,
    StatusRequest,
)
from logstore.format.conditional_prefix import Expectation, conditional_prefix
from logstore.format.level import EXPECTED_LSN_LEVEL
from logstore.format.message import encode_message
from logstore.limits import CONTROL_MESSAGE_MAX_BYTES
from logstore.model import EntryKind, SequenceMode
from logstore.raft import effects
from logstore.session.session import WindowRow
from tests.unit.ingress_stage import Stage, ack_rows, make_batch, open_request, push_frame
from tests.unit.test_ingress_comparisons import confirm
from transport import link

OK = ErrorCode.OK


def leading(**options) -> Stage:
    stage = Stage(**options)
    stage.lead()
    return stage


class Producer:
    """An open session whose producer has one connection at a time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.connection = stage.connection()
        self.connection.ask(open_request())
        assert self.connection.answer() is None
        stage.accept_and_commit()
        session = self.connection.answer()
        assert isinstance(session, OpenSessionReply)
        self.id, self.epoch = session.producer_id, session.producer_epoch

    def batch(self, sequence, payloads=(b"a", b"bc")):
        return make_batch(sequence, payloads, producer_id=self.id, epoch=self.epoch)

    def push(self, sequence, payloads=(b"a", b"bc")):
        self.connection.push(self.batch(sequence, payloads))

    def ask_state(self):
        """A new connection, on which SessionState is asked; returns its answer."""
        self.connection = self.stage.connection()
        self.connection.ask(SessionStateRequest(self.id, self.epoch, 0))
        return self.connection.answer()


def asked(message):
    return encode_message(
        message, cluster_id=bytes(16), sender_uuid=bytes(16), sender=0, target=0, correlation=1
    )


def test_one_connection_opens_a_session_appends_and_is_answered():
    """SAFETY E4, E8: the session, then the batch, each once it is committed."""
    stage = leading()
    producer = Producer(stage)
    producer.push(0, [b"x", b"", b"yz"])
    headers = stage.accept()
    assert producer.connection.rows() == []
    stage.commit(headers[0].index)
    assert producer.connection.rows() == [(0, 1, 3, OK, 0)]
    assert producer.connection.rows() == []


def test_what_a_do_work_settles_comes_in_one_message_and_nothing_on_the_feed():
    stage = leading()
    producer = Producer(stage)
    feed = stage.subscribe(producer.id)
    feed.read()
    for sequence in range(3):
        producer.connection.queue(producer.batch(sequence))
    stage.work()
    stage.accept_and_commit()
    assert [row[0] for row in producer.connection.rows()] == [0, 1, 2]
    assert feed.read() == []


def test_each_connection_gets_the_answers_to_what_came_over_it():
    stage = leading()
    one, two = Producer(stage), Producer(stage)
    one.push(0)
    two.push(0, [b"other"])
    pushed = stage.producer()
    pushed.push(0)
    stage.accept_and_commit()
    assert one.connection.rows() == [(0, 1, 2, OK, 0)]
    assert two.connection.rows() == [(0, 3, 1, OK, 0)]
    assert pushed.acks() == [(1, [(0, 4, 2, OK, 0)])]


def test_a_group_with_batches_of_two_connections_of_a_producer_is_answered_on_both():
    """The older one sent the first batch; the newer one, after SessionState, the next."""
    stage = leading()
    producer = Producer(stage)
    older, newer = producer.connection, stage.connection()
    older.queue(producer.batch(0))
    newer.queue(producer.batch(1))
    stage.work()
    assert len(stage.accept_and_commit()) == 1
    assert [row[0] for row in older.rows()] == [0]
    assert [row[0] for row in newer.rows()] == [1]


def test_a_connection_that_asks_for_a_batch_under_way_is_told_of_its_commit():
    """SAFETY E9: what was sent over the connection before this one."""
    stage = leading()
    producer = Producer(stage)
    before = producer.connection
    producer.push(0)
    headers = stage.accept()
    state = producer.ask_state()
    assert isinstance(state, SessionStateReply)
    assert state.next_sequence == 1
    assert [row[3] for row in ack_rows(state)] == [ErrorCode.OUTCOME_UNKNOWN]
    stage.commit(headers[0].index)
    assert producer.connection.rows() == [(0, 1, 2, OK, 0)]
    assert before.rows() == [(0, 1, 2, OK, 0)]


def test_late_copies_of_older_connections_do_not_take_the_answer_of_the_newest():
    """A batch whose copies arrive out of order, over connections of which all but one are gone."""
    stage = leading()
    producer = Producer(stage)
    first = producer.connection
    second = stage.connection()
    newest = stage.connection()
    for connection in (second, newest, first):
        connection.push(producer.batch(0))
    stage.accept_and_commit()
    assert [each.rows() for each in (second, newest, first)] == [[(0, 1, 2, OK, 0)]] * 3


def test_a_batch_that_came_by_push_first_is_answered_to_the_connection_that_sends_it_again():
    stage = leading()
    pushed = stage.producer()
    pushed.push(0)
    connection = stage.connection()
    connection.push(pushed.batch(0))
    stage.accept_and_commit()
    assert connection.rows() == [(0, 1, 2, OK, 0)]
    assert pushed.acks() == [(1, [(0, 1, 2, OK, 0)])]


def test_a_gap_is_told_once_for_each_connection():
    """SAFETY E9, FAULTS K5."""
    stage = leading()
    producer = Producer(stage)
    gap = (ErrorCode.GAP, 0)
    for sequence in (1, 2, 3):
        producer.push(sequence)
    assert producer.connection.rows() == [(1, 0, 2, *gap)]
    assert producer.connection.rows() == []
    assert producer.ask_state().next_sequence == 0
    producer.push(2)
    assert producer.connection.rows() == [(2, 0, 2, *gap)]
    producer.push(0)
    assert len(stage.accept()) == 1


def test_requests_and_batches_of_a_connection_are_taken_in_their_order():
    stage = leading()
    producer = Producer(stage)
    producer.connection.queue(producer.batch(0))
    producer.connection.ask(SessionStateRequest(producer.id, producer.epoch, 7))
    assert producer.connection.answer().next_sequence == 1


def test_a_replica_that_does_not_lead_refuses_batches_and_requests_with_a_hint():
    stage = Stage()
    stage.identify()
    stage.tell(effects.LeaderChanged(1, 3))
    connection = stage.connection()
    connection.push(make_batch(0, producer_id=5))
    assert connection.rows() == [(0, 0, 2, ErrorCode.NOT_LEADER, 3)]
    for request in (open_request(), SessionStateRequest(5, 1, 0)):
        connection.ask(request)
        refusal = connection.answer()
        assert (refusal.code, refusal.leader) == (ErrorCode.NOT_LEADER, 3)
    connection.ask(MetadataRequest())
    assert isinstance(connection.answer(), MetadataReply)
    assert stage.take_proposals() == []


def test_a_leader_without_room_leaves_the_produce_port_unread():
    """SAFETY W7: nothing is refused or lost; what came waits in the socket, requests as well."""
    stage = leading()
    producer = Producer(stage)
    sockets = {stage.ingress._ports.append, stage.ingress._ports.produce}
    assert sockets <= set(stage.ingress.wait_on())
    for sequence in range(6):
        producer.push(sequence)
    producer.connection.ask(MetadataRequest())
    assert producer.connection.answer() is None
    assert not sockets & set(stage.ingress.wait_on())
    assert len(stage.accept()) == 4
    stage.commit()
    assert [row[0] for row in producer.connection.rows()] == [0, 1, 2, 3]
    assert isinstance(producer.connection.answer(), MetadataReply)
    stage.accept_and_commit()
    assert [row[0] for row in producer.connection.rows()] == [4, 5]


def test_neither_port_waits_until_the_other_is_empty():
    """SAFETY W7: each has its turn, whichever is read first."""
    stage = leading()
    produced, pushed = Producer(stage), stage.producer()
    large = [b"x" * 40_000]  # a group takes one and a part of the next
    for sequence in range(8):
        produced.connection.queue(produced.batch(sequence, large))
        pushed.queue(sequence, large)
    stage.work()
    from_first_groups = [
        int.from_bytes(body[16:24], "little") for _, body in stage.take_proposals()
    ]
    assert {produced.id, pushed.id} == set(from_first_groups)


def test_a_crowd_of_requests_leaves_the_append_port_its_turn():
    stage = leading()
    pushed = stage.producer()
    connection = stage.connection()
    for _ in range(3 * appends._REQUESTS_PER_WORK):
        link.try_send(connection.socket, [asked(MetadataRequest())])
    pushed.queue(0)
    stage.ingress.do_work(stage.clock.now_ns)
    answered = []
    while (frames := link.try_receive(connection.socket)) is not None:
        answered.append(frames)
    assert len(answered) == appends._REQUESTS_PER_WORK
    stage.ingress.do_work(stage.clock.now_ns)
    assert len(stage.accept()) == 1


def test_requests_of_other_ports_and_imports_are_refused_with_a_reason():
    stage = leading()
    connection = stage.connection()
    for message in (StatusRequest(), ImportRequest(1, 1, make_batch(0, producer_id=1))):
        connection.ask(message)
        refusal = connection.answer()
        assert isinstance(refusal, ErrorReply)
        assert refusal.code == ErrorCode.INVALID_REQUEST
        assert b"produce port" in refusal.text
    assert stage.counter(Counter.REQUESTS_INVALID) == 2
    connection.ask(MetadataRequest(), cluster_id=b"f" * 16)
    assert connection.answer().code == ErrorCode.WRONG_CLUSTER


def test_what_is_damaged_or_no_message_at_the_produce_port_is_counted_and_dropped():
    """SAFETY W6, FAULTS X8."""
    stage = leading()
    producer = Producer(stage)
    damaged = bytearray(push_frame(producer.batch(0)))
    damaged[-1] ^= 1
    for frames in (
        [bytes(damaged)],
        [b""],
        [b"x"],
        [b"a", b"b"],
        [bytes(CONTROL_MESSAGE_MAX_BYTES + 1)],
    ):
        link.try_send(producer.connection.socket, frames)
    stage.work()
    assert stage.counter(Counter.BULK_CORRUPT) == 1
    assert stage.counter(Counter.FRAMES_DROPPED) == 4
    producer.push(0)
    assert len(stage.accept()) == 1
    assert producer.connection.rows() == []


def test_a_batch_that_does_not_hold_together_is_refused_on_its_connection():
    stage = leading()
    producer = Producer(stage)
    producer.push(0)
    producer.push(0, [b"other"])
    producer.push(1, [b"x" * 70_000])
    reused, large = producer.connection.rows(), producer.connection.rows()
    assert [row[3] for row in (*reused, *large)] == [
        ErrorCode.SEQUENCE_REUSED,
        ErrorCode.BATCH_TOO_LARGE,
    ]


def test_an_answer_to_a_connection_that_is_gone_is_dropped_and_counted():
    stage = leading()
    producer = Producer(stage)
    producer.push(0)
    stage.accept()
    producer.connection.socket.close()
    stage.commit()
    assert stage.counter(Counter.SENDS_DROPPED) == 1
    state = producer.ask_state()
    assert [row[3] for row in ack_rows(state)] == [OK]


def test_a_new_leader_answers_a_waiting_session_state_on_its_connection():
    """SAFETY E9: it waits until this term's no-op is committed."""
    stage = leading()
    connection = stage.connection()
    connection.ask(SessionStateRequest(5, 1, 0))
    assert connection.answer() is None
    stage.commit()
    assert connection.answer().code == ErrorCode.UNKNOWN_PRODUCER


def test_a_deposed_leader_that_leads_again_takes_a_late_copy_as_what_it_is():
    """The same sequence has the same bytes (E7): what an older connection brings is a duplicate."""
    stage = leading()
    producer = Producer(stage)
    old = producer.connection
    producer.push(0)
    stage.accept_and_commit()
    assert old.rows() == [(0, 1, 2, OK, 0)]
    stage.tell(effects.TermEnded(1))
    stage.lead(term=3)
    stage.commit()
    assert producer.ask_state().next_sequence == 1
    old.push(producer.batch(0))
    producer.push(1)
    assert [header.kind for header in stage.accept_and_commit()] == [EntryKind.DATA]
    assert old.rows() == [(0, 1, 2, OK, 0)]
    assert [row[0] for row in producer.connection.rows()] == [1]


def test_a_batch_is_awaited_by_few_connections_at_a_time():
    """Thousands of strangers that ask for a large window must not fill the memory (W6)."""
    retries = Retries()
    row = WindowRow(3, 2, 0)
    origins: list[Origin] = [(5, 1, bytes([number]), row) for number in range(9)]
    for origin in origins:
        retries.await_commit(origin)
    retries.await_commit((5, 1, 1, row))
    retries.await_commit((5, 1, 2, row))
    assert retries.take_committed(7) == []
    row.index = 7
    assert retries.take_committed(7) == [*origins[1 - ROUTES_PER_BATCH_MAX :], (5, 1, 2, row)]
    assert retries.take_committed(7) == []


def test_a_connection_that_asked_is_told_though_the_gen_ends_before_the_commit() -> None:
    stage = leading()
    stage.commit()
    producer = Producer(stage)
    producer.push(0)
    stage.accept()
    state = producer.ask_state()
    assert [row[3] for row in ack_rows(state)] == [ErrorCode.OUTCOME_UNKNOWN]
    closed = effects.AdmissionClosed(1, stage.ingress._proposals._next_prop, "transfer")
    stage.tell(closed, effects.Admit(1, 2, len(stage.entries), 1))
    stage.commit()
    stage.work()
    assert [row[3] for row in producer.connection.rows()] == [OK]


def test_a_monotone_session_compares_over_its_connection_and_no_attempt_is_decided_twice() -> None:
    """SAFETY E11: the connection is the conversation."""
    stage = leading()
    stage.level = EXPECTED_LSN_LEVEL
    stage.commit()
    connection = stage.connection()
    connection.ask(open_request(mode=SequenceMode.MONOTONE, name=b"one"))
    stage.accept_and_commit()
    session = connection.answer()
    state = SessionStateRequest(session.producer_id, session.producer_epoch, 0)

    def compare(sequence: int, expected_lsn: int, attempt: int) -> None:
        batch = make_batch(
            sequence, (b"a",), producer_id=session.producer_id, epoch=session.producer_epoch
        )
        prefix = conditional_prefix(Expectation(0, expected_lsn, attempt))
        assert link.try_send(connection.socket, [prefix + batch])
        stage.work()

    compare(5, 1, 1)
    assert [row[3] for row in connection.rows()] == [ErrorCode.NOT_COMMITTED], "nothing was asked"
    connection.ask(state)
    assert isinstance(connection.answer(), SessionStateReply)
    stage.heard()
    compare(5, 2, 1)
    assert confirm(stage) == 1
    stage.work()
    assert [row[1:] for row in connection.rows()] == [(1, 1, ErrorCode.NEXT_LSN_IS, 1)]
    connection.ask(state)
    connection.answer()
    other = stage.producer()
    other.push(0, [b"z"])
    stage.accept_and_commit()
    compare(5, 2, 1)
    assert stage.take_proposals() == [], "a copy of the attempt that was refused"
    compare(5, 2, 2)
    assert [header.first_lsn for header in stage.accept_and_commit()] == [2]
    assert [row[3] for row in connection.rows()] == [OK]
