"""Appends that expect an LSN: taken where the log ends, refused when that is sure (SAFETY E11)."""

from __future__ import annotations

import pytest

from actors.messages import READS_OF_INGRESS
from actors.topology import Counter
from logstore.errors import ErrorCode, InvariantViolated
from logstore.format.client_messages import SessionStateReply, SessionStateRequest
from logstore.format.conditional_prefix import (
    CONDITIONAL_PREFIX,
    Expectation,
    conditional_prefix,
)
from logstore.format.level import EXPECTED_LSN_LEVEL, TRIM_LEVEL
from logstore.limits import POSITION_MAX, SESSION_IDLE_MIN_NS
from logstore.model import Codec, EntryKind, SequenceMode
from logstore.raft import effects
from logstore.raft.events import ReadIndexRequested
from tests.unit.compressed_batches import TEXT, compressed
from tests.unit.ingress_stage import Stage
from transport import link

NEXT_LSN_IS = int(ErrorCode.NEXT_LSN_IS)
DAY_NS = 86_400_000_000_000


class Comparer:
    """A monotone producer in a conversation of its own: it has asked SessionState."""

    def __init__(self, stage, name=b"one", mode=SequenceMode.MONOTONE):
        self.stage = stage
        self.producer = stage.producer(mode=mode, name=name)
        self.client = stage.client()
        self.attempt = 0
        self.id = self.producer.id

    def ask_state(self, round_=1, epoch=None):
        epoch = epoch or self.producer.epoch
        self.client.ask(SessionStateRequest(self.id, epoch, round_))
        answer = self.client.answer()
        assert isinstance(answer, SessionStateReply)
        return answer

    def compare(self, sequence, expected, payloads=(b"a",), round_=1, attempt=None):
        if attempt is None:
            attempt = self.attempt = self.attempt + 1
        batch = self.producer.batch(sequence, payloads)
        self.send(conditional_prefix(Expectation(round_, expected, attempt)) + batch)

    def send(self, frame):
        assert link.try_send(self.producer.push_socket, [frame])
        self.stage.work()

    def acks(self):
        return self.producer.acks()

    def rows(self):
        return [row for _, rows in self.acks() for row in rows]


@pytest.fixture
def stage():
    stage = Stage()
    stage.level = EXPECTED_LSN_LEVEL
    stage.lead()
    return stage


def comparers(stage):
    """Two, each in a conversation, in a log that ends at LSN 1."""
    found = [Comparer(stage, name) for name in (b"one", b"two")]
    for each in found:
        each.ask_state()
    stage.heard()
    return found


def reads(stage):
    """The read indexes that raft was asked for."""
    return [each for each in stage.heard() if isinstance(each, ReadIndexRequested)]


def confirm(stage, *, is_leader=True):
    """Raft answers the reads that it was asked for; how many."""
    asked = reads(stage)
    for each in asked:
        assert each.request_id > READS_OF_INGRESS
        stage.tell(effects.ReadIndexAnswered(each.request_id, is_leader, 1))
    return len(asked)


def reopen(stage, *, term, gen):
    stage.term = term
    stage.tell(effects.LeaderChanged(term, 1), effects.Admit(term, gen, len(stage.entries), 0))
    stage.tell(effects.Committed(term, len(stage.entries), stage.level))


def test_a_batch_is_taken_where_the_log_ends_and_has_that_lsn(stage):
    one, two = comparers(stage)
    one.compare(5, 1, (b"a", b"b"))
    stage.accept_and_commit()
    assert one.acks() == [(1, [(5, 1, 2, 0, 0)])]
    two.compare(1, 3)
    stage.accept_and_commit()
    assert two.acks() == [(1, [(1, 3, 1, 0, 0)])]
    assert not reads(stage)


def test_of_two_that_compare_with_the_same_lsn_one_is_stored(stage):
    """The other one is refused once what it lost against is committed."""
    one, two = comparers(stage)
    one.compare(1, 1)
    two.compare(1, 1)
    assert confirm(stage) == 1
    assert two.acks() == []
    ((proposed, _),) = stage.take_proposals()
    assert proposed.count == 1


