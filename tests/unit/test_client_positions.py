"""Where a consumer stands: cursors that it begins at and commits to, seeking, pausing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

import logstore
from logstore import AtCursor
from logstore.client.core.replica_reader import ReplicaReader
from logstore.errors import (
    Closed,
    CursorMoved,
    ErrorCode,
    InvalidRequest,
    LogStoreError,
    OutcomeUnknown,
    Unreachable,
)
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import ANY_LSN, Cursor, Hold, encode_cursors
from logstore.model import Lsn
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 10


class CursorTable:
    """What a leader keeps of cursors. `lost`: how many answers get lost, after the change."""

    def __init__(self, replica: FakeReplica) -> None:
        self.held: dict[str, tuple[int, bool]] = {}
        self.lost = 0
        self.changes = 0
        self.is_older = False  # a version that does not know `Hold.AS_IT_IS`
        replica.on[CursorsRequest] = lambda _: CursorsReply(
            encode_cursors(
                [Cursor(name.encode(), Lsn(lsn), held) for name, (lsn, held) in self.held.items()]
            )
        )
        replica.on[SetCursorRequest] = self.set
        self.on_lost: Callable[[], object] = lambda: None

    def set(self, request: SetCursorRequest) -> object:
        name = request.name.decode()
        if self.is_older and request.hold > Hold.HELD:
            return ErrorReply(ErrorCode.INVALID_REQUEST, 1, 0, 0, b"neither 0 nor 1")
        before, is_held = self.held.get(name, (0, False))
        if request.expected_lsn not in (ANY_LSN, before):
            return ErrorReply(ErrorCode.CURSOR_MOVED, 1, before, 0, b"moved")
        if request.hold != Hold.AS_IT_IS:
            is_held = request.hold == Hold.HELD
        self.held[name] = (request.lsn, is_held)
        self.changes += 1
        if self.lost:
            self.lost -= 1
            self.on_lost()
            return ErrorReply(ErrorCode.TIMED_OUT, 1, 0, 0, b"no answer")
        return DoneReply(before)


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        for number in range(10):
            replica.append_to_log([b"%d a" % number, b"%d b" % number])
        yield replica


@pytest.fixture
def cursors(replica: FakeReplica) -> CursorTable:
    return CursorTable(replica)


@pytest.fixture
def log(replica: FakeReplica) -> Iterator[logstore.LogClient]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as log:
        yield log


def lsns(consumer: logstore.Consumer) -> list[int]:
    return [record.lsn for record in consumer]


def test_a_consumer_begins_where_the_cursor_stands(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    cursors.held["mine"] = (7, False)
    with log.consumer(AtCursor("mine"), end_lsn=20) as consumer:
        assert lsns(consumer) == list(range(7, 21))


def test_without_a_cursor_it_begins_where_it_is_told(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    cursors.held["other"] = (7, False)
    assert log.consumer(AtCursor("mine")).position == 1
    assert log.consumer(AtCursor("mine", absent="latest")).position == 21
    with pytest.raises(InvalidRequest, match="no cursor 'mine'"):
        log.consumer(AtCursor("mine", absent="error"))
    assert log.consumer(AtCursor("mine", absent=5)).position == 5
    for wrong in ("somewhere", AtCursor("other")):
        with pytest.raises(InvalidRequest):
            log.consumer(AtCursor("mine", absent=wrong))  # type: ignore[arg-type]


def test_a_commit_says_what_comes_next_and_the_next_consumer_goes_on_there(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    with log.consumer(AtCursor("mine")) as consumer:
        for record in consumer:
            if record.lsn == 5:
                assert consumer.commit("mine") == 6
                break
    assert cursors.held == {"mine": (6, False)}
    with log.consumer(AtCursor("mine"), end_lsn=20) as consumer:
        assert lsns(consumer) == list(range(6, 21))
        assert [consumer.commit("mine") for _ in range(2)] == [21, 21]
    assert cursors.changes == 2


@pytest.mark.parametrize("is_older", [False, True])
def test_a_held_cursor_stays_held(
    log: logstore.LogClient, cursors: CursorTable, *, is_older: bool
) -> None:
    cursors.is_older = is_older
    cursors.held["mine"] = (3, True)
    with log.consumer(10) as consumer:
        consumer.commit("mine")
    assert cursors.held == {"mine": (10, True)}


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("is_older", [False, True])
def test_a_commit_keeps_a_hold_that_was_changed_since_the_cursor_was_read(
    log: logstore.LogClient, cursors: CursorTable, *, is_held: bool, is_older: bool
) -> None:
    cursors.is_older = is_older
    cursors.held["archive"] = (3, not is_held)
    with log.consumer(AtCursor("archive")) as consumer:
        cursors.held["archive"] = (3, is_held)
        consumer.commit("archive", position=4)
        assert cursors.held == {"archive": (4, is_held)}
        cursors.held["archive"] = (4, not is_held)
        consumer.commit("archive", position=5)
        assert cursors.held == {"archive": (5, not is_held)}


def test_a_commit_whose_answer_an_older_leader_lost_is_its_own(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    """The leader that took it answers nothing, and the next one is of an older version."""
    cursors.held["mine"] = (3, True)
    with log.consumer(AtCursor("mine")) as consumer:
        cursors.lost = 1
        cursors.on_lost = lambda: setattr(cursors, "is_older", True)
        with pytest.raises(OutcomeUnknown):
            consumer.commit("mine", position=4)
        assert consumer.commit("mine", position=4) == 4
    assert cursors.held == {"mine": (4, True)}


def test_of_two_consumers_with_one_cursor_the_second_is_told(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    with log.consumer(AtCursor("mine")) as first, log.consumer(AtCursor("mine")) as second:
        first.poll(WAIT_S)
        second.poll(WAIT_S)
        assert first.commit("mine") == 21
        with pytest.raises(CursorMoved) as moved:
            second.commit("mine")
        assert moved.value.lsn == 21


def test_a_seek_to_a_cursor_that_fails_does_not_hide_that_another_client_moved_it(
    log: logstore.LogClient, cursors: CursorTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer stays where it was, and a commit of that place would set the cursor back."""

    def fail(_: object) -> NoReturn:
        raise Unreachable("no replica answers")

    cursors.held["mine"] = (3, False)
    with log.consumer(AtCursor("mine")) as consumer:
        next(iter(consumer))
        cursors.held["mine"] = (11, False)
        with monkeypatch.context() as patched:
            patched.setattr(ReplicaReader, "endpoint", fail)
            with pytest.raises(Unreachable):
                consumer.seek(AtCursor("mine"))
        with pytest.raises(CursorMoved):
            consumer.commit("mine")
        assert cursors.held.pop("mine") == (11, False)
        with pytest.raises(InvalidRequest, match="no cursor 'mine'"):
            consumer.seek(AtCursor("mine", absent="error"))
        with pytest.raises(CursorMoved):
            consumer.commit("mine")
        assert (consumer.position, cursors.held) == (4, {})


