"""Trims from the client's side: what is planned, who holds it, and `logstore trim`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

import logstore
from logstore.cli.exit_status import ExitStatus
from logstore.cli.main import main
from logstore.errors import CorruptData, ErrorCode, InvalidRequest, OutOfRange
from logstore.format.batch import read_batch_header
from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    DoneReply,
    ErrorReply,
    SpansRequest,
    TimeLookupReply,
    TimeLookupRequest,
    TrimRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from tests.unit.client_stage import Cluster, FakeReplica

HELD = (Cursor(b"archive", 5, True), Cursor(b"free", 2, False), Cursor(b"replay", 7, True))
HELD_TEXT = b"the log can be trimmed up to LSN 5: cursor 'archive' holds what follows"

EARLY = "1970-01-01T00:00:00.000001Z"  # a fake replica's batches are stamped 1,000 ns and more


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    """LSNs 1 to 10 in batches of two, and no cursor."""
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        replica = cluster.replicas[1]
        for _ in range(5):
            replica.append_to_log([b"a", b"b"])
        replica.on[CursorsRequest] = lambda _: CursorsReply(b"")
        replica.on[TrimRequest] = lambda request: DoneReply(request.lsn)
        yield replica


@pytest.fixture
def admin(replica: FakeReplica) -> Iterator[logstore.Admin]:
    with logstore.connect(replica.cluster.endpoint, timeout=20) as client:
        yield client.admin


def hold(replica: FakeReplica) -> None:
    replica.on[CursorsRequest] = lambda _: CursorsReply(encode_cursors(HELD))
    replica.on[TrimRequest] = lambda _: ErrorReply(ErrorCode.OUT_OF_RANGE, 0, 1, 5, HELD_TEXT)


def run(*arguments: str) -> int:
    try:
        return main(["trim", *arguments])
    except SystemExit as exit_:
        return int(exit_.code or 0)


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = run(*arguments, "--json", "-")
    return code, json.loads(capsys.readouterr().out)


def size_of(replica: FakeReplica, batches: int) -> int:
    return sum(read_batch_header(each).size for each in replica.log[:batches])


def test_a_plan_says_what_would_go(admin: logstore.Admin, replica: FakeReplica) -> None:
    plan = admin.plan_trim(7)
    assert (plan.log_start_lsn, plan.highest_lsn, plan.held_by) == (1, 11, ())
    assert (plan.payloads, plan.size_bytes) == (6, size_of(replica, 3))
    replica.trim(9)
    plan = admin.plan_trim(7)
    assert (plan.log_start_lsn, plan.payloads, plan.size_bytes) == (9, 0, 0)
    assert admin.plan_trim(1_000).payloads == 2  # what is there


def test_a_plan_names_the_cursors_that_hold_some_of_it(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    hold(replica)
    plan = admin.plan_trim(7)
    assert [each.name for each in plan.held_by] == ["archive"]
    assert plan.highest_lsn == 5
    assert [each.name for each in admin.plan_trim(11).held_by] == ["archive", "replay"]
    assert admin.plan_trim(5).held_by == ()


def test_the_help_says_what_a_dry_run_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "not whether the log's format level or a follower that catches up is in the way" in words


def test_damage_keeps_no_trim(
    admin: logstore.Admin, replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.on[SpansRequest] = lambda _: ErrorReply(ErrorCode.CORRUPT_DATA, 0, 0, 0, b"rot")
    assert admin.plan_trim(7).size_bytes is None
    assert run("--to", "7") == ExitStatus.DONE
    assert "6 payloads, an unknown number of bytes" in capsys.readouterr().err


def test_it_trims_and_says_what_is_gone(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replica.answer_in_turn(TrimRequest, DoneReply(5))
    assert run("--to", "6") == ExitStatus.DONE
    assert asked == [TrimRequest(6)]
    out = capsys.readouterr().err
    assert f"the log begins at LSN 5; given up: 4 payloads, {size_of(replica, 2)} bytes" in out


@pytest.mark.parametrize(
    ("lsn", "kept_lsn"), [(1, 1), (2, 1), (3, 3), (6, 5), (7, 7), (10, 9), (11, 11)]
)
def test_amounts_are_those_of_whole_batches(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str], lsn: int, kept_lsn: int
) -> None:
    replica.answer_in_turn(TrimRequest, DoneReply(kept_lsn))
    amounts = (kept_lsn, kept_lsn - 1, size_of(replica, kept_lsn // 2))
    for more in ((), ("--dry-run",)):
        _, document = run_json(capsys, "--to", str(lsn), *more)
        assert (document["kept_lsn"], document["payloads"], document["size_bytes"]) == amounts
        assert document["log_start_lsn"] == (1 if more else kept_lsn)


def test_a_batch_at_the_log_start_is_kept_whole(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.trim(5)
    replica.on[TrimRequest] = lambda _: DoneReply(5)
    assert run("--to", "6") == ExitStatus.DONE
    assert "the log begins at LSN 5 already" in capsys.readouterr().err
    assert run("--to", "6", "--dry-run") == ExitStatus.DONE
    out = capsys.readouterr().err
    assert "nothing would be given up: the log begins at LSN 5 already" in out


def test_the_log_start_may_rise_while_a_trim_is_planned(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    bounds = replica.answer_in_turn(WatermarksRequest, WatermarksReply(1, 10))
    replica.trim(5)
    plan = admin.plan_trim(8)
    assert (plan.log_start_lsn, plan.kept_lsn, plan.payloads) == (5, 7, 2)
    replica.trim(11)
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(3)
    plan = admin.plan_trim(logstore.AtTime(1_000))
    assert (plan.log_start_lsn, plan.kept_lsn, plan.payloads) == (11, 11, 0)
    assert len(bounds) == 2


def test_another_trim_at_the_same_time_counts_what_is_gone(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.on[TrimRequest] = lambda _: DoneReply(9)
    assert run("--to", "6") == ExitStatus.DONE
    out = capsys.readouterr().err
    assert "the log begins at LSN 9; given up: 8 payloads, an unknown number of bytes" in out


def test_a_dry_run_changes_nothing(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = replica.answer_in_turn(TrimRequest, DoneReply(5))
    code, document = run_json(capsys, "--to", "7", "--dry-run")
    assert code == ExitStatus.DONE
    assert asked == []
    assert document == {
        "time": None,
        "lsn": 7,
        "kept_lsn": 7,
        "is_done": False,
        "previous_log_start_lsn": 1,
        "log_start_lsn": 1,
        "highest_lsn": 11,
        "payloads": 6,
        "size_bytes": size_of(replica, 3),
        "held_by": [],
    }
    assert run("--to", "7", "--dry-run") == ExitStatus.DONE
    assert "it would give up LSN 1 to 6: 6 payloads" in capsys.readouterr().err


def test_a_dry_run_ends_as_the_trim_would(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(replica)
    assert run("--to", "7", "--dry-run") == ExitStatus.REFUSED
    out = capsys.readouterr().err
    todo = "trim --to 5, or delete the cursor"
    assert out.splitlines() == [
        f"it would be refused: the log can be trimmed up to LSN 5: {todo}",
        "cursor archive holds what follows, from LSN 5 on",
    ]
    assert run("--to", "11", "--dry-run") == ExitStatus.REFUSED
    assert "trim --to 5, or delete the cursors\n" in capsys.readouterr().err
    code, document = run_json(capsys, "--to", "7", "--dry-run")
    assert code == ExitStatus.REFUSED
    assert document["held_by"] == [{"name": "archive", "lsn": 5}]
    assert run("--to", "7") == ExitStatus.REFUSED
    assert HELD_TEXT.decode() in capsys.readouterr().err


def test_a_dry_run_beyond_the_end_gives_no_amounts(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    cursors = encode_cursors((Cursor(b"archive", 11, True),))
    replica.on[CursorsRequest] = lambda _: CursorsReply(cursors)
    assert run("--to", "12", "--dry-run") == ExitStatus.REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "it would be refused: the log can be trimmed up to LSN 11: no more is committed"
    ]


def test_what_is_gone_already_is_done(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.trim(9)
    replica.on[TrimRequest] = lambda _: DoneReply(9)
    code, document = run_json(capsys, "--to", "7")
    assert (code, document["is_done"], document["log_start_lsn"]) == (ExitStatus.DONE, True, 9)
    assert run("--to", "7") == ExitStatus.DONE
    assert "the log begins at LSN 9 already" in capsys.readouterr().err
    assert run("--to", "7", "--dry-run") == ExitStatus.DONE
    assert "nothing would be given up" in capsys.readouterr().err


def test_a_time_is_looked_up_first(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(5)
    code, document = run_json(capsys, "--to", EARLY)
    assert (code, document["lsn"], document["log_start_lsn"]) == (ExitStatus.DONE, 5, 5)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_the_time_is_said_with_its_zone(
    replica: FakeReplica,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
) -> None:
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(5)
    monkeypatch.setenv("TZ", "WEST+2")  # two hours behind UTC
    time.tzset()
    try:
        assert run("--to", "1969-12-31T22:00:00.000001", *more) == ExitStatus.DONE
        out = capsys.readouterr().err
        assert f"the time {EARLY} stands for LSN 5" in out
        assert run_json(capsys, "--to", EARLY, *more)[1]["time"] == EARLY
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_help_says_whose_time_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == ExitStatus.DONE
    assert "local time unless it has a zone" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("late", ["2099-01-01T00:00:00Z", "1970-01-01T00:00:00.000002Z"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_time_after_the_newest_payload_gives_up_nothing(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str], late: str, more: tuple[str, ...]
) -> None:
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(11)
    asked = replica.answer_in_turn(TrimRequest, DoneReply(11))
    assert run("--to", late, *more) == ExitStatus.REFUSED
    assert asked == []
    out = capsys.readouterr().err
    assert f"no payload is as late as {late}: the newest, LSN 10, is of {EARLY}" in out
    assert "to give up everything, name the LSN: 11" in out


def test_a_payload_that_comes_after_the_look_up_does_not_make_a_late_time_right(
    admin: logstore.Admin, replica: FakeReplica
) -> None:
    def look_up(_: TimeLookupRequest) -> TimeLookupReply:
        replica.append_to_log([b"c"])
        return TimeLookupReply(11)

    replica.on[TimeLookupRequest] = look_up
    with pytest.raises(OutOfRange, match="the newest, LSN 11, is of") as refused:
        admin.plan_trim(logstore.AtTime(2_000))
    assert (refused.value.first, refused.value.last) == (1, 12)


def test_a_log_without_payloads_has_nothing_to_give_up_at_any_time(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str]
) -> None:
    replica.trim(11)
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(11)
    replica.on[TrimRequest] = lambda _: DoneReply(11)
    assert run("--to", "2099-01-01T00:00:00Z") == ExitStatus.DONE
    assert "the log begins at LSN 11 already" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["latest", "earliest", "0", "yesterday", "-3"])
def test_it_takes_an_lsn_or_a_time_only(
    replica: FakeReplica, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    assert run("--to", to) == ExitStatus.USAGE
    words = f"{to!r}: give an LSN or a time like 2026" if to != "0" else "LSNs begin at 1"
    assert words in capsys.readouterr().err


def test_errors_of_the_leader_reach_the_caller(admin: logstore.Admin, replica: FakeReplica) -> None:
    hold(replica)
    with pytest.raises(OutOfRange) as refused:
        admin.trim(7)
    assert (refused.value.first, refused.value.last) == (1, 5)
    replica.on[TrimRequest] = lambda _: ErrorReply(ErrorCode.CORRUPT_DATA, 0, 0, 0, b"rot")
    with pytest.raises(CorruptData):
        admin.trim(7)
    with pytest.raises(InvalidRequest):
        admin.trim(0)