def test_a_refusal_waits_for_the_commit_of_what_it_saw(stage):
    one, two = comparers(stage)
    one.compare(1, 1, (b"a", b"b"))
    two.compare(1, 1)
    confirm(stage)
    stage.accept()
    assert two.acks() == []
    stage.commit()
    assert two.acks() == [(1, [(1, 1, 1, NEXT_LSN_IS, 3)])]
    assert one.acks() == [(1, [(1, 1, 2, 0, 0)])]


def test_a_refusal_waits_for_raft_to_confirm_the_leader(stage):
    """A deposed leader may refuse what its successor has stored: the very batch, even."""
    one, _ = comparers(stage)
    one.compare(1, 9)
    assert one.acks() == []
    assert confirm(stage) == 1
    assert one.acks() == [(1, [(1, 1, 1, NEXT_LSN_IS, 1)])]


def test_raft_is_asked_again_for_what_was_decided_since(stage):
    one, two = comparers(stage)
    one.compare(1, 9)
    (asked,) = reads(stage)
    two.compare(1, 9)
    assert reads(stage) == []
    stage.tell(effects.ReadIndexAnswered(asked.request_id, True, 1))
    assert [len(each.acks()) for each in (one, two)] == [1, 0]
    assert confirm(stage) == 1
    assert two.acks() == [(1, [(1, 1, 1, NEXT_LSN_IS, 1)])]


def test_a_leader_that_is_not_confirmed_sends_its_refusals_on(stage):
    one, _ = comparers(stage)
    one.compare(1, 9)
    confirm(stage, is_leader=False)
    ((_, [(sequence, _, _, code, _)]),) = one.acks()
    assert (sequence, code) == (1, ErrorCode.NOT_LEADER)


def test_a_refusal_of_a_gen_that_ended_says_nothing_of_the_log(stage):
    """What it saw may be discarded: SAFETY E4."""
    one, two = comparers(stage)
    one.compare(1, 1)
    two.compare(1, 1)
    confirm(stage)
    stage.accept()
    stage.tell(effects.AdmissionClosed(1, 3, "step_down"), effects.TermEnded(1))
    stage.tell(effects.LeaderChanged(2, 3), effects.Committed(1, 100), effects.Committed(2, 100))
    ((_, [(_, _, _, code, _)]),) = two.acks()
    assert code == ErrorCode.NOT_LEADER
    assert one.acks() == []


def test_a_refused_sequence_is_unused_and_may_be_given_to_other_bytes(stage):
    one, _ = comparers(stage)
    one.compare(5, 9)
    confirm(stage)
    assert one.ask_state(2).next_sequence == 0
    one.compare(5, 1, (b"other", b"bytes"), round_=2)
    stage.accept_and_commit()
    rows = one.rows()
    assert rows == [(5, 1, 1, NEXT_LSN_IS, 1), (5, 1, 2, 0, 0)]


def test_a_batch_that_is_known_is_a_duplicate_whatever_it_expects(stage):
    one, two = comparers(stage)
    one.compare(5, 1)
    one.compare(5, 7)  # in the stream already
    stage.accept_and_commit()
    two.compare(1, 2)
    stage.accept_and_commit()
    one.ask_state(2)
    one.compare(5, 1, round_=2)
    one.compare(4, 1, round_=2)
    rows = one.rows()
    assert rows == [
        (5, 1, 1, 0, 0),
        (5, 1, 1, 0, 0),
        (5, 1, 1, 0, 0),
        (4, 0, 1, ErrorCode.COMMITTED_LSN_UNKNOWN, 0),
    ]
    assert not reads(stage)


