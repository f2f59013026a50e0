"""Lines go in by the command line or a raw client and come back byte for byte, from every replica.

The raw client was written from PROTOCOL.md alone; what it can do, any language can. With
LOGSTORE_EXTRA_INPUT the lines of every *.log file below that folder are used, else shipped ones.
"""

from __future__ import annotations

import ast
import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from logstore.cli.embedded import EmbeddedCluster
from tests.cluster.one_cluster import run_cli, running_cluster
from tests.cluster.raw_client import CONTROL, RawClient, RawProducer
from tests.cluster.raw_messages import Refused

HERE = Path(__file__).parent
SHIPPED = HERE / "data"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with running_cluster(tmp_path_factory.mktemp("raw")) as running:
        yield running


@pytest.fixture
def raw(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    """Knows the last endpoint only."""
    with RawClient(cluster.endpoints[-1]) as client:
        yield client


@pytest.fixture
def files(say: Callable[[str], None]) -> list[Path]:
    """What is sent; said in the output, so that nobody takes one for the other."""
    extra = os.environ.get("LOGSTORE_EXTRA_INPUT", "")
    folder = Path(extra) if extra else SHIPPED
    found = sorted(folder.rglob("*.log"))
    assert found, f"no *.log below {folder}"
    words = "LOGSTORE_EXTRA_INPUT" if extra else "shipped input, LOGSTORE_EXTRA_INPUT is not set"
    say(f"{len(found)} files, {words}")
    return found


def lines_of(path: Path) -> list[bytes]:
    """What stands between two line feeds; an unterminated last line counts."""
    lines = path.read_bytes().split(b"\n")
    return lines if lines[-1] else lines[:-1]


def append_all(producer: RawProducer, batches: list[list[bytes]]) -> tuple[int, int]:
    """Push with a window of batches; first and last LSN, which leave no gap between batches."""
    lsn = first_lsn = 0
    for number, batch in enumerate(batches):
        producer.append(batch)
        while len(producer.batches) >= min(producer.window, 8):
            producer.next_rows()
        if number == len(batches) // 2:
            producer.connect(producer.client.leader())  # a new round, with batches in flight
    for sequence, batch in enumerate(batches):
        row = producer.wait_acknowledged(sequence)
        assert row.count == len(batch)
        first_lsn = first_lsn or row.first_lsn
        assert lsn in (0, row.first_lsn), "another producer's payloads in between"
        lsn = row.first_lsn + row.count
    assert not producer.refused
    return first_lsn, lsn - 1


def cut(lines: list[bytes]) -> list[list[bytes]]:
    """Batches of 1, 2, 4, … 256 lines, again and again."""
    rest = iter(lines)
    batches = []
    while batch := list(islice(rest, 1 << len(batches) % 9)):
        batches.append(batch)
    return batches


def test_the_raw_client_imports_nothing_of_ours() -> None:
    allowed = {"__future__", "collections", "crc32c", "itertools", "json", "struct", "time", "zmq"}
    allowed |= {"typing", "tests"}
    for name in ("raw_client.py", "raw_messages.py"):
        for node in ast.walk(ast.parse((HERE / name).read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= allowed
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] in allowed
                assert node.module in ("tests.cluster.raw_messages",) or "tests" not in str(
                    node.module
                )


@pytest.mark.long
@pytest.mark.promise("P2")
def test_lines_come_back_byte_for_byte_by_the_command_line_and_by_the_raw_client(
    cluster: EmbeddedCluster, raw: RawClient, files: list[Path]
) -> None:
    expected: list[bytes] = []
    first_lsn = 0
    for number, path in enumerate(files):
        batch = ("--batch", str(1 + 50 * number)) if number % 2 else ()
        done = run_cli(cluster, "produce", str(path), *batch, "--json", "-")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        lines = lines_of(path)
        assert report["payloads"] == len(lines)
        first_lsn = first_lsn or report["first_lsn"]
        expected += lines
        assert report["last_lsn"] == first_lsn + len(expected) - 1
    last_lsn = first_lsn + len(expected) - 1
    written = b"".join(line + b"\n" for line in expected)
    for node in cluster.nodes:
        done = run_cli(
            cluster, "consume", "--replica", str(node), "--from", str(first_lsn), "--to",
            str(last_lsn),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout == written, f"node {node} gives other bytes"
        assert raw.read(node, first_lsn, last_lsn) == expected


def test_the_raw_client_appends_and_reads_from_every_replica(
    cluster: EmbeddedCluster, raw: RawClient, files: list[Path]
) -> None:
    tails = {node: raw.tail(node) for node in cluster.nodes}
    lines = lines_of(files[0])
    producer = raw.open_session()
    assert (producer.producer_epoch, producer.next_sequence) == (1, 0)
    first_lsn, last_lsn = append_all(producer, cut(lines))
    producer.close()
    assert last_lsn - first_lsn + 1 == len(lines)
    for node, tail in tails.items():
        assert raw.read(node, first_lsn, last_lsn) == lines
        followed = list(tail.follow(last_lsn))
        assert followed[-len(lines) :] == lines
        assert tail.from_feed + tail.from_fetch == last_lsn - tail.welcome_lsn


def test_a_group_above_256_kib_is_a_notice_on_the_tail_and_is_fetched(
    cluster: EmbeddedCluster, raw: RawClient
) -> None:
    """SAFETY V8, with the 3 MiB line that must work."""
    tail = raw.tail(2)
    line = bytes(range(256)) * 4 * 3 * 1024
    producer = raw.open_session()
    row = producer.wait_acknowledged(producer.append([b"", line, b""]))
    producer.close()
    assert list(tail.follow(row.first_lsn + 2))[-3:] == [b"", line, b""]
    assert tail.from_fetch >= 3


@pytest.mark.promise("P7")
def test_the_raw_client_appends_across_changes_of_leader_as_the_document_says(
    cluster: EmbeddedCluster, raw: RawClient
) -> None:
    """Each append meets a node that has just handed over: refused or without news, then in a new
    round; whatever became of it, it is there once."""
    producer = raw.open_session()
    rows = []
    for number in range(3):
        before = producer.round
        raw.ask(raw.leader(), CONTROL, 70, struct.pack("<I", 0))
        rows.append(producer.wait_acknowledged(producer.append([f"round {number}".encode()])))
        assert producer.round > before
    producer.close()
    assert sorted({row.first_lsn for row in rows}) == [row.first_lsn for row in rows]
    for number, row in enumerate(rows):
        assert raw.read(1, row.first_lsn, row.first_lsn) == [f"round {number}".encode()]


def test_the_raw_client_appends_where_it_expects_the_log_to_end_or_nowhere(
    raw: RawClient,
) -> None:
    """SAFETY E11. A new log is at its level once every replica was heard: 25 before."""
    producer = raw.open_session(name=b"a raw comparer", mode=2)
    batch = producer.encode([b"compared"], 7)
    code, attempt = 25, 0
    while code == 25:
        attempt += 1
        producer.push_expecting(batch, 1 << 40, attempt=attempt)
        ((sequence, named, _, code, next_lsn),) = producer.next_rows()
    assert (sequence, named, code) == (7, attempt, 27)
    batch = producer.encode([b"decided again"], 7)
    producer.push_expecting(batch, next_lsn, attempt=attempt)  # a copy, for all the leader knows
    producer.push_expecting(batch, next_lsn, attempt=attempt + 1)
    assert producer.next_rows() == [(7, next_lsn, 1, 0, 0)]
    assert raw.read(raw.leader(), next_lsn, next_lsn) == [b"decided again"]
    producer.close()


def test_a_follower_answers_reads_and_sends_writers_to_the_leader(
    cluster: EmbeddedCluster, raw: RawClient
) -> None:
    leader = raw.leader()
    follower = next(node for node in cluster.nodes if node != leader)
    producer = raw.open_session()
    with pytest.raises(Refused) as refused:
        producer.connect(follower)
    assert (refused.value.code, refused.value.leader) == (1, leader)
    with pytest.raises(Refused) as refused:
        raw.fetch(follower, 1, is_linearizable=True)
    assert refused.value.code == 1
    assert raw.fetch(leader, 1, is_linearizable=True).visible_lsn >= 1


def test_the_python_of_the_readme_runs_as_it_stands_and_again(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after the commands above it, which set a cursor."""
    text = (HERE.parents[1] / "README.md").read_text()
    (code,) = re.findall(r"## In Python\n\n```python\n(.*?)```", text, re.DOTALL)
    assert run_cli(cluster, "cursor", "set", "archive", "1", "--hold").returncode == 0
    for _ in range(2):
        exec(code.replace("127.0.0.1:7100", cluster.endpoints[0]), {})
        assert "b'together'" in capsys.readouterr().out
