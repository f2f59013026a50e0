"""The worked example of PROTOCOL.md, byte for byte: shipped actors answer it as it says, and who
reads or writes by that document alone comes to the same bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.cluster import raw_messages
from tests.unit.actor_stage import CLUSTER
from tests.unit.egress_stage import EgressStage
from tests.unit.ingress_stage import Stage
from transport import link

TEXT = (Path(__file__).parents[2] / "PROTOCOL.md").read_text()
SECTION = TEXT.partition("### A worked example")[2].partition("\n### ")[0].partition("\n## ")[0]
BYTES = re.compile(r"^ *\d+ ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)
BLOCKS = [
    bytes.fromhex("".join(BYTES.findall(block)))
    for block in re.findall(r"```\n(.*?)```", SECTION, re.DOTALL)
]
OPEN, OPENED, PUSH, ACKS, FETCH, FETCHED, PIECES = range(7)
PRODUCER_ID = 1_001


@pytest.fixture
def ingress() -> Stage:
    """The leader of term 1, whose log has its no-op."""
    stage = Stage()
    stage.lead()
    return stage


@pytest.fixture
def egress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EgressStage]:
    """The same log: the no-op, the OPEN (as empty), and the batch."""
    stage = EgressStage(tmp_path, monkeypatch)
    stage.log.persist_bodies([b""], count=0)
    stage.log.persist_bodies([b""], count=0)
    stage.log.persist_bodies([BLOCKS[PUSH][8:]], count=2)
    stage.log.settle()
    stage.show()
    yield stage
    stage.close()


def test_the_example_has_seven_blocks_of_bytes() -> None:
    assert len(BLOCKS) == 7
    assert all(BLOCKS)
    lines = [line for line in SECTION.splitlines() if re.match(r" *\d+ [0-9a-f]{2} ", line)]
    assert len(lines) == len(BYTES.findall(SECTION)), "a line of bytes that is not read"


def test_every_line_of_bytes_says_where_it_stands() -> None:
    for block in re.findall(r"```\n(.*?)```", SECTION, re.DOTALL):
        position = 0
        for line in block.splitlines():
            number, data = re.match(r" *(\d+) ((?:[0-9a-f]{2} ?)+)", line).groups()
            assert int(number) == position, line
            position += len(data.split())


def test_a_leader_answers_as_the_example_says(ingress: Stage) -> None:
    client = ingress.client()
    client.send(BLOCKS[OPEN])
    ingress.accept_and_commit()
    assert link.try_receive(client.socket) == [BLOCKS[OPENED]]
    feed = ingress.subscribe(PRODUCER_ID)
    assert len(feed.read()) == 1  # the Welcome
    assert link.try_send(ingress.network.connect(zmq.PUSH, "append"), [BLOCKS[PUSH]])
    ingress.work()
    ingress.accept_and_commit()
    assert link.try_receive(feed.socket) == [PRODUCER_ID.to_bytes(8, "little"), BLOCKS[ACKS]]


def test_a_replica_serves_as_the_example_says(egress: EgressStage) -> None:
    client = egress.client()
    assert link.try_send(client.socket, [BLOCKS[FETCH]])
    egress.work()
    assert link.try_receive(client.socket) == [BLOCKS[FETCHED], BLOCKS[PIECES]]


def test_whoever_writes_by_the_document_alone_sends_these_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw_messages.time, "time_ns", lambda: 10**18)
    encode = raw_messages.encode_message
    opening = struct.pack("<QIII", 0, 1, 1, 64)
    assert encode(66, opening, cluster_id=CLUSTER, correlation=1) == BLOCKS[OPEN]
    batch = raw_messages.encode_batch(
        [b"hello", b"world"], producer_id=PRODUCER_ID, producer_epoch=1, sequence=0
    )
    assert raw_messages.APPEND_PREFIX.pack(b"LA", 1, 1) + batch == BLOCKS[PUSH]
    body = struct.pack("<QQQIIB", 1, 2, 2, 1 << 20, 1_000, 0)
    assert encode(160, body, cluster_id=CLUSTER, correlation=3) == BLOCKS[FETCH]


def test_whoever_reads_by_the_document_alone_finds_what_it_says() -> None:
    opened = raw_messages.decode_message([BLOCKS[OPENED]])
    assert (opened.type, opened.cluster_id, opened.correlation) == (67, CLUSTER, 1)
    assert struct.unpack("<QIIQQQ", opened.body)[:3] == (PRODUCER_ID, 1, 64)
    acks = raw_messages.decode_message([BLOCKS[ACKS]])
    assert (acks.type, struct.unpack_from("<QII", acks.body)) == (128, (PRODUCER_ID, 1, 1))
    assert raw_messages.ACK_ROW.unpack(acks.body[16:]) == (0, 1, 2, 0, 0)
    fetched = raw_messages.decode_message([BLOCKS[FETCHED], BLOCKS[PIECES]])
    assert (fetched.type, struct.unpack("<QQQI", fetched.body)) == (161, (1, 2, 3, 1))
    assert list(raw_messages.decode_pieces(fetched.more)) == [(1, b"hello"), (2, b"world")]
