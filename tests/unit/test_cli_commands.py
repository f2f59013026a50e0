"""The commands against a played replica: bytes in, bytes out, exit statuses."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.simulation.faults.script import FaultClass
from logstore.cli.main import COMMANDS
from logstore.cli.options import DEFAULT_ENDPOINTS
from logstore.cli.pipeline.pipeline import PIPELINES
from logstore.client import names
from logstore.config import load_config
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    OpenSessionRequest,
    SessionStateRequest,
    SetCursorRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TimeLookupRequest,
    TransferRequest,
    VerifyReply,
    VerifyRequest,
)
from tests.unit.cli_stage import kept_process_settings, run
from tests.unit.client_stage import Cluster, FakeReplica

REPOSITORY = Path(__file__).parents[2]
ODD_LINES = b"one\r\n\n\xff\xfe\0\nlast"


@pytest.fixture(autouse=True)
def _process_settings() -> Iterator[None]:
    with kept_process_settings():
        yield


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeReplica]:
    with Cluster() as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        yield cluster.replicas[1]


def pushed(replica: FakeReplica) -> list[list[bytes]]:
    return [replica.pushed.get_nowait()[2] for _ in range(replica.pushed.qsize())]


@pytest.mark.slow
def test_every_command_can_be_imported_and_says_what_it_does() -> None:
    for name in COMMANDS:
        assert run(name, "--help") == 0


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_without_spark_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run("pipeline", name, "somewhere") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'pyspark>=4.2' pyarrow" in said
    assert run("pipeline", name, "somewhere", "--unknown", "5") == 2
    assert "pip install 'pyspark>=4.2' pyarrow" in capsys.readouterr().err
    assert run("pipeline", name, "--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert PIPELINES[name][2] in said
    assert "pip install 'pyspark>=4.2' pyarrow" in said


def test_the_default_endpoints_are_those_of_the_shipped_configuration() -> None:
    """With node 1's only, no command found a cluster whose node 1 was down."""
    nodes = load_config(REPOSITORY / "configs/cluster-3.toml").nodes
    assert ",".join(f"{each.host}:{each.port}" for each in nodes) == DEFAULT_ENDPOINTS


