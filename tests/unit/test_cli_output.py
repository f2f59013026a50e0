"""How a command ends: a reader that has enough, a full disk, SIGTERM; and times of `--from`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from logstore.cli.consume import start_at
from logstore.cli.main import main
from logstore.client.core.start import TIMESTAMP_MAX_NS, AtTime
from logstore.errors import InvalidRequest, OutOfRange
from logstore.format.client_messages import (
    FetchRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TimeLookupRequest,
    VerifyReply,
    VerifyRequest,
)
from tests.unit.cli_stage import kept_process_settings
from tests.unit.client_stage import Cluster, FakeReplica

WAIT_S = 30.0


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        played = cluster.replicas[1]
        played.on[StatusRequest] = lambda _: StatusReply(b'{"role": "leader"}')
        yield played


def run_into(stdout: int, *arguments: str) -> tuple[int, bytes]:
    """A command in a process of its own whose stdout is this descriptor; its status and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "logstore.cli.main", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["status"], ["status", "--json", "-"], ["consume"]])
def test_a_reader_that_has_enough_is_no_error(replica: FakeReplica, command: list[str]) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_into(writer, *command) == (0, b"")
    finally:
        os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["verify"], ["verify", "--json", "-"]])
def test_a_reader_that_has_enough_does_not_make_a_bad_answer_a_good_one(
    replica: FakeReplica, command: list[str]
) -> None:
    faulty = b'[{"first_lsn": 2, "last_lsn": 2, "reason": "bad CRC"}]'
    replica.on[VerifyRequest] = lambda _: VerifyReply(3, 3, 255, 3, 100, 3, faulty)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_into(writer, *command) == (5, b"")
    finally:
        os.close(writer)


@pytest.mark.slow
def test_damage_of_a_file_has_its_status_where_the_reader_has_enough(tmp_path: Path) -> None:
    meta = tmp_path / "meta.a"
    meta.write_bytes(bytes(4_096))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert run_into(writer, "inspect", "meta", str(meta)) == (5, b"")
    finally:
        os.close(writer)


@pytest.mark.slow
def test_produce_fails_also_where_its_report_has_no_reader(
    replica: FakeReplica, tmp_path: Path
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"ok\n" + bytes(2 << 20))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        status, said = run_into(writer, "produce", str(source), "--json", "-")
    finally:
        os.close(writer)
    assert status == 4
    assert b"line 2 is longer" in said
    assert b"1 payloads are acknowledged, LSN 1 to 1" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", [["status"], ["status", "--json", "-"], ["consume"]])
def test_output_that_cannot_be_written_is_an_error_and_status_1(
    replica: FakeReplica, command: list[str]
) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    with open("/dev/full", "wb") as full:
        status, said = run_into(full.fileno(), *command)
    assert status == 1
    assert said == b"error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", [["status", "--json", "-"], ["consume"]])
def test_a_closed_stdout_is_an_error_in_a_line_and_status_1(
    replica: FakeReplica,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    monkeypatch.setattr(sys, "stdout", None)
    assert main(command) == 1
    assert capsys.readouterr().err.endswith("stdout is closed\n")


@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_sigterm_ends_consume_with_143(replica: FakeReplica, options: list[str]) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    replica.on[FetchRequest] = lambda _: os.kill(os.getpid(), signal.SIGTERM)
    assert main(["consume", *options]) == 143


@pytest.mark.parametrize("options", [[], ["--follow"]])
def test_ctrl_c_ends_consume_with_130(replica: FakeReplica, options: list[str]) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    replica.on[FetchRequest] = lambda _: os.kill(os.getpid(), signal.SIGINT)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["consume", *options]) == 130
    finally:
        signal.signal(signal.SIGINT, before)


def test_sigterm_ends_produce_with_143_and_it_says_how_far_it_came(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"one\ntwo\n")

    def stop_at_the_second(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        if sequence == 0:
            replica.acknowledge(round_number, sequence, payloads)
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    replica.on_push = stop_at_the_second
    assert main(["produce", str(source), "--batch", "1", "--timeout", "0.3"]) == 143
    said = capfd.readouterr().err
    assert "ended by SIGTERM" in said
    assert "1 payloads are acknowledged, LSN 1 to 1" in said


def test_a_time_after_the_newest_stamp_gives_nothing_and_one_that_cannot_be_is_refused(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.call(lambda: replica.append_to_log([b"x"]))
    replica.on[TimeLookupRequest] = lambda _: TimeLookupReply(2)
    assert main(["consume", "--from", "2554-01-01"]) == 0
    assert capfd.readouterr().out == ""
    for time in ("2555-01-01", "9999-12-31T23:59:59"):
        assert main(["consume", "--from", time]) == 4
        assert "stamps end in July 2554" in capfd.readouterr().err


def test_a_time_before_1970_is_before_every_payload() -> None:
    assert start_at(datetime(1960, 1, 1)) == AtTime(0)
    assert start_at(datetime(1, 1, 1)) == AtTime(0)
    assert start_at(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC)) == AtTime(1_000_005_000)
    with pytest.raises(OutOfRange):
        start_at(datetime(9999, 12, 31, 23, 59, 59))


def test_the_library_refuses_a_time_that_no_stamp_can_have() -> None:
    assert AtTime(TIMESTAMP_MAX_NS).request() == TimeLookupRequest(TIMESTAMP_MAX_NS)
    for stamp_ns in (-1, TIMESTAMP_MAX_NS + 1):
        with pytest.raises(InvalidRequest, match="before 1970, or after July 2554"):
            AtTime(stamp_ns).request()