def test_a_commit_whose_answer_is_lost_is_made_again(
    replica: FakeReplica, cursors: CursorTable
) -> None:
    with (
        logstore.connect(replica.cluster.endpoint, timeout=0.5) as log,
        log.consumer(AtCursor("mine")) as consumer,
    ):
        next(iter(consumer))
        cursors.lost = 100
        with pytest.raises(OutcomeUnknown):
            consumer.commit("mine")
        cursors.lost = 0
        assert cursors.held == {"mine": (2, False)}
        assert consumer.commit("mine") == 2
        next(iter(consumer))
        cursors.lost = 100
        with pytest.raises(OutcomeUnknown):
            consumer.commit("mine")
        cursors.lost = 0
        next(iter(consumer))
        assert consumer.commit("mine") == 4
    assert cursors.held == {"mine": (4, False)}


@pytest.mark.parametrize("code", [ErrorCode.NO_QUORUM, ErrorCode.NOT_READY])
def test_a_commit_that_was_refused_for_certain_is_not_taken_for_another_consumers(
    replica: FakeReplica, cursors: CursorTable, code: ErrorCode
) -> None:
    """Both have read the same, so that both commit the same position."""
    with (
        logstore.connect(replica.cluster.endpoint, timeout=0.3) as log,
        log.consumer(AtCursor("mine")) as first,
        log.consumer(AtCursor("mine")) as second,
    ):
        replica.on[SetCursorRequest] = lambda _: ErrorReply(code, 1, 0, 0, b"not now")
        with pytest.raises(LogStoreError, match="not now"):
            first.commit("mine", position=6)
        replica.on[SetCursorRequest] = cursors.set
        second.commit("mine", position=6)
        with pytest.raises(CursorMoved):
            first.commit("mine", position=8)
        assert second.commit("mine", position=9) == 9