def test_lines_go_in_and_come_out_unchanged(
    replica: FakeReplica, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(ODD_LINES)
    assert run("produce", source) == 0
    assert b"4 payloads committed" in capfdbinary.readouterr().err
    assert [line for batch in pushed(replica) for line in batch] == [
        b"one\r",
        b"",
        b"\xff\xfe\0",
        b"last",
    ]
    assert run("consume") == 0
    assert capfdbinary.readouterr().out == ODD_LINES + b"\n"
    assert run("consume", "--raw") == 0
    assert capfdbinary.readouterr().out == ODD_LINES.replace(b"\n", b"")


def test_stdin_is_read_and_an_empty_one_appends_nothing(
    replica: FakeReplica, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report"
    for content, count in [(b"", 0), (b"x\ny\n", 2)]:
        stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("produce", "-", "--json", report) == 0
        assert json.loads(report.read_bytes())["payloads"] == count
    assert pushed(replica) in ([[b"x", b"y"]], [[b"x"], [b"y"]])


class _FailingFile(io.RawIOBase):
    """A file whose second part the disk refuses to read."""

    name = "<stdin>"

    def __init__(self) -> None:
        self.parts = [b"x\ny\n"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        if not self.parts:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        part = self.parts.pop()
        buffer[: len(part)] = part
        return len(part)


def test_input_that_cannot_be_read_is_named_and_what_was_acknowledged_is_said(
    replica: FakeReplica,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    report = tmp_path / "report"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(_FailingFile())))
    assert run("produce", "-", "--json", report) == 2
    said = capfd.readouterr().err
    assert "error: <stdin> cannot be read: Input/output error" in said
    assert "2 payloads are acknowledged, LSN 1 to 2" in said
    assert json.loads(report.read_bytes())["payloads"] == 2


def test_batches_have_the_size_asked_for(replica: FakeReplica, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(5)))
    assert run("produce", source, "--batch", "2") == 0
    assert pushed(replica) == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


def test_a_line_above_the_limit_is_refused_and_named(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"ok\n" + bytes(2 << 20))
    assert run("produce", source) == 4
    assert "line 2 is longer" in capfd.readouterr().err


def test_a_batch_above_the_limit_is_refused(replica: FakeReplica, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"x" * 300_000 + b"\n" + b"y" * 900_000 + b"\n")
    assert run("produce", source, "--batch", "2") == 4
    assert pushed(replica) == []


def test_a_fenced_producer_says_how_far_it_came(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fence_the_third(round_number: int, sequence: int, payloads: list[bytes]) -> None:
        if sequence < 2:
            replica.acknowledge(round_number, sequence, payloads)
        elif sequence == 2:
            replica.on[SessionStateRequest] = lambda _: ErrorReply(ErrorCode.FENCED, 0, 2, 0, b"")
            replica.send_acks(round_number, [(sequence, 0, 1, int(ErrorCode.FENCED), 0)])

    replica.on_push = fence_the_third
    source = tmp_path / "lines"
    source.write_bytes(b"".join(b"%d\n" % n for n in range(40)))
    assert run("produce", source, "--batch", "10") == 4
    said = capfd.readouterr().err
    assert "newer producer epoch" in said
    assert "20 payloads are acknowledged, LSN 1 to 20; the other 20 may or may not" in said


def test_ranges_end_where_they_are_told(
    replica: FakeReplica, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    replica.call(lambda: replica.append_to_log([b"%d" % n for n in range(1, 8)]))
    asked: list[int] = []
    replica.on[TimeLookupRequest] = lambda request: (
        asked.append(request.timestamp_ns) or TimeLookupReply(6)
    )
    for arguments, expected in [
        (["--from", "3", "--to", "5"], b"3\n4\n5\n"),
        (["--from", "7"], b"7\n"),
        (["--from", "8"], b""),
        (["--from", "latest"], b""),
        (["--from", "1970-01-01T00:00:01+00:00"], b"6\n7\n"),
        (["--from", "6", "--to", "7", "--follow"], b"6\n7\n"),
    ]:
        assert run("consume", *arguments) == 0
        assert capfdbinary.readouterr().out == expected
    assert asked == [10**9]


def test_json_lines_carry_lsn_time_and_payload(replica: FakeReplica, tmp_path: Path) -> None:
    replica.call(lambda: replica.append_to_log([b"text", b"\xff"]))
    target = tmp_path / "rows"
    assert run("consume", "--json", target) == 0
    assert [json.loads(line) for line in target.read_text().splitlines()] == [
        {"lsn": 1, "timestamp_ns": 1_000, "payload": "text"},
        {"lsn": 2, "timestamp_ns": 1_000, "payload_base64": "/w=="},
    ]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["consume", "--from", "soon"], 2),
        (["consume", "--from", "0"], 2),
        (["consume", "--from", "5", "--to", "4"], 2),
        (["consume", "--replica", "9"], 2),
        (["consume", "--raw", "--json", "-"], 2),
        (["consume", "--from", "9"], 4),
        (["produce", "/no/such/file"], 2),
        (["status", "--endpoint", "nowhere"], 2),
        (["nonsense"], 2),
        (["transfer", "0"], 2),
        (["inspect", "meta", "/no/such/file"], 2),
    ],
)
def test_exit_statuses_of_bad_requests(
    replica: FakeReplica, arguments: list[str], status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == status
    assert capfd.readouterr().err


def test_what_is_no_number_is_said_in_plain_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("cursor", "set", "tap", "abc") == 2
    assert "'abc' is not a valid integer." in capfd.readouterr().err
    assert run("status", "--timeout", "abc") == 2
    assert "'abc' is not a valid number." in capfd.readouterr().err


def test_options_say_what_they_take(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("session", "end", "--help") == 0
    assert "itsproducerid,as`logstoresessionlist`" in "".join(capfd.readouterr().out.split())
    assert run("simulate", "--help") == 0
    said = "".join(capfd.readouterr().out.split())
    assert [each.value for each in FaultClass if each.value not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", [["status"], ["verify"], ["transfer"], ["consume"], ["init"]])
def test_without_a_cluster_the_exit_status_is_3(command: list[str]) -> None:
    assert run(*command, "--endpoint", "127.0.0.1:9", "--timeout", "0.1") == 3


def test_an_unknown_host_is_named_and_the_exit_status_is_3(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def look_up(host: bytes, *_: object) -> None:
        if host != b"127.0.0.1":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(names.socket, "getaddrinfo", look_up)
    endpoints = "127.0.0.1:9,no-such-host.invalid:7100"
    assert run("status", "--endpoint", endpoints, "--timeout", "0.1") == 3
    said = capfd.readouterr().err
    assert "unknown to this machine: no-such-host.invalid (Name or service not known)" in said
    assert said.count("\n") == 1


def test_status_prints_a_table_or_json(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = {"role": "leader", "term": 2, "visible_lsn": 9, "log_start_lsn": 1, "pid": 77}
    replica.on[StatusRequest] = lambda _: StatusReply(json.dumps(document).encode())
    assert run("status") == 0
    assert "node 1 leads in term 2, LSN 1 to 9 committed" in capfd.readouterr().out
    target = tmp_path / "status"
    assert run("status", "--json", target) == 0
    found = json.loads(target.read_bytes())
    assert (found["leader"], found["nodes"][0]["pid"]) == (1, 77)
    replica.on[StatusRequest] = lambda _: StatusReply(b'{"role": "follower"}')
    assert run("status") == 3


def test_verify_fails_on_damage(replica: FakeReplica, capfd: pytest.CaptureFixture[str]) -> None:
    replica.on[VerifyRequest] = lambda _: VerifyReply(3, 3, 255, 3, 100, 3, b"[]")
    assert run("verify") == 0
    assert "equal up to LSN 3" in capfd.readouterr().out
    faulty = b'[{"first_lsn": 2, "last_lsn": 2, "reason": "bad CRC"}]'
    replica.on[VerifyRequest] = lambda _: VerifyReply(3, 3, 255, 3, 100, 3, faulty)
    assert run("verify") == 5
    assert "LSN 2 to 2 (bad CRC)" in capfd.readouterr().out


def test_verify_counts_nothing_of_a_replica_that_could_not_be_read(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    replica.on[VerifyRequest] = lambda _: ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"not yet")
    assert run("verify", "--timeout", "0.1") == 3
    said = capfd.readouterr().out
    assert "no chain was compared; not compared: node 1" in said
    assert "0000" not in said


def test_verify_says_that_one_chain_alone_is_compared_with_none(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster(nodes=2) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        cluster.replicas[1].on[VerifyRequest] = lambda _: VerifyReply(3, 3, 255, 3, 100, 3, b"[]")
        cluster.replicas[2].stop()
        assert run("verify", "--timeout", "0.2") == 3
    said = capfd.readouterr().out
    assert "one chain, up to LSN 3, and none to compare it with; not compared: node 2" in said


def test_a_digest_is_a_line_that_equal_logs_share(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("digest") == 4, "an empty log"
    for number in range(4):
        replica.append_to_log([b"%d" % number, b"x"])
    assert run("digest") == 0
    first, words = capfd.readouterr().out.strip().split(" ", 1)
    assert len(first) == 64
    assert words.startswith("LSN 1 to 8, 4 batches, 8 payloads, ")
    assert run("digest", "--from", "3", "--to", "6", "--node", "1", "--json", "-") == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["first_lsn"], found["last_lsn"], found["batches"]) == (3, 6, 2)
    assert found["digest"] != first
    assert run("digest", "--from", "9") == 4
    assert "LSN 9 is not committed: the log holds LSN 1 to 8" in capfd.readouterr().err
    assert run("digest", "--from", "3", "--to", "2") == 2
    assert run("digest", "--to", "0") == 2


def test_a_refused_transfer_has_status_4(replica: FakeReplica) -> None:
    refusal = ErrorReply(ErrorCode.TRANSFER_FAILED, 0, 0, 0, b"no other voter")
    replica.on[TransferRequest] = lambda _: refusal
    assert run("transfer") == 4
    replica.on[StatusRequest] = lambda _: StatusReply(b'{"role": "leader"}')
    assert run("transfer", "1") == 0


def test_a_transfer_that_cannot_hold_says_why(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    for facts, words in [
        ({"is_disk_full": True}, "its disk is full: free some space, or trim the log"),
        ({"faulty": [{"first_lsn": 3, "last_lsn": 4}]}, "damaged: LSN 3 to 4"),
        ({}, ""),
    ]:
        document = json.dumps({"role": "leader", **facts}).encode()
        replica.on[StatusRequest] = lambda _, document=document: StatusReply(document)
        assert run("transfer", "1") == 0
        said = capfd.readouterr().err
        assert said.startswith("node 1 leads\n")
        assert (f"node 1 will not lead for long: {words}" in said) == bool(words)


def test_damaged_files_have_status_5(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    garbage = tmp_path / "meta.a"
    garbage.write_bytes(b"garbage" * 200)
    assert run("inspect", "meta", garbage) == 5
    assert run("inspect", "segment", garbage) == 2
    assert "no segment file" in capfd.readouterr().err
    other = garbage.rename(tmp_path / "notes")
    assert run("inspect", "meta", other) == 2
    assert "is no META file: their names are meta.a and meta.b" in capfd.readouterr().err
    assert run("inspect", "counters", other) == 2
    assert "is no counters file" in capfd.readouterr().err
    gone = tmp_path / "counters"
    gone.symlink_to(f"/proc/{2**22 + 1}/fd/9")
    assert run("inspect", "counters", gone) == 2
    assert "its replica does not run" in capfd.readouterr().err


@pytest.mark.parametrize("option", ["--script", "--trace"])
def test_a_replay_whose_file_is_bad_says_so_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    bad = tmp_path / "bad"
    bad.write_text("{")
    path = bad if option == "--script" else tmp_path / "no" / "folder"
    replay = [] if option == "--script" else ["--replay", "1"]
    assert run("simulate", *replay, option, path) == 2
    said = capfd.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_produce_says_what_the_replicas_say_is_wrong(
    replica: FakeReplica, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"one\n")
    full = b'{"role":"leader","term":1,"is_disk_full":true}'
    replica.on[StatusRequest] = lambda _: StatusReply(full)
    replica.on_push = lambda *_: None
    assert run("produce", source, "--timeout", "0.2") == 3
    assert "node 1: its disk is full: free some space" in capfd.readouterr().err
    not_ready = ErrorReply(ErrorCode.NOT_READY, 0, 0, 0, b"this leader is not ready yet")
    replica.on[OpenSessionRequest] = lambda _: not_ready
    assert run("produce", source, "--timeout", "0.2") == 3
    said = capfd.readouterr().err
    assert "not ready yet; node 1: its disk is full: free some space" in said


def test_produce_without_a_leader_says_who_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"one\n")
    with Cluster(nodes=3) as cluster:
        monkeypatch.setenv("LOGSTORE_ENDPOINT", cluster.endpoint)
        cluster.leader = 0
        follower = StatusReply(b'{"role":"follower","term":1}')
        cluster.replicas[1].on[StatusRequest] = lambda _: follower
        cluster.replicas[2].stop()
        cluster.replicas[3].stop()
        assert run("produce", source, "--timeout", "0.5") == 3
    said = capfd.readouterr().err
    assert "leads; nodes without an answer: 2, 3 (a leader needs 2 of 3)\n" in said


def test_a_replica_that_is_named_and_silent_is_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Cluster(nodes=2) as cluster:
        cluster.replicas[2].stop()
        to_one = ["--endpoint", cluster.endpoint, "--timeout", "0.2"]
        assert run("consume", "--replica", "2", "--to", "1", *to_one) == 3
        assert "error: node 2 does not answer: " in capfd.readouterr().err
        cluster.leader = 0
        assert run("consume", *to_one) == 3
        assert "--to LSN reads up to there from any replica" in capfd.readouterr().err


def test_names_with_control_characters_are_shown_escaped(
    replica: FakeReplica, capfd: pytest.CaptureFixture[str]
) -> None:
    """FAULTS X13."""
    replica.on[SetCursorRequest] = lambda _: DoneReply(0)
    assert run("cursor", "set", "a\x1b[31m\nb", "9") == 0
    said = capfd.readouterr().err.splitlines()
    assert said == [
        r"a\x1b[31m\nb stands at LSN 9, a new cursor",
        "LSN 9 is not in the log yet, which ends at 0",
    ]