@pytest.mark.parametrize("round_", [1, 3], ids=["older", "newer"])
def test_a_batch_of_another_round_than_the_newest_is_not_compared(stage, round_):
    """A late copy of a refused batch would be stored where the log ends by then."""
    one, _ = comparers(stage)
    one.ask_state(2)
    one.compare(1, 1, round_=round_)
    assert one.acks() == [(round_, [(1, 0, 1, ErrorCode.NOT_COMMITTED, 0)])]
    assert not stage.take_proposals()


def test_an_older_sessionstate_that_comes_late_opens_no_round(stage):
    one, _ = comparers(stage)
    one.ask_state(3)
    one.ask_state(2)
    one.compare(1, 1, round_=2)
    one.compare(1, 1, round_=3)
    assert one.acks() == [(2, [(1, 0, 1, ErrorCode.NOT_COMMITTED, 0)])]
    assert len(stage.take_proposals()) == 1


@pytest.mark.parametrize("term", [1, 2], ids=["the same term", "a later term"])
def test_a_conversation_ends_with_its_gen(stage, term):
    """The leader was deposed, say, and leads again: copies of the round before may be late."""
    one, _ = comparers(stage)
    stage.tell(effects.AdmissionClosed(1, 2, "transfer"))
    if term == 2:
        stage.tell(effects.TermEnded(1))
    reopen(stage, term=term, gen=2)
    one.compare(1, 1)
    assert one.acks() == [(1, [(1, 0, 1, ErrorCode.NOT_COMMITTED, 0)])]
    one.ask_state(2)
    one.compare(1, 1, round_=2)
    assert len(stage.take_proposals()) == 1


def test_a_copy_of_a_refused_attempt_is_not_decided_again(stage):
    """By then the log may end where it expects: what was refused is never stored."""
    one, two = comparers(stage)
    one.compare(1, 2)
    confirm(stage)
    two.compare(1, 1)
    stage.accept_and_commit()
    one.compare(1, 2, attempt=1)
    assert confirm(stage) == 0
    assert one.rows() == [(1, 1, 1, NEXT_LSN_IS, 1)]
    one.compare(1, 2, (b"decided again",))
    stage.accept_and_commit()
    assert one.rows() == [(1, 2, 1, 0, 0)]


def test_a_sessionstate_that_comes_twice_opens_no_round_again(stage):
    """Nor at the next gen: copies of the same attempt may come twice, too."""
    one, _ = comparers(stage)
    one.compare(1, 2)
    confirm(stage)
    one.ask_state(1)
    one.compare(1, 1, attempt=1)
    assert one.rows() == [(1, 1, 1, NEXT_LSN_IS, 1)]
    stage.tell(effects.AdmissionClosed(1, 2, "transfer"))
    reopen(stage, term=1, gen=2)
    one.ask_state(1)
    one.compare(1, 1, attempt=1)
    assert one.rows() == [(1, 0, 1, ErrorCode.NOT_COMMITTED, 0)]
    assert not stage.take_proposals()


def test_one_refusal_of_each_producer_is_held(stage):
    one, two = comparers(stage)
    two.compare(1, 1)
    for sequence in range(5):
        one.compare(sequence, 9)
    confirm(stage)
    stage.accept_and_commit()
    confirm(stage)
    assert one.acks() == [(1, [(4, 5, 1, NEXT_LSN_IS, 2)])]


def test_a_session_whose_batches_are_all_refused_is_not_idle(stage):
    """SAFETY E8: the leader hears of its producer with each attempt, though none is stored. A push
    of another conversation may be a late copy, and says nothing."""
    busy, loser = (Comparer(stage, name) for name in (b"busy", b"loser"))
    loser.ask_state()
    for number in range(10):
        stage.clock.wall += DAY_NS
        stage.clock.now_ns += SESSION_IDLE_MIN_NS
        loser.compare(0, 1_000)
        busy.producer.push(number)
        stage.accept_and_commit()
        confirm(stage)
        assert [row[3] for row in loser.rows()] == [NEXT_LSN_IS]
        assert stage.accept_and_commit() == [], "nothing expires"
    stage.clock.wall += DAY_NS
    stage.clock.now_ns += SESSION_IDLE_MIN_NS
    loser.compare(0, 1_000, round_=2)
    busy.producer.push(10)
    stage.accept_and_commit()
    assert [header.kind for header in stage.accept_and_commit()] == [EntryKind.EXPIRE]


