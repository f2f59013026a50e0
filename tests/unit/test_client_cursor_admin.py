"""Named cursors from the client's side: what is sent, what an answer means, and a lost one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import logstore
from logstore.cli.main import main
from logstore.errors import (
    CursorMoved,
    ErrorCode,
    InvalidRequest,
    NoQuorum,
    OutcomeUnknown,
    TooManyCursors,
)
from logstore.format.client_messages import (
    LSN_MAX,
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SetCursorRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from logstore.limits import POSITION_MAX
from tests.unit.client_stage import Cluster, FakeReplica

ROWS = encode_cursors((Cursor(b"archive", 21, True), Cursor("prüfung".encode(), 1, False)))


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        replica.on[CursorsRequest] = lambda _: CursorsReply(ROWS)
        yield replica


@pytest.fixture
def admin(replica: FakeReplica) -> Iterator[logstore.Admin]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client.admin


def refusal(code: ErrorCode, lsn: int = 0, text: bytes = b"why") -> ErrorReply:
    return ErrorReply(code, 0, lsn, 0, text)


def test_cursors_are_listed_by_name(admin: logstore.Admin) -> None:
    assert admin.cursors() == [
        logstore.Cursor("archive", 21, True),
        logstore.Cursor("prüfung", 1, False),
    ]


def test_a_change_says_what_it_expects(admin: logstore.Admin, replica: FakeReplica) -> None:
    asked = replica.answer_in_turn(SetCursorRequest, DoneReply(7))
    assert admin.set_cursor("a", 9, hold=True) == 7
    assert admin.set_cursor("a", 9, expected_lsn=0) == 7
    assert admin.delete_cursor("ä", expected_lsn=7) == 7
    assert asked == [
        SetCursorRequest(9, LSN_MAX, True, b"a"),
        SetCursorRequest(9, 0, False, b"a"),
        SetCursorRequest(0, 7, False, "ä".encode()),
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: admin.set_cursor("", 1),
        lambda admin: admin.set_cursor("n" * 256, 1),
        lambda admin: admin.set_cursor("\udcff", 1),
        lambda admin: admin.set_cursor("n", 0),
        lambda admin: admin.set_cursor("n", -1),
        lambda admin: admin.set_cursor("n", POSITION_MAX + 1),
        lambda admin: admin.set_cursor("n", 1, expected_lsn=-1),
        lambda admin: admin.delete_cursor("n", expected_lsn=LSN_MAX),
    ],
)
def test_what_cannot_be_is_not_sent(
    admin: logstore.Admin, replica: FakeReplica, change: Callable[[logstore.Admin], int]
) -> None:
    asked = replica.answer_in_turn(SetCursorRequest, DoneReply(0))
    with pytest.raises(InvalidRequest):
        change(admin)
    assert asked == []


@pytest.mark.parametrize(
    ("name", "lsn", "expected_lsn", "says"),
    [
        (b"q", 5, None, "the name b'q': give text"),
        ("q", "5", None, "LSN '5': give a whole number"),
        ("q", 5, "4", "expected_lsn '4': give a whole number, or None"),
    ],
)
def test_what_is_no_name_or_lsn_is_refused_in_words(
    admin: logstore.Admin, name: Any, lsn: Any, expected_lsn: Any, says: str
) -> None:
    with pytest.raises(InvalidRequest, match=says):
        admin.set_cursor(name, lsn, expected_lsn=expected_lsn)
    if lsn == 5:
        with pytest.raises(InvalidRequest, match=says):
            admin.delete_cursor(name, expected_lsn=expected_lsn)


def test_final_refusals_say_what_they_know(admin: logstore.Admin, replica: FakeReplica) -> None:
    replica.answer_in_turn(
        SetCursorRequest, refusal(ErrorCode.CURSOR_MOVED, 5, b"it stands at LSN 5")
    )
    with pytest.raises(CursorMoved, match="stands at LSN 5") as caught:
        admin.set_cursor("a", 9, expected_lsn=7)
    assert caught.value.lsn == 5
    replica.answer_in_turn(
        SetCursorRequest, refusal(ErrorCode.TOO_MANY_CURSORS, 0, b"delete one first")
    )
    with pytest.raises(TooManyCursors, match="delete one first"):
        admin.set_cursor("a", 9)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER, ErrorCode.NOT_READY, ErrorCode.OVERLOADED])
def test_what_time_mends_is_asked_again(
    admin: logstore.Admin, replica: FakeReplica, code: ErrorCode
) -> None:
    asked = replica.answer_in_turn(SetCursorRequest, refusal(code), refusal(code), DoneReply(3))
    assert admin.set_cursor("a", 9, expected_lsn=3) == 3
    assert len(asked) == 3


@pytest.mark.parametrize("code", [ErrorCode.OUTCOME_UNKNOWN, ErrorCode.TIMED_OUT])
def test_a_moved_cursor_after_a_lost_answer_may_be_ones_own_change(
    admin: logstore.Admin, replica: FakeReplica, code: ErrorCode
) -> None:
    replica.answer_in_turn(SetCursorRequest, refusal(code), refusal(ErrorCode.CURSOR_MOVED, 9))
    with pytest.raises(OutcomeUnknown, match="stands at LSN 9"):
        admin.set_cursor("a", 9, expected_lsn=7)
    replica.answer_in_turn(SetCursorRequest, refusal(code), refusal(ErrorCode.CURSOR_MOVED, 8))
    with pytest.raises(CursorMoved):  # whoever did that, it was somebody else
        admin.set_cursor("a", 9, expected_lsn=7)
    replica.answer_in_turn(
        SetCursorRequest, refusal(ErrorCode.NOT_LEADER), refusal(ErrorCode.CURSOR_MOVED, 9)
    )
    with pytest.raises(CursorMoved):  # the first try changed nothing
        admin.set_cursor("a", 9, expected_lsn=7)


@pytest.mark.slow
def test_no_answer_in_time_leaves_the_outcome_unknown(replica: FakeReplica) -> None:
    replica.answer_in_turn(SetCursorRequest, None)
    with logstore.connect(replica.cluster.endpoint, timeout=2) as client:
        with pytest.raises(OutcomeUnknown, match="list the cursors"):
            client.admin.set_cursor("a", 9)
        replica.cluster.leader = 0
        with pytest.raises(NoQuorum):
            client.admin.set_cursor("a", 9)


# --- the command line ---


def run(replica: FakeReplica, *arguments: str) -> int:
    try:
        return main(["cursor", *arguments, "--endpoint", replica.cluster.endpoint])
    except SystemExit as exit_:
        return int(exit_.code or 0)


def test_the_command_line_sets_lists_and_deletes(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = replica.answer_in_turn(SetCursorRequest, DoneReply(0), DoneReply(9), DoneReply(9))
    assert run(replica, "set", "a", "9", "--hold", "--expect", "0") == 0
    assert "a stands at LSN 9, a new cursor" in capfd.readouterr().err
    assert run(replica, "delete", "a") == 0
    assert "it stood at LSN 9" in capfd.readouterr().err
    assert run(replica, "set", "a", "10", "--json", "-") == 0
    assert '"previous_lsn": 9' in capfd.readouterr().out
    assert asked == [
        SetCursorRequest(9, 0, True, b"a"),
        SetCursorRequest(0, LSN_MAX, False, b"a"),
        SetCursorRequest(10, LSN_MAX, False, b"a"),
    ]
    assert run(replica, "list") == 0
    assert "archive" in capfd.readouterr().out
    assert run(replica, "list", "--json", "-") == 0
    assert '"hold": true' in capfd.readouterr().out


def test_exit_statuses_tell_what_came_of_it(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.answer_in_turn(SetCursorRequest, DoneReply(0))
    assert run(replica, "delete", "a") == 1
    assert "there is no cursor a" in capfd.readouterr().err
    for code in (ErrorCode.CURSOR_MOVED, ErrorCode.TOO_MANY_CURSORS):
        replica.answer_in_turn(SetCursorRequest, refusal(code, 5))
        assert run(replica, "set", "a", "9", "--expect", "7") == 4
    assert run(replica, "set", "a", "0") == 2
    assert run(replica, "set", "", "1") == 2
    replica.answer_in_turn(SetCursorRequest, refusal(ErrorCode.NOT_READY))
    assert run(replica, "set", "a", "9", "--timeout", "0.1") == 3