def test_a_loop_that_is_left_goes_on_after_its_last_record(log: logstore.LogClient) -> None:
    with log.consumer("earliest", end_lsn=20) as consumer:
        for record in consumer:
            if record.lsn == 3:
                break
        assert consumer.position == 4
        assert not consumer.is_at_end
        assert next(iter(consumer)).lsn == 4
        batches = consumer.poll(WAIT_S)
        assert [batch.first_lsn for batch in batches] == list(range(5, 21, 2))
        assert consumer.is_at_end


def test_ways_to_read_may_be_mixed(log: logstore.LogClient) -> None:
    """Also within a loop over records, which goes on behind what was taken."""
    with log.consumer("earliest", end_lsn=20) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.lsn)
            if record.lsn in (3, 8):
                batch = next(consumer.batches())
                seen += range(batch.first_lsn, batch.last_lsn + 1)
            if record.lsn == 13:
                seen += [
                    lsn
                    for batch in consumer.poll(WAIT_S)
                    for lsn in range(batch.first_lsn, batch.last_lsn + 1)
                ]
        assert seen == list(range(1, 21))


def test_seek_goes_anywhere_also_within_a_loop(
    log: logstore.LogClient, cursors: CursorTable
) -> None:
    cursors.held["mine"] = (19, False)
    with log.consumer("earliest", end_lsn=20) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.lsn)
            if record.lsn == 2:
                consumer.seek(18)
        assert seen == [1, 2, 18, 19, 20]
        consumer.seek("earliest")
        assert consumer.position == 1
        consumer.seek(AtCursor("mine"))
        assert lsns(consumer) == [19, 20]
        for wrong in (0, "somewhere", 2.5):
            with pytest.raises(InvalidRequest):
                consumer.seek(wrong)  # type: ignore[arg-type]
        assert consumer.position == 21


def test_a_paused_consumer_hands_nothing_on(log: logstore.LogClient, replica: FakeReplica) -> None:
    with log.consumer(15) as consumer:
        consumer.pause()
        assert consumer.is_paused
        assert consumer.poll(0.05) == []
        threading.Timer(0.05, consumer.resume).start()
        assert consumer.poll(WAIT_S)
        replica.call(lambda: replica.append_to_log([b"new"]))
        assert consumer.position == 21


def test_a_pause_holds_back_what_was_read(log: logstore.LogClient) -> None:
    with log.consumer("earliest", end_lsn=20) as consumer:
        loop = iter(consumer)
        assert next(loop).lsn == 1
        consumer.pause()
        assert consumer.poll(0.05) == []
        assert (consumer.position, consumer.is_at_end) == (2, False)
        resuming = threading.Timer(0.05, consumer.resume)
        resuming.start()
        assert next(loop).lsn == 2
        assert not consumer.is_paused
        resuming.join()
        consumer.pause()
        threading.Timer(0.05, consumer.resume).start()
        assert next(consumer.batches()).first_lsn == 3
        assert lsns(consumer) == list(range(5, 21))


def test_a_poll_amid_which_a_pause_ends_hands_on_first_what_was_read_before_it(
    log: logstore.LogClient, replica: FakeReplica
) -> None:
    with log.consumer("earliest") as consumer:
        assert next(iter(consumer)).lsn == 1
        while consumer._machine.next_lsn <= 20:
            consumer._unread.add(consumer._poll(WAIT_S))
        replica.call(lambda: replica.append_to_log([b"new"]))
        consumer.pause()
        threading.Timer(0.05, consumer.resume).start()
        found: list[int] = []
        while not found or found[-1] < 21:
            for batch in consumer.poll(WAIT_S):
                found += range(batch.first_lsn, batch.last_lsn + 1)
        assert found == list(range(2, 22))


def test_what_no_cursor_can_be_is_told(log: logstore.LogClient) -> None:
    for name in ("", 5, "x" * 300):
        with pytest.raises(InvalidRequest, match="cursor's name"):
            log.consumer(AtCursor(name))  # type: ignore[arg-type]
    with log.consumer("earliest") as consumer:
        for position in (0, -1, "3", 2.0):
            with pytest.raises(InvalidRequest, match="position"):
                consumer.commit("mine", position=position)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="end_lsn"):
        log.consumer(1, end_lsn="5")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="endpoints"):
        logstore.connect(5)  # type: ignore[arg-type]


def test_a_closed_consumer_does_nothing(log: logstore.LogClient) -> None:
    consumer = log.consumer("earliest", end_lsn=20)
    next(iter(consumer))
    consumer.close()
    for use in (
        lambda: consumer.poll(0), lambda: consumer.seek(1), lambda: consumer.commit("mine")
    ):  # fmt: skip
        with pytest.raises(Closed):
            use()
