"""Tables of commands: a row in a line where stdout is no terminal, folded where one is narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from logstore.format.client_messages import (
    CursorsReply,
    CursorsRequest,
    SessionsReply,
    SessionsRequest,
    VerifyReply,
    VerifyRequest,
)
from logstore.format.cursor_entries import Cursor, encode_cursors
from logstore.format.session_list import ListedSession, SessionState, encode_sessions
from tests.unit.cli_stage import run
from tests.unit.client_stage import Cluster, FakeReplica

NAME = "a-name-of-" + "a-cursor-or-a-producer-" * 6
ID = (1 << 64) - 2


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        replica = cluster.replicas[1]
        row = ListedSession(ID, 2, 2, SessionState.OPEN, 64, 1 << 25, 42, 10**18, NAME.encode())
        replica.on[SessionsRequest] = lambda _: SessionsReply(0, encode_sessions((row,)))
        rows = encode_cursors((Cursor(NAME.encode(), 21, False),))
        replica.on[CursorsRequest] = lambda _: CursorsReply(rows)
        yield replica


def make_narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """As a terminal of this width."""
    for name, value in (("FORCE_COLOR", "1"), ("COLUMNS", str(columns)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)


def columns_of(text: str) -> list[str]:
    """What stands in each column, its lines joined."""
    rows = [line.strip("│┃").replace("┃", "│").split("│") for line in text.splitlines()]
    rows = [[cell.strip() for cell in row] for row in rows if len(row) > 1]
    return ["".join(cells) for cells in zip(*rows, strict=True)]


def test_a_pipe_has_no_width(
    replica: FakeReplica, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in (("session", "list"), ("cursor", "list")):
        assert run(*command) == 0
        assert sum(NAME in line for line in capfd.readouterr().out.splitlines()) == 1
    replica.on[VerifyRequest] = lambda _: VerifyReply(3, 3, 255, 3, 100, 3, b"[]")
    assert run("verify") == 0
    assert capfd.readouterr().out.splitlines()[-1] == "chains are equal up to LSN 3"


@pytest.mark.parametrize("columns", [60, 80])
def test_a_narrow_terminal_has_everything_on_more_lines(
    replica: FakeReplica,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    columns: int,
) -> None:
    make_narrow(monkeypatch, columns)
    assert run("session", "list") == 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", capfd.readouterr().out)
    assert max(map(len, said.splitlines())) <= columns
    found = columns_of(said)
    assert found[0] == f"producer id{ID}", "on a line of its own it can be copied"
    assert found[2] == f"name{NAME}"
    assert found[-1].replace(" ", "") == "lastused2001-09-0901:46:40Z"
