"""The command line and a log that was trimmed: what is gone is refused by name (SAFETY G3, G6)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from logstore.cli.main import main
from logstore.format.client_messages import (
    DoneReply,
    FetchRequest,
    SetCursorRequest,
)
from tests.unit.cli_stage import kept_process_settings
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    """LSNs 1 to 5, one a batch; its log is trimmed by the test."""
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        played = cluster.replicas[1]
        played.call(lambda: [played.append_to_log([b"%d" % n]) for n in range(1, 6)] and None)
        yield played


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


def run(*arguments: str) -> int:
    return main([*arguments, "--timeout", "2"])


def test_what_lies_below_the_log_start_is_refused_with_what_to_do(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.trim(4)
    for follow in ((), ("--follow",)):
        assert run("consume", "--from", "2", "--to", "5", *follow) == 4
        said = capfd.readouterr()
        assert said.out == ""
        assert "LSN 2 lies below the log start, LSN 4; the log holds LSN 4 to 5" in said.err
    starts, ends = ("1", "earliest", "2020-01-01T00:00:00+00:00"), ("2", "3")
    for start, end in itertools.product(starts, ends):
        assert run("consume", "--from", start, "--to", end) == 4
        said = capfd.readouterr()
        below = f"LSN {end} lies below the log start, LSN 4; the log holds LSN 4 to 5"
        assert below in said.err
        assert "committed" not in said.err
    assert run("digest", "--from", "1") == 4
    assert "LSN 1 lies below the log start" in capfd.readouterr().err
    assert run("consume", "--from", "earliest") == 0
    assert capfd.readouterr().out == "4\n5\n"


def test_the_earliest_payload_is_read_though_the_log_start_rises_meanwhile(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:

    def fetch(request: FetchRequest) -> object:
        replica.trim(3)
        return replica.fetch(request)

    replica.on[FetchRequest] = fetch
    assert run("consume", "--from", "earliest") == 0
    assert capfd.readouterr().out == "3\n4\n5\n"


def test_a_cursor_below_the_log_start_is_said_to_be_there(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.trim(4)
    replica.on[SetCursorRequest] = lambda _: DoneReply(0)
    assert run("cursor", "set", "late", "2") == 0
    said = capfd.readouterr().err.splitlines()
    assert said[1:] == ["LSN 2 is not in the log any more, which begins at 4"]
