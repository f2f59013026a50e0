"""`logstore produce`: the longest line there may be, and a stdin that is closed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logstore.client.future import BATCH_OVERHEAD_BYTES, PAYLOAD_OVERHEAD_BYTES
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster, FakeReplica


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with kept_process_settings(), Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield cluster.replicas[1]


@pytest.mark.parametrize("options", [[], ["--batch", "1"]])
def test_a_line_may_be_as_long_as_a_payload_of_the_library(
    replica: FakeReplica,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    longest = (1 << 20) - BATCH_OVERHEAD_BYTES - PAYLOAD_OVERHEAD_BYTES
    source = tmp_path / "lines"
    source.write_bytes(bytes(longest) + b"\n")
    assert run("produce", source, *options) == 0
    assert [len(each) for each in replica.pushed.get_nowait()[2]] == [longest]
    source.write_bytes(bytes(longest + 1))
    assert run("produce", source, *options) == 4
    assert f"line 1 is longer than a payload may be, {longest} bytes" in capfd.readouterr().err


def test_a_closed_stdin_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    for arguments in ([], ["-"]):
        assert run("produce", *arguments) == 2
        assert "stdin is closed: name a file" in capfd.readouterr().err