def test_a_log_below_the_level_refuses_whatever_is_expected(stage):
    """The next leader may be of a version that does not know the form (SAFETY S11)."""
    stage.level = TRIM_LEVEL
    one, _ = comparers(stage)
    one.compare(1, 1)
    assert one.acks() == []
    confirm(stage)
    assert one.acks() == [(1, [(1, 1, 1, ErrorCode.LEVEL_REFUSED, 0)])]
    assert not stage.take_proposals()


def test_a_dense_session_expects_nothing(stage):
    one = Comparer(stage, b"", SequenceMode.DENSE)
    one.ask_state()
    one.compare(0, 1)
    assert one.acks() == [(1, [(0, 0, 1, ErrorCode.INVALID_BATCH, 0)])]


def test_an_older_epoch_is_fenced_whatever_it_expects(stage):
    one, _ = comparers(stage)
    again = Comparer(stage, b"one")
    one.compare(1, 1)
    ((_, [(_, _, _, code, epoch)]),) = one.acks()
    assert (code, epoch) == (ErrorCode.FENCED, again.producer.epoch)
    again.acks()
    again.compare(1, 1)  # the round of the older epoch is not its own
    assert again.acks() == [(1, [(1, 0, 1, ErrorCode.NOT_COMMITTED, 0)])]


def test_a_replica_that_does_not_lead_says_who_does(stage):
    one, _ = comparers(stage)
    stage.tell(effects.AdmissionClosed(1, 2, "step_down"), effects.TermEnded(1))
    stage.tell(effects.LeaderChanged(2, 3))
    one.compare(1, 1)
    assert one.acks() == [(1, [(1, 0, 1, ErrorCode.NOT_LEADER, 3)])]


@pytest.mark.parametrize("place", range(CONDITIONAL_PREFIX.size))
def test_a_damaged_expectation_stores_nothing(stage, place):
    one, _ = comparers(stage)
    frame = bytearray(conditional_prefix(Expectation(1, 1, 1)) + one.producer.batch(1))
    frame[place] ^= 0x10
    one.send(bytes(frame))
    assert one.acks() == []
    assert not stage.take_proposals()
    dropped = (Counter.FRAMES_DROPPED, Counter.BULK_CORRUPT)
    assert sum(stage.counter(each) for each in dropped) == 1


def test_an_lsn_that_no_batch_can_have_is_invalid(stage):
    one, _ = comparers(stage)
    one.compare(1, POSITION_MAX + 1)
    assert one.acks() == [(1, [(1, 0, 1, ErrorCode.INVALID_BATCH, 0)])]


def test_a_batch_that_gets_another_lsn_than_it_was_taken_for_ends_the_process(stage):
    one, _ = comparers(stage)
    one.compare(1, 1)
    group = stage.ingress.admission.proposals.newest_pending(None)
    ((row, lsn),) = group.expectations
    assert lsn == 1
    group.expectations = [(row, 2)]
    with pytest.raises(InvariantViolated, match="taken because it was to have LSN 2"):
        stage.accept()


def test_a_compressed_batch_below_the_level_is_refused_as_one_that_expects_an_lsn() -> None:
    """The refusal names its attempt, so the session goes on."""
    stage = Stage()
    stage.level = EXPECTED_LSN_LEVEL - 1
    stage.lead()
    stage.commit()
    one = Comparer(stage)
    one.ask_state()
    stage.heard()
    batch = compressed(TEXT, Codec.LZ4, producer_id=one.id, epoch=one.producer.epoch, sequence=5)
    one.send(conditional_prefix(Expectation(1, 1, 1)) + batch)
    confirm(stage)
    assert [row[1:4:2] for _, rows in one.acks() for row in rows] == [(1, ErrorCode.LEVEL_REFUSED)]
