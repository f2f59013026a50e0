"""The command line against real replicas: what a line is, where reading begins and ends, and the
exit statuses that a script relies on.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import logstore
from logstore.cli.embedded import EmbeddedCluster, poll_until
from logstore.config_layout import process_of
from logstore.errors import UnknownProducer
from logstore.limits import MIB
from tests.cluster.one_cluster import CLI_PATIENCE_S, run_cli, running_cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("cli")) as running:
        yield running


def produce(cluster: EmbeddedCluster, data: bytes, *options: str) -> tuple[int, int]:
    """Append the lines of `data` from stdin; first and last LSN (0, 0: none)."""
    done = run_cli(cluster, "produce", "-", *options, "--json", "-", stdin=data)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] is None
    return report["first_lsn"] or 0, report["last_lsn"] or 0


def consume(cluster: EmbeddedCluster, *options: str) -> bytes:
    done = run_cli(cluster, "consume", *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def span(lsns: tuple[int, int]) -> tuple[str, ...]:
    return "--from", str(lsns[0]), "--to", str(lsns[1])


# --- lines ---


@pytest.mark.long
def test_a_line_is_what_stands_between_two_line_feeds(cluster: EmbeddedCluster) -> None:
    lines = [b"first", b"", b"", b"carriage return\r", b"\r", b"\x00\xff", b"no line feed here"]
    lsns = produce(cluster, b"\n".join(lines))
    assert lsns[1] - lsns[0] + 1 == len(lines)
    assert consume(cluster, *span(lsns), "--replica", "2") == b"\n".join(lines) + b"\n"
    assert consume(cluster, *span(lsns), "--raw") == b"".join(lines)
    rows = [json.loads(row) for row in consume(cluster, *span(lsns), "--json", "-").splitlines()]
    assert [row["lsn"] for row in rows] == list(range(lsns[0], lsns[1] + 1))
    payloads = [
        row["payload"].encode() if "payload" in row else base64.b64decode(row["payload_base64"])
        for row in rows
    ]
    assert payloads == lines
    assert "payload_base64" in rows[5]


@pytest.mark.long
def test_a_3_mib_line_goes_through_and_a_longer_one_than_a_batch_is_refused(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    line = bytes(range(11, 256)) * (3 * MIB // 245)
    lsns = produce(cluster, b"short\n" + line + b"\nshort again\n")
    assert consume(cluster, *span(lsns), "--replica", "3") == (
        b"short\n" + line + b"\nshort again\n"
    )
    giant = tmp_path / "giant"
    giant.write_bytes(b"fine\n" + b"x" * (5 * MIB) + b"\n")
    done = run_cli(cluster, "produce", str(giant))
    assert done.returncode == 4
    assert b"line 2 is longer than a payload may be" in done.stderr


@pytest.mark.long
def test_an_empty_input_appends_nothing(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    done = run_cli(cluster, "produce", str(empty), "--json", str(tmp_path / "report"))
    assert done.returncode == 0
    assert json.loads((tmp_path / "report").read_bytes())["payloads"] == 0
    lsns = produce(cluster, b"\n")
    assert lsns[0] == lsns[1], "a lone line feed ends one empty line"


def test_batches_hold_as_many_lines_as_asked_for(cluster: EmbeddedCluster) -> None:
    first_lsn, last_lsn = produce(cluster, b"\n".join([b"x"] * 7), "--batch", "3")
    with logstore.connect(cluster.endpoints) as log:
        batches = [
            (batch.first_lsn - first_lsn, len(batch.payloads()))
            for batch in log.read(first_lsn, last_lsn, min_lsn=last_lsn)
        ]
    assert batches == [(0, 3), (3, 3), (6, 1)]


# --- where reading begins and ends ---


@pytest.mark.long
def test_reading_begins_and_ends_where_it_is_told(cluster: EmbeddedCluster) -> None:
    produce(cluster, b"before\n")
    time_between = datetime.now(UTC)
    first_lsn, last_lsn = produce(cluster, b"one\ntwo\nthree\n")
    assert consume(cluster, "--from", time_between.isoformat()) == b"one\ntwo\nthree\n"
    assert consume(cluster, "--from", str(first_lsn + 1), "--to", str(last_lsn)) == b"two\nthree\n"
    assert consume(cluster, "--from", str(last_lsn)) == b"three\n"
    assert consume(cluster, "--from", str(last_lsn + 1)) == b""
    assert consume(cluster, "--from", "latest") == b""
    everything = consume(cluster, "--from", "earliest")
    assert everything == consume(cluster)
    assert everything.endswith(b"before\none\ntwo\nthree\n")


@pytest.mark.long
def test_follow_goes_on_until_it_is_told_to_stop(cluster: EmbeddedCluster) -> None:
    first_lsn, _ = produce(cluster, b"already there\n")
    follower = subprocess.Popen(
        [sys.executable, "-m", "logstore.cli.main", "consume", "--follow", "--from",
         str(first_lsn), "--replica", "3", "--endpoint", cluster.endpoints[1]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert follower.stdout is not None
        assert read_until(follower.stdout.fileno(), b"already there\n")
        produce(cluster, b"comes later\nand later still")
        assert read_until(follower.stdout.fileno(), b"comes later\nand later still\n")
        follower.send_signal(signal.SIGTERM)
        rest, errors = follower.communicate(timeout=CLI_PATIENCE_S)
        assert (follower.returncode, rest, errors) == (143, b"", b"")
    finally:
        follower.kill()
        follower.communicate()


@pytest.mark.long
def test_a_cursor_goes_on_where_the_last_command_ended(cluster: EmbeddedCluster) -> None:
    first_lsn, _ = produce(cluster, b"1\n2\n3\n")
    cursor = ("--cursor", "print", "--from", str(first_lsn))
    assert consume(cluster, *cursor, "--to", str(first_lsn + 1)) == b"1\n2\n"
    assert consume(cluster, *cursor) == b"3\n"
    assert consume(cluster, *cursor) == b""
    first_lsn, _ = produce(cluster, b"4\n5\n")
    follower = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-m", "logstore.cli.main", "consume", "--follow",
         *cursor, "--endpoint", cluster.endpoints[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert follower.stdout is not None
        assert read_until(follower.stdout.fileno(), b"4\n5\n")
        # A signal just after the write may leave the cursor behind it: at least once.
        with logstore.connect(cluster.endpoints) as client:
            moved = logstore.Cursor("print", first_lsn + 2, False)
            assert poll_until(lambda: moved in client.admin.cursors(), CLI_PATIENCE_S)
        follower.send_signal(signal.SIGINT)
        assert exit_status(follower) == 130
    finally:
        follower.kill()
        follower.communicate()
    assert consume(cluster, *cursor) == b""


@pytest.mark.long
def test_what_was_not_written_is_not_committed(cluster: EmbeddedCluster) -> None:
    first_lsn, _ = produce(cluster, b"".join(b"line %d\n" % number for number in range(100_000)))
    cursor = ("--cursor", "broken", "--from", str(first_lsn))
    command = [sys.executable, "-m", "logstore.cli.main", "consume", *cursor, "--endpoint",
               cluster.endpoints[0]]  # fmt: skip
    broken = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert broken.stdout is not None
    assert broken.stdout.readline() == b"line 0\n"
    broken.stdout.close()
    broken.wait(CLI_PATIENCE_S)
    assert consume(cluster, *cursor).startswith(b"line 0\n")


def exit_status(process: subprocess.Popen[bytes]) -> int:
    """Waited for; a process that does not end says where it stands, and fails the test."""
    try:
        return process.wait(CLI_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, errors = process.communicate()
        pytest.fail(f"it did not end:\n{errors.decode()}")


def read_until(descriptor: int, wanted: bytes) -> bool:
    """Whether exactly these bytes come, waited for."""
    received = b""
    deadline = time.monotonic() + CLI_PATIENCE_S
    while len(received) < len(wanted):
        ready, _, _ = select.select([descriptor], [], [], deadline - time.monotonic())
        if not ready:
            return False
        received += os.read(descriptor, len(wanted) - len(received))
    return received == wanted


# --- exit statuses ---


@pytest.mark.parametrize(
    ("status", "words", "arguments"),
    [
        (2, b"No such option", ["status", "--loud"]),
        (2, b"LSNs begin at 1", ["consume", "--from", "0"]),
        (2, b"give an LSN", ["consume", "--from", "yesterday"]),
        (2, b"lies before", ["consume", "--from", "5", "--to", "4"]),
        (2, b"no node 9", ["consume", "--replica", "9"]),
        (2, b"no node 9", ["transfer", "9"]),
        (2, b"is not in the range", ["produce", "--batch", "0"]),
        (2, b"HOST:PORT", ["status", "--endpoint", "nowhere"]),
        (3, b"127.0.0.1:9", ["status", "--endpoint", "127.0.0.1:9", "--timeout", "0.3"]),
        (3, b"127.0.0.1:9", ["produce", "--endpoint", "127.0.0.1:9", "--timeout", "0.3"]),
        (4, b"is not committed", ["consume", "--from", "1000000000"]),
        (4, b"is not committed", ["consume", "--to", "1000000000", "--timeout", "0.5"]),
    ],
)
def test_what_cannot_be_done_has_its_exit_status_and_one_clear_line(
    cluster: EmbeddedCluster, status: int, words: bytes, arguments: list[str]
) -> None:
    done = run_cli(cluster, *arguments)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


@pytest.mark.long
def test_what_can_be_done_has_status_0(cluster: EmbeddedCluster) -> None:
    produce(cluster, b"something\n")
    done = run_cli(cluster, "status", "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["leader"] in cluster.nodes
    assert found["commit_lsn"] >= found["log_start_lsn"] == 1
    for row in found["nodes"]:
        assert row["role"] == ("leader" if row["node"] == found["leader"] else "follower")
        assert row["faulty"] == []
        processes = cluster.processes(row["node"])
        assert (
            row["pid"]
            == processes["supervisor"]
            == os.getpgid(cluster.pid_of(row["node"], "writer"))
        )
        assert {name: each["pid"] for name, each in row["processes"].items()} == processes
    done = run_cli(cluster, "verify", "--json", "-")
    assert done.returncode == 0, done.stderr
    verified = json.loads(done.stdout)
    assert verified["is_good"]
    target = found["leader"] % 3 + 1
    done = run_cli(cluster, "transfer", str(target), "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"leader": target}


@pytest.mark.long
def test_sessions_are_listed_and_ended_whoever_leads(cluster: EmbeddedCluster) -> None:
    options = logstore.ProducerOptions(name="query", mode=logstore.SequenceMode.MONOTONE)
    with logstore.connect(cluster.endpoints) as client, client.producer(options) as producer:
        producer.append_batch([b"x"], sequence=41).result(30)
        client.admin.transfer()
        listed = json.loads(run_cli(cluster, "session", "list", "--json", "-").stdout)["sessions"]
        (found,) = [each for each in listed if each["name"] == "query"]
        assert found["producer_id"] == str(producer.session.producer_id)
        assert found["next_sequence"] == 42
        assert abs(found["last_used_ns"] / 1e9 - time.time()) < 60
        assert run_cli(cluster, "session", "end", "query").returncode == 0
        with pytest.raises(UnknownProducer):
            producer.append_batch([b"y"], sequence=42).result(30)
        assert run_cli(cluster, "session", "end", "query").returncode == 1
        with client.producer(options) as again:
            assert again.session.next_sequence == 0


@pytest.mark.long
def test_inspect_reads_the_files_of_a_stopped_node_and_sees_damage(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    lsns = produce(cluster, b"to be inspected\n" * 5, "--batch", "5")
    node = next(each for each in cluster.nodes if each != cluster.leader())
    cluster.wait_until_visible(node, lsns[1])
    counters = run_cli(None, "inspect", "counters", str(cluster.node_folder(node) / "counters"))
    assert counters.returncode == 0, counters.stderr
    process = process_of(cluster.layout(node), "writer")
    assert f"{process}.pid {cluster.pid_of(node, 'writer')}\n".encode() in counters.stdout
    assert cluster.stop(node)
    folder = cluster.node_folder(node)
    raft = max(folder.glob("*.raft"), key=lambda path: path.stat().st_mtime_ns)
    try:
        meta = run_cli(None, "inspect", "meta", str(folder / "meta.a"), "--json", "-")
        assert (meta.returncode, json.loads(meta.stdout)["node"]) == (0, node)
        data = raft.with_suffix(".data")
        for path, role in ((data, "DATA"), (raft, "RAFT")):
            header = run_cli(None, "inspect", "segment", str(path), "--json", "-")
            assert (header.returncode, json.loads(header.stdout)["role"]) == (0, role)
            shown = run_cli(None, "inspect", "record", str(path))
            assert shown.returncode == 0, shown.stderr
            rows = [json.loads(row) for row in shown.stdout.splitlines()]
            assert lsns[0] in [row["first_lsn"] for row in rows if row["count"] == 5]
        damaged = tmp_path / data.name
        damaged.write_bytes(data.read_bytes().replace(b"to be inspected", b"to be inspecteD", 1))
        shown = run_cli(None, "inspect", "record", str(damaged))
        assert shown.returncode == 5
        assert [row for row in map(json.loads, shown.stdout.splitlines()) if row["fault"]]
        headless = tmp_path / "meta.a"
        headless.write_bytes(bytes(512))
        assert run_cli(None, "inspect", "meta", str(headless)).returncode == 5
        assert run_cli(None, "inspect", "meta", str(tmp_path / "nothing")).returncode == 2
    finally:
        cluster.start(node)
