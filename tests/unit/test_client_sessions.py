"""The sessions of the log from an operator's side: pages, an end, and a lost answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import logstore
from logstore.cli.main import main
from logstore.errors import (
    ErrorCode,
    FormatError,
    InvalidRequest,
    UnknownProducer,
)
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    ErrorReply,
    SessionLookupRequest,
    SessionsReply,
    SessionsRequest,
    SessionStateReply,
)
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from tests.unit.client_stage import Cluster, FakeReplica

LARGE = (1 << 64) - 2
FIRST = ListedSession(5, 2, 2, SessionState.OPEN, 64, 1 << 25, 42, 10**18, "prüfung".encode())
SECOND = ListedSession(9, 1, 1, SessionState.OPEN, 16, 1 << 22, 0, 0, b"")
THIRD = ListedSession(LARGE, 3, 2, SessionState.KEPT, 0, 0, 7, (1 << 63) - 1, b"old")


def pages(request: SessionsRequest) -> SessionsReply:
    """Two sessions, then one."""
    if request.after < SECOND.producer_id:
        return SessionsReply(SECOND.producer_id, encode_sessions((FIRST, SECOND)))
    return SessionsReply(0, encode_sessions((THIRD,)))


@pytest.fixture
def replica() -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        replica = cluster.replicas[1]
        replica.on[SessionsRequest] = pages
        replica.on[SessionLookupRequest] = lambda request: SessionStateReply(
            5 if request.name == b"query" else 0, 1, 0, b""
        )
        yield replica


@pytest.fixture
def admin(replica: FakeReplica) -> Iterator[logstore.Admin]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client.admin


def refusal(code: ErrorCode, text: bytes = b"why") -> ErrorReply:
    return ErrorReply(code, 0, 0, 0, text)


def test_sessions_are_listed_page_by_page(admin: logstore.Admin) -> None:
    found = list(admin.sessions())
    assert [each.producer_id for each in found] == [5, 9, LARGE]
    assert found[0] == logstore.SessionInfo(
        5, 2, "prüfung", "monotone", 42, 64, 1 << 25, 10**18, False
    )
    assert (found[1].name, found[1].mode, found[1].last_used_ns) == ("", "dense", 0)
    assert found[2].is_kept


def test_pages_that_lead_in_a_circle_are_no_list(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    replica.on[SessionsRequest] = lambda _: SessionsReply(9, encode_sessions((FIRST,)))
    with pytest.raises(FormatError, match="leads to 9"):
        list(admin.sessions())


def test_a_session_is_ended_by_its_name_or_its_producer_id(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    asked = replica.answer_in_turn(EndSessionRequest, DoneReply(5))
    assert admin.end_session("query") == 5
    assert admin.end_session(LARGE) == LARGE
    assert asked == [EndSessionRequest(5), EndSessionRequest(LARGE)]


def test_who_has_no_session_is_told_so_and_nothing_is_ended(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    asked = replica.answer_in_turn(EndSessionRequest, refusal(ErrorCode.UNKNOWN_PRODUCER))
    for name in ("nobody", "\udcff"):
        with pytest.raises(UnknownProducer, match="no session is named"):
            admin.end_session(name)
    for wrong in ("", 0, -1, 1 << 64):
        with pytest.raises(InvalidRequest):
            admin.end_session(wrong)
    assert asked == []
    with pytest.raises(UnknownProducer):
        admin.end_session(7)


def test_an_end_is_asked_for_again_until_it_is_answered(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    asked = replica.answer_in_turn(EndSessionRequest, refusal(ErrorCode.OVERLOADED), DoneReply(5))
    assert admin.end_session(5) == 5
    assert len(asked) == 2


@pytest.mark.parametrize("code", [ErrorCode.OUTCOME_UNKNOWN, ErrorCode.TIMED_OUT])
def test_no_session_after_a_lost_answer_is_what_was_wanted(
    admin: logstore.Admin, replica: FakeReplica, code: ErrorCode
) -> None:
    replica.answer_in_turn(EndSessionRequest, refusal(code), refusal(ErrorCode.UNKNOWN_PRODUCER))
    assert admin.end_session(5) == 5


# --- the command line ---


def run(replica: FakeReplica, *arguments: str) -> int:
    try:
        return main(["session", *arguments, "--endpoint", replica.cluster.endpoint])
    except SystemExit as exit_:
        return int(exit_.code or 0)


def test_the_command_line_lists_sessions(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(replica, "list") == 0
    printed = capfd.readouterr().out
    assert "prüfung" in printed
    assert "2001-09-09 01:46:40Z" in printed
    assert "expired" in printed
    assert run(replica, "list", "--json", "-") == 0
    found = json.loads(capfd.readouterr().out)["sessions"]
    assert [each["producer_id"] for each in found] == ["5", "9", str(LARGE)]
    assert [each["is_kept"] for each in found] == [False, False, True]


def test_the_command_line_ends_a_session(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = replica.answer_in_turn(EndSessionRequest, DoneReply(5))
    assert run(replica, "end", "query") == 0
    assert "the session of producer 5 is ended" in capfd.readouterr().err
    assert run(replica, "end", "--id", str(LARGE), "--json", "-") == 0
    document = {"name": None, "producer_id": str(LARGE), "ended": True}
    assert json.loads(capfd.readouterr().out) == document
    assert [each.producer_id for each in asked] == [5, LARGE]


def test_exit_statuses_tell_what_came_of_it(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.answer_in_turn(
        EndSessionRequest, refusal(ErrorCode.UNKNOWN_PRODUCER, b"there is no session of producer 7")
    )
    assert run(replica, "end", "nobody") == 1
    assert "no session is named 'nobody'" in capfd.readouterr().err
    assert run(replica, "end", "--id", "7", "--json", "-") == 1
    assert json.loads(capfd.readouterr().out)["ended"] is False
    for arguments in ((), ("query", "--id", "5"), ("--id", "0"), ("--id", str(1 << 64))):
        assert run(replica, "end", *arguments) == 2
    replica.answer_in_turn(EndSessionRequest, refusal(ErrorCode.NOT_READY))
    assert run(replica, "end", "--id", "7", "--timeout", "0.1") == 3
